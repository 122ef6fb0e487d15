"""Handles of popped messages, as the drills of POP write them by themselves.

Place in the data path: `drill_pops` makes them of the fields of a pop's answer; what a broker reads
there is thereby not what the same code wrote. Pure.

Source: RocketMQ ExtraInfoUtil, BatchAckMessageRequestBody.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from client.message import MessageQueue
from remoting.protocol.command import RemotingCommand

__all__ = ["Handle", "ack_body"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What a pop's answer says of one message that it shows."""

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    broker_name: str
    queue_id: int

    @classmethod
    def of_pop(cls, answer: RemotingCommand, offset: int, queue: MessageQueue) -> Self:
        """Make that of a message at `offset`, of an answer that was as expected."""
        fields = answer.ext_fields
        return cls(
            start=int(fields["startOffsetInfo"].split(" ")[2]),
            pop_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
        )

    @classmethod
    def of_change(cls, answer: RemotingCommand, before: Self) -> Self:
        """Make the one that a change put in place of `before`."""
        fields = answer.ext_fields
        return replace(
            before,
            pop_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
        )

    def text(self, offset: int) -> str:
        """Write the receipt of the message at `offset`."""
        parts = (
            self.start,
            self.pop_ms,
            self.invisible_ms,
            self.revive_queue,
            0,
            self.broker_name,
            self.queue_id,
            offset,
        )
        return " ".join(map(str, parts))


def ack_body(queue: MessageQueue, group: str, pairs: Sequence[tuple[int, Handle]]) -> bytes:
    """Write the body of an acknowledgement of messages of one pop. `pairs` are not empty."""
    handle = pairs[0][1]
    start = min(offset for offset, _ in pairs)
    bits = sum(1 << (offset - start) for offset, _ in pairs)
    size = (bits.bit_length() + 7) // 8
    ack = {
        "c": group,
        "t": queue.topic,
        "r": "0",
        "so": start,
        "q": queue.queue_id,
        "rq": handle.revive_queue,
        "pt": handle.pop_ms,
        "it": handle.invisible_ms,
        "b": base64.b64encode(bits.to_bytes(size, "little")).decode(),
    }
    return json.dumps({"brokerName": queue.broker_name, "acks": [ack]}).encode()
