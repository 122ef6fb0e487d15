"""The background tasks of a client: what ends them, and who hears of it."""

from __future__ import annotations

import asyncio

import pytest

from campaigns.rig.waiting import until
from client.connection.task_scope import TaskScope


async def test_what_ends_a_client_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    scope = TaskScope()
    await scope.start()

    async def loop() -> None:
        raise KeyError("bug")

    scope.spawn(loop(), "client-loop")
    await until(lambda: not scope.running)
    assert "client-loop failed, and ends its client" in caplog.text
    assert "KeyError: 'bug'" in caplog.text
    with pytest.raises(ExceptionGroup) as ended:
        await scope.stop()
    assert ended.group_contains(KeyError)


async def test_a_loop_that_nobody_cancelled_has_failed(caplog: pytest.LogCaptureFixture) -> None:
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
    assert ended.group_contains(RuntimeError, match="it was not cancelled, but")
    assert "client-loop failed, and ends its client" in caplog.text


async def test_a_loop_that_its_owner_cancels_has_ended() -> None:
    scope = TaskScope()
    await scope.start()
    loop = scope.spawn(asyncio.Event().wait(), "client-loop")  # type: ignore[arg-type]
    loop.cancel()
    await until(loop.done)
    assert scope.running
    await scope.stop()
