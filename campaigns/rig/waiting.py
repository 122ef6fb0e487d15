"""How tests and campaigns wait: for turns of the loop, or until something holds, with a deadline.

Nobody sleeps for as long as something should take: `turns` lets the loop run what is ready, `until`
and `await_until` poll until their condition holds and fail by name at their deadline, which is far
beyond what a busy machine needs. None of them says how long it took: a slow machine is no failure.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Final

__all__ = ["DEADLINE_S", "await_until", "turns", "until"]

DEADLINE_S: Final = 30.0
_TURNS: Final = 100
_PAUSE_S: Final = 0.005


async def turns(count: int = 20) -> None:
    """Let the event loop turn `count` times: what is ready runs, and what that makes ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(
    condition: Callable[[], object], what: str = "what is waited for", seconds: float = DEADLINE_S
) -> None:
    """Poll until it holds; `condition` may return an awaitable. The first hundred turns are taken
    at once, so that what needs no time takes none; then others get the processor in between."""
    deadline = asyncio.get_running_loop().time() + seconds
    turn = 0
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        turn += 1
        await asyncio.sleep(0 if turn <= _TURNS else _PAUSE_S)


def await_until(condition: Callable[[], object], what: str, seconds: float = DEADLINE_S) -> None:
    """Poll until it holds, where no loop runs: for processes, threads and files."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
