"""The boundary to the application's listeners: the one place that catches any of their errors.

Place in the data path: consumers and the transaction producer call listeners inside a
`ListenerGuard`. A listener is foreign code: its bug means "this message is not consumed" or "this
transaction is not decided yet", which the protocol repeats, and must not end the client's other
work. The error is logged with its traceback, not swallowed. Cancellation passes through.

Source: RocketMQ ConsumeMessageConcurrentlyService treats a Throwable as RECONSUME_LATER.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

__all__ = ["ListenerGuard"]

_log = logging.getLogger(__name__)


class ListenerGuard:
    """Context manager that catches and logs what a listener raises; `failed` says that it did."""

    __slots__ = ("_what", "failed")

    def __init__(self, what: str) -> None:
        self._what = what
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failed = True
        _log.error("a listener failed: %s", self._what, exc_info=error)
        return True
