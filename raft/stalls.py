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
    """Return `stalls.section`, or a null context where nothing is measured. Either may be entered
    any number of times."""
    return nullcontext() if stalls is None else stalls.section(name)


class _Section:
    """Context that measures its block, one at a time. It is no generator and writes to no table:
    some are entered several times for each entry of the log."""

    __slots__ = ("_began_s", "longest_s", "since_s")

    def __init__(self) -> None:
        self._began_s = 0.0
        self.since_s = 0.0  # since the last sample
        self.longest_s = -1.0  # not entered yet

    def begin(self) -> None:
        self._began_s = time.monotonic()

    def end(self, *_: object) -> None:
        took_s = time.monotonic() - self._began_s
        self.since_s += took_s
        self.longest_s = max(self.longest_s, took_s)

    __enter__, __exit__ = begin, end


class Stalls:
    """Stalls of one loop; all but `longest_ms` are called on its thread."""

    def __init__(self) -> None:
        self._due_s: float | None = None
        self._thread_s = self._process_s = 0.0
        self._sections: dict[str, _Section] = {}
        self._collecting = False
        self._logged_at_s = float("-inf")
        self._unlogged = 0
        self._longest_ms = 0.0  # of the loop
        self.count = 0
        """Stalls of at least 100 ms."""

    @property
    def longest_ms(self) -> Mapping[str, float]:
        """Longest time by section, "gc", and "loop" for whole stalls."""
        sections = list(self._sections.items())  # at once: the loop adds to them
        longest = {name: one.longest_s * 1000 for name, one in sections if one.longest_s >= 0}
        return longest if self._due_s is None else {**longest, "loop": self._longest_ms}

    @contextmanager
    def watching_collections(self) -> Iterator[None]:
        """Measure garbage collections too within the block."""
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)

    def section(self, name: str) -> AbstractContextManager[None]:
        """Return the context that counts its block as work on the loop under this name. The block
        awaits nothing, and does not enter the same context again."""
        return self._section(name)

    def _section(self, name: str) -> _Section:
        found = self._sections.get(name)
        if found is None:
            found = self._sections[name] = _Section()
        return found

    def sample(self) -> None:
        """Record a stall if this call is late. Caller's duty: every `SAMPLE_S`, by a loop timer."""
        now_s, thread_s, process_s = time.monotonic(), time.thread_time(), time.process_time()
        if self._due_s is not None:
            late_ms = (now_s - self._due_s) * 1000
            self._longest_ms = max(self._longest_ms, late_ms)
            if late_ms >= _LOGGED_MS_MIN:
                self.count += 1
                self._log_stall(
                    now_s,
                    late_ms,
                    thread_ms=(thread_s - self._thread_s) * 1000,
                    process_ms=(process_s - self._process_s) * 1000,
                )
        for one in self._sections.values():
            one.since_s = 0.0
        self._due_s = now_s + SAMPLE_S
        self._thread_s, self._process_s = thread_s, process_s

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        del info
        collections = self._section("gc")
        if phase == "start":
            self._collecting = True
            collections.begin()
        elif self._collecting:
            collections.end()

    def _log_stall(
        self, now_s: float, late_ms: float, *, thread_ms: float, process_ms: float
    ) -> None:
        if now_s - self._logged_at_s < _LOG_INTERVAL_S:
            self._unlogged += 1
            return
        named = sorted(self._sections.items(), key=lambda item: -item[1].since_s)
        times_ms = [(name, one.since_s * 1000) for name, one in named]
        parts = [f"{name} {ms:.0f} ms" for name, ms in times_ms if ms >= _NAMED_MS_MIN]
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
