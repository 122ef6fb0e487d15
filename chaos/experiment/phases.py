"""Start and end of each phase of a run, for the manifest and the report.

Invariant: a phase that was left by an error ends there; one that never began is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Phases"]


class Phases:
    """The phases of one run. `now_ns`: nanoseconds since the run's start."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._spans: dict[str, list[int]] = {}

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        begin = self._now_ns()
        try:
            yield
        finally:
            self._spans[name] = [begin, self._now_ns()]

    def as_json(self) -> dict[str, list[int]]:
        return dict(self._spans)
