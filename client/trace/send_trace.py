"""The trace record of a sent message; pure.

Place in the data path: `client.produce.producer` makes one per successful send and adds it to its
`client.trace.tracer`. Failures are not traced, as in RocketMQ.

Source: RocketMQ SendMessageTraceHookImpl.
"""

from __future__ import annotations

from client.message import Message, PropertyName, SendResult, SendStatus
from client.trace.codec import MessageKind, TraceSend

__all__ = ["send_trace"]


def send_trace(
    group: str, message: Message, result: SendResult, *, is_half: bool, cost_ms: int, wall_ms: int
) -> TraceSend:
    """Make the record; `wall_ms` is the send's end. For a batch, `message` is the first one."""
    is_delayed = PropertyName.DELAY in message.properties
    kind = MessageKind.DELAY if is_delayed else MessageKind.NORMAL
    return TraceSend(
        time_ms=wall_ms - cost_ms,
        region=result.region,
        group=group,
        topic=message.topic,
        msg_id=result.msg_id,
        tags=message.tags,
        keys=message.keys,
        store_host=result.address,
        body_size=len(message.body),
        cost_ms=cost_ms,
        kind=MessageKind.HALF if is_half else kind,
        offset_msg_id=result.offset_msg_id,
        is_success=result.status is SendStatus.SEND_OK,
    )
