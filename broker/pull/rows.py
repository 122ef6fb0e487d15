"""Pulls, offsets and queries about queues: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import READ, SIGNATURE, consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode

__all__ = ["ROWS"]

_C: Final = RequestCode
_PULL: Final = (
    "consumerGroup:S* topic:S* queueId:I* queueOffset:L* maxMsgNums:I* sysFlag:I* commitOffset:L "
    "suspendTimeoutMillis:L subVersion:L subscription:S expressionType:S maxMsgBytes:I"
)
_PULLED: Final = "suggestWhichBrokerId nextBeginOffset minOffset maxOffset"
_QUEUE: Final = "topic:S* queueId:I*"

ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.PULL_MESSAGE,
        "pull.handle",
        fields=_PULL,
        answer=_PULLED,
        body="answer: records",
        needs=READ,
    ),
    Row(
        _C.LITE_PULL_MESSAGE,
        "pull.handle",
        fields=_PULL,
        answer=_PULLED,
        body="answer: records",
        needs=READ,
    ),
    Row(
        _C.QUERY_CONSUMER_OFFSET,
        "offsets.query",
        fields=f"consumerGroup:S* {_QUEUE} setZeroIfNotFound:B",
        answer="offset",
        needs=READ,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.UPDATE_CONSUMER_OFFSET,
        "offsets.update",
        fields=f"consumerGroup:S* {_QUEUE} commitOffset:L*",
        needs=READ,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_MAX_OFFSET,
        "offsets.maximum",
        fields=f"{_QUEUE} committed:B",
        answer="offset",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
        by_clients=True,
    ),
    Row(
        _C.GET_MIN_OFFSET,
        "offsets.minimum",
        fields=_QUEUE,
        answer="offset",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
        by_clients=True,
    ),
    Row(
        _C.SEARCH_OFFSET_BY_TIMESTAMP,
        "queries.search_offset",
        fields=f"{_QUEUE} timestamp:L* boundaryType:S",
        answer="offset",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
        by_clients=True,
    ),
    Row(
        _C.GET_EARLIEST_MSG_STORETIME,
        "queries.earliest_store_time",
        fields=_QUEUE,
        answer="timestamp",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
        by_clients=True,
    ),
    Row(
        _C.VIEW_MESSAGE_BY_ID,
        "queries.view_message",
        fields="offset:L* topic:S",
        body="answer: record",
        needs=consume(topic="topic", stored=True),
    ),
)
