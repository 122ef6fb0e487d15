"""Damage at every place of a store, and healing: a part of what `damage_campaign` runs."""

from __future__ import annotations

import functools

import pytest

from chaos.sim.campaign.rotten_group import (
    Blow,
    Case,
    History,
    Kind,
    Plan,
    cases,
    make_history,
    run_case,
)
from chaos.sim.machine.violation import Violation
from raft.repair.repair_plan import RepairPlan

PLANS = [
    Plan(snapshots=snapshots, tail=tail, more_after_tail=more)
    for snapshots in (False, True)
    for tail, more in ((False, False), (True, False), (True, True))
]
PAGE_SIZE = 96
CASES_COUNT = 25  # of some thousand, of each history

history = functools.cache(make_history)


def names(plan: Plan) -> str:
    return f"{plan.snapshots=:d} {plan.tail=:d} {plan.more_after_tail=:d}".replace("plan.", "")


@pytest.mark.parametrize("plan", PLANS, ids=names)
def test_a_damaged_replica_heals(plan: Plan) -> None:
    found = list(cases(history(plan), page_size=PAGE_SIZE))
    assert len(found) > 500
    # Not a divisor of the kinds' number, so that each kind meets each sort of file.
    step = len(found) // CASES_COUNT | 1
    changed = [run_case(history(plan), case) for case in found[::step]]
    assert sum(changed) > len(changed) // 3


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.tail], ids=names)
@pytest.mark.parametrize("sidecars", [True, False])
def test_a_tail_that_never_was_committed_heals(plan: Plan, sidecars: bool) -> None:
    """Every page of the log's last segment."""
    assert all(run_case(history(plan), case) for case in of_the_tail(plan, sidecars))


def of_the_tail(plan: Plan, sidecars: bool) -> list[Case]:
    found = history(plan)
    disk = found.disks[found.victim]
    segment = [path for path in disk.paths() if path[-1].isdecimal() and "/" in path][-1]
    size = len(disk.content(segment).rstrip(b"\0"))
    blows = [
        Blow(kind=Kind.ZEROED, path=segment, start=start, end=start + PAGE_SIZE)
        for start in range(0, size, PAGE_SIZE)
    ]
    blows.append(Blow(kind=Kind.ZEROED, path=segment, start=size // 2, end=size))
    return [Case(blow=blow, sidecars=sidecars) for blow in blows]


@pytest.mark.parametrize("plan", [PLANS[0], PLANS[-1]], ids=names)
def test_every_page_of_the_identity_heals(plan: Plan) -> None:
    """It is small: the part of the cases that is run elsewhere may pass it by."""
    found = [
        case
        for case in cases(history(plan), page_size=PAGE_SIZE // 4)
        if case.blow.path.startswith("identity") and case.sidecars
    ]
    assert {case.blow.kind for case in found} == set(Kind)
    assert len({case.blow.path for case in found}) == 2
    assert all(run_case(history(plan), case) for case in found)


def test_a_file_that_loses_its_name_while_it_is_open_is_made_anew() -> None:
    """Else the next start would be the first to miss it."""
    found = history(PLANS[0])
    disk = found.disks[found.victim]
    paths = [path for path in disk.paths() if path.startswith("commitlog/")]
    for path in paths:
        blow = Blow(kind=Kind.LOST, path=path)
        assert run_case(found, Case(blow=blow, sidecars=True, online=True)), path


def test_a_node_that_asks_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RepairPlan, "next", lambda *_: None)
    (case, *_) = of_the_tail(PLANS[0], sidecars=True)
    with pytest.raises(Violation, match="it heals"):
        run_case(history(PLANS[0]), case)


def test_what_was_acknowledged_and_lost_is_found_out() -> None:
    plan = PLANS[0]
    whole = history(plan)
    told = History(
        plan=plan,
        disks=whole.disks,
        victim=whole.victim,
        acknowledged=(*whole.acknowledged, b"never written"),
    )
    (case, *_) = of_the_tail(plan, sidecars=True)
    with pytest.raises(Violation, match="never written"):
        run_case(told, case)
