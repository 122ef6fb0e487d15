"""The fixed fields of message records and the places of their body, topic and properties, in bulk.

Place in the data path: readers of payloads (`verify.export.payloads`,
`verify.export.rocketmq.replica`) say where records begin; `records` derives columns from what is
read here.

Invariant: each region of a sound record lies within that record, and regions of one kind rise from
record to record.

Source: RocketMQ's record layout (MessageExtEncoder); docs/FORMATS.md section 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from verify.export.messages.slices import array_bytes, regions

__all__ = [
    "MAGIC_V1",
    "MAGIC_V2",
    "RECORD_SIZE_MIN",
    "Payloads",
    "Records",
    "record_fields",
    "select_records",
]

_Ints = npt.NDArray[np.int64]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
RECORD_SIZE_MIN: Final = 91  # with hosts of IPv4, without body, topic and properties
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


def record_fields(
    data: memoryview, entry: _Ints, start: _Ints, entry_count: int
) -> tuple[Records, npt.NDArray[np.bool_]]:
    """Read the records of `entry` that begin at `start`; also return which of them are as drawn.

    Caller's duty: 48 bytes of `data` follow each start, and so do as many as the record's size.
    """
    content = np.frombuffer(data, dtype=np.uint8)
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
    first = np.zeros(entry_count, dtype=np.int64)
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


def select_records(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    """Return those records of which `mask` is true."""
    columns: dict[str, Any] = {}
    for name in Records.__dataclass_fields__:
        value = getattr(records, name)
        columns[name] = (
            (value[0][mask], value[1][mask]) if isinstance(value, tuple) else value[mask]
        )
    return Records(**columns)
