"""Offsets of broadcasting members: their file, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.rig.waiting import turns
from client.consume.local_offsets import (
    LocalOffsets,
    OffsetFileError,
    decode_offsets,
    encode_offsets,
)
from client.consume.queue_locks import LockTable
from client.message import MessageQueue
from remoting.errors import BodyError

QUEUE = MessageQueue("T", "broker-a", 0)
TEXT = st.text(min_size=1, max_size=8)


@given(st.dictionaries(st.builds(MessageQueue, TEXT, TEXT, st.integers(0, 99)), st.integers(0)))
def test_offsets_come_back_from_their_bytes(offsets: dict[MessageQueue, int]) -> None:
    small = {queue: offset % (1 << 60) for queue, offset in offsets.items()}
    assert decode_offsets(encode_offsets(small)) == small


def test_the_form_is_the_one_that_java_writes() -> None:
    java = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'
    assert encode_offsets({QUEUE: 7}) == java
    assert decode_offsets(java) == {QUEUE: 7}


def test_offsets_with_names_that_are_strings_are_read() -> None:
    name = json.dumps('{"brokerName":"broker-a","queueId":0,"topic":"T"}')
    assert decode_offsets(b'{"offsetTable":{%s:7}}' % name.encode()) == {QUEUE: 7}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"offsetTable":{"x":1}}', b'{"offsetTable":{"{}":1}}'],
)
def test_what_is_no_offset_table_is_refused(content: bytes) -> None:
    with pytest.raises(BodyError):
        decode_offsets(content)


async def test_a_file_outlives_its_user_and_has_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    one, two = LocalOffsets(path), LocalOffsets(path)
    await one.open()
    one.put(QUEUE, 3)
    await one.flush()
    with pytest.raises(OffsetFileError, match="in use"):
        await two.open()
    one.put(QUEUE, 5)
    one.abandon()  # killed: the last flush counts
    await two.open()
    assert two.get(QUEUE) == 3
    two.put(QUEUE, 6)
    await two.close()
    three = LocalOffsets(path)
    await three.open()
    assert three.get(QUEUE) == 6
    await three.close()


async def test_a_damaged_file_ends_the_start_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"garbage")
    with pytest.raises(OffsetFileError, match=r"offsets\.json"):
        await LocalOffsets(path).open()
    assert path.read_bytes() == b"garbage"


async def test_a_write_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "directory" / "offsets.json"
    offsets = LocalOffsets(path)
    await offsets.open()
    offsets.put(QUEUE, 1)
    blocker = path.with_name("offsets.json.new")
    blocker.mkdir()
    with pytest.raises(OffsetFileError):
        await offsets.flush()
    blocker.rmdir()
    await offsets.close()
    assert decode_offsets(path.read_bytes()) == {QUEUE: 1}


async def test_a_file_that_a_cancelled_start_opened_is_closed(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path / "offsets.json")
    opening = asyncio.create_task(offsets.open())
    await turns(1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    again = LocalOffsets(tmp_path / "offsets.json")
    await again.open()
    await again.close()


def test_a_lock_holds_for_half_of_what_the_broker_keeps_it() -> None:
    table = LockTable()
    assert table.granted(QUEUE, 1_000)
    assert table.holds(QUEUE, 30_999)
    assert not table.holds(QUEUE, 31_000)
    assert table.granted(QUEUE, 60_999)  # it was ours all the time
    assert not table.granted(QUEUE, 120_999)  # another member may have come and gone
    assert table.granted(QUEUE, 121_000)
    table.forget(QUEUE)
    assert not table.holds(QUEUE, 121_000)
    assert table.queues == ()


def test_a_lock_of_a_shorter_lease_holds_for_half_of_it() -> None:
    table = LockTable(held_ms=6_000)
    assert table.granted(QUEUE, 1_000)
    assert table.holds(QUEUE, 6_999)
    assert not table.holds(QUEUE, 7_000)
    assert not table.granted(QUEUE, 13_000)  # the broker may have given it away at 12 s


def test_what_is_given_back_is_asked_for_by_another_claim() -> None:
    table = LockTable()
    before = table.claim
    assert table.granted(QUEUE, 1_000)
    assert table.release([QUEUE]) == before
    assert table.claim > before
    assert not table.holds(QUEUE, 1_000)
    assert table.was_released_since(QUEUE, before)  # an answer that comes late
    assert not table.was_released_since(QUEUE, table.claim)


def test_what_was_asked_for_and_not_answered_may_be_held() -> None:
    table = LockTable()
    granted, refused, unanswered = (MessageQueue("T", "broker-a", number) for number in range(3))
    table.asked([granted, refused, unanswered])
    table.granted(granted, 1_000)
    table.forget(refused)
    assert table.queues == (granted, unanswered)
    assert not table.holds(unanswered, 1_000)
    table.release([unanswered])
    assert table.queues == (granted,)
