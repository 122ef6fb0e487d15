"""The keys under which messages of a committed entry are found: UNIQ_KEY and the words of KEYS.

Place in the data path: `broker.indexer` reads entries of the log with it. Pure.

Most entries tell their UNIQ_KEYs in the table, for the dedupe, and hold no KEYS: then no record is
looked at. Otherwise the records are scanned, without their bodies being touched.

Source: RocketMQ IndexService.buildIndex, CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.store.index_file import IndexedKey, key_hash, topic_hash
from broker.store.payload import PAYLOAD_HEADER, UNIT, Payload, Run, decode_payload
from remoting.errors import RecordError
from remoting.message import RecordScan, scan_records
from remoting.properties import find_property

__all__ = ["TopicHashes", "keys_of_entry", "record_keys"]

_KEYS: Final = b"KEYS\x01"
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


def keys_of_entry(data: bytes, topics: TopicHashes) -> list[IndexedKey]:
    """Of a data entry's payload, in the order of its runs.

    Raises PayloadError.
    """
    payload = decode_payload(data)
    has_words = _KEYS in data
    keys: list[IndexedKey] = []
    scanned: dict[int, RecordScan] | None = None
    for run in payload.runs:
        uniq_keys = run.uniq_keys
        if not has_words and uniq_keys is not None and _all_plain(uniq_keys):
            hashed = topics.of(run.topic)
            stored_ms = payload.store_timestamp_ms
            for (at, _, _), key in zip(UNIT.iter_unpack(run.units), uniq_keys, strict=True):
                if key is not None:
                    keys.append(IndexedKey(key_hash(hashed, key), at, stored_ms))
        else:
            if scanned is None:
                scanned = _scan(data)
            keys += _scanned_keys(run, payload, scanned, topics)
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


def _scan(data: bytes) -> dict[int, RecordScan]:
    """The entry's records by their position."""
    _, table_size = PAYLOAD_HEADER.unpack_from(data)
    records = memoryview(data)[PAYLOAD_HEADER.size + table_size :]
    return {scan.physical_offset: scan for scan in scan_records(records)}


def _scanned_keys(
    run: Run, payload: Payload, scanned: dict[int, RecordScan], topics: TopicHashes
) -> Iterator[IndexedKey]:
    hashed = topics.of(run.topic)
    for at, _, _ in UNIT.iter_unpack(run.units):
        for key in record_keys(scanned[at].properties):
            yield IndexedKey(key_hash(hashed, key), at, payload.store_timestamp_ms)
