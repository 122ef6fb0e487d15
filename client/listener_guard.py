"""The boundary to the application's listeners: the one place that catches any of their errors.

Place in the data path: consumers and the transaction producer call listeners inside a
`ListenerGuard`, which also judges what they return, and observers through `guarded_hooks`. A
listener is foreign code: its bug means "this message is not consumed" or "this transaction is not
decided yet", which the protocol repeats, and must not end the client's other work; nor must an
observer's. The error is logged with its traceback, not swallowed. What ends the client's own task
or the process passes through.

Source: RocketMQ ConsumeMessageConcurrentlyService treats a Throwable as RECONSUME_LATER.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar, cast

__all__ = ["ListenerGuard", "guarded_hooks"]

_log = logging.getLogger(__name__)

_V = TypeVar("_V", bound=enum.Enum)
_O = TypeVar("_O")


class ListenerGuard:
    """Context manager that catches and logs what a listener raises; `failed` says that it did."""

    __slots__ = ("_cancelled", "_what", "_who", "failed")

    def __init__(self, what: str, *, who: str = "a listener") -> None:
        self._what = what
        self._who = who
        self._cancelled = 0
        self.failed = False

    def __enter__(self) -> Self:
        self._cancelled = _cancellations()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or not self._is_listeners_own(error):
            return False
        self.failed = True
        _log.error("%s failed: %s", self._who, self._what, exc_info=error)
        return True

    def verdict(self, returned: object, otherwise: _V) -> _V:
        """Return what the listener returned; `otherwise` where it raised, or where that is no
        verdict, which is logged."""
        if isinstance(returned, type(otherwise)):
            return returned
        if not self.failed:
            kind = type(otherwise).__name__
            _log.error("%s returned %r, which is no %s: %s", self._who, returned, kind, self._what)
        return otherwise

    def _is_listeners_own(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            # Nobody has cancelled this task meanwhile: the listener has awaited something of the
            # application's that was. A TaskGroup would take the task for one that was cancelled.
            return _cancellations() <= self._cancelled
        # GeneratorExit: the loop was closed while the listener waited.
        return not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def guarded_hooks(observer: _O) -> _O:
    """Return `observer` with each of its hooks inside a guard."""
    return cast("_O", _GuardedHooks(observer))


class _GuardedHooks:
    __slots__ = ("_observer",)

    def __init__(self, observer: object) -> None:
        self._observer = observer

    def __getattr__(self, name: str) -> Callable[..., None]:
        hook: Callable[..., None] = getattr(self._observer, name)

        def call(*args: object, **named: object) -> None:
            with ListenerGuard(f"it was not told `{name}`", who="an observer"):
                hook(*args, **named)

        return call


def _cancellations() -> int:
    """Return how often the present task was cancelled; 0 where there is none, as in a callback, or
    in a coroutine that is closed behind the loop's end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()
