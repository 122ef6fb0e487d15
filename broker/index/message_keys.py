"""The keys under which messages of committed entries are found: UNIQ_KEY and the words of KEYS.

Place in the data path: `broker.index.indexer` passes it the entries that were applied. Pure.

Most entries have their UNIQ_KEYs in the table, for the dedupe, and hold no KEYS: then no record is
read. Otherwise the records are scanned, without their bodies.

Source: RocketMQ IndexService.buildIndex, CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from broker.entry.payload import UNIT, UNIT_SIZE, Payload, Run
from broker.index.key_hashes import IndexedKeys, hash_keys, topic_hash
from remoting.errors import RecordError
from remoting.records import sys_flag as flags
from remoting.records.message import MAGIC_V1
from remoting.records.properties import find_property, property_mark
from remoting.records.property_names import PropertyName

__all__ = ["KeyCollector", "record_keys"]

_KEYS: Final = property_mark(PropertyName.KEYS)
_UNIT_FIELDS: Final = np.dtype([("position", ">u8"), ("size", ">u4"), ("tags_code", ">i8")])
assert _UNIT_FIELDS.itemsize == UNIT_SIZE
_LENGTH: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
# Places in a record, whose layout is drawn in `remoting.records.message`.
_MAGIC_END_AT: Final = 7
_SYS_FLAG_AT: Final = 39
_BODY_AT: Final = 88  # with IPv4 hosts
_IPV6_MORE: Final = 12
_TOPICS_MAX: Final = 20_000


class KeyCollector:
    """Collector of the keys of entries: `add` in the log's order, `take` the hashes in the same."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}  # hashes
        self._keys: list[str] = []
        self._units: list[bytes] = []  # a ConsumeQueue unit for each key
        # Common to the keys of one `_put`; the last list has their number.
        self._topic_hashes: list[int] = []
        self._stored_ms: list[int] = []
        self._counts: list[int] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, payload: Payload, data: bytes, position: int) -> None:
        """Collect the keys of a data entry: its payload decoded, as stored, and its position.
        Raises RecordError."""
        has_words = payload.may_have_words and _KEYS in data
        for run in payload.runs:
            uniq_keys = None if has_words else _plain(run.uniq_keys)
            if uniq_keys is not None:
                self._put(run.topic, payload.store_timestamp_ms, uniq_keys, run.units)
            else:
                self._scan(run, payload.store_timestamp_ms, data, position)

    def take(self) -> IndexedKeys:
        """Return the keys that were collected since the last call."""
        counts = np.array(self._counts, np.int64)
        topics = np.repeat(np.array(self._topic_hashes, np.uint32), counts)
        units = np.frombuffer(b"".join(self._units), _UNIT_FIELDS)
        keys = IndexedKeys(
            hashes=hash_keys(topics, self._keys),
            positions=units["position"].astype(np.int64),
            stored_ms=np.repeat(np.array(self._stored_ms, np.int64), counts),
        )
        self.clear()
        return keys

    def clear(self) -> None:
        """Drop the keys that were collected."""
        self._keys.clear()
        self._units.clear()
        self._topic_hashes.clear()
        self._stored_ms.clear()
        self._counts.clear()

    def _scan(self, run: Run, stored_ms: int, data: bytes, position: int) -> None:
        for start in range(0, len(run.units), UNIT_SIZE):
            unit = run.units[start : start + UNIT_SIZE]
            at, size, _ = UNIT.unpack(unit)
            keys = record_keys(_properties(data, at - position, size))
            if keys:
                self._put(run.topic, stored_ms, keys, unit * len(keys))

    def _put(self, topic: str, stored_ms: int, keys: Sequence[str], units: bytes) -> None:
        hashed = self._topics.get(topic)
        if hashed is None:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            hashed = self._topics[topic] = topic_hash(topic)
        self._keys += keys
        self._units.append(units)
        self._topic_hashes.append(hashed)
        self._stored_ms.append(stored_ms)
        self._counts.append(len(keys))


def record_keys(properties: bytes) -> list[str]:
    """Return UNIQ_KEY first, then the words of KEYS; none where a value is invalid UTF-8."""
    try:
        uniq_key = find_property(properties, PropertyName.UNIQ_KEY)
        words = find_property(properties, PropertyName.KEYS)
    except RecordError:
        return []
    keys = [] if uniq_key is None else [uniq_key]
    if words is not None:
        keys += [word for word in words.split(" ") if word]
    return keys


def _plain(uniq_keys: Sequence[str | None] | None) -> list[str] | None:
    """Return the keys, where every message has its own; else None.

    A message of a batch without one has the batch's and its number, after a "#", in the table:
    nobody would query by that.
    """
    if uniq_keys is None:
        return None
    keys = [key for key in uniq_keys if key is not None]
    return keys if len(keys) == len(uniq_keys) and "#" not in "".join(keys) else None


def _properties(data: bytes, start: int, size: int) -> bytes:
    """Return the properties of the record at `start`. Raises RecordError."""
    sys_flag = data[start + _SYS_FLAG_AT]
    topic_at = start + _BODY_AT
    if sys_flag & flags.BORN_HOST_IPV6:
        topic_at += _IPV6_MORE
    if sys_flag & flags.STORE_HOST_IPV6:
        topic_at += _IPV6_MORE
    topic_at += _LENGTH.unpack_from(data, topic_at - _LENGTH.size)[0]
    if data[start + _MAGIC_END_AT] == MAGIC_V1 & 0xFF:
        begin = topic_at + 1 + data[topic_at] + _SHORT.size
    else:
        begin = topic_at + _SHORT.size + _SHORT.unpack_from(data, topic_at)[0] + _SHORT.size
    if begin + _SHORT.unpack_from(data, begin - _SHORT.size)[0] != start + size:
        raise RecordError(f"the record at {start} of the payload does not end with its properties")
    return data[begin : start + size]
