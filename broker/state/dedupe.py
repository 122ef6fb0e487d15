"""Dedupe window: the UNIQ_KEYs that are stored, and the positions of their messages.

Place in the data path: `broker.queues.state_machine` adds the keys of every committed run; the
leader's `broker.leader.proposer` queries it for each message. Replicated: every replica applies
the same runs at the same store timestamps, so a new leader knows what the old one had stored; a
snapshot carries the window (`capture`, `restore`), so a restored one judges as the original would.

Bounded twice: by time (`window_ms` behind the newest store timestamp) and by count. Keys are held
as 64-bit hashes, in generations: the newest in a dict, closed ones as sorted arrays of 16 bytes
per key. A generation that leaves the window loses its positions and keeps its hashes for a good
while longer, so that a late retry is distinguished from a message never seen: it is EXPIRED and
rejected, not stored a second time (promise G2). A message born before even the hashes begin is
rejected as well, since it can't be judged any more: an old retry and a message of a producer whose
clock is slow look alike. A generation therefore lasts until the newest of its store timestamps and
of its messages' births, as far as the log records births that were ahead (a minute): if a
producer's clock is ahead of the group's, the stamp alone would make an old birth look new. Hence
hashes are kept for the whole of `window_ms`, however fast keys arrive, up to a bound that 18,000 a
second reach: a clock that is slower by less is no reason to reject. Behind that bound the stamp
alone counts, since nothing new may be rejected for a clock that is fast.

Two keys may have one hash: a caller that gets STORED compares the key with the record's own before
it uses that position.

Invariants: a key whose record was stored within the window and the count is found; closed
generations never change; time never goes back.
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

__all__ = ["DedupeWindow", "Generation", "Verdict", "WindowImage", "hash_of"]

_GENERATION_KEYS_MAX = 16_384
_GENERATIONS_PER_WINDOW = 8
_EPOCHS_WANTED = 2
_EPOCHS_MAX = 12
# A key has two bits of 2^25 (4 MiB): at 1,000,000 keys one query in 300 goes on to bisect.
_FILTER_BITS: Final = 1 << 25
_FILTER_MASK_INT: Final = _FILTER_BITS - 1
_FILTER_MASK: Final = np.uint64(_FILTER_MASK_INT)
_SECOND_BIT_AT: Final = np.uint64(32)
_ZERO, _THREE, _SEVEN = np.uint64(0), np.uint64(3), np.uint64(7)
_BITS: Final = np.array([1 << bit for bit in range(8)], np.uint8)


def hash_of(key: str) -> int:
    """Return the hash by which windows know a key."""
    return xxh3_64_intdigest(key.encode())


class Verdict(enum.Enum):
    NEW = "new"
    STORED = "stored"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Generation of consecutively stored keys; never changed once it is closed.

    `last_ms`: the newest store timestamp or birth of them and of all before.
    `hashes` are sorted in a closed one, in the order of storing in the newest. `positions` stand
    beside them; None: the generation has left the window.
    """

    first_ms: int
    last_ms: int
    hashes: array[int]
    positions: array[int] | None

    def position(self, hashed: int) -> int | None:
        """Return the position of the record with this hash in a closed generation, or None."""
        at = bisect_left(self.hashes, hashed)
        if self.positions is None or at == len(self.hashes) or self.hashes[at] != hashed:
            return None
        return self.positions[at]

    def has(self, hashed: int) -> bool:
        at = bisect_left(self.hashes, hashed)
        return at < len(self.hashes) and self.hashes[at] == hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowImage:
    """Image of a window at one moment, for a snapshot; oldest first."""

    memory_floor_ms: int
    epochs: tuple[tuple[Generation, ...], ...]
    newest: Generation | None


@dataclass(slots=True)
class _Newest:
    first_ms: int
    last_ms: int
    positions: dict[int, int]  # hash of the key -> position of the record in the log


class _Epoch:
    """Closed generations behind a Bloom filter, which answers nearly every query about an unknown
    key. They are dropped as a whole, so nothing is ever removed from the filter."""

    __slots__ = ("_bits", "_filter", "count", "generations")

    def __init__(self) -> None:
        self._filter = bytearray(_FILTER_BITS >> 3)
        self._bits = np.frombuffer(self._filter, np.uint8)  # the same memory
        self.generations: list[Generation] = []
        self.count = 0

    def add(self, generation: Generation) -> None:
        hashes = np.frombuffer(generation.hashes, np.uint64)
        for bits in (hashes, hashes >> _SECOND_BIT_AT):
            np.bitwise_or.at(self._bits, (bits & _FILTER_MASK) >> _THREE, _bit_of(bits))
        self.generations.append(generation)
        self.count += len(generation.hashes)

    def find(self, hashed: int) -> Generation | None:
        bits = self._filter
        for bit in (hashed & _FILTER_MASK_INT, (hashed >> 32) & _FILTER_MASK_INT):
            if not bits[bit >> 3] & (1 << (bit & 7)):
                return None
        for generation in reversed(self.generations):
            if generation.has(hashed):
                return generation
        return None

    def maybe(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the subset of `hashes` that pass the Bloom filter."""
        for shift in (_ZERO, _SECOND_BIT_AT):
            bits = hashes >> shift
            hashes = hashes[(self._bits[(bits & _FILTER_MASK) >> _THREE] & _bit_of(bits)) != 0]
            if not len(hashes):
                break
        return hashes


def _bit_of(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    return np.take(_BITS, bits & _SEVEN)


class DedupeWindow:
    """Window of at most `keys_max` keys; about `evicted_keys_max` hashes are remembered behind it,
    at least as many as `keys_max`, and up to six times both together while they are younger than
    `window_ms`."""

    def __init__(self, *, window_ms: int, keys_max: int, evicted_keys_max: int) -> None:
        if window_ms <= 0 or keys_max <= 0 or evicted_keys_max < 0:
            raise ValueError("dedupe window: window_ms and keys_max must be above 0")
        self._window_ms = window_ms
        self._generation_ms = max(1, window_ms // _GENERATIONS_PER_WINDOW)
        self._generation_keys = max(1, min(_GENERATION_KEYS_MAX, keys_max // 4))
        self._keys_max = keys_max
        # So much that the newest full epoch holds all that may be in the window.
        self._epoch_keys = max(keys_max, (keys_max + evicted_keys_max) // _EPOCHS_WANTED)
        self._newest: _Newest | None = None
        self._epochs: list[_Epoch] = []  # oldest first
        self._count = 0  # in the window
        self._memory_floor_ms = 0  # newest time of a generation whose hashes are gone as well

    def __len__(self) -> int:
        return self._count

    @property
    def window_ms(self) -> int:
        return self._window_ms

    @property
    def keys_max(self) -> int:
        return self._keys_max

    def find(self, key: str) -> int | None:
        """Return the position of the record stored with this key, if it is in the window."""
        hashed = hash_of(key)
        if self._newest is not None and hashed in self._newest.positions:
            return self._newest.positions[hashed]
        for epoch in reversed(self._epochs):
            generation = epoch.find(hashed)
            if generation is not None:
                return generation.position(hashed)
        return None

    def judge(self, key: str, *, born_ms: int, now_ms: int) -> Verdict:
        """Decide what to do with a message that carries `key`.

        `born_ms`: the message's bornTimestamp. `now_ms`: the group's time, as stamps are.
        """
        hashed = hash_of(key)
        newest = self._newest
        if newest is not None and hashed in newest.positions:
            return self._known(newest.last_ms, now_ms)
        for epoch in self._epochs:
            generation = epoch.find(hashed)
            if generation is not None:
                if generation.positions is None:
                    return Verdict.EXPIRED
                return self._known(generation.last_ms, now_ms)
        return Verdict.EXPIRED if self._is_forgotten(born_ms) else Verdict.NEW

    def is_new(self, hashed: int, *, born_ms: int) -> bool:
        """Return whether `judge` would call the key with this hash new."""
        newest = self._newest
        if newest is not None and hashed in newest.positions:
            return False
        for epoch in self._epochs:
            if epoch.find(hashed) is not None:
                return False
        return not self._is_forgotten(born_ms)

    def _known(self, last_ms: int, now_ms: int) -> Verdict:
        return Verdict.STORED if last_ms >= now_ms - self._window_ms else Verdict.EXPIRED

    def knows_none(self, keys: Collection[str], *, born_ms: int) -> bool:
        """Whether `judge` would call every one of `keys` new; a fast path for batches."""
        newest = self._newest
        if newest is None:
            return not self._is_forgotten(born_ms)
        hashes = list(map(xxh3_64_intdigest, map(str.encode, keys)))
        if self._is_forgotten(born_ms) or not newest.positions.keys().isdisjoint(hashes):
            return False
        many = np.array(hashes, np.uint64)
        return not any(
            epoch.find(int(hashed)) for epoch in self._epochs for hashed in epoch.maybe(many)
        )

    def _is_forgotten(self, born_ms: int) -> bool:
        """Whether a message so old may have been stored before everything remembered here."""
        return self._memory_floor_ms > 0 and born_ms <= self._memory_floor_ms

    def add(
        self,
        keys: Sequence[str | None],
        positions: Iterable[int],
        stored_ms: int,
        newest_born_ms: int = 0,
    ) -> None:
        """Add the keys of committed records with their positions, in log order; None means no key.

        No message among them was born after `newest_born_ms` or `stored_ms`, whichever is later.
        """
        newest = self._newest
        last_ms = max(stored_ms, newest_born_ms)
        if newest is None:
            newest = self._newest = _Newest(stored_ms, last_ms, {})
        elif (
            stored_ms - newest.first_ms >= self._generation_ms
            or len(newest.positions) + len(keys) > self._generation_keys
        ):
            self._evict(stored_ms)
            self._close(newest, stored_ms)
            newest = self._newest = _Newest(stored_ms, newest.last_ms, {})
        if None in keys:
            placed = [
                (key, position)
                for key, position in zip(keys, positions, strict=True)
                if key is not None
            ]
            keys, positions = [key for key, _ in placed], [position for _, position in placed]
        before = len(newest.positions)
        encoded = map(str.encode, cast("Sequence[str]", keys))
        newest.positions.update(zip(map(xxh3_64_intdigest, encoded), positions, strict=True))
        newest.last_ms = max(newest.last_ms, last_ms)
        self._count += len(newest.positions) - before
        self._evict(stored_ms)

    def _close(self, newest: _Newest, now_ms: int) -> None:
        """Turn the newest generation into arrays, and evict generations behind the window."""
        count = len(newest.positions)
        hashes = np.fromiter(newest.positions.keys(), np.uint64, count)
        positions = np.fromiter(newest.positions.values(), np.uint64, count)
        order = np.argsort(hashes)
        generation = Generation(
            first_ms=newest.first_ms,
            last_ms=newest.last_ms,
            hashes=array("Q", hashes[order].tobytes()),
            positions=array("Q", positions[order].tobytes()),
        )
        if not self._epochs or self._epochs[-1].count >= self._epoch_keys:
            while len(self._epochs) >= _EPOCHS_WANTED:
                oldest, next_oldest = self._epochs[:2]
                end_ms = oldest.generations[-1].last_ms
                if end_ms >= now_ms - self._window_ms:
                    if len(self._epochs) < _EPOCHS_MAX:
                        break
                    # So many keys come that births which are ahead would reach to what is sent now:
                    # nothing new may be refused for a clock that is fast.
                    end_ms = min(end_ms, next_oldest.generations[0].first_ms)
                assert all(generation.positions is None for generation in oldest.generations), (
                    "what is in the window is in the newest epochs"
                )
                self._memory_floor_ms = max(self._memory_floor_ms, end_ms)
                del self._epochs[0]
            self._epochs.append(_Epoch())
        self._epochs[-1].add(generation)

    def _evict(self, now_ms: int) -> None:
        """Evict generations behind the window at `now_ms`, a committed store timestamp."""
        for epoch in self._epochs:
            for at, generation in enumerate(epoch.generations):
                if generation.positions is None:
                    continue
                if generation.last_ms >= now_ms - self._window_ms and self._count <= self._keys_max:
                    return
                self._count -= len(generation.hashes)
                assert self._count >= 0
                epoch.generations[at] = Generation(
                    first_ms=generation.first_ms,
                    last_ms=generation.last_ms,
                    hashes=generation.hashes,
                    positions=None,
                )

    # Snapshots ---------------------------------------------------------------------------------

    def capture(self) -> WindowImage:
        """Return an image of the window: it shares closed generations, and copies the newest."""
        newest = self._newest
        return WindowImage(
            memory_floor_ms=self._memory_floor_ms,
            epochs=tuple(tuple(epoch.generations) for epoch in self._epochs),
            newest=None
            if newest is None
            else Generation(
                first_ms=newest.first_ms,
                last_ms=newest.last_ms,
                hashes=array("Q", newest.positions.keys()),
                positions=array("Q", newest.positions.values()),
            ),
        )

    def restore(self, image: WindowImage) -> None:
        """Replace the window by a captured one. Raises ValueError if the image is invalid."""
        if len(image.epochs) > _EPOCHS_MAX:
            raise ValueError(f"dedupe window: {len(image.epochs)} epochs")
        self._memory_floor_ms = image.memory_floor_ms
        self._epochs = []
        self._newest = None
        self._count = 0
        for generations in image.epochs:
            epoch = _Epoch()
            for generation in generations:
                epoch.add(generation)
                self._count += 0 if generation.positions is None else len(generation.hashes)
            self._epochs.append(epoch)
        if image.newest is not None:
            newest, positions = image.newest, image.newest.positions
            if positions is None or len(positions) != len(newest.hashes):
                raise ValueError("dedupe window: the newest generation lacks positions")
            placed = dict(zip(newest.hashes, positions, strict=True))
            self._newest = _Newest(newest.first_ms, newest.last_ms, placed)
            self._count += len(placed)
