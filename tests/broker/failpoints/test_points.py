"""Failpoints: named, counted, armed, released; and nothing of them where nobody asked for them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.failpoints.catalogue import DISK_POINTS, points_of
from broker.failpoints.installation import Installation, resolve
from broker.failpoints.orders import Action, Arming, Order, OrderError, decode_order
from broker.failpoints.points import ALWAYS, FailPoint, Point, When
from campaigns.rig.waiting import await_until, turns, until
from chaos.nemesis.failpoint.armed_points import COMMON_POINTS

THIS = "tests.broker.failpoints.places:"


def point(name: str = "p", place: str = THIS + "plain", **fields: Any) -> Point:
    return Point(name=name, place=place, when=fields.pop("when", When.BEFORE), summary="", **fields)


def arming(action: str = "error", **fields: Any) -> Arming:
    if action == "error":
        fields.setdefault("errno", "EIO")
    return Arming(point="p", action=Action(action), **fields)


def failing() -> FailPoint:
    return FailPoint(point(actions=ALWAYS | {Action.ERROR, Action.LIE}, label=str))


def fired(fail: FailPoint, passes: int, label: str = "") -> list[int]:
    """Numbers of the passes that raised."""
    found = []
    for number in range(passes):
        try:
            fail.passed(label)
        except OSError:
            found.append(number)
    return found


@pytest.mark.parametrize("engine", ["raft", "pysyncobj", "async", "sync"])
def test_there_are_many_and_each_has_a_place_of_its_own(engine: str):
    rows = (*points_of(engine), *DISK_POINTS)
    names = [row.name for row in rows]
    assert len(names) == len(set(names)) >= 30
    for row in rows:
        resolve(row.place)
        assert row.summary


def test_a_place_that_does_not_exist_is_named():
    for place in ("raft.log.segment_log:SegmentLog.nothing", "raft.log.segment_log:Nobody.sync"):
        with pytest.raises(LookupError, match="there is no"):
            resolve(place)


def test_count_after_and_only():
    fail = failing()
    fail.arm(arming(count=2, after=3))
    assert fired(fail, 10) == [3, 4]
    fail.arm(arming(only="commitlog/*"))
    assert fired(fail, 3, "hard_state") == []
    assert fired(fail, 3, "commitlog/000") == [0, 1, 2]
    report = fail.report()
    assert (report.hits, report.fired) == (16, 5)
    fail.disarm()
    assert fired(fail, 3) == []


def test_chance_comes_from_the_seed():
    fail = failing()
    runs = []
    for seed in (1, 1, 2):
        fail.arm(arming(probability=0.3, seed=seed))
        runs.append(fired(fail, 200))
    assert runs[0] == runs[1] != runs[2]
    assert 30 < len(runs[0]) < 90


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (arming("short"), "short is not possible here, only"),
        (arming("delay"), "needs ms"),
        (arming(errno="EAGAIN"), "none of EIO"),
        (arming("crash", errno="EIO"), "takes no errno"),
    ],
)
def test_what_a_point_cannot_do_is_refused(wrong: Arming, why: str):
    with pytest.raises(OrderError, match=why):
        failing().check(wrong)
    with pytest.raises(OrderError, match="no labels"):
        FailPoint(point()).check(arming("crash", only="x"))


def test_a_stuck_thread_goes_on_once_it_is_disarmed():
    fail = failing()
    fail.arm(arming("stuck"))
    thread = threading.Thread(target=fail.passed, daemon=True)
    thread.start()
    await_until(lambda: fail.report().waiting == 1, "it is stuck")
    fail.disarm()
    thread.join(10)
    assert not thread.is_alive()
    assert fail.report().waiting == 0


async def test_a_stuck_coroutine_leaves_the_loop_alone():
    fail = failing()
    fail.arm(arming("stuck"))
    task = asyncio.create_task(fail.passed_async())
    await turns()
    assert fail.report().waiting == 1
    assert not task.done()
    fail.disarm()
    await until(task.done, "it goes on")


def test_a_lie_is_told_to_whoever_passes():
    fail = failing()
    fail.arm(arming("lie"))
    told = fail.passed()
    assert told is not None
    assert told.action is Action.LIE


async def test_calls_pass_before_and_after_and_return_what_they_did():
    from tests.broker.failpoints import places

    before = FailPoint(point("b", THIS + "plain", actions=ALWAYS | {Action.ERROR}))
    after = FailPoint(point("a", THIS + "plain", when=When.AFTER, actions=ALWAYS | {Action.ERROR}))
    slow = FailPoint(point("s", THIS + "Owner.slow", label=lambda _self, name: name))
    installation = Installation()
    installation.put_points([before, after, slow])
    try:
        assert places.plain(2) == 4
        after.arm(Arming(point="a", action=Action.ERROR, errno="EIO"))
        with pytest.raises(OSError, match="failpoint a"):
            places.plain(3)
        before.arm(Arming(point="b", action=Action.ERROR, errno="ENOSPC"))
        with pytest.raises(OSError, match=r"No space left .*failpoint b"):
            places.plain(4)
        assert places.DONE == [2, 3], "the one before kept the call from being made"
        assert await places.Owner().slow("x") == "x"
        assert slow.report().hits == 1
    finally:
        installation.remove()
        places.DONE.clear()
    assert before.report().hits == 3


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"arm":[{"point":"p","action":"explode"}]}', "explode"),
        (b'{"arm":[{"point":"p","action":"delay","ms":900000}]}', "ms"),
        (b'{"arm":[{"point":"p","action":"crash","when":1}]}', "when"),
        (b'{"clock":{"offset_ms":"x"}}', "offset_ms"),
        (b"[" * 5_000, "not an order"),
        (b" " * (64 << 10) + b"{}", "at most"),
    ],
)
def test_what_is_no_order_is_named(body: bytes, why: str):
    with pytest.raises(OrderError, match=why):
        decode_order(body)
    assert decode_order(b"") == Order()


def test_what_a_loaded_group_passes_is_there_on_engines_without_elections():
    known = {row.name for row in points_of("sync")}
    assert set(COMMON_POINTS) - known == {
        "commit.before",
        "peer.send.before",
        "peer.receive.before",
    }
    assert {row.name for row in points_of("async")} == known
    assert not any(row.place.startswith(("raft.node", "raft.log.")) for row in points_of("sync"))
