"""A node that replays its log could lead, but serve nothing: others come first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from campaigns.rig.waiting import until
from raft.events import Role
from raft.messages import NodeId
from tests.raft.core_group import Group
from tests.raft.node_group import payload, running

N1, N2, N3 = (NodeId(name) for name in ("n1", "n2", "n3"))


def test_a_node_that_replays_lets_others_campaign_first() -> None:
    group = Group(3)
    group.elect(N1)
    group.replay(N3, replaying=True)
    group.heartbeat(N1)
    group.heartbeat(N1)
    assert group.core(N3).next_deadline_ms - group.core(N2).next_deadline_ms == 600
    group.unreachable(N3, N1)
    assert group.core(N3).next_deadline_ms - group.core(N2).next_deadline_ms == 600
    group.replay(N3, replaying=False)
    group.heartbeat(N1)
    assert group.core(N3).next_deadline_ms - group.core(N2).next_deadline_ms < 600


def test_a_node_that_replays_is_still_elected_where_nobody_else_stands() -> None:
    group = Group(3)
    group.replay(N3, replaying=True)
    group.elect(N3, [N2, N3])


def test_a_node_that_replays_takes_no_leadership_that_is_handed_over() -> None:
    group = Group(3)
    group.elect(N1)
    group.heartbeat(N1)
    group.replay(N3, replaying=True)
    group.transfer(N1, N3)
    group.stabilize()
    assert (group.core(N1).role, group.core(N3).role) == (Role.LEADER, Role.FOLLOWER)
    group.replay(N3, replaying=False)
    for _ in range(20):
        group.heartbeat(N1)  # the first handover is given up
    group.transfer(N1, N3)
    group.stabilize()
    assert group.core(N3).role is Role.LEADER


async def test_a_restarted_node_tells_its_core_while_it_replays(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        for _ in range(30):
            await asyncio.gather(*[group.nodes[leader].propose(payload(b"x")) for _ in range(100)])
        name = next(name for name in group.peers if name != leader)
        await until(lambda: len(group.machines[name].data()) == 3000, "all applied")
        await group.crash(name)
        await group.start(name)
        told: list[tuple[bool, int]] = []

        def watch() -> bool:
            shell = group.nodes[name]._shell
            assert shell is not None
            told.append((shell.core._timer.is_replaying, len(group.machines[name].data())))
            return told[-1] == (False, 3000)

        await until(watch, "all applied again")
        assert any(is_replaying for is_replaying, _ in told)
