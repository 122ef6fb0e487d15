"""Who is examined next: no half twice, none forgotten, none starved, and none for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.state.half_table import Half, HalfTable
from broker.transaction import check_back
from broker.transaction.check_back import CheckBack
from broker.transaction.check_schedule import CheckSchedule
from campaigns.rig.waiting import turns, until
from tests.broker.rig import FakeConnection, Rig
from tests.broker.transactions import half


def table_of(*stored_ms: int) -> HalfTable:
    table = HalfTable(decided_max=8)
    for offset, at_ms in enumerate(stored_ms):
        table.add(Half(offset, position=offset * 100, size=90, stored_ms=at_ms))
    return table


def test_a_young_half_is_not_passed() -> None:
    schedule, table = CheckSchedule(), table_of(10, 20, 30)
    assert list(schedule.fresh(table, 20)) == [0, 1]
    assert list(schedule.fresh(table, 20)) == []
    assert list(schedule.fresh(table, 30)) == [2]


def test_who_was_checked_waits_for_the_interval() -> None:
    schedule = CheckSchedule()
    for offset, at_ms in ((4, 100), (2, 100), (9, 105)):
        schedule.put_checked(offset, at_ms)
    assert list(schedule.checked(99)) == []
    assert list(schedule.checked(100)) == [4, 2]
    assert list(schedule.checked(105)) == [9]
    assert list(schedule.checked(1_000)) == []


def test_a_line_that_was_left_in_its_middle_goes_on() -> None:
    schedule = CheckSchedule()
    for offset in range(4):
        schedule.put_checked(offset, 100)
        schedule.put_without_producer(offset, ("P", "T"))
    assert next(schedule.checked(100)) == 0
    assert list(schedule.checked(100)) == [1, 2, 3]
    assert next(schedule.with_producer(lambda *_: True)) == 0
    assert list(schedule.with_producer(lambda *_: True)) == [1, 2, 3]
    assert list(schedule.with_producer(lambda *_: True)) == []


def test_a_place_that_may_not_go_on_is_asked_for_once() -> None:
    schedule, asked = CheckSchedule(), list[tuple[str, int]]()
    for offset in range(100):
        schedule.put_without_producer(offset, ("P", "T") if offset % 2 else ("Q", "T"))

    def may_go_on(place: tuple[str, str], first: int) -> bool:
        asked.append((place[0], first))
        return place[0] == "P"

    assert list(schedule.with_producer(may_go_on)) == list(range(1, 100, 2))
    assert asked == [("Q", 0), ("P", 1)]


def test_what_has_expired_is_taken_once_in_a_round() -> None:
    schedule, table = CheckSchedule(), table_of(10, 20, 30)
    schedule.begin_round()
    assert list(schedule.expired(table, 20)) == [0, 1]
    assert list(schedule.expired(table, 20)) == []
    schedule.begin_round()
    assert list(schedule.expired(table, 30)) == [0, 1, 2]


@pytest.fixture
async def rig(tmp_path: Path):
    rig = Rig(tmp_path)
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_halves_without_a_producer_are_read_once(rig, monkeypatch) -> None:
    for number in range(20):
        await half(rig, key=f"K{number}")
    reads = 0
    read = type(rig.replica).read

    def counted(self, position: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(self, position, size)

    monkeypatch.setattr(type(rig.replica), "read", counted)
    check = rig.make(CheckBack)
    for _ in range(5):
        rig.now_ms += rig.config.transaction_check_interval_ms
        check.round()
        check.proceed()
    assert reads == 20
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)
    check.round()
    await until(lambda: len(producer.sent) == 20)


async def test_more_than_a_slice_goes_on_without_waiting_for_a_round(rig, monkeypatch) -> None:
    monkeypatch.setattr(check_back, "_SLICE_MAX", 7)
    monkeypatch.setattr(check_back, "_SHARE", 2)
    for number in range(20):
        await half(rig, key=f"K{number}")
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)
    check = rig.make(CheckBack)
    rig.now_ms += rig.config.transaction_timeout_ms
    check.round()
    await turns(5)
    assert len(producer.sent) == 7
    for _ in range(4):
        check.proceed()
        await turns(5)
    asked = [int(each.ext_fields["tranStateTableOffset"]) for each in producer.sent]
    assert asked == list(range(20)), "each once, in the order of the queue"


async def test_the_oldest_do_not_starve_the_new(rig, monkeypatch) -> None:
    """With more to check again than there is time for, a half that was never checked is."""
    monkeypatch.setattr(check_back, "_SLICE_MAX", 4)
    monkeypatch.setattr(check_back, "_SHARE", 1)
    rig.replica.change_settings(replace(rig.config, transaction_check_max=1_000))
    for number in range(12):
        await half(rig, key=f"K{number}")
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)
    check = rig.make(CheckBack)
    for _ in range(12):
        rig.now_ms += rig.config.transaction_check_interval_ms
        check.round()
        await turns(5)
    asked = {int(each.ext_fields["tranStateTableOffset"]) for each in producer.sent}
    assert asked == set(range(12))
