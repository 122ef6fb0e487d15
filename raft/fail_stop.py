"""The boundary to the event loop: any exception inside stops the node.

Place in the data path: every callback by which loop, transport and fsync thread enter
`raft.node.node` goes through it, and so do the broker's calls where they step the core.

Invariant: a failed write, a broken invariant and an exception of the state machine all end in one
place, `fail`, and none of them in a log line of the loop with the node going on.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["FailStop", "fails_with", "stops_node"]

_P = ParamSpec("_P")


class FailStop:
    """Passes an exception to `fail`; it propagates only if it is to end the process."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if error is None:
            return False
        self._fail(error)
        return isinstance(error, Exception)


class _Guarded(Protocol):
    stopped: bool
    fail_stop: FailStop


_G = TypeVar("_G", bound=_Guarded)


def stops_node(
    method: Callable[Concatenate[_G, _P], None],
) -> Callable[Concatenate[_G, _P], None]:
    """Make a method an entry: it does nothing once the node has stopped."""

    @functools.wraps(method)
    def entry(node: _G, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not node.stopped:
            with node.fail_stop:
                method(node, *args, **kwargs)

    return entry


def fails_with(fail: Callable[[BaseException], None]) -> Callable[[asyncio.Task[None]], None]:
    """Return a callback for the end of a task: what it has failed with goes to `fail`, of a group
    the first."""

    def on_done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is not None:
            fail(error)

    return on_done
