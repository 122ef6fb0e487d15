"""Values of a scenario's tables: each of its type, each key known, or ScenarioError names it.

Place in the data path: `chaos.scenario.scenario` and `chaos.scenario.fault_tables` read with it.
Pure.
"""

from __future__ import annotations

from typing import Any, TypeVar

from remoting.connections.config_values import range_problems, section, typed

__all__ = ["ScenarioError", "checked_section", "require", "typed_value"]


_Section = TypeVar("_Section")


class ScenarioError(ValueError):
    """The file is no scenario; the text names the key and what was wrong with it."""


def typed_value(where: str, value: object, kind: Any) -> Any:
    """Return the value as `kind`. Raises ScenarioError."""
    return typed(where, value, kind, ScenarioError)


def checked_section(kind: type[_Section], where: str, table: object) -> _Section:
    """Make a dataclass of a table. Raises ScenarioError, for a number out of its range too."""
    values = section(kind, where, table, ScenarioError)
    problems = range_problems(where, values)
    require(not problems, "; ".join(problems))
    return values


def require(condition: bool, text: str) -> None:
    """Raise ScenarioError with this text unless the condition holds."""
    if not condition:
        raise ScenarioError(text)
