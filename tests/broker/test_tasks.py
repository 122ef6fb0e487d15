"""Tasks of the broker: none is lost, and none that never began is left unawaited."""

from __future__ import annotations

import asyncio
import gc
import warnings

from broker.request.request import Request
from broker.request.tasks import TaskOwner
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection


async def test_a_task_that_never_began_is_closed():
    tasks = TaskOwner()
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True
        await asyncio.Event().wait()

    gc.collect()  # what earlier tests left warns outside
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # "was never awaited"
        tasks.answer(Request(FakeConnection(), RemotingCommand(code=1)), work)
        await tasks.stop()
        gc.collect()
    assert not begun
