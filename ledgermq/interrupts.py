"""Stop signals as a KeyboardInterrupt that ends a block, whatever code is running meanwhile.

Place in the data path: `ledgermq verify` judges a run within such a block.

Invariants: SIGTERM ends the block as SIGINT does; an interrupt that is raised where Python discards
exceptions is delivered again.

Source: signal(7); the Python library reference, `sys.unraisablehook`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from chaos.cluster.stop_signals import heeded_stop_signals

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["stop_signals_interrupt"]

_AGAIN_AFTER: Final = 0.05  # seconds: the callback that discarded the interrupt has returned


@contextlib.contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Let each stop signal end the block with KeyboardInterrupt, whatever handles SIGINT there.

    By default SIGTERM ends this process alone, and Spark's JVM works on until it sees that. In
    another thread than the main one, which receives no signals, the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    for number in heeded_stop_signals():
        if number is not signal.SIGINT:
            before[number] = signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with _discarded_interrupts_return():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _discarded_interrupts_return() -> Iterator[None]:
    """Deliver SIGINT again after its KeyboardInterrupt was raised in a finaliser.

    Python runs a finaliser (`__del__`, a weak reference's callback) between any two steps of the
    main thread and discards what it raises. py4j has one for each of Java's objects, so that one
    Ctrl-C in some hundred would otherwise be lost.
    """
    report = sys.unraisablehook
    main = threading.main_thread().ident
    timers: list[threading.Timer] = []

    def hook(unraisable: UnraisableHookArgs) -> None:
        if main is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        # Not raised here: Python discards what this hook raises too.
        timer = threading.Timer(_AGAIN_AFTER, signal.pthread_kill, (main, signal.SIGINT))
        timer.daemon = True
        timers.append(timer)
        timer.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report
        for timer in timers:
            timer.cancel()
