"""What `ReplicatedLog.change_membership` promises, over real sockets and disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from raft.events import ChangeRefusal
from raft.membership import PromoteLearner, RemoveMember
from raft.messages import NodeId
from raft.replicated_log import ChangeRefusedError, NotLeaderError, ProposalStatus
from tests.raft.node_group import payload, running


async def test_a_follower_is_taken_out(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        out = next(name for name in group.peers if name != leader)
        result = await node.change_membership(RemoveMember(node_id=NodeId(out)))
        assert result.status is ProposalStatus.COMMITTED
        assert set(node.membership().voter_ids) == set(group.peers) - {out}
        assert (await node.propose(payload(b"on two"))).status is ProposalStatus.COMMITTED


async def test_a_leader_takes_itself_out_and_another_one_leads(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        result = await node.change_membership(RemoveMember(node_id=NodeId(leader)))
        assert result.status is ProposalStatus.COMMITTED
        await until(lambda: not node.status().ready, "it steps down")
        others = [name for name in group.peers if name != leader]
        await until(
            lambda: any(group.nodes[name].status().ready for name in others), "another leads"
        )


async def test_what_can_not_be_changed_is_refused_for_sure(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        follower = next(name for name in group.peers if name != leader)
        change = PromoteLearner(node_id=NodeId("stranger"))
        last = group.nodes[leader].status().last_index
        with pytest.raises(ChangeRefusedError, match="stranger is no learner") as refused:
            await group.nodes[leader].change_membership(change)
        assert refused.value.refused.reason is ChangeRefusal.IMPOSSIBLE
        assert group.nodes[leader].status().last_index == last
        with pytest.raises(NotLeaderError):
            await group.nodes[follower].change_membership(change)
