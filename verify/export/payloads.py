"""The contents of data entries, in bulk: positions and fixed fields of records, and commands.

Place in the data path: from sound entries (`verify.export.segment_entries`) to arrays with one
element per record, which `verify.export.records` turns into columns, and to the commands of the
entries' tables.

Invariants: an entry whose payload is not as drawn yields no record and no command, but its defect,
in the words of `verify.export.payload_defects`; every returned region of a record lies within that
record, and regions of one kind rise from record to record.

Source: docs/FORMATS.md sections 4 and 8; RocketMQ's record layout (MessageExtEncoder).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from verify.export.payload_defects import (
    MAGIC_V1,
    MAGIC_V2,
    PayloadError,
    commands_of,
    payload_defect,
)
from verify.export.segment_entries import KIND_DATA, Entries
from verify.export.slices import array_bytes, regions

__all__ = ["Payloads", "Records", "read_payloads"]

_Ints = npt.NDArray[np.int64]

_SIZE: Final = struct.Struct(">I")
_RECORD_SIZE_MIN: Final = 91  # with hosts of IPv4, without body, topic and properties
_FIXED: Final = np.dtype(
    [
        ("size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue", ">i4"),
        ("flag", ">u4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
assert _FIXED.itemsize == 48
_BORN_HOST_IPV6: Final = 0x10
_STORE_HOST_IPV6: Final = 0x20
_IPV6_MORE: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Message records, one element per array each, in the order of their bytes.

    `entry` is the index of the record's entry among those that were passed in; byte positions are
    those in the segment.
    """

    entry: _Ints
    slot: _Ints
    start: _Ints
    size: _Ints
    queue: _Ints
    flag: _Ints
    queue_offset: _Ints
    sys_flag: _Ints
    stored_ms: _Ints
    prepared_offset: _Ints
    body: tuple[_Ints, _Ints]
    topic: tuple[_Ints, _Ints]
    properties: tuple[_Ints, _Ints]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """The contents of data entries; `commands` and `defects` by the index of their entry."""

    records: Records
    commands: Mapping[int, Sequence[list[Any]]]
    defects: Mapping[int, str]


def read_payloads(data: memoryview, entries: Entries) -> Payloads:
    """Read the payloads of `entries` of one segment, whose bytes are `data`."""
    commands: dict[int, Sequence[list[Any]]] = {}
    defects: dict[int, str] = {}
    of, starts = _walk(data, entries, commands, defects)
    records, sound = _fixed_fields(np.frombuffer(data, dtype=np.uint8), entries, of, starts)
    for entry in np.unique(records.entry[~sound]).tolist():
        defects[entry] = _defect(data, entries, entry)
        commands.pop(entry, None)
    if defects:
        kept = ~np.isin(records.entry, np.array(list(defects), dtype=np.int64))
        records = _kept(records, kept)
    return Payloads(records=records, commands=commands, defects=defects)


def _walk(
    data: memoryview,
    entries: Entries,
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
        offset += first
        before = len(starts)
        while offset < end:
            size = unpack(data, offset)[0] if end - offset >= _RECORD_SIZE_MIN else 0
            if not _RECORD_SIZE_MIN <= size <= end - offset:
                # One broken record discards the whole entry: the sizes after it can't be trusted.
                del starts[before:]
                commands.pop(entry, None)
                defects[entry] = _defect(data, entries, entry)
                break
            starts.append(offset)
            offset += size
        of.extend([entry] * (len(starts) - before))
    return of, starts


def _defect(data: memoryview, entries: Entries, entry: int) -> str:
    reason = payload_defect(data[int(entries.start[entry]) : int(entries.end[entry])])
    assert reason is not None, "read in bulk and one by one, a payload is not the same"
    return reason


def _fixed_fields(
    content: npt.NDArray[np.uint8], entries: Entries, of: list[int], starts: list[int]
) -> tuple[Records, npt.NDArray[np.bool_]]:
    """Read the records that begin at `starts`, and return which of them are as drawn."""
    entry, start = np.array(of, dtype=np.int64), np.array(starts, dtype=np.int64)
    raw: npt.NDArray[Any] = content[start[:, None] + np.arange(48)]
    fixed = raw.view(_FIXED)[:, 0]
    size = fixed["size"].astype(np.int64)
    sys_flag = fixed["sys_flag"].astype(np.int64)
    end = start + size
    sound = (fixed["magic"] == MAGIC_V1) | (fixed["magic"] == MAGIC_V2)
    at = start + 56 + np.where(sys_flag & _BORN_HOST_IPV6, _IPV6_MORE, 0)
    stored_ms, sound = _number(content, at, ">i8", end, sound)
    at = at + 8 + 8 + np.where(sys_flag & _STORE_HOST_IPV6, _IPV6_MORE, 0)
    prepared_offset, sound = _number(content, at + 4, ">i8", end, sound)
    body_size, sound = _number(content, at + 12, ">i4", end, sound)
    body_start = at + 16
    body_end = body_start + body_size
    sound = sound & (body_size >= 0)
    long_topic = fixed["magic"] == MAGIC_V2
    short_size, short_sound = _number(content, body_end, ">u1", end, sound)
    long_size, long_sound = _number(content, body_end, ">u2", end, sound)
    sound = np.where(long_topic, long_sound, short_sound)
    topic_start = body_end + np.where(long_topic, 2, 1)
    topic_end = topic_start + np.where(long_topic, long_size, short_size)
    properties_size, sound = _number(content, topic_end, ">u2", end, sound)
    properties_start = topic_end + 2
    sound = sound & (properties_start + properties_size == end)
    sound = _is_text(content, topic_start, topic_end, sound)
    sound = _is_text(content, properties_start, end, sound)
    first = np.zeros(len(entries.index), dtype=np.int64)
    counts = np.bincount(entry, minlength=len(first)) if len(entry) else first
    first[1:] = np.cumsum(counts)[:-1]
    records = Records(
        entry=entry,
        slot=np.arange(len(entry)) - first[entry],
        start=start,
        size=size,
        queue=fixed["queue"].astype(np.int64),
        flag=fixed["flag"].astype(np.int64),
        queue_offset=fixed["queue_offset"].astype(np.int64),
        sys_flag=sys_flag,
        stored_ms=stored_ms,
        prepared_offset=prepared_offset,
        body=(body_start, body_end),
        topic=(topic_start, topic_end),
        properties=(properties_start, end),
    )
    return records, sound


def _number(
    content: npt.NDArray[np.uint8],
    at: _Ints,
    kind: str,
    end: _Ints,
    sound: npt.NDArray[np.bool_],
) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Read the integers at `at`; 0, and not sound, where one would not end by `end`."""
    width = np.dtype(kind).itemsize
    sound = sound & (at >= 0) & (at + width <= end)
    place = np.where(sound, at, 0)[:, None] + np.arange(width)
    raw: npt.NDArray[Any] = content[place]
    return np.where(sound, raw.view(kind)[:, 0].astype(np.int64), 0), sound


def _is_text(
    content: npt.NDArray[np.uint8], start: _Ints, end: _Ints, sound: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which of the sound regions are UTF-8. Nearly all are ASCII, which one test shows."""
    result = sound.copy()
    found = regions(content, start[sound], end[sound])
    if (array_bytes(found) & 0x80).any():
        places = np.flatnonzero(sound).tolist()
        for place, region in zip(places, found.to_pylist(), strict=True):
            try:
                region.decode()
            except UnicodeDecodeError:
                result[place] = False
    return result


def _kept(records: Records, kept: npt.NDArray[np.bool_]) -> Records:
    columns: dict[str, Any] = {}
    for name in Records.__dataclass_fields__:
        value = getattr(records, name)
        columns[name] = (
            (value[0][kept], value[1][kept]) if isinstance(value, tuple) else value[kept]
        )
    return Records(**columns)
