"""How much is done, in place of how long it takes: a busy machine does no more than an idle one.

Lines of Python are counted as they are executed, in the thread that asks and below it, generators
and coroutines too. What runs within one call of C is one line: that which walks many rows in C
shows by what it calls of Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Work", "counted"]


class Work:
    """`lines`: executed so far."""

    lines: int = 0

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
        return self._trace


@contextmanager
def counted() -> Iterator[Work]:
    """Counts what is called within, not the lines of the block itself."""
    work, before = Work(), sys.gettrace()
    sys.settrace(work._trace)
    try:
        yield work
    finally:
        sys.settrace(before)
