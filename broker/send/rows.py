"""Sends, replies and send-backs: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import consume, publish
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import ConsumerSendMsgBackRequestHeader

__all__ = ["ROWS"]

_C: Final = RequestCode
_SEND: Final = (
    "producerGroup:S topic:S* defaultTopic:S defaultTopicQueueNums:I queueId:I* sysFlag:I* "
    "bornTimestamp:L* flag:I properties:S reconsumeTimes:I unitMode:B maxReconsumeTimes:I batch:B"
)
_SEND_V2: Final = "a:S b:S* c:S d:I e:I* f:I* g:L* h:I i:S j:I k:B l:I m:B n:S"
_SENT: Final = "msgId queueId queueOffset transactionId recallHandle MSG_REGION TRACE_ON"

ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.SEND_MESSAGE,
        "send.handle",
        fields=_SEND,
        answer=_SENT,
        body="the message",
        needs=publish("topic"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.SEND_MESSAGE_V2,
        "send.handle",
        fields=_SEND_V2,
        answer=_SENT,
        body="the message",
        needs=publish("b"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.SEND_BATCH_MESSAGE,
        "send.handle",
        fields=_SEND_V2,
        answer=_SENT,
        body="the messages, batch encoding",
        needs=publish("b"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.SEND_REPLY_MESSAGE,
        "reply.handle",
        leader=True,
        fields=_SEND,
        answer=_SENT,
        body="the reply",
        needs=publish("topic"),
    ),
    Row(
        _C.SEND_REPLY_MESSAGE_V2,
        "reply.handle",
        leader=True,
        fields=_SEND_V2,
        answer=_SENT,
        body="the reply",
        needs=publish("b"),
    ),
    Row(
        _C.CONSUMER_SEND_MSG_BACK,
        "send_back.handle",
        header=ConsumerSendMsgBackRequestHeader,
        leader=True,
        needs=consume(group="group", stored=True),
        forwarded=Forwarded.FOR_OTHERS,
    ),
)
