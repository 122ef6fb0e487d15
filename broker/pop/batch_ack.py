"""The offsets of a BATCH_ACK_MESSAGE: of those whose bits it sets, those that are held.

Place in the data path: `broker.pop.pop_ack` adds each row of a request and proposes what
comes out. A row of some bytes may set thousands of bits; what is not held needs no command, since
an acknowledgement of it changes nothing. Pure.

Invariants: at most as many offsets come out as are held of the queues that the request names; the
work is bounded by the bits that it sets and by what is held, whichever is less.
Source: RocketMQ BatchAck (a java.util.BitSet: bit n of byte m is offset start + 8 m + n).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.entry.pop_commands import AckCommand, AckOrderCommand
from broker.state.pop_state import PopState, QueueKey

__all__ = ["BITS_SIZE_MAX", "BatchAcks"]

BITS_SIZE_MAX: Final = 512  # bytes
_BLOCK: Final = 8 * BITS_SIZE_MAX  # a row reaches into the next one at most
_MASK: Final = (1 << _BLOCK) - 1

_Blocks = dict[int, int]  # number of the block -> its bits


class BatchAcks:
    """Offsets that one request acknowledges, by queue and pop time."""

    def __init__(self) -> None:
        self._rows: dict[QueueKey, dict[int, _Blocks]] = {}  # by pop time
        self._ordered: dict[QueueKey, dict[int, _Blocks]] = {}

    def add(self, key: QueueKey, pop_ms: int, start: int, bits: bytes, *, is_order: bool) -> None:
        """Add the offsets from `start` on whose bits are set."""
        assert len(bits) <= BITS_SIZE_MAX
        rows = self._ordered if is_order else self._rows
        blocks = rows.setdefault(key, {}).setdefault(pop_ms, {})
        block, shift = divmod(start, _BLOCK)
        value = int.from_bytes(bits, "little") << shift
        for number, part in ((block, value & _MASK), (block + 1, value >> _BLOCK)):
            if part:
                blocks[number] = blocks.get(number, 0) | part

    def plain(self, state: PopState) -> list[AckCommand]:
        """Build a command for each queue of which an offset is held; offsets ascend."""
        commands: list[AckCommand] = []
        for key, by_time in self._rows.items():
            held = state.held_offsets(key)
            if sum(bits.bit_count() for one in by_time.values() for bits in one.values()) < len(
                held
            ):
                wanted = ((at, pop_ms) for pop_ms, one in by_time.items() for at in _set_in(one))
                rows = [
                    [at, pop_ms]
                    for at, pop_ms in wanted
                    if at in held and held[at].pop_ms == pop_ms
                ]
            else:
                rows = [
                    [at, holding.pop_ms]
                    for at, holding in held.items()
                    if _has(by_time.get(holding.pop_ms), at)
                ]
            if rows:
                commands.append(AckCommand(*key, sorted(rows)))
        return commands

    def ordered(self, state: PopState) -> list[AckOrderCommand]:
        """Build a command for each offset that is held in order."""
        commands: list[AckOrderCommand] = []
        for key, by_time in self._ordered.items():
            held = state.orders.get(key)
            if held is not None:
                commands += [
                    AckOrderCommand(*key, at, held.pop_ms)
                    for at in held.offsets
                    if _has(by_time.get(held.pop_ms), at)
                ]
        return commands

    def ordered_queues(self) -> list[QueueKey]:
        """Return the queues of which offsets are acknowledged in order."""
        return list(self._ordered)


def _has(blocks: _Blocks | None, offset: int) -> bool:
    if blocks is None:
        return False
    return bool(blocks.get(offset // _BLOCK, 0) >> offset % _BLOCK & 1)


def _set_in(blocks: _Blocks) -> Iterator[int]:
    for number, bits in blocks.items():
        left = bits
        while left:
            lowest = left & -left
            yield number * _BLOCK + lowest.bit_length() - 1
            left ^= lowest
