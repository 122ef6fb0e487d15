"""Bodies deflated and inflated by the system flag."""

from __future__ import annotations

import contextlib
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RecordError
from remoting.records import sys_flag as flags
from remoting.records.body_compression import compress_body, decompress_body

TYPES = [0, flags.COMPRESSION_ZLIB, flags.COMPRESSION_LZ4, flags.COMPRESSION_ZSTD]


@pytest.mark.parametrize("kind", TYPES)
@given(body=st.binary(max_size=4096))
def test_round_trip(kind: int, body: bytes) -> None:
    deflated, sys_flag = compress_body(body, kind | flags.TRANSACTION_PREPARED)
    assert sys_flag == kind | flags.TRANSACTION_PREPARED | flags.COMPRESSED
    assert decompress_body(deflated, sys_flag) == body


@pytest.mark.parametrize("kind", TYPES)
def test_a_body_may_fill_the_limit_and_not_exceed_it(kind: int) -> None:
    deflated, sys_flag = compress_body(bytes(1_000_000), kind)
    assert len(deflated) < 10_000
    assert decompress_body(deflated, sys_flag, size_max=1_000_000) == bytes(1_000_000)
    with pytest.raises(RecordError, match="beyond 999999 bytes"):
        decompress_body(deflated, sys_flag, size_max=999_999)


@pytest.mark.parametrize("kind", TYPES)
def test_a_cut_body_is_refused(kind: int) -> None:
    deflated, sys_flag = compress_body(b"some words, repeated " * 50, kind)
    for size in range(len(deflated)):
        with pytest.raises(RecordError):
            decompress_body(deflated[:size], sys_flag)


def test_a_cut_zstandard_stream_without_size_is_refused() -> None:
    writer = zstandard.ZstdCompressor().compressobj()
    deflated = writer.compress(b"some words, repeated " * 50) + writer.flush()
    assert zstandard.frame_content_size(deflated) == -1
    sys_flag = flags.COMPRESSED | flags.COMPRESSION_ZSTD
    assert decompress_body(deflated, sys_flag) == b"some words, repeated " * 50
    for size in range(len(deflated)):
        with pytest.raises(RecordError):
            decompress_body(deflated[:size], sys_flag)


@pytest.mark.parametrize("kind", TYPES)
@given(body=st.binary(min_size=1, max_size=200))
def test_arbitrary_bytes_give_a_body_or_a_record_error(kind: int, body: bytes) -> None:
    with contextlib.suppress(RecordError):
        decompress_body(body, kind | flags.COMPRESSED, size_max=10_000)


def test_the_compressed_bit_decides() -> None:
    assert decompress_body(b"plain", flags.COMPRESSION_ZLIB) == b"plain"
    # What producers before the type bits sent: the bit alone means zlib.
    assert decompress_body(zlib.compress(b"old"), flags.COMPRESSED) == b"old"


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(RecordError, match="0x400"):
        decompress_body(b"x", flags.COMPRESSED | 0x400)
    with pytest.raises(RecordError, match="0x400"):
        compress_body(b"x", 0x400)
