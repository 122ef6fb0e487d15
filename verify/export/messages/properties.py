"""The properties of many records at once: `name \\x01 value \\x02`, repeated, in UTF-8.

Place in the data path: `records` reads the values of the names that are columns; `digests` those
that a digest covers.

Invariants: of two properties of one name the last one counts; an item without a name is ignored;
one without \\x01 has an empty value, which a digest covers, and which is no value of a column, as
for every client; the last \\x02 may be missing. Nothing is decoded.

Source: docs/FORMATS.md section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from verify.export.messages.slices import array_bytes, array_offsets, regions

__all__ = ["KEYS", "TAGS", "Properties"]

KEYS, TAGS = b"KEYS", b"TAGS"

_Ints = npt.NDArray[np.int64]
_NAME_END, _END = 1, 2


class Properties:
    """The properties of `blocks`, which has one value per record, as `regions` made it.

    Arrays of items have one element per property: `record`, and where name and value are in
    `content`.
    """

    def __init__(self, blocks: pa.LargeBinaryArray) -> None:
        self.count = len(blocks)
        self.content = array_bytes(blocks)
        edges = array_offsets(blocks)
        first, end = edges[:-1], edges[1:]
        stops = np.flatnonzero(self.content == _END)
        # An item begins with a block and after each \x02; a block may lack its last one.
        cut = end[end > first]
        cut = cut[self.content[cut - 1] != _END]
        begins = np.sort(np.concatenate((edges[:1], stops + 1, cut)), kind="stable")
        begins = begins[begins < edges[-1]]
        record = np.searchsorted(edges, begins, side="right") - 1
        stop = np.minimum(_next(stops, begins), end[record])
        mark = np.minimum(_next(np.flatnonzero(self.content == _NAME_END), begins), stop)
        named = mark > begins
        self.record: _Ints = record[named]
        self.name_start: _Ints = begins[named]
        self.name_end: _Ints = mark[named]
        self.value_end: _Ints = stop[named]
        self.value_start: _Ints = np.minimum(self.name_end + 1, self.value_end)

    def is_named(self, name: bytes) -> npt.NDArray[np.bool_]:
        """Return which items have this name."""
        return self._begins(name, self.name_end - self.name_start == len(name))

    def has_prefix(self, prefix: bytes) -> npt.NDArray[np.bool_]:
        """Return which items have a name that begins with `prefix`."""
        return self._begins(prefix, self.name_end - self.name_start >= len(prefix))

    def values(self, name: bytes) -> pa.LargeStringArray:
        """Return each record's value of that name, null where it has none."""
        items = np.flatnonzero(self.is_named(name) & (self.value_end > self.value_start))
        place = np.full(self.count, -1, dtype=np.int64)
        place[self.record[items]] = np.arange(len(items))  # the last assignment wins
        found = regions(self.content, self.value_start[items], self.value_end[items])
        return found.take(pa.array(place, mask=place < 0)).view(pa.large_string())

    def names(self, items: Iterable[int]) -> list[bytes]:
        return [
            self.content[self.name_start[item] : self.name_end[item]].tobytes() for item in items
        ]

    def _begins(self, name: bytes, possible: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        items = np.flatnonzero(possible)
        wanted = np.frombuffer(name, dtype=np.uint8)
        same = self.content[self.name_start[items][:, None] + np.arange(len(name))] == wanted
        result = np.zeros(len(possible), dtype=np.bool_)
        result[items[same.all(axis=1)]] = True
        return result


def _next(places: _Ints, begins: _Ints) -> _Ints:
    """Return the first of `places` at or after each of `begins`; the largest int64 if none is."""
    padded = np.append(places, np.iinfo(np.int64).max)
    return padded[np.searchsorted(places, begins)]
