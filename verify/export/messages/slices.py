"""Regions of a mapped file as Arrow arrays, copied in bulk.

Place in the data path: under `record_fields`, `properties` and `records`, which know the
regions' positions and never read them one by one.

Invariant: regions rise and don't overlap, which is the caller's duty; an array's data is then one
copy of all of them, back to back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["array_bytes", "array_offsets", "regions", "text"]

_Ints = npt.NDArray[np.int64]


def regions(data: object, start: _Ints, end: _Ints) -> pa.LargeBinaryArray:
    """Return the bytes of `data`, a buffer, from each `start` to its `end`."""
    count = len(start)
    if not count:
        return pa.array([], type=pa.large_binary())
    edges = np.empty(2 * count, dtype=np.int64)
    edges[0::2], edges[1::2] = start, end
    # Every other value is one of the regions; the values between are the gaps between regions.
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    both = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def array_bytes(array: pa.LargeBinaryArray) -> npt.NDArray[np.uint8]:
    """Return the data of an array that `regions` made."""
    offsets = array_offsets(array)
    buffer = array.buffers()[2]
    if buffer is None:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)[: int(offsets[-1])]


def array_offsets(array: pa.LargeBinaryArray) -> _Ints:
    """Return the start of each value of an array that `regions` made, and the end of the last."""
    assert array.offset == 0
    if not len(array):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(array.buffers()[1], dtype=np.int64)[: len(array) + 1]


def text(array: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """Return the same bytes as text. They are UTF-8: `record_fields` has checked that."""
    return array.view(pa.large_string())
