"""The digest of a message's contents, as the run format defines it, for many records at once.

Place in the data path: `verify.export.messages.records` fills the column `digest` with it.

XXH3-64 with seed 0, as a signed integer, of: the body (inflated), one byte 0, the message's flag as
4 bytes big-endian, then TAGS, KEYS and every property whose name begins with `u_`, in byte order of
their names, each as name, byte 1, value, byte 2.

Invariants: what follows a body is assembled in bulk; only the hash reads a body. A body that can't
be inflated, or would be larger than a message may be, has no digest.

Source: docs/RUN_FORMAT.md, `digest`, with its test vectors; docs/FORMATS.md section 8.
"""

from __future__ import annotations

import zlib
from typing import Final

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
import zstandard

from verify.export.messages.properties import KEYS, TAGS, Properties
from verify.export.messages.slices import regions

__all__ = ["digests"]

_Ints = npt.NDArray[np.int64]

INFLATED_SIZE_MAX: Final = 64 * 1024 * 1024
_COMPRESSED: Final = 0x1
_COMPRESSION_MASK: Final = 0x700
_LZ4, _ZSTD = 0x100, 0x200
_ZLIB: Final = frozenset({0, 0x300})  # clients older than these bits left them 0
_NAMES: Final = (TAGS, KEYS)
_PREFIX: Final = b"u_"
_BEFORE_FLAG: Final = 1
_HEAD_SIZE: Final = _BEFORE_FLAG + 4


def digests(
    data: memoryview,
    body: tuple[_Ints, _Ints],
    flag: _Ints,
    sys_flag: _Ints,
    properties: Properties,
) -> pa.Int64Array:
    """Compute one digest per record. `body` holds the start and end of each body in `data`."""
    tails, edges = _tails(flag, properties)
    view = memoryview(tails)
    digest = xxhash.xxh3_64_intdigest
    places = zip(body[0].tolist(), body[1].tolist(), edges[:-1], edges[1:], strict=True)
    whole = [digest(b"".join((data[a:b], view[c:d]))) for a, b, c, d in places]
    missing = np.zeros(len(whole), dtype=np.bool_)
    for place in np.flatnonzero(sys_flag & _COMPRESSED).tolist():
        deflated = bytes(data[int(body[0][place]) : int(body[1][place])])
        inflated = _inflated(deflated, int(sys_flag[place]) & _COMPRESSION_MASK)
        if inflated is None:
            missing[place] = True
        else:
            whole[place] = digest(inflated + view[edges[place] : edges[place + 1]])
    return pa.array(np.array(whole, dtype=np.uint64).view(np.int64), mask=missing)


def _tails(flag: _Ints, properties: Properties) -> tuple[bytes, list[int]]:
    """Assemble the bytes after each record's body, back to back; return them and their edges."""
    items = _counted_items(properties)
    record = properties.record[items]
    start, stop = properties.name_start[items], properties.value_end[items]
    # An item that contains \x01 is copied as it is: that byte separates name and value already.
    bare = properties.name_end[items] == stop
    size = stop - start + bare + 1
    count = len(flag)
    sizes = np.full(count, _HEAD_SIZE, dtype=np.int64)
    np.add.at(sizes, record, size)
    edges = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    tails = np.zeros(int(edges[-1]), dtype=np.uint8)
    at_flag = edges[:-1, None] + np.arange(_BEFORE_FLAG, _HEAD_SIZE)
    tails[at_flag] = flag.astype(">u4").view(np.uint8).reshape(count, 4)
    # Items are sorted by record, so each begins where those before it end.
    place = np.cumsum(size) - size + (record + 1) * _HEAD_SIZE
    copied = stop - start
    within = np.arange(int(copied.sum())) - np.repeat(np.cumsum(copied) - copied, copied)
    tails[np.repeat(place, copied) + within] = properties.content[np.repeat(start, copied) + within]
    tails[(place + copied)[bare]] = 1
    tails[place + size - 1] = 2
    return tails.tobytes(), edges.tolist()


def _counted_items(properties: Properties) -> _Ints:
    """Return the items that the digest covers, by record and by the bytes of their names. If a name
    occurs more than once in a record, only its last item counts."""
    counts = properties.has_prefix(_PREFIX)
    for name in _NAMES:
        counts |= properties.is_named(name)
    items = np.flatnonzero(counts)
    if not len(items):
        return items
    found = regions(
        properties.content, properties.name_start[items], properties.name_end[items]
    ).dictionary_encode()
    names = found.dictionary.to_pylist()
    rank = np.empty(len(names), dtype=np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    of_item = rank[found.indices.to_numpy()]
    record = properties.record[items]
    order = np.lexsort((items, of_item, record))
    items, of_item, record = items[order], of_item[order], record[order]
    last = np.ones(len(items), dtype=np.bool_)
    last[:-1] = (record[1:] != record[:-1]) | (of_item[1:] != of_item[:-1])
    return items[last]


def _inflated(body: bytes, compression: int) -> bytes | None:
    """Inflate a body; None if it is broken or larger than `INFLATED_SIZE_MAX`."""
    size_max = INFLATED_SIZE_MAX
    try:
        if compression in _ZLIB:
            inflater = zlib.decompressobj()
            inflated = inflater.decompress(body, size_max + 1)
            whole = inflater.eof
        elif compression == _LZ4:
            frame = lz4.frame.LZ4FrameDecompressor()
            inflated = frame.decompress(body, size_max + 1)
            whole = frame.eof
        elif compression == _ZSTD:
            inflated = zstandard.ZstdDecompressor().stream_reader(body).read(size_max + 1)
            whole = _is_whole_zstandard(body, len(inflated))
        else:
            return None
    except (zlib.error, zstandard.ZstdError, RuntimeError):
        return None
    return inflated if whole and len(inflated) <= size_max else None


def _is_whole_zstandard(body: bytes, inflated_size: int) -> bool:
    """Return whether the frame was complete: the bounded reader accepts a truncated one."""
    declared = zstandard.frame_content_size(body)
    if declared >= 0 or inflated_size > INFLATED_SIZE_MAX:
        return bool(declared == inflated_size)
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(body)
    return bool(inflater.eof)
