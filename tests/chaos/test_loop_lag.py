"""The lag of the loop, as calls that are timed see it."""

from __future__ import annotations

import asyncio
import time

from campaigns.rig.waiting import turns
from chaos.workload.loop_lag import TICK_S, LoopLag


async def test_blocked_loop_is_late_whoever_wakes_first() -> None:
    lag, end = LoopLag(), asyncio.Event()
    began_s = asyncio.get_running_loop().time()
    watching = asyncio.create_task(lag.watch(end))
    await turns(1)
    assert lag.worst_s(began_s) == 0
    time.sleep(3 * TICK_S)  # noqa: ASYNC251 - the loop is to be blocked
    assert lag.worst_s(began_s) > TICK_S, "no tick has shown it yet"
    end.set()
    await watching
    later_s = asyncio.get_running_loop().time()
    assert lag.worst_s(began_s) > TICK_S
    assert lag.worst_s(later_s + 1) == 0
