"""A group whose log is cut behind its snapshots."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from campaigns.rig.waiting import until
from raft.replicated_log import NotLeaderError, ProposalStatus
from tests.raft.node_group import Group, payload

DATA = bytes(1000)
ENTRIES_PER_SEGMENT = (1 << 16) // 1044


async def write(group: Group, count: int, begin: int = 0) -> list[bytes]:
    """`count` entries of about 1000 bytes, all committed, each once."""
    written = [b"%06d" % number + DATA for number in range(begin, begin + count)]
    left = list(written)
    while left:
        leader = await group.leader()
        with contextlib.suppress(NotLeaderError):  # deposed since it was asked for
            proposals = [group.nodes[leader].propose(payload(data)) for data in left[:50]]
            results = await asyncio.gather(*proposals)
            if {result.status for result in results} == {ProposalStatus.COMMITTED}:
                del left[:50]
                continue
        # A machine that is busy may elect another leader: who is ready has applied what is stored.
        stored = set(group.machines[await group.leader()].data())
        left = [data for data in left if data not in stored]
    return written


def snapshots(store: Path, name: str) -> list[int]:
    return sorted(int(p.stem) for p in (store / name / "snapshots").glob("*.snapshot"))


async def settled(group: Group) -> None:
    """Every node has applied everything, and written what it captured."""
    leader = group.nodes[await group.leader()]
    last = leader.status().last_index

    def all_applied() -> bool:
        return all(node.status().applied_index == last for node in group.nodes.values())

    await until(all_applied, "all applied")
    await until(
        lambda: all(node._snapshots._settled for node in group.nodes.values()), "all written"
    )


async def shortened(group: Group, written: list[bytes]) -> None:
    """Until every node that runs has lost the log's beginning; writes more where that needs it:
    a segment that ends while a snapshot is being written brings no other."""
    while True:
        await settled(group)
        if all([await node.retain_from(1 << 40) for node in group.nodes.values()]):
            return
        written += await write(group, ENTRIES_PER_SEGMENT, len(written))


async def two_snapshots(group: Group, store: Path, written: list[bytes]) -> tuple[int, int]:
    """Of n0, for which the same holds."""
    while True:
        await settled(group)
        kept = snapshots(store, "n0")
        if len(kept) == 2:
            return kept[0], kept[1]
        written += await write(group, ENTRIES_PER_SEGMENT, len(written))
