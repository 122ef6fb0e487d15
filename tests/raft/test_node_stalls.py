"""A machine that gives its nodes no processor for a while: nobody is deposed for it.

All nodes share one loop here, so that blocking it starves them together, as a machine does that has
far more to do than it has cores.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from raft.events import RoomChanged
from raft.node.node import RaftNode
from tests.raft.node_group import Group, payload


def term_of(group: Group) -> int:
    return max(node.status().term for node in group.nodes.values())


async def starve(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - blocking the loop is the point


@pytest.mark.parametrize("stall_ms", [250, 450, 550])
async def test_a_starved_group_keeps_its_leader(tmp_path: Path, stall_ms: int) -> None:
    group = Group(tmp_path, 3)
    await group.start()
    try:
        leader = group.nodes[await group.leader()]
        before = term_of(group)
        for _ in range(8):
            await starve(stall_ms / 1000)
            await asyncio.sleep(stall_ms / 1000)  # as much processor as was missing
            result = await leader.propose(payload(b"x"))
            assert result.status.name == "COMMITTED"
        assert term_of(group) == before
        assert leader.status().ready
    finally:
        await group.stop()


async def test_a_leader_that_is_gone_is_replaced_all_the_same(tmp_path: Path) -> None:
    """However starved the others are: half of the time that passes counts."""
    group = Group(tmp_path, 3)
    await group.start()
    try:
        first = await group.leader()
        await group.crash(first)
        others: list[RaftNode] = [node for name, node in group.nodes.items() if name != first]

        def another_leads() -> bool:
            time.sleep(0.05)
            return any(node.status().ready for node in others)

        await until(another_leads, "another leads")
    finally:
        await group.stop()


async def test_the_grace_of_a_late_timer_outlasts_whatever_else_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop was held up: the heartbeat may be behind other things that wait to be read."""
    group = Group(tmp_path, 3)
    await group.start()
    try:
        leader = await group.leader()
        node = next(node for name, node in group.nodes.items() if name != leader)
        shell = node._shell
        assert shell is not None
        before = shell.core.next_deadline_ms
        now_ms = before + 10_000
        monkeypatch.setattr(shell, "now_ms", lambda: now_ms)
        shell._on_timer()
        grace = shell._timer._handle
        assert grace is not None
        shell.step_entry(RoomChanged(now_ms=now_ms, writable=True, can_begin=True))
        assert shell._timer._handle is grace
        assert not grace.cancelled()
        assert shell.core.next_deadline_ms == before, "nothing was done about it yet"
        grace.cancel()
        shell._on_timer(late=True)
        assert shell.core.next_deadline_ms > now_ms, "after it an election begins"
        assert not node.stopped
    finally:
        await group.stop()
