"""Schedules: faults drawn by the seed, sequences of faults, and phases, as plain fault steps.

Place in the data path: `chaos.scenario.scenario` reads [schedule], [[sequences]] and [[phases]];
`planned` turns them into steps once the seed is known, and `chaos.experiment.nemesis_runner` runs
those like the ones with fixed times. Pure: one seed gives one plan.

    [schedule]                        # drawn by the seed
    faults = { kill = 3, pause = 1 }  # weights; empty: every fault that stays within a minority
    mean_s = 6                        # mean time between two starts
    duration_min_s = 2
    duration_max_s = 5
    overlap_max = 1                   # at most so many at once
    calm_every_s = 30                 # after so long, calm_s without a fault; 0: never
    calm_s = 5

    [[sequences]]                     # one after the other: pause, then kill
    at_s = 10
    steps = [
      { name = "pause", duration_s = 2 },
      { name = "partition-leader", duration_s = 5, hold = true },  # until the sequence ends
      { name = "transfer-leader", duration_s = 2, wait_s = 1 },
    ]

    [[phases]]                        # one after the other from the start of the load
    name = "quiet"
    seconds = 10

    [[phases]]
    name = "storm"
    seconds = 30
    faults = { kill = 1 }             # and whatever else [schedule] has

Invariants: every step ends before its phase, its sequence or the load does; no more than
`overlap_max` of one schedule at once; in calm windows nothing is injected and nothing lasts.

Source: Jepsen's generators (mix, stagger, phases); Chaos Mesh's schedules and workflows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.nemesis.base import FaultSpec

__all__ = [
    "FaultStep",
    "PhaseSection",
    "ScheduleSection",
    "SequenceSection",
    "SequenceStep",
    "planned",
    "schedule_problems",
]

STEPS_MAX: Final = 1000
PHASES_MAX: Final = 100
# Choices that take a whole group, or more than a part of it: asked for by name only.
_OF_MANY: Final = frozenset({"all", "minority", "majority"})
_DAY_S: Final = 86_400
_MOVABLE_S: Final = 0.001  # what floating-point sums may be off by


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep:
    """One injection: `at_s` from the start of the load, healed `duration_s` later.

    `within_majority`: it waits while it would leave a group without an untouched majority.
    """

    name: str
    at_s: float
    duration_s: float
    group: str | None
    params: Mapping[str, str | int | float | bool]
    within_majority: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSection:
    """Faults drawn by the seed. `from_s` and `until_s` bound it; `until_s` 0: the whole load.

    `vary`: text parameters are drawn, too, from their choices; else they have their defaults.
    """

    faults: Mapping[str, float] = field(default_factory=dict)
    mean_s: float = 6.0
    duration_min_s: float = 2.0
    duration_max_s: float = 5.0
    overlap_max: int = 1
    calm_every_s: float = 0.0
    calm_s: float = 5.0
    from_s: float = 0.0
    until_s: float = 0.0
    vary: bool = False
    beyond_majority: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSection:
    """One phase with a schedule of its own; without `faults` nothing is injected in it."""

    name: str
    seconds: float
    faults: Mapping[str, float] = field(default_factory=dict)
    mean_s: float = 6.0
    duration_min_s: float = 2.0
    duration_max_s: float = 5.0
    overlap_max: int = 1
    vary: bool = False
    beyond_majority: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStep:
    """One step: `wait_s` after the one before has ended, or begun where that is held."""

    name: str
    duration_s: float
    wait_s: float
    hold: bool
    params: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSection:
    """Steps one after the other, `repeat` times, every `every_s`."""

    at_s: float = 0.0
    steps: tuple[SequenceStep, ...] = ()
    group: str | None = None
    repeat: int = 1
    every_s: float = 0.0
    beyond_majority: bool = False

    @property
    def length_s(self) -> float:
        """The time from its first step's start to the end of all."""
        return max((begin + length for begin, length in _times(self)), default=0.0)


def planned(
    *,
    schedule: ScheduleSection | None,
    sequences: tuple[SequenceSection, ...],
    phases: tuple[PhaseSection, ...],
    load_s: float,
    catalogue: Mapping[str, FaultSpec],
    possible: frozenset[str],
    rng: random.Random,
) -> tuple[FaultStep, ...]:
    """Return every step, in order of time. `possible`: faults that this world can have."""
    steps: list[FaultStep] = []
    if schedule is not None:
        until_s = schedule.until_s or load_s
        windows = _windows(schedule, until_s)
        steps += _drawn(schedule, windows, catalogue, possible, rng)
    begin = 0.0
    for phase in phases:
        end = begin + phase.seconds
        if phase.faults:
            steps += _drawn(phase, [(begin, end)], catalogue, possible, rng)
        begin = end
    for sequence in sequences:
        for turn in range(sequence.repeat):
            start = sequence.at_s + turn * sequence.every_s
            steps += [
                FaultStep(
                    name=step.name,
                    at_s=start + at_s,
                    duration_s=length_s,
                    group=sequence.group,
                    params=step.params,
                    within_majority=not sequence.beyond_majority,
                )
                for step, (at_s, length_s) in zip(sequence.steps, _times(sequence), strict=True)
            ]
    return tuple(sorted(steps, key=lambda step: step.at_s))


def schedule_problems(
    *,
    schedule: ScheduleSection | None,
    sequences: tuple[SequenceSection, ...],
    phases: tuple[PhaseSection, ...],
    load_s: float,
    catalogue: Mapping[str, FaultSpec],
) -> list[str]:
    """Return what can't be planned, by the key that says so."""
    problems: list[str] = []
    if schedule is not None:
        problems += _drawing_problems("schedule", schedule, catalogue)
        if not 0 <= schedule.from_s < (schedule.until_s or load_s) <= load_s:
            problems.append(f"schedule: from_s and until_s must be in order, within {load_s:g} s")
        if not (0 <= schedule.calm_every_s <= _DAY_S and 0 <= schedule.calm_s <= _DAY_S):
            problems.append(f"schedule.calm_every_s and schedule.calm_s must be 0..{_DAY_S}")
        elif 0 < schedule.calm_every_s < schedule.duration_min_s:
            problems.append("schedule.calm_every_s must be at least schedule.duration_min_s")
    if len(phases) > PHASES_MAX:
        problems.append(f"more than {PHASES_MAX} phases")
    for phase in phases:
        where = f"phases ({phase.name})"
        problems += _drawing_problems(where, phase, catalogue)
        if not 0 < phase.seconds <= load_s:
            problems.append(f"{where}.seconds must be above 0 and at most {load_s:g}")
    if sum(phase.seconds for phase in phases) > load_s + _MOVABLE_S:
        problems.append(f"the phases last longer than load.seconds = {load_s:g}")
    for number, sequence in enumerate(sequences):
        where = f"sequences[{number}]"
        if not sequence.steps:
            problems.append(f"{where}.steps is empty")
        if not 1 <= sequence.repeat <= STEPS_MAX:
            problems.append(f"{where}.repeat must be 1..{STEPS_MAX}")
            continue
        if sequence.repeat > 1 and not sequence.every_s >= sequence.length_s:
            problems.append(f"{where}.every_s must be at least its length where it repeats")
        last = sequence.at_s + sequence.every_s * (sequence.repeat - 1) + sequence.length_s
        if not (sequence.at_s >= 0 and last <= load_s):  # NaN is neither
            problems.append(
                f"{where}: it would last until {last:g} s, beyond load.seconds = {load_s:g}"
            )
    return problems


def _drawing_problems(
    where: str, of: ScheduleSection | PhaseSection, catalogue: Mapping[str, FaultSpec]
) -> list[str]:
    problems = [
        f"{where}.faults: there is no fault {name!r}" for name in of.faults if name not in catalogue
    ]
    problems += [
        f"{where}.faults.{name}: it may leave no majority, and beyond_majority is not set"
        for name in of.faults
        if name in catalogue and catalogue[name].beyond_majority and not of.beyond_majority
    ]
    if any(not 0 < weight <= STEPS_MAX for weight in of.faults.values()):
        problems.append(f"{where}.faults: weights must be above 0 and at most {STEPS_MAX}")
    if not 0.1 <= of.mean_s <= 86_400:
        problems.append(f"{where}.mean_s must be 0.1..86400")
    if not 0 < of.duration_min_s <= of.duration_max_s <= 86_400:
        problems.append(f"{where}: duration_min_s and duration_max_s must be in order, above 0")
    if not 1 <= of.overlap_max <= 16:
        problems.append(f"{where}.overlap_max must be 1..16")
    return problems


def _windows(schedule: ScheduleSection, until_s: float) -> list[tuple[float, float]]:
    """Return the spans of time in which faults may be, without the calm between them."""
    if not schedule.calm_every_s or not schedule.calm_s:
        return [(schedule.from_s, until_s)]
    windows, begin = [], schedule.from_s
    while begin < until_s:
        windows.append((begin, min(until_s, begin + schedule.calm_every_s)))
        begin += schedule.calm_every_s + schedule.calm_s
    return windows


def _drawn(
    of: ScheduleSection | PhaseSection,
    windows: list[tuple[float, float]],
    catalogue: Mapping[str, FaultSpec],
    possible: frozenset[str],
    rng: random.Random,
) -> list[FaultStep]:
    """Draw faults into the windows: exponential times between starts, even durations."""
    weights = of.faults or {
        name: 1.0
        for name, spec in catalogue.items()
        if name in possible and (of.beyond_majority or not spec.beyond_majority)
    }
    if not weights:
        return []
    steps: list[FaultStep] = []
    for begin, end in windows:
        ends: list[float] = []  # of those that go on
        at_s = begin
        while len(steps) < STEPS_MAX:
            at_s += rng.expovariate(1 / of.mean_s)
            ends = [each for each in ends if each > at_s]
            if len(ends) >= of.overlap_max:
                at_s = min(ends)
                ends.remove(at_s)
            length = rng.uniform(of.duration_min_s, of.duration_max_s)
            length = min(length, end - at_s)
            if length < of.duration_min_s:
                break
            (name,) = rng.choices(list(weights), weights=list(weights.values()))
            ends.append(at_s + length)
            steps.append(
                FaultStep(
                    name=name,
                    at_s=at_s,
                    duration_s=length,
                    group=None,
                    params=_parameters(catalogue[name], of, rng),
                    within_majority=not of.beyond_majority,
                )
            )
    return steps


def _parameters(
    spec: FaultSpec, of: ScheduleSection | PhaseSection, rng: random.Random
) -> dict[str, str | int | float | bool]:
    params = dict(spec.parameters)
    if of.vary:
        for key, allowed in spec.choices.items():
            few = [each for each in allowed if each not in _OF_MANY]
            # A fault whose every choice is of many, as losing all power, is so by its name.
            params[key] = rng.choice(few or allowed)
    return params


def _times(sequence: SequenceSection) -> list[tuple[float, float]]:
    """Return start and length of each step, from the sequence's own start."""
    begin, starts, ends = 0.0, [], []
    for step in sequence.steps:
        begin += step.wait_s
        starts.append(begin)
        ends.append(begin + step.duration_s)
        if not step.hold:
            begin += step.duration_s
    last = max(ends, default=0.0)
    return [
        (start, (last if step.hold else end) - start)
        for step, start, end in zip(sequence.steps, starts, ends, strict=True)
    ]
