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
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from verify.export.store_files import UNIT_SIZE_BYTES, QueueFile

__all__ = ["UnitOwner", "Units", "units_of"]

_Ints = npt.NDArray[np.int64]

_UNIT: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
assert _UNIT.itemsize == UNIT_SIZE_BYTES
_FILE_UNITS: Final = 300_000
_FILES_KEPT_MAX: Final = 64  # of 6 MB at most


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
    """Look-ups in one store's ConsumeQueues; a few files are cached in memory."""

    __slots__ = ("_files", "_kept")

    def __init__(self, files: Iterable[QueueFile]) -> None:
        self._files = {
            (file.topic, file.queue, file.first_offset // _FILE_UNITS): file
            for file in files
            if file.first_offset % _FILE_UNITS == 0
        }
        self._kept: OrderedDict[tuple[str, int, int], npt.NDArray[Any]] = OrderedDict()

    def are_owned(self, records: UnitOwner) -> npt.NDArray[np.bool_]:
        """Return for each record whether the unit at its queue offset has the record's fields."""
        result = np.zeros(len(records.queue), dtype=np.bool_)
        if not len(result):
            return result
        number = records.queue_offset // _FILE_UNITS
        order = np.lexsort((number, records.queue, records.topic_code))
        names = np.stack((records.topic_code, records.queue, number))[:, order]
        changes = np.flatnonzero((names[:, 1:] != names[:, :-1]).any(axis=0)) + 1
        for some in np.split(order, changes):
            first = some[0]
            topic = records.topics[records.topic_code[first]]
            units = self._units((topic, int(records.queue[first]), int(number[first])))
            place = records.queue_offset[some] - number[first] * _FILE_UNITS
            there = place < len(units)
            ours, found = some[there], units[place[there]]
            result[ours] = (
                # A unit that was never written has size 0, which no record has.
                (found["position"] == records.position[ours])
                & (found["size"] == records.size[ours])
                & (found["tag_hash"] == records.tag_hash[ours])
            )
        return result

    def _units(self, name: tuple[str, int, int]) -> npt.NDArray[Any]:
        if name not in self._files:
            return np.empty(0, dtype=_UNIT)
        units = self._kept.pop(name, None)
        if units is None:
            units = units_of(self._files[name])
        self._kept[name] = units
        if len(self._kept) > _FILES_KEPT_MAX:
            self._kept.popitem(last=False)
        return units
