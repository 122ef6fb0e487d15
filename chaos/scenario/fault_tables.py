"""The faults of a scenario's file: [[faults]] and [[sequences]], with their parameters.

Place in the data path: `chaos.scenario.scenario` reads the other sections; steps and sequences are
those of `chaos.scenario.schedule`.

Invariants: every fault is in the catalogue, every parameter is known and of its type, range and
choices; a fault with a fixed time heals within the load phase. Otherwise ScenarioError names the
key and its near matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.ranges import fault_number_problem, with_matches
from chaos.scenario.schedule import FaultStep, SequenceSection, SequenceStep
from chaos.scenario.values import ScenarioError, check_keys, require, typed_value

__all__ = ["fault_parameters", "read_faults", "read_sequences"]

FAULTS_MAX: Final = 1000
_DAY_S: Final = 86_400
_FAULT_TIMES: Final = ("at_s", "duration_s", "repeat", "every_s")
_FAULT_KEYS: Final = ("name", *_FAULT_TIMES, "group", "within_majority")
_ROUNDING_S: Final = 1e-6  # a drawn fault may end with its load, and sums of floats are off
_SEQUENCE_KEYS: Final = ("at_s", "steps", "group", "repeat", "every_s", "beyond_majority")
_SEQUENCE_STEP_KEYS: Final = ("name", "duration_s", "wait_s", "hold")


def read_faults(items: object, load_s: float) -> tuple[FaultStep, ...]:
    """Return the steps of [[faults]], in order of time; each ends within the load.

    Raises ScenarioError.
    """
    steps: list[FaultStep] = []
    for number, item in enumerate(typed_value("faults", items, list)):
        where = f"faults[{number}]"
        table = typed_value(where, item, dict)
        name, params = _fault(where, table, _FAULT_KEYS)
        at_s = typed_value(f"{where}.at_s", table.get("at_s", 0.0), float)
        duration_s = typed_value(f"{where}.duration_s", table.get("duration_s", 3.0), float)
        repeat = typed_value(f"{where}.repeat", table.get("repeat", 1), int)
        every_s = typed_value(f"{where}.every_s", table.get("every_s", 0.0), float)
        within = typed_value(f"{where}.within_majority", table.get("within_majority", False), bool)
        group = table.get("group")
        require(at_s >= 0, f"{where}.at_s must not be negative")
        require(duration_s > 0, f"{where}.duration_s must be above 0")
        require(1 <= repeat <= FAULTS_MAX, f"{where}.repeat must be 1..{FAULTS_MAX}")
        require(repeat == 1 or every_s > 0, f"{where}.every_s must be above 0 where it repeats")
        last = at_s + every_s * (repeat - 1) + duration_s
        require(
            last <= load_s + _ROUNDING_S,
            f"{where}: it would last until {last:g} s, beyond load.seconds = {load_s:g}",
        )
        steps += [
            FaultStep(
                name=name,
                at_s=at_s + every_s * i,
                duration_s=duration_s,
                group=None if group is None else typed_value(f"{where}.group", group, str),
                params=params,
                within_majority=within,
            )
            for i in range(repeat)
        ]
        require(len(steps) <= FAULTS_MAX, f"more than {FAULTS_MAX} faults")
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _fault(
    where: str, table: Mapping[str, object], keys: tuple[str, ...]
) -> tuple[str, dict[str, str | int | float | bool]]:
    """Return the fault's name and its parameters; `keys` are the table's others."""
    if "name" not in table:
        raise ScenarioError(f"{where}.name is missing")
    name: str = typed_value(f"{where}.name", table["name"], str)
    if name not in CATALOGUE:
        raise ScenarioError(f"{where}: unknown fault {with_matches(name, CATALOGUE)}")
    known = CATALOGUE[name].parameters
    check_keys(f"{where} ({name})", table, (*keys, *known))
    given = {key: value for key, value in table.items() if key in known}
    try:
        return name, fault_parameters(name, given)
    except ScenarioError as error:
        raise ScenarioError(f"{where}.{error}") from error


def fault_parameters(name: str, given: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    """Return the parameters of a fault, defaults where none is given. Raises ScenarioError."""
    spec = CATALOGUE[name]
    check_keys(name, given, spec.parameters)
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
    for number, item in enumerate(typed_value("sequences", items, list)):
        where = f"sequences[{number}]"
        table = typed_value(where, item, dict)
        check_keys(where, table, _SEQUENCE_KEYS)
        steps = []
        for place, each in enumerate(typed_value(f"{where}.steps", table.get("steps", []), list)):
            at = f"{where}.steps[{place}]"
            step = typed_value(at, each, dict)
            name, params = _fault(at, step, _SEQUENCE_STEP_KEYS)
            duration_s = typed_value(f"{at}.duration_s", step.get("duration_s", 3.0), float)
            wait_s = typed_value(f"{at}.wait_s", step.get("wait_s", 0.0), float)
            require(0 < duration_s <= _DAY_S, f"{at}.duration_s must be above 0 and at most a day")
            require(0 <= wait_s <= _DAY_S, f"{at}.wait_s must be 0 or more and at most a day")
            steps.append(
                SequenceStep(
                    name=name,
                    duration_s=duration_s,
                    wait_s=wait_s,
                    hold=typed_value(f"{at}.hold", step.get("hold", False), bool),
                    params=params,
                )
            )
        group = table.get("group")
        sequences.append(
            SequenceSection(
                at_s=typed_value(f"{where}.at_s", table.get("at_s", 0.0), float),
                steps=tuple(steps),
                group=None if group is None else typed_value(f"{where}.group", group, str),
                repeat=typed_value(f"{where}.repeat", table.get("repeat", 1), int),
                every_s=typed_value(f"{where}.every_s", table.get("every_s", 0.0), float),
                beyond_majority=typed_value(
                    f"{where}.beyond_majority", table.get("beyond_majority", False), bool
                ),
            )
        )
    return tuple(sequences)
