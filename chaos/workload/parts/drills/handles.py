"""Handles of popped messages, as the drills of POP write them by themselves.

Place in the data path: `pops` makes them of the fields of a pop's answer; what a broker reads there
is thereby not what the same code wrote. Pure.

Source: RocketMQ ExtraInfoUtil, BatchAckMessageRequestBody.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from client.message import MessageQueue
from remoting.protocol.command import RemotingCommand

__all__ = ["Handle", "ack_body"]

ENTRY: Final = 10  # offsets that an entry may reach over


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

    def text(self, offset: int, *, is_short: bool = False) -> str:
        """Write the receipt of the message at `offset`; a short one has no offset itself, as older
        clients write it where the request has a field for it."""
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
        return " ".join(map(str, parts[:-1] if is_short else parts))


def ack_body(
    queue: MessageQueue,
    group: str,
    pairs: Sequence[tuple[int, Handle]],
    *,
    reach: int = ENTRY,
    from_start: bool = False,
) -> bytes:
    """Write the body of an acknowledgement of messages, an entry for each pop that they are of, and
    for each `reach` of its offsets; with `from_start` one for each pop, whose bits begin where the
    pop did, as RocketMQ's clients write it."""
    entries: dict[tuple[Handle, int], set[int]] = {}
    for offset, handle in pairs:
        number = 0 if from_start else offset // reach
        entries.setdefault((handle, number), set()).add(offset)
    acks = [
        _ack(queue, group, handle, handle.start if from_start else min(offsets), offsets)
        for (handle, _), offsets in entries.items()
    ]
    return json.dumps({"brokerName": queue.broker_name, "acks": acks}).encode()


def _ack(
    queue: MessageQueue, group: str, handle: Handle, start: int, offsets: Collection[int]
) -> dict[str, object]:
    assert start <= min(offsets)
    bits = sum(1 << (offset - start) for offset in offsets)
    size = (bits.bit_length() + 7) // 8
    return {
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
