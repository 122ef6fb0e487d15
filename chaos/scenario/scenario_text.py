"""A scenario as the text of a TOML file: what the reader of `chaos.scenario.scenario` reads back.

Place in the data path: the minimiser (`chaos.campaign`) makes scenarios that nobody has written,
and this writes them down for the next run. Pure.

Invariants: `parse_scenario` of the text gives a scenario that is equal but for its text; what is at
its default is left out, so that a small scenario is a small file.

Source: TOML 1.0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Final

from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.scenario import SECTIONS, FaultStep, Scenario

__all__ = ["scenario_text"]

_DELETE: Final = "\x7f"  # JSON leaves it as it is, TOML does not allow it


def scenario_text(scenario: Scenario) -> str:
    """Return the text of a scenario whose faults all have fixed times."""
    lines = [f"name = {_value(scenario.name)}"]
    if scenario.description:
        lines.append(f"description = {_value(scenario.description)}")
    for name in SECTIONS:
        section = getattr(scenario, name)
        if section is not None:
            lines += _section(name, section, is_listed=name in {"limits", "load"})
    for name, part in scenario.parts.items():
        lines += _section(f"workload.{name}", part, is_listed=True)
    for step in scenario.faults:
        lines += ["", "[[faults]]", *_fault(step)]
    return "\n".join(lines) + "\n"


def _section(name: str, section: object, *, is_listed: bool) -> list[str]:
    """Return the lines of a section; one without keys is written only if `is_listed`."""
    lines = [
        f"{field.name} = {_value(getattr(section, field.name))}"
        for field in dataclasses.fields(section)  # type: ignore[arg-type]  # a section is one
        if getattr(section, field.name) != _default(field)
    ]
    return ["", f"[{name}]", *lines] if lines or is_listed else []


def _default(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _fault(step: FaultStep) -> Iterator[str]:
    yield f"name = {_value(step.name)}"
    yield f"at_s = {_value(step.at_s)}"
    yield f"duration_s = {_value(step.duration_s)}"
    if step.group is not None:
        yield f"group = {_value(step.group)}"
    if step.within_majority:
        yield "within_majority = true"
    known = CATALOGUE[step.name].parameters
    for key, value in step.params.items():
        if value != known[key]:
            yield f"{key} = {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(_DELETE, "\\u007F")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_value(key)} = {_value(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"a scenario has no value of type {type(value).__name__}")
