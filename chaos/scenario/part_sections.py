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


PART_SECTIONS: Final[Mapping[str, type[PartSection]]] = MappingProxyType({})
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
