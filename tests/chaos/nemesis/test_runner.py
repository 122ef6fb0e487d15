"""The runner records effects, not intentions, and heals whatever happens."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from chaos.experiment import nemesis_runner as runner_module
from chaos.experiment.nemesis_runner import Nemesis
from chaos.nemesis.base import FaultNotPossibleError
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import FaultStep, parse_scenario
from chaos.systems.base import SystemFailedError
from chaos.systems.watch import ClusterWatch
from tests.chaos.histories import faults_of
from tests.chaos.nemesis import fakes


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "EFFECT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(runner_module, "HEALED_TIMEOUT_S", 0.5)
    monkeypatch.setattr(runner_module, "LEADER_TIMEOUT_S", 0.05)


def _steps(text: str):
    return parse_scenario(text, name="x").faults


async def _run(world, path: Path, text: str, *, leader: bool = True) -> list[dict]:
    watch = ClusterWatch(world)
    if leader:
        watch.statuses["broker-a-n0"] = fakes.status("n0", role="leader")
    with HistoryWriter(path, started_ns=0) as history:
        await Nemesis(world, history, watch, random.Random(1)).run(_steps(text))
    return faults_of(path)


async def test_taken_and_healed(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    rows = await _run(
        world,
        tmp_path / "h",
        '[[faults]]\nname = "kill"\nduration_s = 0.1\n'
        '[[faults]]\nname = "partition-leader"\nat_s = 0.3\nduration_s = 0.1\n',
    )
    assert [row["effect"] for row in rows] == ["taken", "taken"]
    for row in rows:
        assert row["t_start"] <= row["t_effect"] <= row["t_heal"] <= row["t_healed"]
        assert row["targets"]
    assert rows[0]["targets"] == ["broker-a-n0"]
    assert "process gone" in rows[0]["evidence"]
    assert world.calls == ["kill broker-a-n0", "restart broker-a-n0", "cut fault-1", "heal fault-1"]


async def test_without_effect_it_is_not_taken(tmp_path: Path) -> None:
    rows = await _run(
        fakes.FakeWorld(deaf=True),
        tmp_path / "h",
        '[[faults]]\nname = "partition-leader"\nduration_s = 0.1\n',
    )
    assert (rows[0]["effect"], rows[0]["t_effect"]) == ("not_taken", None)


async def test_without_a_target_it_is_not_taken(tmp_path: Path) -> None:
    rows = await _run(
        fakes.FakeWorld(),
        tmp_path / "h",
        '[[faults]]\nname = "kill"\nduration_s = 0.1\n',
        leader=False,
    )
    assert rows[0]["effect"] == "not_taken"
    assert "has no leader" in rows[0]["evidence"]


async def test_what_has_ended_unseen_is_not_waited_for(tmp_path: Path) -> None:
    async with asyncio.timeout(20):  # its effect may take 40 s
        rows = await _run(
            fakes.FakeWorld(),
            tmp_path / "h",
            '[[faults]]\nname = "kill-in-recovery"\nduration_s = 0.1\n',
        )
    assert (rows[0]["effect"], rows[0]["t_healed"] is not None) == ("unknown", True)
    assert "no phase seen" in rows[0]["evidence"]


async def test_a_failing_injection_is_unknown_and_is_healed(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    world.break_down("cut")
    rows = await _run(
        world, tmp_path / "h", '[[faults]]\nname = "partition-leader"\nduration_s = 0.1\n'
    )
    assert rows[0]["effect"] == "unknown"
    assert "cut does not work here" in rows[0]["evidence"]
    assert "heal fault-0" in world.calls


async def test_a_heal_that_is_not_seen_leaves_t_healed_open(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    world.break_down("heal")
    rows = await _run(
        world, tmp_path / "h", '[[faults]]\nname = "partition-leader"\nduration_s = 0.1\n'
    )
    assert (rows[0]["effect"], rows[0]["t_healed"]) == ("taken", None)
    assert "heal failed" in rows[0]["evidence"]


TWO_FAULTS = (
    '[[faults]]\nname = "partition-leader"\nduration_s = 0.1\n'
    '[[faults]]\nname = "kill"\nat_s = 0.3\nduration_s = 0.1\n'
)


@pytest.mark.parametrize("call", ["cut", "heal"])
@pytest.mark.parametrize(
    "error",
    [
        SystemFailedError("no answer"),
        OSError(28, "No space left on device"),
        FaultNotPossibleError("broker-a has no leader"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_fault_raises_stops_no_other(
    tmp_path: Path, call: str, error: Exception
) -> None:
    world = fakes.FakeWorld()
    world.broken[call] = error
    rows = await _run(world, tmp_path / "h", TWO_FAULTS)
    assert rows[0]["effect"] == ("unknown" if call == "cut" else "taken")
    assert str(error) in rows[0]["evidence"]
    assert (rows[1]["effect"], rows[1]["t_healed"] is not None) == ("taken", True)


async def test_a_bug_of_a_fault_is_not_taken_for_its_effect(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    world.broken["cut"] = KeyError("fault-0")
    with pytest.raises(ExceptionGroup) as caught:
        await _run(world, tmp_path / "h", TWO_FAULTS)
    assert caught.group_contains(KeyError)
    assert "heal fault-0" in world.calls, "it is healed nevertheless"


async def test_cancelled_in_the_middle_it_heals(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    run = asyncio.create_task(
        _run(world, tmp_path / "h", '[[faults]]\nname = "pause"\nduration_s = 30\n')
    )
    async with asyncio.timeout(5):
        while "T" not in world.states.values():
            await asyncio.sleep(0.005)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert set(world.states.values()) == {"S"}
    assert faults_of(tmp_path / "h")[0]["t_healed"] is not None


async def _run_steps(world, path: Path, steps) -> list[dict]:
    watch = ClusterWatch(world)
    watch.statuses["broker-a-n0"] = fakes.status("n0", role="leader")
    with HistoryWriter(path, started_ns=0) as history:
        await Nemesis(world, history, watch, random.Random(1)).run(steps)
    return faults_of(path)


async def test_a_scheduled_fault_waits_for_an_untouched_majority(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    params = {"target": "leader"}
    steps = [
        FaultStep(name="kill", at_s=0, duration_s=0.4, group=None, params=params),
        FaultStep(
            name="pause",
            at_s=0.1,
            duration_s=1.0,
            group=None,
            params={"target": "follower"},
            within_majority=True,
        ),
        FaultStep(
            name="pause-majority",
            at_s=0.1,
            duration_s=0.2,
            group=None,
            params={},
            within_majority=True,
        ),
    ]
    rows = await _run_steps(world, tmp_path / "h", steps)
    by_name = {row["name"]: row for row in rows}
    assert by_name["pause"]["effect"] == "taken"
    assert by_name["pause"]["t_start"] >= by_name["kill"]["t_heal"]
    assert by_name["pause-majority"]["effect"] == "not_taken"
    assert "without an untouched majority" in by_name["pause-majority"]["evidence"]


async def test_a_heal_that_fails_at_first_is_tried_again(tmp_path: Path) -> None:
    world = fakes.FakeWorld()
    world.break_down("heal")
    run = asyncio.create_task(
        _run(world, tmp_path / "h", '[[faults]]\nname = "partition-leader"\nduration_s = 0.1\n')
    )
    async with asyncio.timeout(5):
        while "heal fault-0" not in world.calls:
            await asyncio.sleep(0.005)
        world.broken.clear()  # what stood in the way, another fault say, is over
        (row,) = await run
    assert world.untouched, "nothing of it is left behind"
    assert (row["effect"], row["t_healed"] is not None) == ("taken", True)
    assert "heal does not work here" in row["evidence"]
