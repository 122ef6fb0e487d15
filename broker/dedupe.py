"""The dedupe window: which UNIQ_KEY is stored already, and where.

Place in the data path: `broker.state_machine` adds the keys of every committed run; the leader's
`broker.proposer` asks before it stores a message. Replicated: every replica applies the same runs
at the same store timestamps, so a new leader knows what the old one had stored.

Bounded twice: by time (`window_ms` behind the newest store timestamp) and by count. Keys are held
in generations; a whole generation leaves at once. Of an evicted generation the 64-bit hashes of
its keys stay for a good while longer, so that a retry which comes too late is told from a message
never seen: it is EXPIRED and refused, not stored a second time (promise G2). Hashes are of this
process only; no two replicas need to agree on them. What was born before even the hashes begin is
refused as well, since nothing here can tell any more.

Invariants: no key is in two generations; a key whose record was stored within the window and the
count is found; time never goes back.
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

__all__ = ["DedupeWindow", "Verdict"]

_GENERATION_KEYS_MAX = 32_768
_GENERATIONS_PER_WINDOW = 8
_EPOCHS_MAX = 2
_FILTER_BITS = 1 << 24  # 2 MiB; at half a million keys one question in thirty goes on to bisect
_FILTER_MASK = _FILTER_BITS - 1


class Verdict(enum.Enum):
    NEW = "new"
    STORED = "stored"
    EXPIRED = "expired"


@dataclass(slots=True)
class _Generation:
    first_ms: int
    last_ms: int
    positions: dict[str, int]  # key -> position of the record in the log


class _Epoch:
    """Keys that have left: sorted hashes of whole generations behind one bit filter.

    The filter answers nearly every question about a key that never was here. An epoch is dropped
    as a whole, so nothing is ever taken out of the filter.
    """

    __slots__ = ("_filter", "_hashes", "count", "last_ms")

    def __init__(self) -> None:
        self._filter = bytearray(_FILTER_BITS >> 3)
        self._hashes: list[array[int]] = []
        self.count = 0
        self.last_ms = 0

    def add(self, generation: _Generation) -> None:
        hashes = array("q", sorted(map(hash, generation.positions)))
        bits = self._filter
        for hashed in hashes:
            bit = hashed & _FILTER_MASK
            bits[bit >> 3] |= 1 << (bit & 7)
        self._hashes.append(hashes)
        self.count += len(hashes)
        self.last_ms = max(self.last_ms, generation.last_ms)

    def __contains__(self, hashed: int) -> bool:
        bit = hashed & _FILTER_MASK
        if not self._filter[bit >> 3] & (1 << (bit & 7)):
            return False
        for hashes in self._hashes:
            at = bisect_left(hashes, hashed)
            if at < len(hashes) and hashes[at] == hashed:
                return True
        return False


class DedupeWindow:
    def __init__(self, *, window_ms: int, keys_max: int, evicted_keys_max: int) -> None:
        if window_ms <= 0 or keys_max <= 0 or evicted_keys_max < 0:
            raise ValueError("dedupe window: window_ms and keys_max must be above 0")
        self._window_ms = window_ms
        self._generation_ms = max(1, window_ms // _GENERATIONS_PER_WINDOW)
        self._generation_keys = max(1, min(_GENERATION_KEYS_MAX, keys_max // 4))
        self._keys_max = keys_max
        self._epoch_keys_max = max(1, evicted_keys_max // 2)
        self._generations: deque[_Generation] = deque()  # newest first
        self._epochs: list[_Epoch] = []  # oldest first, at most two
        self._count = 0
        self._memory_floor_ms = 0  # newest store timestamp whose hash is gone as well

    def __len__(self) -> int:
        return self._count

    @property
    def window_ms(self) -> int:
        return self._window_ms

    def find(self, key: str) -> int | None:
        """Position of the record stored with this key, if it is in the window."""
        for generation in self._generations:
            position = generation.positions.get(key)
            if position is not None:
                return position
        return None

    def judge(self, key: str, *, born_ms: int, now_ms: int) -> Verdict:
        """What to do with a message that carries `key`.

        `born_ms`: the message's bornTimestamp. `now_ms`: the leader's clock.
        """
        for generation in self._generations:
            if key in generation.positions:
                in_window = generation.last_ms >= now_ms - self._window_ms
                return Verdict.STORED if in_window else Verdict.EXPIRED
        if self._epochs:
            hashed = hash(key)
            for epoch in self._epochs:
                if hashed in epoch:
                    return Verdict.EXPIRED
        return Verdict.EXPIRED if self._is_forgotten(born_ms) else Verdict.NEW

    def knows_none(self, keys: Collection[str], *, born_ms: int) -> bool:
        """True where `judge` would call every one of `keys` new; a quick way for batches."""
        if self._epochs:
            hashes = [hash(key) for key in keys]
            for epoch in self._epochs:
                if any(hashed in epoch for hashed in hashes):
                    return False
        return not self._is_forgotten(born_ms) and all(
            generation.positions.keys().isdisjoint(keys) for generation in self._generations
        )

    def _is_forgotten(self, born_ms: int) -> bool:
        """Whether a message so old may have been stored before all that is remembered here."""
        return self._memory_floor_ms > 0 and born_ms <= self._memory_floor_ms

    def add(self, keys: Sequence[str | None], positions: Iterable[int], stored_ms: int) -> None:
        """Keys of committed records, with their positions, in log order. None has no key."""
        current = self._generations[0] if self._generations else None
        if (
            current is None
            or stored_ms - current.first_ms >= self._generation_ms
            or len(current.positions) + len(keys) > self._generation_keys
        ):
            current = _Generation(stored_ms, stored_ms, {})
            self._generations.appendleft(current)
        before = len(current.positions)
        placed = zip(keys, positions, strict=True)
        current.positions.update(
            ((key, position) for key, position in placed if key is not None)
            if None in keys
            else cast("Iterable[tuple[str, int]]", placed)  # the quick way: no key is None
        )
        current.last_ms = max(current.last_ms, stored_ms)
        self._count += len(current.positions) - before
        self.advance(stored_ms)

    def advance(self, now_ms: int) -> None:
        """Evict what is behind the window at `now_ms`, a committed store timestamp."""
        generations = self._generations
        while generations and (
            generations[-1].last_ms < now_ms - self._window_ms
            or (self._count > self._keys_max and len(generations) > 1)
        ):
            self._evict(generations.pop())

    def _evict(self, generation: _Generation) -> None:
        self._count -= len(generation.positions)
        assert self._count >= 0
        if not self._epochs or self._epochs[-1].count >= self._epoch_keys_max:
            self._epochs.append(_Epoch())
        if len(self._epochs) > _EPOCHS_MAX:
            self._memory_floor_ms = max(self._memory_floor_ms, self._epochs.pop(0).last_ms)
        self._epochs[-1].add(generation)
