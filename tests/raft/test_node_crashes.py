"""Crashes at random moments under load: what was acknowledged is there, once, everywhere."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from raft.replicated_log import NotLeaderError, ProposalStatus
from tests.raft.node_group import Group, payload

ROUNDS = 6


async def propose_until(group: Group, stop: asyncio.Event, name: str, acked: list[bytes]) -> None:
    """One proposal after the other at whichever node leads; only COMMITTED counts."""
    number = 0
    while not stop.is_set():
        number += 1
        data = b"%s-%d" % (name.encode(), number)
        for node in tuple(group.nodes.values()):
            try:
                result = await node.propose(payload(data))
            except NotLeaderError:
                continue
            if result.status is ProposalStatus.COMMITTED:
                acked.append(data)
            break
        else:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_acknowledged_survives_crashes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    group = Group(tmp_path)
    acked: list[bytes] = []
    stop = asyncio.Event()
    try:
        await group.start()
        await group.leader()
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(propose_until(group, stop, f"c{number}", acked))
            for _ in range(ROUNDS):
                before = len(acked)
                victims = rng.sample(sorted(group.peers), rng.choice([1, 1, 2]))
                await asyncio.sleep(rng.uniform(0, 0.2))
                for victim in victims:
                    await group.crash(victim)
                await asyncio.sleep(rng.uniform(0, 0.2))
                await group.start(*victims)
                await until(lambda b=before: len(acked) > b + 20, "the group goes on")
            stop.set()
        leader = group.nodes[await group.leader()]
        await leader.propose(payload(b"last"))
        for machine in group.machines.values():
            await until(lambda m=machine: m.data()[-1:] == [b"last"], "all applied")
        logs = [machine.data() for machine in group.machines.values()]
        assert logs[0] == logs[1] == logs[2]
        assert len(set(logs[0])) == len(logs[0])
        assert set(acked) <= set(logs[0])
        chains = [[entry.chain for entry in m.entries] for m in group.machines.values()]
        assert chains[0] == chains[1] == chains[2]
    finally:
        await group.stop()
