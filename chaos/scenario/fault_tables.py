"""The faults of a scenario's file: [[faults]] and [[sequences]], with their parameters.

Place in the data path: `chaos.scenario.scenario` reads the other sections; steps and sequences are
those of `chaos.scenario.schedule`.

Invariants: every fault is in the catalogue, every parameter is known and of its type, range and
choices; a fault with a fixed time heals within the load phase. Otherwise ScenarioError names the
key and its near matches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.ranges import fault_number_problem, with_matches
from chaos.scenario.schedule import FaultStep, SequenceSection, SequenceStep
from chaos.scenario.values import ScenarioError, checked_section, require, typed_value
from remoting.connections.config_values import check_keys, number, section_values

__all__ = ["fault_parameters", "read_faults", "read_sequences"]

FAULTS_MAX: Final = 1000
_DAY_S: Final = 86_400
_ROUNDING_S: Final = 1e-6  # a drawn fault may end with its load, and sums of floats are off


@dataclass(frozen=True, slots=True, kw_only=True)
class _FaultTimes:
    """What a table of [[faults]] says beside the fault and its parameters."""

    at_s: float = number(0.0, 0)
    duration_s: float = number(3.0, 0)
    repeat: int = number(1, 1, FAULTS_MAX)
    every_s: float = 0.0
    group: str | None = None
    within_majority: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepTimes:
    """What a step of [[sequences]] says beside the fault and its parameters."""

    duration_s: float = number(3.0, 0, _DAY_S)
    wait_s: float = number(0.0, 0, _DAY_S)
    hold: bool = False


_Times = TypeVar("_Times", _FaultTimes, _StepTimes)


def read_faults(items: object, load_s: float) -> tuple[FaultStep, ...]:
    """Return the steps of [[faults]], in order of time; each ends within the load.

    Raises ScenarioError.
    """
    steps: list[FaultStep] = []
    for index, item in enumerate(typed_value("faults", items, list)):
        where = f"faults[{index}]"
        name, params, times = _fault(_FaultTimes, where, item)
        repeats = times.repeat > 1
        require(not repeats or times.every_s > 0, f"{where}.every_s must be above 0: it repeats")
        last = times.at_s + times.every_s * (times.repeat - 1) + times.duration_s
        require(
            last <= load_s + _ROUNDING_S,
            f"{where}: it would last until {last:g} s, beyond load.seconds = {load_s:g}",
        )
        steps += [
            FaultStep(
                name=name,
                at_s=times.at_s + times.every_s * i,
                duration_s=times.duration_s,
                group=times.group,
                params=params,
                within_majority=times.within_majority,
            )
            for i in range(times.repeat)
        ]
        require(len(steps) <= FAULTS_MAX, f"more than {FAULTS_MAX} faults")
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _fault(
    kind: type[_Times], where: str, item: object
) -> tuple[str, dict[str, str | int | float | bool], _Times]:
    """Return the fault's name, its parameters, and the table's other keys, those of `kind`."""
    table = typed_value(where, item, dict)
    if "name" not in table:
        raise ScenarioError(f"{where}.name is missing")
    name: str = typed_value(f"{where}.name", table["name"], str)
    if name not in CATALOGUE:
        raise ScenarioError(f"{where}: unknown fault {with_matches(name, CATALOGUE)}")
    parameters: Mapping[str, object] = CATALOGUE[name].parameters
    keys = ("name", *(field.name for field in dataclasses.fields(kind)), *parameters)
    check_keys(f"{where} ({name})", table, keys, ScenarioError)
    others = {key: table[key] for key in table if key != "name" and key not in parameters}
    times = checked_section(kind, where, others)
    require(times.duration_s > 0, f"{where}.duration_s must be above 0")
    given = {key: value for key, value in table.items() if key in parameters}
    try:
        return name, fault_parameters(name, given), times
    except ScenarioError as error:
        raise ScenarioError(f"{where}.{error}") from error


def fault_parameters(name: str, given: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    """Return the parameters of a fault, defaults where none is given. Raises ScenarioError."""
    spec = CATALOGUE[name]
    check_keys(name, given, spec.parameters, ScenarioError)
    params = dict(spec.parameters)
    for key, value in given.items():
        params[key] = typed_value(key, value, type(spec.parameters[key]))
        problem = fault_number_problem(key, params[key])
        require(problem is None, str(problem))
    for key, allowed in spec.choices.items():
        if params[key] not in allowed:
            hint = f"{with_matches(str(params[key]), allowed)}; one of {', '.join(allowed)}"
            raise ScenarioError(f"{key}: unknown {hint}")
    return params


def read_sequences(items: object) -> tuple[SequenceSection, ...]:
    """Return the sections [[sequences]]. Raises ScenarioError."""
    sequences = []
    for index, item in enumerate(typed_value("sequences", items, list)):
        where = f"sequences[{index}]"
        table: dict[str, object] = typed_value(where, item, dict)
        steps = []
        for place, each in enumerate(typed_value(f"{where}.steps", table.get("steps", []), list)):
            name, params, times = _fault(_StepTimes, f"{where}.steps[{place}]", each)
            steps.append(SequenceStep(name=name, params=params, **dataclasses.asdict(times)))
        # The steps are read, and no value of a field by themselves.
        values = section_values(SequenceSection, where, {**table, "steps": []}, ScenarioError)
        sequences.append(SequenceSection(**{**values, "steps": tuple(steps)}))
    return tuple(sequences)
