"""Counters by topic and group: windows, totals, days, bounds; what the broker counts of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.request.stats import Stats
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import START_MS, Rig, pull_fields, send_fields


def run_for(stats: Stats, seconds: int, per_second: int, began_ms: int = START_MS) -> int:
    """Store some each second; the time at the end."""
    for second in range(seconds):
        stats.sample(began_ms + 1_000 * second)
        if per_second:
            stats.put("T", per_second, 10 * per_second)
    return began_ms + 1_000 * seconds


def test_a_steady_stream_shows_its_rate_in_every_window():
    stats = Stats()
    run_for(stats, 700, per_second=5)
    assert [round(float(rate)) for rate in stats.rates()["putTps"].split()] == [5, 5, 5]
    assert stats.tps("TOPIC_PUT_NUMS", "T") == pytest.approx(5, rel=0.1)
    item = stats.item("TOPIC_PUT_SIZE", "T")
    assert item is not None
    minute = item.snapshot(item.minute)
    assert minute.sum == pytest.approx(3_000, rel=0.2)
    assert minute.avgpt == 50


def test_the_brokers_own_counters_are_the_sums_of_all_topics():
    stats = Stats()
    for second in range(40):
        stats.sample(START_MS + 1_000 * second)
        stats.put("T", second % 3, 10)
        stats.put("U", 1, 10)
        stats.got("G", "T", second % 2, 10)
    stats.sample(START_MS + 40_000)
    for name, count in (("BROKER_PUT_NUMS", 39 + 40), ("BROKER_GET_NUMS", 20)):
        item = stats.broker_item(name)
        assert item is not None
        assert item.sum == count


def test_what_has_stopped_shows_no_rate_after_its_window():
    stats = Stats()
    now_ms = run_for(stats, 100, per_second=5)
    run_for(stats, 601, per_second=0, began_ms=now_ms)
    assert stats.rates()["putTps"] == "0.0 0.0 0.0"
    assert stats.tps("TOPIC_PUT_NUMS", "T") == 0
    item = stats.item("TOPIC_PUT_NUMS", "T")
    assert item is not None
    assert item.snapshot(item.hour).sum == 500, "the hour still knows"


def test_nothing_is_known_before_anything_was_counted():
    stats = Stats()
    assert stats.item("TOPIC_PUT_NUMS", "T") is None
    assert stats.rates()["getTotalTps"] == "0.0 0.0 0.0"


def test_mornings_are_noted_at_midnight():
    stats = Stats()
    local = time.localtime(START_MS // 1_000)
    midnight_ms = START_MS - 1_000 * (local.tm_hour * 3_600 + local.tm_min * 60 + local.tm_sec)
    day_ms = 86_400_000
    for day, count in ((1, 7), (2, 5), (3, 1)):
        stats.sample(midnight_ms + day * day_ms - 2_000)
        stats.put("T", count, count)
        stats.got("G", "T", count, count)
        stats.sample(midnight_ms + day * day_ms + 2_000)
    totals = stats.totals
    assert (totals.put_yesterday_morning, totals.put_today_morning) == (12, 13)
    assert (totals.get_yesterday_morning, totals.get_today_morning) == (12, 13)


def test_items_are_bounded_and_quiet_ones_make_room():
    stats = Stats(items_max=4)
    stats.sample(START_MS)
    for number in range(10):
        stats.put(f"T{number}", 1, 1)
    assert stats.totals.put_count == 10, "all is in the totals"
    assert stats.item("TOPIC_PUT_NUMS", "T9") is None
    stats.sample(START_MS + 2 * 86_400_000)
    stats.put("T9", 1, 1)
    assert stats.item("TOPIC_PUT_NUMS", "T9") is not None


def test_names_of_any_length_are_not_kept():
    """A pull may name any group."""
    stats = Stats()
    for number in range(3):
        stats.got(f"{number}" * 1_000, "T", 1, 10)
        stats.sent_back("G", f"{number}" * 1_000)
    stats.got("G" * 247, "T" * 127, 1, 10)
    assert len(stats._items) == 2
    assert stats.totals.get_count == 4


@given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 100)), max_size=200))
def test_windows_never_tell_more_than_there_was(steps):
    stats, now_ms, total = Stats(), START_MS, 0
    for wait_ms, count in steps:
        now_ms += wait_ms
        stats.sample(now_ms)
        stats.put("T", count, count)
        total += count
    item = stats.item("TOPIC_PUT_NUMS", "T")
    if item is not None:
        for window in (item.minute, item.hour, item.day):
            shown = item.snapshot(window)
            assert 0 <= shown.sum <= total
            assert shown.tps >= 0


async def test_pops_and_what_is_sent_back_are_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    stats = rig.context.stats
    sent = await rig.ask(handlers[310], 310, send_fields(), b"x")
    pop = {"consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "8"}
    pop |= {"invisibleTime": "30000", "pollTime": "0", "bornTime": "0", "initMode": "0"}
    code = RequestCode.POP_MESSAGE
    assert (await rig.ask(handlers[code], code, pop)).code == ResponseCode.SUCCESS
    back = {"group": "G", "delayLevel": "1", "offset": str(int(sent.ext_fields["msgId"][16:], 16))}
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    assert (await rig.ask(handlers[code], code, back)).code == ResponseCode.SUCCESS
    for name in ("GROUP_GET_NUMS", "SNDBCK_PUT_NUMS"):
        item = stats.item(name, "T@G")
        assert item is not None, name
        assert item.sum == 1, name
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_pull_is_counted_and_asked_for_by_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    rig.context.stats.sample(START_MS)
    for key in ("a", "b"):
        assert (await rig.ask(handlers[310], 310, send_fields(key=key), b"x")).code == 0
    await rig.ask(handlers[11], 11, pull_fields(offset=0))
    rig.context.stats.put("T", 2, 200)  # the broker's shell counts what arrives
    rig.context.stats.sample(START_MS + 10_000)
    code = RequestCode.VIEW_BROKER_STATS_DATA
    wanted = {"statsName": "GROUP_GET_NUMS", "statsKey": "T@G"}
    told = json.loads((await rig.ask(handlers[code], code, wanted)).body)
    assert told["statsMinute"] == {"sum": 2, "tps": 0.2, "avgpt": 2.0}
    for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
        wanted = {"statsName": name, "statsKey": "DefaultCluster"}
        told = json.loads((await rig.ask(handlers[code], code, wanted)).body)
        assert told["statsMinute"]["sum"] == 2, name
    assert rig.context.stats.totals.get_miss == 0
    await rig.ask(handlers[11], 11, pull_fields(offset=2))
    assert rig.context.stats.totals.get_miss == 1
    unknown = await rig.ask(handlers[code], code, wanted | {"statsKey": "T@H"})
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    await rig.tasks.stop()
    rig.queues.close()
