"""The minimiser against a dumb model: a scenario fails if it still has what the bug needs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.campaign.shrink import Search, shrink
from chaos.scenario.scenario import Scenario, parse_scenario
from chaos.scenario.scenario_text import scenario_text

WHOLE = """
name = "whole"
[load]
seconds = 60
[workload]
topics = ["orders", "payments"]
""" + "".join(
    f'[[faults]]\nname = "{name}"\nat_s = {4 + 3 * number}\nduration_s = 2\n'
    for number, name in enumerate(
        ("kill", "pause", "kill", "slow-links", "cut-clients", "kill", "pause", "slow-links")
    )
)


def whole() -> Scenario:
    return parse_scenario(WHOLE, name="whole")


def shrunk(
    fails: Callable[[Scenario], bool], *, repeats: int = 1, attempts_max: int = 500
) -> tuple[Search, list[Scenario]]:
    accepted: list[Scenario] = []

    async def attempt(_: str, scenario: Scenario) -> bool:
        return fails(scenario)

    def accept(scenario: Scenario) -> None:
        # Whatever is left can be written down and read back.
        again = parse_scenario(scenario_text(scenario), name="other")
        assert replace(again, text="") == replace(scenario, text="")
        accepted.append(scenario)

    search = asyncio.run(
        shrink(
            whole(),
            attempt,
            repeats=repeats,
            attempts_max=attempts_max,
            on_accepted=accept,
        )
    )
    return search, accepted


def names(scenario: Scenario) -> list[str]:
    return [step.name for step in scenario.faults]


@settings(max_examples=6, deadline=None)
@given(st.sets(st.integers(0, 7)), st.sampled_from(["plain_clients", "push_clients"]))
def test_nothing_is_left_but_what_the_bug_needs(needed: set[int], worker: str) -> None:
    gaps = [whole().faults[number].at_s for number in sorted(needed)]
    wanted = [whole().faults[number].name for number in sorted(needed)]

    def fails(scenario: Scenario) -> bool:
        there = {(step.name, round(step.at_s, 3)) for step in scenario.faults}
        shifts = [at_s - gaps[0] for _, at_s in there] if gaps else [0.0]
        has_all = any(
            all(
                (name, round(at_s + by, 3)) in there
                for name, at_s in zip(wanted, gaps, strict=True)
            )
            for by in shifts
        )
        return has_all and getattr(scenario.workload, worker) >= 1

    search, accepted = shrunk(fails)
    assert search.is_complete
    assert search.smallest is not None
    assert names(search.smallest) == wanted
    assert accepted[-1] == search.smallest
    work = search.smallest.workload
    assert getattr(work, worker) == 1
    assert work.transaction_clients == work.pull_clients == 0
    assert work.topics == ("orders",)
    assert search.smallest.load.seconds < 60
    assert fails(search.smallest)


def test_a_load_ends_no_sooner_than_its_last_fault() -> None:
    search, _ = shrunk(lambda scenario: "pause" in names(scenario))
    assert search.smallest is not None
    (step,) = search.smallest.faults
    assert step.name == "pause"
    assert step.at_s == 1.0
    assert 3.0 <= search.smallest.load.seconds <= 4.1


def test_what_never_fails_again_is_not_shrunk() -> None:
    search, accepted = shrunk(lambda _: False, repeats=3)
    assert search.smallest is None
    assert (search.tally.failed, search.tally.ran) == (0, 3)
    assert not accepted
    assert search.attempts == 3


def test_attempts_are_bounded_and_what_was_found_stays() -> None:
    search, accepted = shrunk(lambda scenario: "kill" in names(scenario), attempts_max=5)
    assert search.attempts == 5
    assert not search.is_complete
    assert search.smallest == accepted[-1]


@pytest.mark.parametrize("seed", range(3))
def test_each_step_has_its_probability(seed: int) -> None:
    rng = random.Random(seed)

    def fails(scenario: Scenario) -> bool:
        return "kill" in names(scenario) and rng.random() < 0.7

    search, _ = shrunk(fails, repeats=6)
    assert search.smallest is not None
    need = -(-search.steps[0].tally.failed // 2)
    for step in search.steps[1:]:
        if step.accepted:
            assert step.tally.ran == 6
            assert step.tally.failed >= need
        else:  # given up as soon as it could not get there
            assert step.tally.failed + 6 - step.tally.ran == need - 1
    assert search.tally == [step for step in search.steps if step.accepted][-1].tally
    assert "kill" in names(search.smallest)


def test_a_scenario_of_all_kinds_of_values_is_read_back() -> None:
    text = """
    name = "all-kinds"
    description = "a \\"quote\\", a \\u007F, tabs\\tand é"
    [cluster]
    groups = 2
    broker = { held_pulls_max = 100 }
    [load]
    [workload]
    topics = ["a", "b"]
    send_rate = 0.5
    [limits]
    rto_ms = 1
    gap_ms = 2
    lag_ms = 3
    [[faults]]
    name = "slow-links"
    group = "broker-b"
    duration_s = 1.25
    repeat = 3
    every_s = 2
    """
    scenario = parse_scenario(text, name="")
    again = parse_scenario(scenario_text(scenario), name="other")
    assert replace(again, text="") == replace(scenario, text="")
