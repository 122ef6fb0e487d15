"""Compression of message bodies by the system flag's type: zlib, LZ4 frames, Zstandard.

Place in the data path: a producer compresses a large body before it sends; the broker stores it
unchanged; a consumer decompresses it, up to a limit, so that a small record can't fill memory.

Source: RocketMQ Compressor and CompressionType.
"""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import lz4.frame
import zstandard

from remoting.errors import RecordError
from remoting.records import sys_flag as flags

__all__ = ["INFLATED_SIZE_MAX", "compress_body", "decompress_body"]

INFLATED_SIZE_MAX: Final = 64 * 1024 * 1024
_ZLIB_LEVEL: Final = 5


class _Inflater(Protocol):
    """The common interface of zlib's and lz4's decompressors."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def compress_body(body: bytes, sys_flag: int, *, level: int = _ZLIB_LEVEL) -> tuple[bytes, int]:
    """Return (compressed body, flag with the compressed bit), by the flag's compression type.

    Raises RecordError where the type is unknown.
    """
    match sys_flag & flags.COMPRESSION_MASK:
        case 0 | flags.COMPRESSION_ZLIB:
            deflated = zlib.compress(body, level)
        case flags.COMPRESSION_LZ4:
            deflated = bytes(lz4.frame.compress(body))
        case flags.COMPRESSION_ZSTD:
            deflated = zstandard.ZstdCompressor(level=level).compress(body)
        case unknown:
            raise RecordError(f"compression type {unknown:#x} of the system flag is unknown")
    return deflated, sys_flag | flags.COMPRESSED


def decompress_body(body: bytes, sys_flag: int, *, size_max: int = INFLATED_SIZE_MAX) -> bytes:
    """Return the producer's body; unchanged where the compressed bit is not set.

    Raises RecordError where the type is unknown, the data is damaged or cut short, or it would
    decompress to more than `size_max` bytes.
    """
    if not sys_flag & flags.COMPRESSED:
        return body
    try:
        match sys_flag & flags.COMPRESSION_MASK:
            case 0 | flags.COMPRESSION_ZLIB:
                inflated, complete = _inflate(zlib.decompressobj(), body, size_max)
            case flags.COMPRESSION_LZ4:
                inflated, complete = _inflate(lz4.frame.LZ4FrameDecompressor(), body, size_max)
            case flags.COMPRESSION_ZSTD:
                inflated, complete = _inflate_zstandard(body, size_max)
            case unknown:
                raise RecordError(f"compression type {unknown:#x} of the system flag is unknown")
    except (zlib.error, zstandard.ZstdError, RuntimeError) as error:
        raise RecordError(f"compressed body is damaged: {error}") from error
    if len(inflated) > size_max:
        raise RecordError(f"compressed body inflates beyond {size_max} bytes")
    if not complete:
        raise RecordError("compressed body is cut short")
    return inflated


def _inflate(inflater: _Inflater, body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Decompress at most one byte above the limit, which shows that it is exceeded."""
    inflated = inflater.decompress(body, size_max + 1)
    return inflated, inflater.eof


def _inflate_zstandard(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Decompress within the limit; the bounded reader can't tell a cut frame from a whole one.

    A frame that declares its size is checked against it. One that doesn't (Java's stream writer) is
    decompressed again, by then known to be small enough, with the interface that detects its end.
    """
    inflated = zstandard.ZstdDecompressor().stream_reader(body).read(size_max + 1)
    if len(inflated) > size_max:
        return inflated, True
    declared = zstandard.frame_content_size(body)
    if declared >= 0:
        return inflated, len(inflated) == declared
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflater.decompress(body)
    return inflated, inflater.eof
