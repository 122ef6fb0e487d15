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

__all__ = ["PART_SECTIONS", "PartSection", "number", "part_problems"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartSection:
    """The base of all sections. Numbers are fields made by `number`."""


def number(default: float, low: float, high: float) -> Any:
    """Return a dataclass field with a default and the legal range, both ends included."""
    return dataclasses.field(default=default, metadata={"range": (low, high)})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeletionsSection(PartSection):
    """Topics that are made, used, deleted and made again.

    A topic lives `life_s` on average and is gone for `gone_s`; `send_rate` and `poll_rate` are per
    second over all of them.
    """

    topics: int = number(2, 1, 64)
    life_s: float = number(4.0, 0.2, 3600)
    gone_s: float = number(0.5, 0.0, 3600)
    send_rate: float = number(4.0, 0.01, 10_000)
    poll_rate: float = number(2.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoutesSection(PartSection):
    """Questions for routes, one round every `every_s`, and topics whose routes change meanwhile,
    every `change_s` on average."""

    every_s: float = number(2.0, 0.1, 3600)
    change_s: float = number(3.0, 0.1, 3600)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccountsSection(PartSection):
    """Users of the cluster's access control, each with a client of its own.

    `change_s` is the mean time between two changes of one user, `send_rate` is per second over all
    users. `users` is how many there are at a time.
    """

    users: int = number(2, 1, 64)
    change_s: float = number(1.5, 0.05, 3600)
    send_rate: float = number(4.0, 0.01, 10_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchesSection(PartSection):
    """Searches by time, and by key within a time, of messages that the part sends itself."""

    send_rate: float = number(3.0, 0.01, 10_000)
    search_rate: float = number(2.0, 0.01, 10_000)


PART_SECTIONS: Final[Mapping[str, type[PartSection]]] = MappingProxyType(
    {
        "deletions": DeletionsSection,
        "routes": RoutesSection,
        "accounts": AccountsSection,
        "searches": SearchesSection,
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
