"""How stores are born, and what becomes of one that was wiped."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from raft.log.disk import OsDisk
from raft.log.hard_state import HardStateFile
from raft.membership import AddLearner, Member, PromoteLearner, RemoveMember
from raft.messages import NodeId
from raft.replicated_log import ChangeRefusedError, NotLeaderError, Phase
from raft.store.identity import IdentityFile, StoreIdentity
from tests.raft.node_group import Group, payload
from tests.raft.snapshot_group import write


@contextlib.asynccontextmanager
async def made(store: Path, count: int = 3) -> AsyncIterator[Group]:
    group = Group(store, count)
    try:
        yield group
    finally:
        await group.stop()


def phases(group: Group) -> set[Phase]:
    return {node.status().phase for node in group.nodes.values()}


@pytest.mark.parametrize("order", ["n0 n1 n2", "n2 n0 n1"])
async def test_a_group_forms_soon_after_the_last_node_is_up(tmp_path: Path, order: str) -> None:
    async with made(tmp_path) as group:
        *first, last = order.split()
        for name in first:
            await group.start(name)
            await asyncio.sleep(0.2)
            assert phases(group) == {Phase.UNBORN}
            with pytest.raises(NotLeaderError):
                group.nodes[name].propose(payload(b"too early"))
        await group.start(last)
        await group.leader()
        members = {node.membership() for node in group.nodes.values()}
        stores = {name: node.status().store_id for name, node in group.nodes.items()}
        assert len(members) == 1, "the first leader has written it into the log"
        membership = members.pop()
        assert {m.node_id: m.store_id for m in membership.voters} == stores
        assert {m.node_id: m.address for m in membership.voters} == group.peers


async def test_a_group_that_was_born_needs_a_majority_only(tmp_path: Path) -> None:
    async with made(tmp_path) as group:
        await group.start()
        await write(group, 3)
        for name in tuple(group.nodes):
            await group.crash(name)
        await group.start("n0", "n2")
        await write(group, 3, 3)


async def test_stores_older_than_identities_are_born(tmp_path: Path) -> None:
    """Such a group has no CONFIG entry, and nobody knows a store of anybody."""
    async with made(tmp_path) as group:
        for number, name in enumerate(group.peers):
            (tmp_path / name).mkdir()
            identity = StoreIdentity(
                group="broker-a", node=name, store_id=f"{number:032x}", born=True
            )
            HardStateFile(OsDisk(tmp_path / name)).load()
            IdentityFile(OsDisk(tmp_path / name)).save(identity)
        await group.start()
        written = await write(group, 3)
        for name in tuple(group.nodes):
            await group.crash(name)
            for path in IdentityFile.PATHS:
                (tmp_path / name / path).unlink()
        await group.start()
        assert phases(group) == {Phase.SERVING}
        assert len({node.status().store_id for node in group.nodes.values()}) == 3
        written += await write(group, 3, 3)
        for machine in group.machines.values():
            await until(lambda m=machine: m.data() == written, "its entries are there")


async def test_a_wiped_voter_takes_no_part_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with made(tmp_path) as group:
        await group.start()
        await write(group, 3)
        leader = await group.leader()
        wiped = next(name for name in group.nodes if name != leader)
        old = group.nodes[wiped].status().store_id
        await group.crash(wiped)
        shutil.rmtree(tmp_path / wiped)
        await group.start(wiped)
        await until(lambda: "this store" in caplog.text, "it says so")
        assert f"is empty but the group knows another one of this name ({old})" in caplog.text
        node = group.nodes[wiped]
        assert node.status().phase is Phase.UNBORN
        # Its vote and its acknowledgement are not to be had: without them there is no majority.
        other = next(name for name in group.nodes if name not in {leader, wiped})
        await group.crash(other)
        future = group.nodes[leader].propose(payload(b"not acknowledged"))
        done, _ = await asyncio.wait([future], timeout=1.5)
        assert not done or not future.result().status.definite
        assert node.status().phase is Phase.UNBORN
        assert node.status().last_index == 0


async def replaced(group: Group, name: str) -> None:
    """Take the wiped node out and in again, with the store that it has now."""
    member = NodeId(name)
    leader = group.nodes[await group.leader()]
    await leader.change_membership(RemoveMember(node_id=member))
    store_id = group.nodes[name].status().store_id
    await leader.change_membership(
        AddLearner(member=Member(node_id=member, address=group.peers[member], store_id=store_id))
    )
    deadline = time.monotonic() + 10
    while True:
        try:
            await leader.change_membership(PromoteLearner(node_id=member))
        except ChangeRefusedError:
            assert time.monotonic() < deadline, "the learner catches up"
            await asyncio.sleep(0.02)
        else:
            return


async def test_a_wiped_voter_comes_back_as_a_learner_that_catches_up(tmp_path: Path) -> None:
    async with made(tmp_path) as group:
        await group.start()
        written = await write(group, 30)
        leader = await group.leader()
        wiped = next(name for name in group.nodes if name != leader)
        await group.crash(wiped)
        shutil.rmtree(tmp_path / wiped)
        await group.start(wiped)
        await replaced(group, wiped)
        assert group.nodes[wiped].status().phase is Phase.SERVING
        assert wiped in group.nodes[leader].status().voters
        await until(lambda: group.machines[wiped].data() == written, "caught up")
        # It counts again: with the third one gone there is still a majority.
        other = next(name for name in group.nodes if name not in {leader, wiped})
        await group.crash(other)
        written += await write(group, 5, 30)
        await group.crash(wiped)
        await group.start(wiped)
        await until(lambda: group.machines[wiped].data() == written, "after a restart, too")


async def test_a_disk_from_before_the_replacement_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with made(tmp_path) as group:
        await group.start()
        await write(group, 5)
        leader = await group.leader()
        name = next(name for name in group.nodes if name != leader)
        await group.crash(name)
        shutil.move(tmp_path / name, tmp_path / "old")
        await group.start(name)
        await replaced(group, name)
        await group.crash(name)
        shutil.rmtree(tmp_path / name)
        shutil.move(tmp_path / "old", tmp_path / name)
        await group.start(name)
        await until(lambda: "was replaced, and does not count" in caplog.text, "it says so")
        term = group.nodes[await group.leader()].status().term
        other = next(one for one in group.nodes if one not in {leader, name})
        await group.crash(other)
        future = group.nodes[leader].propose(payload(b"not acknowledged"))
        done, _ = await asyncio.wait([future], timeout=1.5)
        assert not done or not future.result().status.definite
        assert all(node.status().term == term for node in group.nodes.values()), "nor campaign"
