"""The bytes of one log entry: header, chain and their check (docs/FORMATS.md section 3).

Place in the data path: `raft.log.segment_log` encodes what it writes and checks what it recovers
with it. Pure.

Invariant: the chain of an entry is the CRC32 of its header (which holds the chain before it) and
its payload; so equal chains at an index mean equal logs up to there.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQ1` |
| 4 | 4 | size of the entry, header included |
| 8 | 8 | index, from 1 |
| 16 | 8 | term |
| 24 | 8 | position of this header in the log |
| 32 | 1 | kind |
| 33 | 3 | zero |
| 36 | 4 | chain of the entry before |
| 40 | 4 | chain |
| 44 | size-44 | payload |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from isal.isal_zlib import crc32

from raft.messages import Entry, EntryKind, Index, Term

__all__ = [
    "CHAINED_SIZE",
    "ENTRY_SIZE_BYTES_MAX",
    "HEADER",
    "HEADER_SIZE",
    "MAGIC",
    "CorruptLogError",
    "EntryCutShortError",
    "EntryDefectError",
    "EntryHeader",
    "encode_header",
    "parse_entry",
]

MAGIC = b"LMQ1"
HEADER = struct.Struct(">4sIQQQB3xII")
HEADER_SIZE = 44
ENTRY_SIZE_BYTES_MAX = 64 << 20  # a larger size field is garbage, not an entry

assert HEADER.size == HEADER_SIZE

_CHAINED = struct.Struct(">4sIQQQB3xI")  # the part of the header that the chain covers: bytes 0..40
_CHAIN = struct.Struct(">I")
_KINDS = {int(kind): kind for kind in EntryKind}

CHAINED_SIZE = _CHAINED.size

assert CHAINED_SIZE + _CHAIN.size == HEADER_SIZE


class CorruptLogError(Exception):
    """Durable bytes are missing or wrong; the node must not start on them.

    `path` is relative to the store, `position` the place in the log (or in the file, where the file
    is not a segment).
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at position {position}: {reason}")
        self.path = path
        self.position = position


class EntryDefectError(Exception):
    """The bytes at a place are not the entry that has to stand there."""


class EntryCutShortError(EntryDefectError):
    """The buffer ends before the entry does; `size` is the entry's, if its header is there."""

    def __init__(self, available: int, size: int | None) -> None:
        of = f"a {HEADER_SIZE}-byte header" if size is None else f"an entry of {size}"
        super().__init__(f"cut short: {available} bytes of {of}")
        self.size = size


@dataclass(slots=True, kw_only=True)
class EntryHeader:
    """A checked header. Not frozen: recovery makes one per entry (frozen costs 2.4 times)."""

    size: int
    index: Index
    term: Term
    kind: EntryKind
    chain_before: int
    chain: int


def encode_header(entry: Entry, position: int, chain_before: int) -> tuple[bytes, int]:
    """Return the header's bytes and the entry's chain."""
    payload = entry.payload
    head = _CHAINED.pack(
        MAGIC,
        HEADER_SIZE + len(payload),
        entry.index,
        entry.term,
        position,
        entry.kind,
        chain_before,
    )
    chain = crc32(payload, crc32(head))
    return head + _CHAIN.pack(chain), chain


def parse_entry(
    buffer: bytes | memoryview,
    offset: int,
    *,
    index: Index | None,
    position: int,
    chain_before: int | None,
) -> EntryHeader:
    """Check the entry at `offset` against the place where it has to stand.

    `index` or `chain_before` None: any. Raises EntryDefectError with the reason; a buffer that ends
    before the entry does is "cut short".
    """
    available = len(buffer) - offset
    if available < HEADER_SIZE:
        raise EntryCutShortError(available, None)
    magic, size, found_index, term, found_position, kind_code, before, chain = HEADER.unpack_from(
        buffer, offset
    )
    if magic != MAGIC:
        raise EntryDefectError(f"magic {magic.hex()} is not {MAGIC.hex()}")
    if not HEADER_SIZE <= size <= ENTRY_SIZE_BYTES_MAX:
        raise EntryDefectError(f"size {size} is outside {HEADER_SIZE}..{ENTRY_SIZE_BYTES_MAX}")
    if index is not None and found_index != index:
        raise EntryDefectError(f"index {found_index} where {index} belongs")
    if found_position != position:
        raise EntryDefectError(f"position field {found_position} does not name its place")
    kind = _KINDS.get(kind_code)
    if kind is None:
        raise EntryDefectError(f"kind {kind_code} is unknown")
    if chain_before is not None and before != chain_before:
        raise EntryDefectError(f"chain before {before:#010x} is not {chain_before:#010x}")
    if available < size:
        raise EntryCutShortError(available, size)
    view = memoryview(buffer)
    payload = view[offset + HEADER_SIZE : offset + size]
    computed = crc32(payload, crc32(view[offset : offset + CHAINED_SIZE]))
    if computed != chain:
        raise EntryDefectError(f"chain {chain:#010x} but its bytes give {computed:#010x}")
    return EntryHeader(
        size=size, index=found_index, term=term, kind=kind, chain_before=before, chain=chain
    )
