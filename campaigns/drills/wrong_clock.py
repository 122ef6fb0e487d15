"""Runs `ledgermq` on a wall clock that is off by as many seconds as a file says.

    python -m campaigns.drills.wrong_clock FILE broker --config CONFIG

Place in the data path: `clock_jumps` starts brokers by it. `time.time` and `time.time_ns`, by which
this project tells the time of day, are replaced before any of its modules is imported; monotonic
clocks are left alone, as by whoever sets a clock. libfaketime (0.9.10) is of no use here: under it
each wait of a thread that shares the interpreter with another takes ten times as long.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["WrongClock"]

_LOOK_AGAIN_NS: Final = 50_000_000


class WrongClock:
    """The machine's clock, and what the file says, looked at twenty times a second."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._right_ns = time.time_ns
        self._offset_ns = 0
        self._look_at_ns = 0

    def time_ns(self) -> int:
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _LOOK_AGAIN_NS
            self._offset_ns = int(self._file.read_text(encoding="ascii")) * 1_000_000_000
        return self._right_ns() + self._offset_ns

    def time(self) -> float:
        return self.time_ns() / 1e9


def _main() -> None:
    clock = WrongClock(Path(sys.argv[1]))
    time.time_ns, time.time = clock.time_ns, clock.time
    sys.argv[:2] = ["ledgermq"]
    from ledgermq.__main__ import main  # what it imports is to find this clock

    main()


if __name__ == "__main__":
    _main()
