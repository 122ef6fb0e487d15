"""Compare-and-append: an entry that names the log that it was made for.

Place in the data path: an engine that gives a command its place only after it was replicated
(`raft.pysyncobj.log`) replicates whole entries, header included. The header names index, position
and the chain of everything before, so each replica decides alone, and all of them alike, whether
the entry fits the end of its log. One that doesn't is void: it never was in the log.

Pure. Invariant: `fit` depends on the sequence of commands and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.log.log_format import HEADER_SIZE, EntryDefectError, encode_header, parse_entry
from raft.messages import Entry, EntryKind, Index, Term

__all__ = ["EMPTY_LOG", "LogEnd", "entry_for", "fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The last entry of a log, and the position behind it."""

    index: Index
    term: Term
    position: int
    chain: int


EMPTY_LOG = LogEnd(index=0, term=0, position=0, chain=0)


def entry_for(end: LogEnd, *, term: Term, kind: EntryKind, payload: bytes) -> tuple[bytes, LogEnd]:
    """Return the bytes of the entry that continues `end`, and the end of the log with it."""
    entry = Entry(index=end.index + 1, term=term, kind=kind, payload=payload)
    header, chain = encode_header(entry, end.position, end.chain)
    position = end.position + HEADER_SIZE + len(payload)
    return header + payload, LogEnd(index=entry.index, term=term, position=position, chain=chain)


def fit(end: LogEnd, data: bytes) -> tuple[Entry, LogEnd] | None:
    """Return the entry and the new end, or None if the bytes do not continue `end`."""
    try:
        header = parse_entry(
            data, 0, index=end.index + 1, position=end.position, chain_before=end.chain
        )
    except EntryDefectError:
        return None
    if header.size != len(data) or header.term < end.term:
        return None
    entry = Entry(
        index=header.index, term=header.term, kind=header.kind, payload=data[HEADER_SIZE:]
    )
    position = end.position + len(data)
    return entry, LogEnd(index=entry.index, term=entry.term, position=position, chain=header.chain)
