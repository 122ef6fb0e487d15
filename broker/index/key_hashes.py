"""Hashes of keys, many at once, as RocketMQ's IndexFile has them.

Place in the data path: `broker.index.message_keys` collects keys of committed entries and hashes
them here; `broker.index.index_file` stores the result. Pure.

A key's hash is Java's `"topic#key".hashCode()`, without its sign. Hashing key by key cost the
larger part of an index; here it is a handful of array operations per slice of thousands.

Source: RocketMQ IndexFile.indexKeyHashMethod, IndexService.buildKey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from remoting.records.message_id import java_string_hash

__all__ = ["IndexedKeys", "hash_keys", "key_hash", "topic_hash"]

_MASK: Final = 0xFFFF_FFFF
_LENGTH_MAX: Final = 255  # longer keys are hashed one by one
_POWERS: Final = np.array(
    [pow(31, exponent, 1 << 32) for exponent in range(_LENGTH_MAX + 1)], np.uint32
)
"""31^0 .. 31^255, modulo 2^32: factors of a text's units, the last unit's first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedKeys:
    """Keys of messages, one a row: hash, the record's position, its store timestamp."""

    hashes: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]
    stored_ms: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        assert len(self.hashes) == len(self.positions) == len(self.stored_ms)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, rows: slice) -> IndexedKeys:
        return IndexedKeys(
            hashes=self.hashes[rows],
            positions=self.positions[rows],
            stored_ms=self.stored_ms[rows],
        )

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> IndexedKeys:
        """Build them from (hash, position, store timestamp) each."""
        columns = np.array(rows, np.int64).reshape(-1, 3)
        return cls(
            hashes=columns[:, 0].astype(np.int32),
            positions=columns[:, 1],
            stored_ms=columns[:, 2],
        )


def topic_hash(topic: str) -> int:
    """Return the hash of `topic#`, from which a key's hash goes on: 32 bits without a sign."""
    return java_string_hash(f"{topic}#") & _MASK


def key_hash(of_topic: int, key: str) -> int:
    """Return the hash of `topic#key` as a unit holds it: 31 bits (Java's abs; its minimum becomes
    0)."""
    units = len(key.encode("utf-16-be", "surrogatepass")) // 2
    value = (of_topic * pow(31, units, 1 << 32) + java_string_hash(key)) & _MASK
    if value < 1 << 31:
        return value
    return 0 if value == 1 << 31 else (1 << 32) - value


def hash_keys(of_topics: npt.NDArray[np.uint32], keys: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the `key_hash` of each topic's hash and key."""
    if not keys:
        return np.empty(0, np.int32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    text = "".join(keys)
    if not text.isascii() or not lengths.all() or lengths.max() > _LENGTH_MAX:
        return np.array(
            [key_hash(int(topic), key) for topic, key in zip(of_topics, keys, strict=True)],
            np.int32,
        )
    units = np.frombuffer(text.encode(), np.uint8)
    ends = np.cumsum(lengths)
    exponents = np.repeat(ends, lengths) - np.arange(1, len(units) + 1)
    own = np.add.reduceat(units * _POWERS[exponents], ends - lengths, dtype=np.uint32)
    hashes = np.abs((of_topics * _POWERS[lengths] + own).view(np.int32))
    hashes[hashes < 0] = 0  # -2^31, whose absolute value int32 does not hold
    return hashes
