"""What the broker writes: records, payloads and ConsumeQueue units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.payload import (
    PAYLOAD_HEADER,
    UNIT,
    CheckCommand,
    DecideCommand,
    DiscardCommand,
    GroupCommand,
    OffsetCommand,
    PayloadError,
    Run,
    TopicCommand,
    decode_payload,
    encode_command,
    encode_header,
    encode_table,
)
from broker.entry.record import PendingRecord, RecordTemplate, host_bytes
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.derived_files import FILE_SIZE
from remoting.records.message import MessageRecord, decode_record, encode_record

TEXT = st.text(st.characters(codec="ascii", min_codepoint=48, max_codepoint=122), min_size=1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
HOST = st.sampled_from(["127.0.0.1:10911", "10.1.2.3:65535", "[::1]:7", "[2001:db8::5]:80"])


@settings(deadline=None)
@given(
    topic=TEXT.filter(lambda text: len(text) <= 255),
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    queue=st.integers(0, 2**31 - 1),
    flag=INT32,
    offsets=st.tuples(INT64, INT64),
    born=INT64,
    stored=INT64,
    hosts=st.tuples(HOST, HOST),
    reconsume=st.integers(0, 2**31 - 1),
)
def test_a_record_is_byte_for_byte_the_shared_codecs(
    topic, body, properties, queue, flag, offsets, born, stored, hosts, reconsume
):
    queue_offset, position = offsets
    store_host = host_bytes(hosts[1])
    template = RecordTemplate(
        topic=topic,
        queue_id=queue,
        sys_flag=8,
        born_ms=born,
        born_host=host_bytes(hosts[0]),
        store_host_size=len(store_host),
        reconsume_times=reconsume,
        prepared_position=99,
    )
    pending = PendingRecord(template, body, properties, tags_code=0, flag=flag)
    pending.queue_offset = queue_offset
    encoded = b"".join(pending.encode_at(position, stored, store_host))
    assert len(encoded) == pending.size
    expected = MessageRecord(
        topic=topic,
        queue_id=queue,
        body=body,
        properties=properties,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=position,
        sys_flag=8,
        born_timestamp_ms=born,
        born_host=hosts[0],
        store_timestamp_ms=stored,
        store_host=hosts[1],
        reconsume_times=reconsume,
        prepared_transaction_offset=99,
    )
    assert encoded == encode_record(expected)
    assert decode_record(encoded).body == body


def test_golden_bytes_of_a_record():
    template = RecordTemplate(
        topic="T",
        queue_id=3,
        sys_flag=0,
        born_ms=1,
        born_host=host_bytes("1.2.3.4:5"),
        store_host_size=8,
    )
    pending = PendingRecord(template, b"hi", b"K\x01v\x02", tags_code=0, flag=7)
    pending.queue_offset = 9
    encoded = b"".join(pending.encode_at(1000, 2, host_bytes("127.0.0.1:10911")))
    assert encoded.hex() == "".join(
        (
            "00000062",  # total size
            "daa320a7",  # magic
            "58932aac",  # CRC32 of the body, its top bit cleared
            "00000003",  # queue id
            "00000007",  # flag
            "0000000000000009",  # queue offset
            "00000000000003e8",  # physical offset
            "00000000",  # sysFlag
            "0000000000000001",  # born timestamp
            "0102030400000005",  # born host
            "0000000000000002",  # store timestamp
            "7f00000100002a9f",  # store host
            "00000000",  # reconsume times
            "0000000000000000",  # prepared transaction offset
            "000000026869",  # body
            "0154",  # topic
            "00044b017602",  # properties
        )
    )


RUNS = st.builds(
    Run,
    TEXT,
    st.integers(0, 1023),
    INT64,
    st.lists(st.tuples(INT64, st.integers(0, 2**31), INT32), min_size=1, max_size=5).map(
        lambda units: b"".join(UNIT.pack(*unit) for unit in units)
    ),
    st.none() | st.lists(st.none() | TEXT, max_size=5),
)
COMMANDS = st.one_of(
    st.builds(OffsetCommand, TEXT, TEXT, st.integers(0, 9), INT64),
    st.builds(DecideCommand, INT64, INT64, st.sampled_from(["commit", "rollback"]), st.booleans()),
    st.builds(CheckCommand, INT64),
    st.builds(DiscardCommand, INT64),
    st.builds(GroupCommand, TEXT, st.dictionaries(TEXT, st.booleans() | INT32)),
    st.builds(
        TopicCommand,
        TEXT,
        st.integers(1, 9),
        st.integers(1, 9),
        st.integers(0, 7),
        TEXT,
        INT32,
        st.booleans(),
        st.dictionaries(TEXT, TEXT),
    ),
)


@settings(deadline=None)
@given(INT64, st.lists(RUNS, max_size=4), st.lists(COMMANDS, max_size=6), st.binary(max_size=50))
def test_a_payload_reads_back_as_it_was_written(stored, runs, commands, records):
    table = encode_table(stored, runs, list(map(encode_command, commands)))
    payload = decode_payload(encode_header(len(table)) + table + records)
    assert payload.store_timestamp_ms == stored
    assert payload.runs == runs
    assert payload.commands == commands


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_payload_error_at_worst(data):
    try:
        decode_payload(data)
    except PayloadError:
        return
    assert data[0] == 1


def test_the_size_of_a_table_does_not_depend_on_positions():
    small = Run("T", 0, 5, bytes(40), ["a", None])
    large = Run("T", 0, 5, b"\xff" * 40, ["a", None])
    assert len(encode_table(1, [small], [])) == len(encode_table(1, [large], []))
    assert PAYLOAD_HEADER.size == 8


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=6), st.integers(0, 14_900))
def test_a_queue_is_a_list_of_units(tmp_path_factory, counts, start_files):
    """Across file borders too: the first append is long."""
    queue = ConsumeQueue(tmp_path_factory.mktemp("queue"))
    model: list[bytes] = []
    for at, count in enumerate([start_files, *counts]):
        units = [UNIT.pack(len(model) + i, 100 + at, -at) for i in range(count)]
        queue.append(len(model), b"".join(units))
        model += units
    assert queue.next_offset == len(model)
    for offset in {0, len(model) // 2, len(model) - 1, len(model)}:
        read = queue.read(offset, 64)
        assert read == b"".join(model[offset : offset + 64])
    queue.close()


def test_a_queue_crosses_files(tmp_path):
    queue = ConsumeQueue(tmp_path)
    per_file = FILE_SIZE // 20
    queue.append(0, bytes(FILE_SIZE - 20))
    queue.append(per_file - 1, UNIT.pack(1, 2, 3) + UNIT.pack(4, 5, 6))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{0:020d}",
        f"{FILE_SIZE:020d}",
    ]
    assert queue.read(per_file - 1, 8) == UNIT.pack(1, 2, 3), "a read ends with its file"
    assert queue.read(per_file, 8) == UNIT.pack(4, 5, 6)
    queue.close()


def test_units_at_the_wrong_offset_are_refused(tmp_path):
    queue = ConsumeQueue(tmp_path)
    queue.append(0, UNIT.pack(1, 2, 3))
    with pytest.raises(AssertionError, match="next is 1"):
        queue.append(5, UNIT.pack(1, 2, 3))
    queue.close()


def test_few_files_are_open_however_many_queues_there_are(tmp_path):
    queues = ConsumeQueues(tmp_path, files_max=3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for at in range(2):
        for queue_id in range(50):
            queues.get("T", queue_id).append(at, UNIT.pack(queue_id, at, 7))
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 2 * 3
    for queue_id in range(50):
        units = UNIT.pack(queue_id, 0, 7) + UNIT.pack(queue_id, 1, 7)
        assert queues.get("T", queue_id).read(0, 9) == units
    queues.close()
