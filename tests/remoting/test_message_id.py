"""Ids and hashes, against values worked out by hand and by Java's rules."""

from __future__ import annotations

import calendar
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RecordError
from remoting.records.message_id import (
    UniqueIdGenerator,
    java_string_hash,
    join_host,
    offset_msg_id,
    pack_host,
    parse_offset_msg_id,
    split_host,
    tags_code,
    unpack_host,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),  # well known to hash to MIN_VALUE
        ("中文", 20013 * 31 + 25991),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two UTF-16 units
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@given(text=st.text(max_size=30))
def test_java_string_hash_fits_an_int(text: str) -> None:
    slow = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        slow = slow * 31 + int.from_bytes(units[at : at + 2], "big")
    slow %= 2**32
    assert java_string_hash(text) == (slow - 2**32 if slow >= 2**31 else slow)


def test_tags_code() -> None:
    assert tags_code(None) == 0
    assert tags_code("") == 0
    assert tags_code("TagA") == java_string_hash("TagA")
    assert tags_code("订单") == 1_129_459, "of UTF-16 units, as Java has it"
    assert tags_code("\U0001f600") == 1_772_899


def test_offset_msg_id() -> None:
    assert offset_msg_id("127.0.0.1", 10911, 0xABC) == "7F00000100002A9F0000000000000ABC"
    assert parse_offset_msg_id("7F00000100002A9F0000000000000ABC") == ("127.0.0.1", 10911, 0xABC)
    assert parse_offset_msg_id("7f00000100002a9f0000000000000abc") == ("127.0.0.1", 10911, 0xABC)
    assert offset_msg_id("::1", 1, 2) == "00000000000000000000000000000001000000010000000000000002"


@given(ip=st.ip_addresses(), port=st.integers(0, 65_535), position=st.integers(0, 2**63 - 1))
def test_offset_msg_id_round_trip(ip: object, port: int, position: int) -> None:
    assert parse_offset_msg_id(offset_msg_id(str(ip), port, position)) == (str(ip), port, position)


@pytest.mark.parametrize("bad", ["", "7F", "x" * 32, "é" * 32, "7F00000100002A9F0000000000000ABC0"])
def test_what_is_no_offset_msg_id_is_refused(bad: str) -> None:
    with pytest.raises(RecordError, match="offset message id"):
        parse_offset_msg_id(bad)


@given(ip=st.ip_addresses(), port=st.integers(0, 65_535))
def test_hosts_round_trip(ip: object, port: int) -> None:
    host = join_host(str(ip), port)
    assert split_host(host) == (str(ip), port)
    assert unpack_host(pack_host(host)) == host


@pytest.mark.parametrize("bad", ["", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:-1", ":1"])
def test_what_is_no_host_is_refused(bad: str) -> None:
    with pytest.raises(RecordError, match="is not ip:port"):
        pack_host(bad)


def test_golden_unique_id() -> None:
    # 2023-11-14 22:13:20.000 UTC is 13 d 22 h 13 min 20 s, 1,203,200,000 ms, into its month.
    generator = UniqueIdGenerator(ip="127.0.0.1", pid=0x1ABCD, instance=0x12345678)
    assert generator.next_id(1_700_000_000_000) == "7F000001ABCD1234567847B760000001"
    assert generator.next_id(1_700_000_000_000) == "7F000001ABCD1234567847B760000002"


def test_unique_ids_of_ipv6_have_56_characters() -> None:
    assert len(UniqueIdGenerator(ip="::1", pid=1, instance=2).next_id(0)) == 56


@given(time_ms=st.integers(0, 4_102_444_800_000))
def test_the_month_is_the_calendars(time_ms: int) -> None:
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    start_ms = calendar.timegm((moment.year, moment.month, 1, 0, 0, 0)) * 1000
    unique_id = UniqueIdGenerator(ip="1.2.3.4", pid=1, instance=1).next_id(time_ms)
    assert int(unique_id[20:28], 16) == time_ms - start_ms


def test_unique_ids_never_repeat() -> None:
    generator = UniqueIdGenerator(ip="127.0.0.1", pid=1, instance=1)
    now_ms = 1_700_000_000_000
    ids = [generator.next_id(now_ms) for _ in range(140_000)]  # beyond the counter, twice
    ids += [generator.next_id(now_ms - 5_000) for _ in range(10)]  # the clock went backwards
    ids += [generator.next_id(now_ms + 1) for _ in range(10)]
    assert len(set(ids)) == len(ids)
