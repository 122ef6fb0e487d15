"""ConsumeQueue units in bulk: as rows, and for comparison with records.

Place in the data path: `verify.export.replica` takes the rows of the table `cq` from here, and
checks for each record whether the unit at its queue offset points to it.

| offset | size | field |
|---|---|---|
| 0 | 8 | position of the record in the log |
| 8 | 4 | size of the record |
| 12 | 8 | tags code |

Invariants: a unit of size 0 was never written and yields no row; nor does half a unit at the end
of a file.

Source: docs/FORMATS.md section 5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["FILE_UNITS", "UNIT_SIZE_BYTES", "QueueFile", "UnitOwner", "Units", "units_of"]

_Ints = npt.NDArray[np.int64]

UNIT_SIZE_BYTES: Final = 20
_UNIT: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
assert _UNIT.itemsize == UNIT_SIZE_BYTES
FILE_UNITS: Final = 300_000
_FILES_CACHED_MAX: Final = 64  # of 6 MB at most


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFile:
    """One file of a ConsumeQueue; its first unit is that of `first_offset`."""

    topic: str
    queue: int
    first_offset: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOwner:
    """Records of one chunk, one element each: the place and the expected fields of its unit."""

    topics: tuple[str, ...]
    topic_code: _Ints
    queue: _Ints
    queue_offset: _Ints
    position: _Ints
    size: _Ints
    tag_hash: _Ints


def units_of(file: QueueFile) -> npt.NDArray[Any]:
    """Read every whole unit of a file, including those that were never written."""
    content = file.path.read_bytes()
    return np.frombuffer(content, dtype=_UNIT, count=len(content) // UNIT_SIZE_BYTES)


class Units:
    """Look-ups in one store's ConsumeQueues; a few files are cached in memory.

    `file_units`: how many units each file has, where that is fixed; files that begin elsewhere than
    at a multiple of it are not part of a queue.
    """

    __slots__ = ("_cached", "_files", "_firsts")

    def __init__(self, files: Iterable[QueueFile], file_units: int | None = FILE_UNITS) -> None:
        self._files: dict[tuple[str, int], list[QueueFile]] = {}
        for file in sorted(files, key=lambda file: file.first_offset):
            if file_units is None or file.first_offset % file_units == 0:
                self._files.setdefault((file.topic, file.queue), []).append(file)
        self._firsts = {
            name: np.array([file.first_offset for file in of_queue], dtype=np.int64)
            for name, of_queue in self._files.items()
        }
        self._cached: OrderedDict[tuple[str, int, int], npt.NDArray[Any]] = OrderedDict()

    def are_owned(self, records: UnitOwner) -> npt.NDArray[np.bool_]:
        """Return for each record whether the unit at its queue offset has the record's fields."""
        result = np.zeros(len(records.queue), dtype=np.bool_)
        if not len(result):
            return result
        order = np.lexsort((records.queue_offset, records.queue, records.topic_code))
        names = np.stack((records.topic_code, records.queue))[:, order]
        changes = np.flatnonzero((names[:, 1:] != names[:, :-1]).any(axis=0)) + 1
        for of_queue in np.split(order, changes):
            first = of_queue[0]
            name = (records.topics[records.topic_code[first]], int(records.queue[first]))
            if name not in self._firsts:
                continue
            offsets = records.queue_offset[of_queue]
            number = np.searchsorted(self._firsts[name], offsets, side="right") - 1
            for place in np.unique(number[number >= 0]).tolist():
                some = of_queue[number == place]
                result[some] = self._in_file(name, place, records, some)
        return result

    def _in_file(
        self, name: tuple[str, int], place: int, records: UnitOwner, some: _Ints
    ) -> npt.NDArray[np.bool_]:
        units = self._units(name, place)
        at = records.queue_offset[some] - self._firsts[name][place]
        there = at < len(units)
        ours, found = some[there], units[at[there]]
        result = np.zeros(len(some), dtype=np.bool_)
        result[there] = (
            # A unit that was never written has size 0, which no record has.
            (found["position"] == records.position[ours])
            & (found["size"] == records.size[ours])
            & (found["tag_hash"] == records.tag_hash[ours])
        )
        return result

    def _units(self, name: tuple[str, int], place: int) -> npt.NDArray[Any]:
        key = (*name, place)
        units = self._cached.pop(key, None)
        if units is None:
            units = units_of(self._files[name][place])
        self._cached[key] = units
        if len(self._cached) > _FILES_CACHED_MAX:
            self._cached.popitem(last=False)
        return units
