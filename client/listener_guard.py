"""The boundary to the application's listeners: the one place where any of their errors is caught.

Place in the data path: consumers and the transaction producer call listeners inside a
`ListenerGuard`. A listener is foreign code: its bug means "this message is not consumed" or "this
transaction is not known yet", which the protocol repeats, and must not end the client's other work.
It is logged with its traceback, so that it is not swallowed. Cancellation passes through.

Source: RocketMQ ConsumeMessageConcurrentlyService takes a Throwable for RECONSUME_LATER.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

__all__ = ["ListenerGuard"]

_log = logging.getLogger(__name__)


class ListenerGuard:
    """`with ListenerGuard("what is going on") as guard: ...`, then look at `guard.failed`."""

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
