"""Pops, acknowledgements, peeks, assignments: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import ACKS, ADMINISTRATOR, ASSIGNMENT, HELD, READ, SIGNATURE
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode

# Answered by the ready leader, to whom a follower forwards it.
_by_leader = partial(Row, leader=True, forwarded=Forwarded.FOR_OTHERS)

ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.POP_MESSAGE,
        "pop.handle",
        header=PopMessageRequestHeader,
        leader=True,
        answer="popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo "
        "orderCountInfo",
        body="answer: records",
        needs=READ,
    ),
    _by_leader(
        _C.ACK_MESSAGE,
        "pop_ack.ack",
        header=AckMessageRequestHeader,
        needs=HELD,
    ),
    _by_leader(
        _C.BATCH_ACK_MESSAGE,
        "pop_ack.batch_ack",
        body="BatchAckMessageRequestBody",
        needs=ACKS,
    ),
    _by_leader(
        _C.CHANGE_MESSAGE_INVISIBLETIME,
        "pop_ack.change",
        header=ChangeInvisibleTimeRequestHeader,
        answer="popTime invisibleTime reviveQid",
        needs=HELD,
    ),
    _by_leader(
        _C.PEEK_MESSAGE,
        "pop_peek.peek",
        header=PeekMessageRequestHeader,
        answer="popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo",
        body="answer: records",
        needs=READ,
    ),
    Row(
        _C.NOTIFICATION,
        "pop_peek.notification",
        header=NotificationRequestHeader,
        leader=True,
        answer="hasMsg pollingFull",
        needs=READ,
    ),
    Row(
        _C.POLLING_INFO,
        "pop_peek.polling_info",
        header=PollingInfoRequestHeader,
        answer="pollingNum",
        needs=SIGNATURE,
        by_clients=True,
    ),
    Row(
        _C.QUERY_ASSIGNMENT,
        "assignment.query",
        body="QueryAssignmentRequestBody; messageQueueAssignments",
        needs=ASSIGNMENT,
    ),
    _by_leader(
        _C.SET_MESSAGE_REQUEST_MODE,
        "assignment.set_mode",
        body="SetMessageRequestModeRequestBody",
        needs=ADMINISTRATOR,
    ),
)
