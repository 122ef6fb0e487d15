"""The signals that end a command which has started processes, and a record of a received one.

Place in the data path: `chaos.cluster.cluster` and `chaos.experiment.experiment` end in an orderly
way on them.

Invariant: SIGINT and SIGTERM are always handled, also where they were ignored by the parent: a
shell does that to a background command of a script, and a signal sent to this process is meant for
it all the same. An ignored SIGHUP stays ignored: that is what `nohup` requests.

Source: signal(7); POSIX, Shell Command Language, 2.11 (signals of asynchronous lists).
"""

from __future__ import annotations

import signal
import threading
from typing import Any, Final, Self

__all__ = ["StopSignals", "heeded_stop_signals"]

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded_stop_signals() -> list[signal.Signals]:
    """Return the signals that end a command here: an ignored SIGHUP is left out."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [n for n in _STOP_SIGNALS if n is not signal.SIGHUP or not ignores_hangup]


class StopSignals:
    """Records a stop signal, so that none is missed and none interrupts a start.

    Signals are the main thread's: in another one nothing is recorded.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in heeded_stop_signals():
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt where one was received."""
        if self.received:
            raise KeyboardInterrupt

    def _remember(self, _number: int, _frame: object) -> None:
        self.received = True
