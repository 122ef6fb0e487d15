"""What POP's commands say of each message: who is handed it, acknowledges it, or changes its time.

Place in the data path: `verify.export.messages.log_rows` makes a row of the table `log` of each,
and `verify.export.payload_defects` asks whether a command is as drawn. Pure.

Invariant: the rows of a command come in the order in which it names its messages; a command that
names none has none here.

Source: docs/FORMATS.md section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["HOLDING_COMMANDS", "HoldingRow", "holding_rows"]

HOLDING_COMMANDS: Final = frozenset({"pop", "pop_order", "ack", "ack_order", "invisible"})
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class HoldingRow(NamedTuple):
    """One message of one command. `kind` is that of the table `log`."""

    kind: str
    client_group: str
    topic: str
    queue: int
    queue_offset: int


def holding_rows(command: Sequence[Any]) -> list[HoldingRow] | None:
    """Return a row per message that a command of `HOLDING_COMMANDS` names; None where its fields
    are not as drawn."""
    match command:
        case ["pop", str(group), str(topic), queue, int(), int(), int(), int(), list(offsets), *_]:
            kind = "pop"
        case [
            "pop_order", str(group), str(topic), queue, int(), int(), int(), int(), str(),
            list(offsets), *_,
        ]:  # fmt: skip
            kind = "pop"
        case ["ack", str(group), str(topic), queue, list(rows), *_]:
            kind = "ack"
            if not all(isinstance(row, list) and row for row in rows):
                return None
            offsets = [row[0] for row in rows]
        case ["ack_order", str(group), str(topic), queue, offset, int(), *_]:
            kind, offsets = "ack", [offset]
        case ["invisible", str(group), str(topic), queue, offset, int(), int(), int(), *_]:
            kind, offsets = "change", [offset]
        case _:
            return None
    if not _is_within(queue, _INT32_MIN, _INT32_MAX):
        return None
    if not all(_is_within(offset, _INT64_MIN, _INT64_MAX) for offset in offsets):
        return None
    return [HoldingRow(kind, group, topic, queue, offset) for offset in offsets]


def _is_within(number: object, low: int, high: int) -> bool:
    return isinstance(number, int) and low <= number <= high
