"""The faults of a seed as a list: derived from the seed, written to a file, made shorter.

Place in the data path: `core_options`, `group_options` and `ha_options` draw how often each fault
comes, `draw_schedule` makes the list, `nemesis` carries it out; `shrink` removes faults; a file of
tests/sim/schedules keeps what is left.

Invariants: a fault's own choices (which node, how long) come from its number alone, so removing
another fault from the list does not change them; the same seed, kind and number of nodes give the
same list; a file read back gives what was written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chaos.sim.seed.seed_options import SeedOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "Fault",
    "Schedule",
    "ScheduleError",
    "draw_faults",
    "draw_schedule",
    "load_schedule",
    "options_of",
]

_VERSION = 1
_FAULTS_MAX = 100_000


class ScheduleError(ValueError):
    """The file is no schedule; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `number` is its place in the seed's whole list, and seeds the fault's choices."""

    number: int
    at_us: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The faults of one run. `calmed` names options that are drawn but not in force.

    `options` are all that the seed drew: kept, so that a file means the same run when seeds draw
    otherwise one day.
    """

    seed: int
    kind: str
    node_count: int
    faults: tuple[Fault, ...]
    calmed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_faults(self, faults: Sequence[Fault]) -> Schedule:
        return replace(self, faults=tuple(faults))

    def to_text(self) -> str:
        """Write one line per fault, for a person to read and to cut."""
        head: dict[str, Any] = {"version": _VERSION, **asdict(self)}
        faults = head.pop("faults")
        lines = ",\n".join(f"    {json.dumps(fault)}" for fault in faults)
        body = json.dumps(head, indent=2).removesuffix("\n}")
        return f'{body},\n  "faults": [\n{lines}\n  ]\n}}\n'


def draw_schedule(kind: str, options: SeedOptions, rng: random.Random) -> Schedule:
    """Draw the faults of a seed of that kind.

    Rates are per 10 election timeouts, so that quick clusters are broken as often as slow ones.
    """
    faults = draw_faults(
        options.fault_rates,
        unit_us=10_000 * options.election_timeout_ms_min,
        until_us=options.fault_time_us,
        rng=rng,
    )
    return Schedule(
        seed=options.seed,
        kind=kind,
        node_count=options.node_count,
        faults=faults,
        options=asdict(options),
    )


def draw_faults(
    rates: Mapping[str, float], *, unit_us: int, until_us: int, rng: random.Random
) -> tuple[Fault, ...]:
    """Draw faults until `until_us`; `rates` are per `unit_us`."""
    names, weights = list(rates), list(rates.values())
    faults: list[Fault] = []
    if not names:
        return ()
    at_us = 0.0
    total = sum(weights)
    while True:
        at_us += rng.expovariate(total) * unit_us
        if at_us >= until_us:
            return tuple(faults)
        name = rng.choices(names, weights)[0]
        faults.append(Fault(number=len(faults), at_us=int(at_us), name=name))


def load_schedule(path: Path) -> Schedule:
    """Read a schedule. Raises ScheduleError naming the file, and OSError where it can't be read."""
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{path}: no schedule: {error}") from error


def _parse(document: Any) -> Schedule:
    if document["version"] != _VERSION:
        raise ScheduleError(f"version {document['version']}, expected {_VERSION}")
    faults = [
        Fault(number=int(one["number"]), at_us=int(one["at_us"]), name=str(one["name"]))
        for one in document["faults"]
    ]
    if len(faults) > _FAULTS_MAX:
        raise ScheduleError(f"{len(faults)} faults")
    return Schedule(
        seed=int(document["seed"]),
        kind=str(document["kind"]),
        node_count=int(document["node_count"]),
        faults=tuple(faults),
        calmed=tuple(str(name) for name in document["calmed"]),
        options=dict(document["options"]),
    )


_O = TypeVar("_O", bound="DataclassInstance")


def options_of(schedule: Schedule, drawn: _O) -> _O:
    """Return the options that the schedule was made with, as far as they still exist.

    Calmed options are set to zero. Raises ScheduleError for a value of another type.
    """
    known = {one.name: getattr(drawn, one.name) for one in fields(drawn)}
    values = {name: value for name, value in schedule.options.items() if name in known}
    values.update((name, type(known[name])()) for name in schedule.calmed if name in known)
    for name, value in values.items():
        if type(value) is not type(known[name]):
            raise ScheduleError(f"{name}: {value!r} is no {type(known[name]).__name__}")
    return replace(drawn, **values)
