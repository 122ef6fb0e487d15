"""RaftNode over real sockets and disks: three nodes in one loop, and one on a recording fake."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.rig.waiting import turns, until
from raft.events import Role
from raft.log.disk import OsDisk
from raft.log.hard_state import HardStateFile
from raft.log.log_format import CorruptLogError
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    NodeId,
    RequestVote,
    RequestVoteReply,
)
from raft.node.node import RaftNode
from raft.replicated_log import (
    CommittedEntry,
    NotLeaderError,
    ProposalStatus,
    Slot,
)
from raft.store.checkpoint import WrongStoreError
from raft.store.store_lock import StoreLockedError
from tests.raft.node_bench import (
    bench,
)
from tests.raft.node_group import Recorder, node_config, payload, running, trace_of

# --- a group -------------------------------------------------------------------------------------


async def test_a_proposal_is_applied_everywhere(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        slots: list[Slot] = []

        def fill(slot: Slot) -> bytes:
            slots.append(slot)
            return b"payload %d" % slot.index

        results = await asyncio.gather(*[group.nodes[leader].propose(fill) for _ in range(100)])
        assert {result.status for result in results} == {ProposalStatus.COMMITTED}
        assert [result.index for result in results] == [slot.index for slot in slots]
        assert len(group.machines[leader].data()) == 100, "applied before the future resolves"
        for name, machine in group.machines.items():
            await until(lambda m=machine: len(m.data()) == 100, f"{name} applies")
            applied = [e for e in machine.entries if e.kind is EntryKind.DATA]
            assert [entry.position for entry in applied] == [slot.position for slot in slots]
            for entry in applied:
                stored = group.nodes[name].read(entry.position, len(entry.payload))
                assert stored == entry.payload == b"payload %d" % entry.index


async def test_large_entries_pass(tmp_path: Path) -> None:
    """A busy machine may take longer over so many bytes than an election: then once more."""
    async with running(tmp_path) as group, asyncio.timeout(120):
        left = {bytes([i]) * 2_000_000 for i in range(4)}
        data = set(left)
        while left:
            leader = group.nodes[await group.leader()]
            parts = sorted(left)
            with contextlib.suppress(NotLeaderError):  # deposed since it was asked for
                proposals = [leader.propose(payload(part)) for part in parts]
                results = await asyncio.gather(*proposals)
                left -= {
                    part
                    for part, result in zip(parts, results, strict=True)
                    if result.status is ProposalStatus.COMMITTED
                }
        machines = list(group.machines.values())
        await until(
            lambda: all(set(m.data()) == data and m.data() == machines[0].data() for m in machines),
            "applied by all in one order",
            seconds=60,
        )


async def test_a_follower_refuses_and_names_the_leader(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        follower = next(name for name in group.nodes if name != leader)
        node = group.nodes[follower]
        await until(lambda: node.status().leader_id == leader, "the leader is known")
        with pytest.raises(NotLeaderError, match=f"leader is {leader}"):
            node.propose(payload(b""))
        with pytest.raises(NotLeaderError, match=f"leader is {leader}"):
            await node.read_index()


async def test_a_killed_leader_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        expected: list[bytes] = []
        for round_number in range(4):
            leader = await group.leader()
            for number in range(20):
                data = b"%d-%d" % (round_number, number)
                result = await group.nodes[leader].propose(payload(data))
                assert result.status is ProposalStatus.COMMITTED
                expected.append(data)
            await group.crash(leader)
            await group.leader()
            await group.start(leader)
        for machine in group.machines.values():
            await until(lambda m=machine: m.data() == expected, "all applied")


async def test_a_whole_group_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        for number in range(50):
            await group.nodes[leader].propose(payload(b"%d" % number))
        for name in tuple(group.nodes):
            await group.crash(name)
        await group.start()
        leader, index = await group.read_index()
        assert index >= 51
        assert group.machines[leader].data() == [b"%d" % number for number in range(50)]


async def test_a_clean_stop_hands_leadership_over(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        await group.nodes[leader].propose(payload(b"x"))
        term = group.nodes[leader].status().term
        node = group.nodes.pop(leader)
        await node.stop()
        assert await group.leader() != leader
        assert max(n.status().term for n in group.nodes.values()) == term + 1
        checkpoint = json.loads((tmp_path / leader / "checkpoint").read_text())
        assert checkpoint["clean"] is True
        assert checkpoint["commit_index"] == checkpoint["applied_index"] >= 2
        assert (checkpoint["group"], checkpoint["node"]) == ("broker-a", leader)


async def test_a_restarted_node_applies_at_once_what_it_knows_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        for number in range(30):
            await group.nodes[leader].propose(payload(b"%d" % number))
        await until(lambda: len(group.machines["n0"].data()) == 30, "n0 has all")
        for name in tuple(group.nodes):
            await group.nodes.pop(name).stop()
        await group.start("n0")  # alone: no leader can tell it anything
        await until(lambda: len(group.machines["n0"].data()) >= 30, "applied alone")


async def test_a_leader_cut_off_loses_leadership_and_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        followers = [name for name in group.nodes if name != leader]
        for follower in followers:
            await group.crash(follower)
        future = node.propose(payload(b"never acknowledged"))
        async with asyncio.timeout(5):
            result = await future
        assert result.status is ProposalStatus.LOST_LEADERSHIP
        assert not result.status.definite
        assert node.status().role is not Role.LEADER
        with pytest.raises(NotLeaderError):
            node.propose(payload(b""))
        statuses = group.machines[leader].statuses
        await until(lambda: statuses[-1].role is not Role.LEADER, "the broker is told")
        assert [s.ready for s in statuses if s.role is Role.LEADER] == [False, True]


async def test_reads_are_confirmed_and_share_rounds(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        result = await node.propose(payload(b"x"))
        indexes = await asyncio.gather(*[node.read_index() for _ in range(500)])
        assert all(index >= result.index for index in indexes)
        reads = [event for event in trace_of(tmp_path, leader) if event["event"] == "read"]
        assert 1 <= len(reads) < 20


async def test_a_read_at_a_leader_cut_off_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        for follower in [name for name in group.nodes if name != leader]:
            await group.crash(follower)
        async with asyncio.timeout(5):
            with pytest.raises(NotLeaderError):
                await group.nodes[leader].read_index()


async def test_leadership_is_handed_over_on_request(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        target = next(name for name in group.nodes if name != leader)
        with pytest.raises(ValueError, match="n9 is no other voter"):
            await node.transfer_leadership(NodeId("n9"))
        with pytest.raises(NotLeaderError, match=f"leader is {leader}"):
            await group.nodes[target].transfer_leadership(NodeId(leader))
        await node.transfer_leadership(NodeId(target))
        assert node.status().role is not Role.LEADER
        assert await group.leader() == target
        await group.crash(leader)
        with pytest.raises(TimeoutError):  # nobody there to take over: it goes on leading
            await group.nodes[target].transfer_leadership(NodeId(leader))


async def test_one_node_is_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        node = group.nodes[leader]
        result = await node.propose(payload(b"alone"))
        assert result.status is ProposalStatus.COMMITTED
        assert await node.read_index() == result.index
        votes = [event for event in trace_of(tmp_path, leader) if event["event"] == "vote"]
        assert [(vote["peer"], vote["term"]) for vote in votes] == [("n0", 1)]


async def test_limits_of_a_proposal(tmp_path: Path) -> None:
    async with running(tmp_path, 1, proposals_count_max=3) as group:
        node = group.nodes[await group.leader()]
        with pytest.raises(ValueError, match="payload of 8388609 bytes, at most 8388608"):
            node.propose(payload(bytes(8 * 1024 * 1024 + 1)))
        futures = [node.propose(payload(b"x")) for _ in range(3)]
        with pytest.raises(ValueError, match="3 proposals are open"):
            node.propose(payload(b"x"))
        await asyncio.gather(*futures)


async def test_what_fill_raises_leaves_no_trace(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        node = group.nodes[await group.leader()]

        def fill(slot: Slot) -> bytes:
            raise LookupError(slot.index)

        last_index = node.status().last_index
        with pytest.raises(LookupError):
            node.propose(fill)
        result = await node.propose(payload(b"x"))
        assert result.index == last_index + 1


async def test_the_trace_tells_the_story(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        for number in range(10):
            await group.nodes[leader].propose(payload(b"%d" % number))
        await group.crash(leader)
        await group.start(leader)
        new = await group.leader()
        await group.nodes[new].propose(payload(b"last"))
        await until(lambda: len(group.machines[leader].data()) == 11, "caught up")
    chains: dict[tuple[object, object], set[object]] = {}
    leaders: dict[object, set[str]] = {}
    for name in ("n0", "n1", "n2"):
        events = trace_of(tmp_path, name)
        assert events[0]["event"] == "start"
        assert events[0]["voters"] == ["n0", "n1", "n2"]
        seqs = [int(str(event["seq"])) for event in events]
        assert seqs == sorted(set(seqs))
        terms = [int(str(event["term"])) for event in events]
        assert terms == sorted(terms)
        fsynced = applied = 0
        for event in events:
            match event:
                case {"event": "start", "index": int(index)}:
                    fsynced, applied = index, 0
                case {"event": "role", "role": "leader", "term": term}:
                    leaders.setdefault(term, set()).add(name)
                case {"event": "fsync", "index": int(index)}:
                    assert index >= fsynced
                    fsynced = index
                case {"event": "append" | "commit", "index": index, "entry_term": term}:
                    chains.setdefault((index, term), set()).add(event["chain"])
                case {"event": "apply", "first": int(first), "index": int(index)}:
                    assert first == applied + 1
                    applied = index
        assert applied >= 13
        assert fsynced >= 12
    assert all(len(found) == 1 for found in chains.values())
    assert all(len(found) == 1 for found in leaders.values())
    incarnations = {event["incarnation"] for event in trace_of(tmp_path, leader)}
    assert incarnations == {1, 2}


# --- start ---------------------------------------------------------------------------------------


async def test_a_store_in_use_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        config = node_config(tmp_path, "n0", group.peers)
        with pytest.raises(StoreLockedError, match=r"n0 is used by another process \(pid \d+\)"):
            await RaftNode(config, Recorder()).start()


async def test_a_port_in_use_is_an_os_error_and_frees_the_store(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        config = node_config(tmp_path / "other", "n0", group.peers)
        for _ in range(2):
            with pytest.raises(OSError, match="Address already in use"):
                await RaftNode(config, Recorder()).start()


async def test_the_store_of_another_node_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        pass
    config = node_config(tmp_path, "n0", group.peers, group="broker-b")
    with pytest.raises(WrongStoreError, match="belongs to broker-a/n0, not to broker-b/n0"):
        await RaftNode(config, Recorder()).start()


async def test_a_lost_hard_state_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        await group.leader()
    for name in ("hard_state", "hard_state.copy"):
        (tmp_path / "n0" / name).unlink()
    config = node_config(tmp_path, "n0", group.peers)
    with pytest.raises(CorruptLogError, match=r"hard_state: .* both copies are gone"):
        await RaftNode(config, Recorder()).start()
    HardStateFile(OsDisk(tmp_path / "n0")).load()  # as an old copy of both, put back
    with pytest.raises(CorruptLogError, match=r"hard_state: .* the log has an entry of term 1"):
        await RaftNode(config, Recorder()).start()


# --- the order contract, on fakes ----------------------------------------------------------------


def in_order(events: list[tuple[str, str]], *wanted: tuple[str, str]) -> bool:
    """Whether `wanted` is a subsequence."""
    rest = iter(events)
    return all(event in rest for event in wanted)


async def test_a_busy_follower_applies_several_entries_at_once(tmp_path: Path) -> None:
    """What comes with the next entries waits for a moment, what comes with none does not."""
    async with bench(tmp_path) as made:
        for index in range(1, 5):
            made.append(1, index, 1 if index > 1 else 0, commit=index - 1)
        applied = [event for event in made.events if event[0] == "apply"]
        assert applied == []
        await until(lambda: made.node.status().applied_index == 3, "it has waited long enough")
        made.append(1, 5, 1, commit=4)
        heartbeat = AppendEntries(
            sender=NodeId("n1"),
            receiver=NodeId("n0"),
            term=1,
            prev_log_index=5,
            prev_log_term=1,
            entries=(),
            leader_commit=5,
            read_round=0,
        )
        made.transport.deliver(heartbeat)
        await turns(2)
        assert made.node.status().applied_index == 5


async def test_a_follower_that_lags_waits_no_longer(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        for index in range(1, 40):
            made.append(1, index, 1 if index > 1 else 0, commit=index - 1)
        await turns(2)
        assert made.node.status().applied_index >= 32


async def test_a_campaign_is_durable_before_votes_are_asked(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        made.events.clear()
        await made.become_leader()
        requests = [place for place, e in enumerate(made.events) if e == ("send", "RequestVote")]
        synced = made.events.index(("sync", "hard_state.copy"))
        assert requests[1] < synced < requests[2], "two pre-votes, the fsync, two votes"


async def test_a_leader_writes_then_sends_then_syncs_then_applies(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        term = await made.become_leader()
        made.acknowledge(term, 1)
        await made.until("apply", "NOOP")
        made.events.clear()
        future = made.node.propose(payload(b"data"))
        await made.until("sync", "commitlog")
        assert not future.done(), "its own fsync is no majority"
        made.acknowledge(term, 2)
        assert (await future).status is ProposalStatus.COMMITTED
        assert in_order(
            made.events,
            ("write", "commitlog"),
            ("send", "AppendEntries"),
            ("sync", "commitlog"),
            ("apply", "DATA"),
        )


async def test_a_follower_acknowledges_after_its_fsync_only(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        made.events.clear()
        made.append(term=5, index=1, prev_term=0)
        await made.until("send", "AppendEntriesReply")
        assert in_order(
            made.events,
            ("write", "commitlog"),
            ("sync", "hard_state.copy"),
            ("sync", "commitlog"),
            ("send", "AppendEntriesReply"),
        )
        reply = made.transport.sent[-1]
        assert isinstance(reply, AppendEntriesReply)
        assert (reply.success, reply.match_index, reply.term) == (True, 1, 5)


async def test_one_fsync_serves_all_that_came_meanwhile(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        made.append(term=5, index=1, prev_term=0)
        await made.until("send", "AppendEntriesReply")
        made.events.clear()
        for index in range(2, 102):
            made.append(term=5, index=index, prev_term=5)
        await until(
            lambda: any(
                isinstance(m, AppendEntriesReply) and m.match_index == 101
                for m in made.transport.sent
            ),
            "the last acknowledgement",
        )
        assert made.events.count(("write", "commitlog")) == 100
        assert made.events.count(("sync", "commitlog")) <= 2


async def test_a_vote_is_durable_before_it_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        made.events.clear()
        made.transport.deliver(
            RequestVote(
                sender=NodeId("n2"),
                receiver=NodeId("n0"),
                term=7,
                last_log_index=3,
                last_log_term=6,
                pre_vote=False,
                leadership_transfer=True,
            )
        )
        await made.until("send", "RequestVoteReply")
        assert in_order(made.events, ("sync", "hard_state.copy"), ("send", "RequestVoteReply"))
        reply = made.transport.sent[-1]
        assert isinstance(reply, RequestVoteReply)
        assert reply.granted


@pytest.mark.parametrize("failing", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_failed_persist_stops_a_leader(tmp_path: Path, failing: str, code: int) -> None:
    async with bench(tmp_path) as made:
        term = await made.become_leader()
        made.acknowledge(term, 1)
        await made.until("apply", "NOOP")
        made.disk.fail[failing] = OSError(code, "planted")
        failed = asyncio.create_task(made.node.wait_failed())
        future = made.node.propose(payload(b"data"))
        async with asyncio.timeout(5):
            error = await failed
            result = await future
        assert isinstance(error, OSError)
        assert error.errno == code
        assert result.status is ProposalStatus.STOPPED
        sent = len(made.transport.sent)
        made.acknowledge(term, 2)
        with pytest.raises(NotLeaderError):
            made.node.propose(payload(b"more"))
        with pytest.raises(NotLeaderError):
            await made.node.read_index()
        assert len(made.transport.sent) == sent
        assert made.events[-1] != ("apply", "DATA")


@pytest.mark.parametrize("failing", ["write", "sync"])
async def test_a_failed_persist_keeps_a_follower_silent(tmp_path: Path, failing: str) -> None:
    async with bench(tmp_path) as made:
        made.disk.fail[failing] = OSError(errno.ENOSPC, "planted")
        made.append(term=5, index=1, prev_term=0)
        async with asyncio.timeout(5):
            error = await made.node.wait_failed()
        assert isinstance(error, OSError)
        made.append(term=5, index=1, prev_term=0)
        assert not any(isinstance(m, AppendEntriesReply) for m in made.transport.sent)


async def test_a_state_machine_that_raises_stops_the_node(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        node = group.nodes[await group.leader()]

        def fail(entries: Sequence[CommittedEntry]) -> None:
            raise KeyError(entries[0].index)

        group.machines["n0"].apply = fail  # type: ignore[method-assign]  # a planted bug
        result = await node.propose(payload(b"x"))
        assert result.status is ProposalStatus.STOPPED
        assert isinstance(await node.wait_failed(), KeyError)


@pytest.mark.parametrize("first", ["proposal", "message"])
async def test_a_paused_leader_finds_out_before_it_acts(tmp_path: Path, first: str) -> None:
    """After a pause the first thing is the Tick that is due: it steps down, whatever comes."""
    async with bench(tmp_path) as made:
        term = await made.become_leader()
        made.acknowledge(term, 1)
        await made.until("apply", "NOOP")
        made.pause_s = 30.0  # half a minute without an answer has passed at once
        if first == "proposal":
            with pytest.raises(NotLeaderError):
                made.node.propose(payload(b"stale"))
        else:
            made.acknowledge(term, 1)  # from before the pause: no proof of a majority now
        assert made.node.status().role is not Role.LEADER
        assert made.node.status().last_index == 1
