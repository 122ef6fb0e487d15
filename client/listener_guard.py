"""The boundary to the application's listeners: the one place that catches any of their errors.

Place in the data path: consumers and the transaction producer call listeners inside a
`ListenerGuard`. A listener is foreign code: its bug means "this message is not consumed" or "this
transaction is not decided yet", which the protocol repeats, and must not end the client's other
work. The error is logged with its traceback, not swallowed. What ends the client's own task or the
process passes through.

Source: RocketMQ ConsumeMessageConcurrentlyService treats a Throwable as RECONSUME_LATER.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

__all__ = ["ListenerGuard"]

_log = logging.getLogger(__name__)


class ListenerGuard:
    """Context manager that catches and logs what a listener raises; `failed` says that it did."""

    __slots__ = ("_cancelled", "_what", "failed")

    def __init__(self, what: str) -> None:
        self._what = what
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
        _log.error("a listener failed: %s", self._what, exc_info=error)
        return True

    def _is_listeners_own(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            # Nobody has cancelled this task meanwhile: the listener has awaited something of the
            # application's that was. A TaskGroup would take the task for one that was cancelled.
            return _cancellations() <= self._cancelled
        # GeneratorExit: the loop was closed while the listener waited.
        return not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def _cancellations() -> int:
    """Return how often the present task was cancelled; 0 in a callback, which is in no task."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
