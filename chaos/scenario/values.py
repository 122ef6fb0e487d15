"""Values of a scenario's tables: each of its type, each key known, or ScenarioError names it.

Place in the data path: `chaos.scenario.scenario` and `chaos.scenario.fault_tables` read with it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chaos.scenario.ranges import with_matches
from remoting.connections.config_values import typed

__all__ = ["ScenarioError", "check_keys", "require", "typed_value"]


class ScenarioError(ValueError):
    """The file is no scenario; the text names the key and what was wrong with it."""


def typed_value(where: str, value: object, kind: Any) -> Any:
    """Return the value as `kind`. Raises ScenarioError."""
    return typed(where, value, kind, ScenarioError)


def check_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise ScenarioError for the first key of the table that is not known."""
    names = list(known)
    for key in table:
        if key not in names:
            place = f" in {where}" if where else ""
            raise ScenarioError(f"unknown key {with_matches(key, names)}{place}")


def require(condition: bool, text: str) -> None:
    """Raise ScenarioError with this text unless the condition holds."""
    if not condition:
        raise ScenarioError(text)
