"""Pulls, offsets and queries about queues: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import READ, SIGNATURE, consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode
_PULLED: Final = "suggestWhichBrokerId nextBeginOffset minOffset maxOffset"

# What a consumer at work has to know of its queues.
_question = partial(Row, needs=SIGNATURE, forwarded=Forwarded.FOR_OTHERS, by_clients=True)

ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.PULL_MESSAGE,
        "pull.handle",
        header=PullMessageRequestHeader,
        answer=_PULLED,
        body="answer: records",
        needs=READ,
    ),
    Row(
        _C.LITE_PULL_MESSAGE,
        "pull.handle",
        header=PullMessageRequestHeader,
        answer=_PULLED,
        body="answer: records",
        needs=READ,
    ),
    Row(
        _C.QUERY_CONSUMER_OFFSET,
        "offsets.query",
        header=QueryConsumerOffsetRequestHeader,
        answer="offset",
        needs=READ,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.UPDATE_CONSUMER_OFFSET,
        "offsets.update",
        header=UpdateConsumerOffsetRequestHeader,
        needs=READ,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    _question(
        _C.GET_MAX_OFFSET, "offsets.maximum", header=GetMaxOffsetRequestHeader, answer="offset"
    ),
    _question(
        _C.GET_MIN_OFFSET, "offsets.minimum", header=GetMinOffsetRequestHeader, answer="offset"
    ),
    _question(
        _C.SEARCH_OFFSET_BY_TIMESTAMP,
        "queries.search_offset",
        header=SearchOffsetRequestHeader,
        answer="offset",
    ),
    _question(
        _C.GET_EARLIEST_MSG_STORETIME,
        "queries.earliest_store_time",
        header=GetMinOffsetRequestHeader,
        answer="timestamp",
    ),
    Row(
        _C.VIEW_MESSAGE_BY_ID,
        "queries.view_message",
        header=ViewMessageRequestHeader,
        body="answer: record",
        needs=consume(topic="topic", stored=True),
    ),
)
