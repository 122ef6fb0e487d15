"""The contents of data entries, in bulk: positions and fixed fields of records, and commands.

Place in the data path: from sound entries (`verify.export.segment_entries`) to arrays with one
element per record, which `verify.export.messages.records` turns into columns, and to the commands
of the entries' tables.

Invariants: an entry whose payload is not as drawn yields no record and no command, but its defect,
in the words of `verify.export.payload_defects`; every returned region of a record lies within that
record, and regions of one kind rise from record to record.

Source: docs/FORMATS.md sections 4 and 8; RocketMQ's record layout (MessageExtEncoder).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from verify.export.messages.entries import KIND_DATA, Entries
from verify.export.messages.record_fields import (
    RECORD_SIZE_MIN,
    Payloads,
    record_fields,
    select_records,
)
from verify.export.payload_defects import PayloadError, commands_of, payload_defect

__all__ = ["read_payloads"]

_SIZE: Final = struct.Struct(">I")


def read_payloads(data: memoryview, entries: Entries, gap_size_bytes: int = 0) -> Payloads:
    """Read the payloads of `entries` of one file, whose bytes are `data`.

    `gap_size_bytes`: bytes of the framing between each payload's table and its first record.
    """
    commands: dict[int, Sequence[list[Any]]] = {}
    defects: dict[int, str] = {}
    of, starts = _walk(data, entries, gap_size_bytes, commands, defects)
    entry, start = np.array(of, dtype=np.int64), np.array(starts, dtype=np.int64)
    records, sound = record_fields(data, entry, start, len(entries.index))
    for entry in np.unique(records.entry[~sound]).tolist():
        defects[entry] = _defect(data, entries, gap_size_bytes, entry)
        commands.pop(entry, None)
    if defects:
        mask = ~np.isin(records.entry, np.array(list(defects), dtype=np.int64))
        records = select_records(records, mask)
    return Payloads(records=records, commands=commands, defects=defects)


def _walk(
    data: memoryview,
    entries: Entries,
    gap: int,
    commands: dict[int, Sequence[list[Any]]],
    defects: dict[int, str],
) -> tuple[list[int], list[int]]:
    """Return the entry and the first byte of every record, following the records' sizes."""
    of: list[int] = []
    starts: list[int] = []
    unpack = _SIZE.unpack_from
    ends = entries.end.tolist()
    firsts = entries.start.tolist()
    for entry in np.flatnonzero(entries.kind == KIND_DATA).tolist():
        first, end = firsts[entry], ends[entry]
        try:
            found, offset = commands_of(data[first:end])
        except PayloadError as error:
            defects[entry] = str(error)
            continue
        if found:
            commands[entry] = found
        offset += first + gap
        before = len(starts)
        while offset < end:
            size = unpack(data, offset)[0] if end - offset >= RECORD_SIZE_MIN else 0
            if not RECORD_SIZE_MIN <= size <= end - offset:
                # One broken record discards the whole entry: the sizes after it can't be trusted.
                del starts[before:]
                commands.pop(entry, None)
                defects[entry] = _defect(data, entries, gap, entry)
                break
            starts.append(offset)
            offset += size
        of.extend([entry] * (len(starts) - before))
    return of, starts


def _defect(data: memoryview, entries: Entries, gap: int, entry: int) -> str:
    payload = data[int(entries.start[entry]) : int(entries.end[entry])]
    if gap:
        # As the proposer made it, so that positions in the text are those of the payload.
        _, first = commands_of(payload)
        payload = memoryview(b"".join((payload[:first], payload[first + gap :])))
    reason = payload_defect(payload)
    assert reason is not None, "read in bulk and one by one, a payload is not the same"
    return reason
