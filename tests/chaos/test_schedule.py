"""Schedules become steps by the seed alone; what can't be planned is named."""

from __future__ import annotations

import pytest

from chaos.experiment.majority_guard import MajorityGuard, Touched, touched_by
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.scenario import ScenarioError, parse_scenario

RANDOM = """
[load]
seconds = 300
[schedule]
faults = { kill = 3, pause = 1 }
mean_s = 4
overlap_max = 2
calm_every_s = 30
calm_s = 10
from_s = 5
"""


def _steps(text: str, seed: int = 1):
    return parse_scenario(text, name="x").steps(seed=seed, possible=frozenset(CATALOGUE))


def test_one_seed_is_one_plan() -> None:
    assert _steps(RANDOM) == _steps(RANDOM)
    assert _steps(RANDOM) != _steps(RANDOM, seed=2)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_plan_keeps_its_bounds(seed: int) -> None:
    steps = _steps(RANDOM, seed)
    assert len(steps) > 10
    for step in steps:
        assert 2 <= step.duration_s <= 5
        assert step.within_majority
        place = (step.at_s - 5) % 40
        assert step.at_s >= 5
        assert place + step.duration_s <= 30 + 1e-6, "nothing lasts into a calm window"
    for step in steps:
        others = [s for s in steps if s.at_s <= step.at_s < s.at_s + s.duration_s - 1e-9]
        assert len(others) <= 2


def test_weights_are_weights() -> None:
    names = [step.name for seed in range(20) for step in _steps(RANDOM, seed)]
    assert 2 < names.count("kill") / names.count("pause") < 4.5


def test_without_weights_all_that_is_possible_is_drawn_but_nothing_beyond_a_majority() -> None:
    text = "[load]\nseconds = 3000\n[schedule]\nmean_s = 1\n"
    scenario = parse_scenario(text, name="x")
    drawn = {step.name for step in scenario.steps(seed=1, possible=frozenset({"kill", "pause"}))}
    assert drawn == {"kill", "pause"}
    drawn = {step.name for step in _steps(text)}
    assert len(drawn) > 30
    assert not {name for name in drawn if CATALOGUE[name].beyond_majority}
    beyond = {step.name for step in _steps(text + "beyond_majority = true\n")}
    assert "kill-majority" in beyond


def test_varied_parameters_are_choices_of_one_node() -> None:
    steps = _steps(RANDOM + "vary = true\n")
    assert {step.params["target"] for step in steps} == {"leader", "follower", "any"}


@pytest.mark.parametrize("beyond", [False, True])
def test_every_fault_can_be_drawn_and_varied(beyond: bool) -> None:
    text = f"""
[load]
seconds = 3000
[schedule]
mean_s = 1
duration_min_s = 0.5
duration_max_s = 1
overlap_max = 9
vary = true
beyond_majority = {str(beyond).lower()}
"""
    drawn = {step.name for step in _steps(text)}
    assert drawn == {name for name, spec in CATALOGUE.items() if beyond or not spec.beyond_majority}
    # Its one choice is of many: a group that has lost all power has no majority left.
    assert ("power-failure-all" in drawn) is beyond


def test_a_sequence_is_one_after_the_other_and_holds_what_it_says() -> None:
    text = """
[load]
seconds = 60
[[sequences]]
at_s = 10
repeat = 2
every_s = 20
steps = [
  { name = "pause", duration_s = 2, target = "follower" },
  { name = "partition-leader", duration_s = 1, hold = true },
  { name = "kill", duration_s = 3, wait_s = 1.5 },
]
"""
    steps = _steps(text)
    assert [(s.name, s.at_s, s.duration_s) for s in steps[:3]] == [
        ("pause", 10, 2),
        ("partition-leader", 12, 4.5),
        ("kill", 13.5, 3),
    ]
    assert steps[0].params == {"target": "follower"}
    assert [step.at_s for step in steps[3:]] == [30, 32, 33.5]


def test_phases_follow_each_other() -> None:
    text = """
[load]
seconds = 100
[[phases]]
name = "quiet"
seconds = 40
[[phases]]
name = "storm"
seconds = 60
faults = { kill = 1 }
mean_s = 2
"""
    steps = _steps(text)
    assert len(steps) > 5
    assert all(step.at_s >= 40 and step.at_s + step.duration_s <= 100 + 1e-6 for step in steps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[schedule]\nfaults = { kil = 1 }\n", "there is no fault 'kil'"),
        ("[schedule]\nfaults = { kill-all = 1 }\n", "beyond_majority is not set"),
        ("[schedule]\nfaults = { kill = 0 }\n", "weights must be above 0"),
        ("[schedule]\nmean_s = 0\n", r"schedule\.mean_s must be"),
        ("[schedule]\nduration_min_s = 9\n", "must be in order"),
        ("[schedule]\noverlap_max = 0\n", "overlap_max must be"),
        ("[schedule]\nuntil_s = 400\n", "within 60 s"),
        ("[schedule]\nmean = 3\n", "unknown key 'mean'"),
        ("[schedule]\ncalm_every_s = 1\n", "calm_every_s must be at least"),
        ('[[phases]]\nname = "a"\nseconds = 70\n', "at most 60"),
        ('[[phases]]\nname = "a"\n', "seconds is missing"),
        ("[schedule]\ncalm_every_s = nan\n", "calm_every_s and schedule.calm_s must be 0..86400"),
        ("[schedule]\ncalm_s = inf\n", "calm_every_s and schedule.calm_s must be 0..86400"),
        ('[[sequences]]\nsteps = [{ name = "kill" }]\nat_s = nan\n', "until nan s"),
        (
            '[[sequences]]\nsteps = [{ name = "kill" }]\nrepeat = 2\nevery_s = nan\n',
            "every_s must be",
        ),
        ("[[sequences]]\nat_s = 1\n", "steps is empty"),
        ('[[sequences]]\nsteps = [{ name = "kil" }]\n', "unknown fault 'kil'"),
        ('[[sequences]]\nsteps = [{ name = "kill", duration_s = 70 }]\n', "until 70 s"),
        ('[[sequences]]\nsteps = [{ name = "kill", duration_s = 0 }]\n', "must be above 0"),
        ('[[sequences]]\nsteps = [{ name = "kill" }]\nrepeat = 3\n', "every_s must be"),
        ('[[sequences]]\ngroup = "x"\nsteps = [{ name = "kill" }]\n', "unknown group 'x'"),
    ],
)
def test_what_can_not_be_planned_is_named(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, name="x")


NODES = ["a-n0", "a-n1", "a-n2", "a-n3", "a-n4"]


def test_a_cut_off_leader_is_one_node() -> None:
    targets = [
        f"{x}->{y}" for other in NODES[1:] for x, y in ((NODES[0], other), (other, NODES[0]))
    ]
    assert touched_by(targets, roves=False).places == {"a-n0"}
    assert touched_by([f"{n}->namesrv-0" for n in NODES], roves=False).places == {"namesrv-0"}
    assert touched_by(["a-n3"], roves=False).places == {"a-n3"}


def test_a_majority_stays_untouched() -> None:
    guard = MajorityGuard({"a": NODES, "b": ["b-n0"]})
    one, two, three = (Touched(places=frozenset({node})) for node in NODES[:3])
    guard.begin(1, one)
    assert guard.crowded(two) is None
    guard.begin(2, two)
    assert guard.crowded(three) == "a"
    assert guard.crowded(one) is None, "the same node again"
    assert guard.crowded(Touched(places=frozenset(NODES), roves=True)) == "a"
    guard.end(1)
    assert guard.crowded(three) is None
    assert guard.crowded(Touched(places=frozenset(NODES), roves=True)) is None
    assert guard.crowded(Touched(places=frozenset({"b-n0"}))) == "b", "it has none to lose"
    assert guard.crowded(Touched(places=frozenset({"namesrv-0"}))) is None
