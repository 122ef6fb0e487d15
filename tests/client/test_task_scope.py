"""The background tasks of a client: what ends them, and who hears of it."""

from __future__ import annotations

import asyncio

import pytest

from campaigns.rig.waiting import until
from client.connection.task_scope import TaskScope


async def test_a_loop_that_nobody_cancelled_has_failed() -> None:
    """It awaited something that was cancelled; a TaskGroup takes that for an end in order."""
    scope = TaskScope()
    await scope.start()

    async def loop() -> None:
        pool = asyncio.get_running_loop().create_future()
        pool.cancel()
        await pool

    scope.spawn(loop(), "client-loop")
    await until(lambda: not scope.running)
    with pytest.raises(ExceptionGroup) as ended:
        await scope.stop()
    assert ended.group_contains(RuntimeError, match="client-loop ended, though nobody had")


async def test_a_loop_that_its_owner_cancels_has_ended() -> None:
    scope = TaskScope()
    await scope.start()
    loop = scope.spawn(asyncio.Event().wait(), "client-loop")  # type: ignore[arg-type]
    loop.cancel()
    await until(loop.done)
    assert scope.running
    await scope.stop()
