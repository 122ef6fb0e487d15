"""The keys under which messages of a committed entry are found: UNIQ_KEY and the words of KEYS.

Place in the data path: `broker.indexer` reads entries of the log with it. Pure.

Most entries tell their UNIQ_KEYs in the table, for the dedupe, and hold no KEYS: then no record is
looked at. Otherwise the records are scanned, without their bodies being touched.

Source: RocketMQ IndexService.buildIndex, CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from broker.store.index_file import IndexedKey, key_hash, topic_hash
from broker.store.payload import UNIT, decode_payload
from remoting import sys_flag as flags
from remoting.errors import RecordError
from remoting.message import MAGIC_V1
from remoting.properties import find_property

__all__ = ["TopicHashes", "keys_of_entry", "record_keys"]

_KEYS: Final = b"KEYS\x01"
_POSITION: Final = struct.Struct(">Q12x")  # the first field of a ConsumeQueue unit
_LENGTH: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
# Places in a record, whose layout is drawn in `remoting.message`.
_MAGIC_END_AT: Final = 7
_SYS_FLAG_AT: Final = 39
_BODY_AT: Final = 88  # with IPv4 hosts
_IPV6_MORE: Final = 12
_TOPICS_MAX: Final = 20_000


class TopicHashes:
    """The hashes of topics, remembered: each key's hash goes on from its topic's."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, topic: str) -> int:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            known = self._known[topic] = topic_hash(topic)
        return known


def keys_of_entry(data: bytes, position: int, topics: TopicHashes) -> list[IndexedKey]:
    """Of a data entry's payload, which stands at `position`, in the order of its runs.

    Raises PayloadError and RecordError.
    """
    payload = decode_payload(data)
    stored_ms = payload.store_timestamp_ms
    has_words = _KEYS in data
    keys: list[IndexedKey] = []
    for run in payload.runs:
        hashed = topics.of(run.topic)
        uniq_keys = run.uniq_keys
        if not has_words and uniq_keys is not None and _all_plain(uniq_keys):
            keys += [
                (key_hash(hashed, key), at, stored_ms)
                for (at,), key in zip(_POSITION.iter_unpack(run.units), uniq_keys, strict=True)
                if key is not None
            ]
        else:
            for at, size, _ in UNIT.iter_unpack(run.units):
                properties = _properties(data, at - position, size)
                keys += [(key_hash(hashed, key), at, stored_ms) for key in record_keys(properties)]
    return keys


def record_keys(properties: bytes) -> list[str]:
    """UNIQ_KEY first, then the words of KEYS. A value that is no UTF-8 is no key."""
    try:
        uniq_key = find_property(properties, b"UNIQ_KEY")
        words = find_property(properties, b"KEYS")
    except RecordError:
        return []
    keys = [] if uniq_key is None else [uniq_key]
    if words is not None:
        keys += [word for word in words.split(" ") if word]
    return keys


def _all_plain(uniq_keys: Sequence[str | None]) -> bool:
    """A message of a batch without a key of its own has the batch's and its number, after a "#",
    in the table: no key that anybody would ask for."""
    return all(key is not None and "#" not in key for key in uniq_keys)


def _properties(data: bytes, start: int, size: int) -> bytes:
    """The properties of the record at `start`. Raises RecordError."""
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
