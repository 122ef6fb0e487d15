"""Stored records and batch bodies: golden bytes counted from the table, round trips, damage."""

from __future__ import annotations

import contextlib
import dataclasses
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remoting.errors import RecordError
from remoting.records import sys_flag as flags
from remoting.records.message import (
    BatchItem,
    MessageRecord,
    decode_batch_body,
    decode_record,
    decode_records,
    encode_batch_body,
    encode_record,
    scan_records,
)

RECORD = MessageRecord(
    topic="T",
    queue_id=3,
    body=b"hello",
    properties=b"A\x01b\x02",
    flag=-5,
    queue_offset=7,
    physical_offset=0x1234,
    sys_flag=flags.TRANSACTION_COMMIT,
    born_timestamp_ms=1_700_000_000_000,
    born_host="127.0.0.1:40000",
    store_timestamp_ms=1_700_000_000_001,
    store_host="10.0.0.2:10911",
    reconsume_times=2,
    prepared_transaction_offset=9,
)
GOLDEN = bytes.fromhex(
    "00000065"  # 1 total size: 91 + 5 + 1 + 4
    "daa320a7"  # 2 magic V1
    "3610a686"  # 3 CRC32 of "hello"
    "00000003"  # 4 queue id
    "fffffffb"  # 5 flag
    "0000000000000007"  # 6 queue offset
    "0000000000001234"  # 7 physical offset
    "00000008"  # 8 system flag
    "0000018bcfe56800"  # 9 born timestamp
    "7f000001 00009c40"  # 10 born host
    "0000018bcfe56801"  # 11 store timestamp
    "0a000002 00002a9f"  # 12 store host
    "00000002"  # 13 reconsume times
    "0000000000000009"  # 14 prepared transaction offset
    "00000005 68656c6c6f"  # 15 body
    "01 54"  # 16 topic
    "0004 41016202"  # 17 properties
)

HOSTS = st.builds(
    lambda ip, port: f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}",
    st.ip_addresses(),
    st.integers(0, 65_535),
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.builds(
    MessageRecord,
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
    | st.text("abc", min_size=120, max_size=255),
    queue_id=INT32,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=INT32.map(lambda value: value & ~0x30),
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
).filter(lambda record: len(record.topic.encode()) <= 255)


def expected(record: MessageRecord) -> MessageRecord:
    """What comes back: the bits of IPv6 hosts follow the hosts."""
    bits = (flags.BORN_HOST_IPV6 if record.born_host.startswith("[") else 0) | (
        flags.STORE_HOST_IPV6 if record.store_host.startswith("[") else 0
    )
    fields = {name: getattr(record, name) for name in MessageRecord.__slots__}
    return MessageRecord(**{**fields, "sys_flag": record.sys_flag | bits})


def test_golden_record() -> None:
    assert len(GOLDEN) == 101
    assert encode_record(RECORD) == GOLDEN
    assert decode_record(GOLDEN) == RECORD


def test_golden_record_with_ipv6_hosts() -> None:
    record = decode_record(GOLDEN)
    record.born_host = "[2001:db8::1]:1"
    record.store_host = "[::1]:2"
    encoded = encode_record(record)
    born = bytes.fromhex("20010db8000000000000000000000001 00000001")
    store = bytes.fromhex("00000000000000000000000000000001 00000002")
    assert encoded == (
        struct.pack(">I", 101 + 24)
        + GOLDEN[4:36]
        + struct.pack(">I", 0x38)
        + GOLDEN[40:48]
        + born
        + GOLDEN[56:64]
        + store
        + GOLDEN[72:]
    )
    decoded = decode_record(encoded)
    assert (decoded.born_host, decoded.store_host) == ("[2001:db8::1]:1", "[::1]:2")
    assert decoded.sys_flag == 0x38


def test_golden_record_of_a_long_topic_is_version_2() -> None:
    record = decode_record(GOLDEN)
    record.topic = "t" * 127
    assert encode_record(record)[4:8].hex() == "daa320a7"
    record.topic = "t" * 128
    encoded = encode_record(record)
    assert encoded == (
        struct.pack(">II", 91 + 1 + 5 + 128 + 4, 0xDAA320AB)
        + GOLDEN[8:93]
        + b"\x00\x80"
        + b"t" * 128
        + GOLDEN[95:]
    )
    assert decode_record(encoded) == record


@given(record=RECORDS)
def test_round_trip(record: MessageRecord) -> None:
    encoded = encode_record(record)
    assert decode_record(encoded) == expected(record)
    assert decode_record(b"xx" + encoded + b"yy", 2) == expected(record)
    assert decode_record(memoryview(bytearray(encoded))) == expected(record)


@given(records=st.lists(RECORDS, max_size=4))
def test_a_block_of_records_is_decoded_and_scanned(records: list[MessageRecord]) -> None:
    block = b"".join(encode_record(record) for record in records)
    decoded = decode_records(block)
    assert decoded == [expected(record) for record in records]
    at = 0
    for record, scan in zip(decoded, scan_records(block), strict=True):
        assert scan.start == at
        assert block[at : at + scan.size] == encode_record(record)
        assert scan.topic.decode() == record.topic
        assert scan.properties == record.properties
        assert block[scan.body_start : scan.body_start + scan.body_size] == record.body
        assert (scan.queue_id, scan.queue_offset) == (record.queue_id, record.queue_offset)
        assert (scan.physical_offset, scan.sys_flag) == (record.physical_offset, record.sys_flag)
        at += scan.size
    assert at == len(block)


def test_every_cut_is_refused() -> None:
    for size in range(len(GOLDEN)):
        with pytest.raises(RecordError):
            decode_record(GOLDEN[:size])
        if size:
            with pytest.raises(RecordError):
                decode_records(GOLDEN + GOLDEN[:size])
            with pytest.raises(RecordError):
                list(scan_records(GOLDEN + GOLDEN[:size]))


@settings(max_examples=300)
@given(record=RECORDS, data=st.data())
def test_damage_gives_a_record_error_or_another_record(
    record: MessageRecord, data: st.DataObject
) -> None:
    encoded = bytearray(encode_record(record))
    for at in data.draw(st.lists(st.integers(0, len(encoded) - 1), min_size=1, max_size=4)):
        encoded[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RecordError):
        decode_record(bytes(encoded))
    with contextlib.suppress(RecordError):
        list(scan_records(bytes(encoded)))


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_give_a_record_error(data: bytes) -> None:
    if data:
        with pytest.raises(RecordError):
            decode_record(data)


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (4, struct.pack(">I", 0xCBD43194), "magic 0xcbd43194"),
        (0, struct.pack(">I", 102), "says it has 102 bytes; 101 are there"),
        (0, struct.pack(">I", 90), "shorter than its fixed fields"),
        (0, struct.pack(">I", 100), "does not end the record"),
        (84, struct.pack(">I", 2**31), "body length 2147483648"),
        (84, struct.pack(">I", 0xFFFFFFFF), "body length 4294967295"),
        (93, b"\xff", "topic length 255"),
        (95, b"\x00\x03", "properties length 3"),
        (88, b"j", "does not match its CRC"),
        (8, b"\x00", "does not match its CRC"),
        (94, b"\xff", "not UTF-8"),
    ],
)
def test_what_is_wrong_is_named(at: int, value: bytes, text: str) -> None:
    damaged = GOLDEN[:at] + value + GOLDEN[at + len(value) :]
    with pytest.raises(RecordError, match=text):
        decode_record(damaged)


def test_the_crc_is_checked_unless_told_otherwise() -> None:
    cut = struct.pack(">I", 0xD202EF8D - 0x8000_0000)  # CRC32 of the body, without its first bit
    assert encode_record(dataclasses.replace(RECORD, body=b"\x00"))[8:12] == cut
    damaged = GOLDEN[:88] + b"jello" + GOLDEN[93:]
    assert decode_record(damaged, check_crc=False).body == b"jello"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("topic", "", "topic of 0 bytes"),
        ("topic", "t" * 256, "topic of 256 bytes"),
        ("properties", bytes(32_768), "32768 bytes"),
        ("queue_id", 2**31, "does not fit"),
        ("queue_offset", 2**63, "does not fit"),
        ("born_host", "localhost:1", "localhost"),
        ("store_host", "127.0.0.1", "is not ip:port"),
        ("store_host", "127.0.0.1:65536", "is not ip:port"),
    ],
)
def test_what_does_not_fit_is_refused(field: str, value: object, text: str) -> None:
    record = decode_record(GOLDEN)
    setattr(record, field, value)
    with pytest.raises(RecordError, match=text):
        encode_record(record)


def test_a_record_knows_its_id_and_properties() -> None:
    assert RECORD.offset_msg_id == "0A00000200002A9F0000000000001234"
    assert RECORD.property_map() == {"A": "b"}


GOLDEN_BATCH = bytes.fromhex(
    "0000001a 00000000 00000000 00000007 00000002 6869 0002 4101"
    "00000016 00000000 00000000 ffffffff 00000000 0000"
)


def test_golden_batch_body() -> None:
    items = [BatchItem(b"hi", b"A\x01", 7), BatchItem(b"", b"", -1)]
    assert encode_batch_body(items) == GOLDEN_BATCH
    assert decode_batch_body(GOLDEN_BATCH) == items


ITEMS = st.builds(BatchItem, st.binary(max_size=50), st.binary(max_size=50), INT32)


@given(items=st.lists(ITEMS, max_size=5))
def test_batch_round_trip(items: list[BatchItem]) -> None:
    assert decode_batch_body(encode_batch_body(items)) == items


def test_every_cut_of_a_batch_is_refused() -> None:
    whole = {0, 26, len(GOLDEN_BATCH)}
    for size in set(range(len(GOLDEN_BATCH))) - whole:
        with pytest.raises(RecordError):
            decode_batch_body(GOLDEN_BATCH[:size])


@given(data=st.binary(min_size=1, max_size=100))
def test_arbitrary_bytes_are_a_batch_or_a_record_error(data: bytes) -> None:
    with contextlib.suppress(RecordError):
        assert len(encode_batch_body(decode_batch_body(data))) == len(data)


def test_a_batch_item_with_too_large_properties_is_refused() -> None:
    with pytest.raises(RecordError, match="40000"):
        encode_batch_body([BatchItem(b"", bytes(40_000))])
