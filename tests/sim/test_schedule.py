"""Schedules are derived from seeds, survive a file, and are cut to what a failure needs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from chaos.sim.campaign.campaign import replay, run_schedule, run_seed, shrink_failure
from chaos.sim.campaign.command import sim_command
from chaos.sim.campaign.seeds import make_run
from chaos.sim.campaign.shrink import shrink
from chaos.sim.cores.core_fixture import Parts
from chaos.sim.seed.schedule import Fault, Schedule, ScheduleError, draw_faults, load_schedule
from raft.log.segment_log import SegmentLog, SyncedTo


def _schedule(count: int) -> Schedule:
    faults = tuple(Fault(number=n, at_us=100 * n, name=f"fault{n}") for n in range(count))
    return Schedule(seed=1, kind="core", node_count=3, faults=faults)


def test_rates_decide_what_is_drawn() -> None:
    rates = {"often": 9.0, "seldom": 1.0}
    faults = draw_faults(rates, unit_us=1_000, until_us=1_000_000, rng=random.Random(1))
    often = sum(fault.name == "often" for fault in faults)
    assert 8_000 < often < 10_000
    assert [fault.number for fault in faults] == list(range(len(faults)))
    assert all(a.at_us <= b.at_us < 1_000_000 for a, b in itertools.pairwise(faults))


def test_without_rates_nothing_is_drawn() -> None:
    assert draw_faults({}, unit_us=1, until_us=1_000, rng=random.Random(1)) == ()


@pytest.mark.parametrize("kind", ["core", "group", "ha"])
def test_the_same_seed_has_the_same_schedule(kind: str) -> None:
    assert make_run(11, kind=kind).schedule == make_run(11, kind=kind).schedule
    assert make_run(11, kind=kind).schedule != make_run(12, kind=kind).schedule


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    for schedule in (_schedule(0), _schedule(3), make_run(11).schedule, make_run(12).schedule):
        path.write_text(schedule.to_text())
        assert load_schedule(path) == schedule


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "faults": 3}'])
def test_a_file_that_is_no_schedule_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ScheduleError, match=r"bad\.json"):
        load_schedule(path)
    assert sim_command(schedule=path) == 64


def test_a_run_of_its_own_schedule_is_the_seed_itself() -> None:
    seed = replay(4, None)
    assert run_schedule(seed.schedule).digest == seed.digest


def test_dropping_a_fault_leaves_the_choices_of_the_others() -> None:
    """Until the dropped one would have struck, the course is the same."""
    whole = replay(4, None)
    last = whole.schedule.faults[-1]
    shorter = run_schedule(whole.schedule.with_faults(whole.schedule.faults[:-1]))
    before = [line for line in whole.trace if float(line.split("ms")[0]) * 1000 < last.at_us]
    assert shorter.trace[: len(before)] == before


# --- shrinking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [{0}, {7}, {3, 11}, {0, 5, 6, 15}, set(range(16))])
def test_shrinking_keeps_exactly_what_is_needed(needed: set[int]) -> None:
    def fails(schedule: Schedule) -> bool:
        return needed <= {fault.number for fault in schedule.faults}

    found = shrink(_schedule(16), fails)
    assert {fault.number for fault in found.faults} == needed


def test_shrinking_takes_everything_where_nothing_is_needed() -> None:
    assert shrink(_schedule(9), lambda _: True).faults == ()


def test_shrinking_switches_off_what_is_not_needed() -> None:
    def fails(schedule: Schedule) -> bool:
        return bool(schedule.faults) and "needed" not in schedule.calmed

    found = shrink(_schedule(4), fails, calmable=("needed", "not needed"))
    assert (len(found.faults), found.calmed) == (1, ("not needed",))


def test_shrinking_stops_when_its_runs_are_spent() -> None:
    runs = 0

    def fails(schedule: Schedule) -> bool:
        nonlocal runs
        runs += 1
        return len(schedule.faults) > 5

    assert len(shrink(_schedule(64), fails, runs_max=3).faults) > 5
    assert runs == 3


class _SyncSkipped(SegmentLog):
    """Claims what was written, without asking the disk."""

    def sync(self) -> SyncedTo:
        return SyncedTo(index=self.last_index, term=self.last_term)


def test_a_planted_bug_is_shrunk_and_the_rest_still_breaks_the_rule() -> None:
    parts = Parts(log=_SyncSkipped)
    for seed in range(60):
        failure, _ = run_seed(seed, 3, parts=parts, kind="core")
        if failure is not None:
            break
    assert failure is not None
    whole = make_run(failure.seed, 3, kind="core").schedule
    shortest = shrink_failure(failure, parts=parts, runs_max=40)
    again = run_schedule(shortest, parts=parts).failure
    assert len(shortest.faults) < len(whole.faults)
    assert again is not None
    assert again.rule == failure.rule
