"""The sections of a scenario's further parts of work: [workload.NAME], each of which is off if it
is not there.

Place in the data path: `chaos.scenario.scenario` reads them; `chaos.workload.parts.catalogue` has a
part of work for each.

Invariants: every number has its range in its own field, so that no illegal value reaches the
workload; a section without keys is a part at its defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = [
    "PART_SECTIONS",
    "BroadcastSection",
    "LitePullSection",
    "OrderlySection",
    "PartSection",
    "ResetsSection",
    "RetriesSection",
    "number",
    "part_problems",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartSection:
    """The base of all sections. Numbers are fields made by `number`."""


def number(default: float, low: float, high: float) -> Any:
    """Return a dataclass field with a default and the legal range, both ends included."""
    return dataclasses.field(default=default, metadata={"range": (low, high)})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderlySection(PartSection):
    """`rate`: sends per second. `crashes`: how many members die in a run, at its beginning.

    A call of the listener takes up to twice `consume_ms`; `slow_share` of them up to `slow_ms`, so
    that some are at work whenever a queue goes to another member.
    """

    rate: float = number(8.0, 0.001, 10_000)
    shards: int = number(8, 1, 1_000_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    crashes: int = number(1, 0, 1_000)
    refuse_share: float = number(0.05, 0, 0.9)
    consume_ms: int = number(10, 0, 2_000)
    slow_share: float = number(0.1, 0, 1)
    slow_ms: int = number(1_500, 0, 4_000)
    batch: int = number(2, 1, 1_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSection(PartSection):
    """`rate`: sends per second; every one of `clients` members is shown each message."""

    rate: float = number(4.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    refuse_share: float = number(0.02, 0, 0.9)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetriesSection(PartSection):
    """`refuse_share` of the messages are refused up to `retries_max` times, `poison_share` always,
    so that they end among the dead letters."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    retries_max: int = number(2, 0, 16)
    refuse_share: float = number(0.15, 0, 1)
    poison_share: float = number(0.1, 0, 1)
    consume_ms: int = number(5, 0, 2_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSection(PartSection):
    """`seek_s`: mean time between a member's seeks; 0: none."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(8.0, 0, 86_400)
    seek_s: float = number(3.0, 0, 86_400)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResetsSection(PartSection):
    """`reset_s`: mean time between resets, each of one queue."""

    rate: float = number(5.0, 0.001, 10_000)
    clients: int = number(2, 1, 64)
    restart_s: float = number(15.0, 0, 86_400)
    reset_s: float = number(2.0, 0.01, 86_400)
    consume_ms: int = number(5, 0, 2_000)


PART_SECTIONS: Final[Mapping[str, type[PartSection]]] = MappingProxyType(
    {
        "orderly": OrderlySection,
        "broadcast": BroadcastSection,
        "retries": RetriesSection,
        "litepull": LitePullSection,
        "resets": ResetsSection,
    }
)
"""Section by part. A part's name is its key in [workload.NAME] and the prefix of its topics,
slots and groups."""


def part_problems(name: str, section: PartSection) -> list[str]:
    """Return which numbers of the section are out of their range."""
    problems = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low, high = field.metadata["range"]
        if not low <= value <= high:  # NaN is in no range
            problems.append(f"workload.{name}.{field.name} must be {low:g}..{high:.15g}")
    return problems
