"""The first error of several tasks, for callers that wait for one error.

Place in the data path: parts whose requests run side by side in a TaskGroup. What `except*` blocks
raise is wrapped in an ExceptionGroup, which no caller waits for: so they only note the error, and
what is behind them raises it.

Source: PEP 654.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["first_of"]

_E = TypeVar("_E", bound=Exception)


def first_of(errors: ExceptionGroup[_E]) -> _E:
    """Return the first error of a group, whose members may be groups."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
