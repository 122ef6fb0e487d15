"""Measures stalls of an event loop, and logs the longest section of each kind.

Place in the data path: none. Code that may take long on the loop runs in a named `section`; a timer
of the loop calls `sample`. A late call means that the loop was stalled in between, and the sections
and garbage collections since the last sample show by what. Time outside of any section is explained
by the processor time that the loop's thread had meanwhile: little of it means that the machine or
another thread of the process was busy, and that nothing here was slow.

Invariants: per section only its longest time and the time since the last sample are kept, so memory
is bounded by the names in the code; a flood of stalls makes one line a second.

Source: gc.callbacks; clock_gettime(2), CLOCK_THREAD_CPUTIME_ID.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

__all__ = ["SAMPLE_S", "Stalls", "section"]

SAMPLE_S: Final = 0.05
_LOGGED_MS_MIN: Final = 100.0
_LOG_INTERVAL_S: Final = 1.0
_NAMED_MS_MIN: Final = 1.0

_log = logging.getLogger(__name__)


def section(stalls: Stalls | None, name: str) -> AbstractContextManager[None]:
    """Return `stalls.section`, or a null context where nothing is measured."""
    return nullcontext() if stalls is None else stalls.section(name)


class Stalls:
    """Stalls of one loop; all but `longest_ms` are called on its thread."""

    def __init__(self) -> None:
        self._due_s: float | None = None
        self._thread_s = self._process_s = 0.0
        self._since: dict[str, float] = {}  # milliseconds by section since the last sample
        self._gc_began_s = 0.0
        self._logged_at_s = float("-inf")
        self._unlogged = 0
        self._longest: dict[str, float] = {}
        self.count = 0
        """Stalls of at least 100 ms."""

    @property
    def longest_ms(self) -> Mapping[str, float]:
        """Longest time by section, "gc", and "loop" for whole stalls."""
        return dict(self._longest)

    @contextmanager
    def watching_collections(self) -> Iterator[None]:
        """Measure garbage collections too within the block."""
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count the block as work on the loop under this name; it awaits nothing."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self._note(name, (time.monotonic() - began_s) * 1000)

    def sample(self) -> None:
        """Record a stall if this call is late. Caller's duty: every `SAMPLE_S`, by a loop timer."""
        now_s, thread_s, process_s = time.monotonic(), time.thread_time(), time.process_time()
        if self._due_s is not None:
            late_ms = (now_s - self._due_s) * 1000
            self._longest["loop"] = max(self._longest.get("loop", 0.0), late_ms)
            if late_ms >= _LOGGED_MS_MIN:
                self.count += 1
                self._tell(
                    now_s,
                    late_ms,
                    thread_ms=(thread_s - self._thread_s) * 1000,
                    process_ms=(process_s - self._process_s) * 1000,
                )
        self._since.clear()
        self._due_s = now_s + SAMPLE_S
        self._thread_s, self._process_s = thread_s, process_s

    def _note(self, name: str, took_ms: float) -> None:
        self._since[name] = self._since.get(name, 0.0) + took_ms
        if took_ms > self._longest.get(name, 0.0):
            self._longest[name] = took_ms

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        del info
        if phase == "start":
            self._gc_began_s = time.monotonic()
        elif self._gc_began_s:
            self._note("gc", (time.monotonic() - self._gc_began_s) * 1000)

    def _tell(self, now_s: float, late_ms: float, *, thread_ms: float, process_ms: float) -> None:
        if now_s - self._logged_at_s < _LOG_INTERVAL_S:
            self._unlogged += 1
            return
        named = sorted(self._since.items(), key=lambda item: -item[1])
        parts = [f"{name} {ms:.0f} ms" for name, ms in named if ms >= _NAMED_MS_MIN]
        _log.warning(
            "the loop was held up for %.0f ms: %s; its thread had the processor for %.0f ms, the"
            " process for %.0f ms (%d more stalls since the last line)",
            late_ms,
            ", ".join(parts) or "by nothing that is named here",
            thread_ms,
            process_ms,
            self._unlogged,
        )
        self._logged_at_s = now_s
        self._unlogged = 0
