"""Installing the beginning of a log (Raft, section 7), room, and the preferred leader."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from raft.core.progress import ProgressState
from raft.events import (
    ChunkStored,
    HardStateDurable,
    LogDurable,
    Ready,
    RoomChanged,
    SnapshotStored,
)
from raft.events import Role as R
from raft.membership import Configuration, make_membership
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    InstallSnapshot,
    InstallSnapshotReply,
    LogBase,
    Message,
    NodeId,
    TimeoutNow,
)
from tests.raft.core_group import SNAPSHOT_SIZE, Group, make_entries, member, node_names

N1, N2, N3, N4, _ = node_names(5)


def is_install(message: Message) -> bool:
    return isinstance(message, InstallSnapshot | InstallSnapshotReply)


def compacted(*, entries_count: int = 6, base_index: int = 4, joiners: int = 0) -> Group:
    """n1 leads, its log begins behind `base_index`; n3 has nothing of it."""
    group = Group(3, joiners=joiners, has_roster=joiners > 0)
    group.elect(N1, [N1, N2])
    while group.core(N1).last_index < entries_count:
        group.propose(N1)
        group.stabilize([N1, N2])
    group.tick(N1)
    group.stabilize([N1, N2])
    group.node(N1).take_snapshot()
    group.node(N1).compact(base_index)
    return group


def begun() -> tuple[Group, InstallSnapshot]:
    """The first chunk for n3 is on the network."""
    group = compacted()
    group.tick(N1)
    group.deliver(lambda m: m.receiver == N3)
    group.deliver(lambda m: m.sender == N3)
    [chunk] = [m for m in group.network if isinstance(m, InstallSnapshot)]
    return group, chunk


def chunk_for(
    group: Group, receiver: NodeId, *, base: LogBase, term: int | None = None, sender: NodeId = N1
) -> InstallSnapshot:
    membership = make_membership(map(member, node_names(3)))
    return InstallSnapshot(
        sender=sender,
        receiver=receiver,
        term=group.core(sender).current_term if term is None else term,
        base=base,
        configuration=Configuration(index=0, membership=membership),
        snapshot_index=base.index,
        snapshot_size=SNAPSHOT_SIZE,
        offset=0,
        data=b"x",
        crc=0,
    )


def chunks_sent(group: Group) -> list[int]:
    """The offsets of the chunks on the network, which are taken off."""
    return [m.offset for m in group.take(is_install) if isinstance(m, InstallSnapshot)]


# Installing.


def test_a_follower_whose_log_ends_before_the_leaders_begins_gets_a_snapshot() -> None:
    group = compacted()
    group.heartbeat(N1)
    group.heartbeat(N1)
    n3 = group.node(N3)
    assert n3.storage.first_index == 5
    assert n3.storage.stored == group.node(N1).storage.stored
    assert n3.core.commit_index == group.core(N1).commit_index
    assert group.core(N1).progress[N3].state is ProgressState.REPLICATE

    group.propose(N1)
    group.stabilize([N1, N3])
    assert group.core(N1).commit_index == 7, "it counts"


def test_the_install_comes_with_nothing_else_to_write_and_commits_its_base() -> None:
    group, _ = begun()
    installs: list[Ready] = []
    group.on_ready = lambda _, ready: installs.append(ready) if ready.install else None
    group.stabilize()
    [ready] = installs
    assert ready.install is not None
    assert (ready.install.base.index, ready.install.snapshot_index) == (4, 6)
    assert not ready.entries
    assert ready.truncate_from is None
    assert ready.commit_index == 4
    [reply] = ready.messages_after_sync
    assert isinstance(reply, InstallSnapshotReply)
    assert reply.installed


def test_one_chunk_is_out_at_a_time() -> None:
    group, _ = begun()
    sent: list[int] = []
    while any(map(is_install, group.network)):
        out = [m for m in group.network if isinstance(m, InstallSnapshot)]
        assert len(out) <= 1
        sent += [m.offset for m in out]
        group.deliver(is_install)
    assert sent == [0, 1, 2]


def test_a_lost_chunk_is_asked_for_anew_with_a_later_heartbeat() -> None:
    group, first = begun()
    group.receive(first)
    group.take(lambda m: isinstance(m, InstallSnapshot))
    [reply] = group.take(lambda m: isinstance(m, InstallSnapshotReply))
    group.receive(reply)
    assert chunks_sent(group) == [1]  # and lost
    asked_ms = group.now_ms
    while not any(isinstance(m, InstallSnapshot) for m in group.network):
        group.tick(N1)
        group.deliver(lambda m: not is_install(m))
    assert 1000 <= group.now_ms - asked_ms < 1100
    assert chunks_sent(group) == [1]


def test_a_repeated_answer_asks_for_nothing_twice() -> None:
    group, first = begun()
    group.receive(first)
    [reply] = group.take(lambda m: isinstance(m, InstallSnapshotReply))
    group.network.clear()
    for _ in range(3):
        group.receive(reply)
    assert chunks_sent(group) == [1]


def test_a_transfer_goes_on_where_it_broke() -> None:
    group, first = begun()
    group.receive(first)
    group.deliver(lambda m: isinstance(m, InstallSnapshotReply))
    assert chunks_sent(group) == [0, 1]
    group.unreachable(N1, N3)
    assert group.core(N1).progress[N3].state is ProgressState.PROBE
    group.tick(N1)
    group.deliver(lambda m: not is_install(m))
    group.deliver(lambda m: not is_install(m))
    assert chunks_sent(group) == [1]


def test_a_transfer_of_a_snapshot_that_is_gone_begins_anew_with_the_newest() -> None:
    group, first = begun()
    group.receive(first)
    group.propose(N1)
    group.deliver(lambda m: m.receiver == N2)
    group.deliver(lambda m: m.sender == N2)
    group.node(N1).take_snapshot()
    group.node(N1).compact(7)
    group.stabilize()
    group.heartbeat(N1)
    group.heartbeat(N1)
    assert group.node(N3).storage.base_index == 7
    assert group.core(N3).commit_index == 7


def test_what_a_follower_says_of_a_snapshot_raises_no_match_index() -> None:
    group, _ = begun()
    group.stabilize()
    group.node(N3).crash()
    reply = InstallSnapshotReply(
        sender=N3,
        receiver=N1,
        term=1,
        base_index=6,
        snapshot_index=6,
        next_offset=3,
        installed=True,
    )
    match_index = group.core(N1).progress[N3].match_index
    group.receive(reply)
    assert group.core(N1).progress[N3].match_index == match_index


def test_a_follower_that_holds_the_base_installs_nothing() -> None:
    """And so a stale or repeated chunk harms nobody."""
    group = compacted()
    for index in (2, 6):
        ready = group.receive(chunk_for(group, N2, base=LogBase(index=index, term=1)))
        assert ready.received_chunk is None
        assert ready.install is None
        [reply] = ready.messages_after_sync
        assert isinstance(reply, InstallSnapshotReply)
        assert (reply.installed, reply.base_index) == (True, index)
    assert group.core(N2).last_index == 6


def test_a_base_that_is_held_is_committed() -> None:
    group = Group(3)
    group.set_up(N2, terms=[1, 1, 2], current_term=2)
    group.receive(chunk_for(group, N2, base=LogBase(index=2, term=1), term=2))
    assert group.core(N2).commit_index == 2


def test_a_deposed_leaders_chunk_is_answered_with_the_term() -> None:
    group = Group(3)
    group.set_up(N2, terms=[1], current_term=5)
    ready = group.receive(chunk_for(group, N2, base=LogBase(index=9, term=2), term=2))
    assert ready.received_chunk is None
    [reply] = ready.messages
    assert isinstance(reply, InstallSnapshotReply)
    assert (reply.term, reply.installed) == (5, False)


def test_a_leader_that_hears_of_a_later_term_by_a_reply_steps_down() -> None:
    group, _ = begun()
    reply = InstallSnapshotReply(
        sender=N3,
        receiver=N1,
        term=7,
        base_index=4,
        snapshot_index=6,
        next_offset=0,
        installed=False,
    )
    ready = group.receive(reply)
    assert (ready.role, ready.term) == (R.FOLLOWER, 7)


def test_an_install_drops_a_log_that_differs_at_the_base() -> None:
    group = compacted()
    group.set_up(N3, terms=[1, 1, 1, 2, 2, 2, 2, 2], current_term=2)
    group.elect(N1, [N1, N2])  # in a term above n3's
    group.heartbeat(N1)
    group.heartbeat(N1)
    assert group.node(N3).storage.stored == group.node(N1).storage.stored


def test_a_snapshot_is_not_installed_once_the_log_holds_its_base() -> None:
    """Entries came from elsewhere while the snapshot was on its way."""
    group, first = begun()
    group.auto_sync = False
    for chunk_offset in range(SNAPSHOT_SIZE):
        group.store_chunk(group.node(N3), _at(first, chunk_offset))
    stored = group.node(N1).storage.stored
    group.receive(_append(N1, N3, stored, commit=6))
    ready = group.step(N3, group.node(N3).told[-1](group.now_ms))
    assert ready.install is None
    [reply] = [m for m in ready.messages_after_sync if isinstance(m, InstallSnapshotReply)]
    assert reply.installed
    assert group.core(N3).last_index == 6


def test_a_snapshot_that_is_whole_under_another_leader_is_installed_but_not_told() -> None:
    group, first = begun()
    group.auto_sync = False
    for chunk_offset in range(SNAPSHOT_SIZE):
        group.store_chunk(group.node(N3), _at(first, chunk_offset))
    stored = group.node(N3).told[-1](group.now_ms)
    assert isinstance(stored, SnapshotStored)
    heartbeat = _append(N2, N3, [], commit=0, term=3, prev=(6, 1))
    group.receive(heartbeat)
    ready = group.step(N3, stored)
    assert ready.install is not None
    assert not ready.messages
    assert not ready.messages_after_sync


def test_a_candidate_that_installs_is_a_follower_again() -> None:
    group, first = begun()
    for chunk_offset in range(SNAPSHOT_SIZE):
        group.store_chunk(group.node(N3), _at(first, chunk_offset))
    stored = group.node(N3).told[-1](group.now_ms)
    group.node(N3).told.clear()
    group.tick(N3)
    assert group.core(N3).role is R.PRE_CANDIDATE
    ready = group.step(N3, _later(stored, group.now_ms))
    assert ready.install is not None
    assert ready.role is R.FOLLOWER


def test_a_late_fsync_of_a_dropped_log_does_not_count() -> None:
    group = compacted()
    group.set_up(N3, terms=[1, 1, 1, 2, 2, 2, 2, 2], current_term=2)
    group.elect(N1, [N1, N2])
    group.heartbeat(N1)
    group.heartbeat(N1)
    group.auto_sync = False
    index = group.propose(N1).entries[-1].index
    group.deliver(lambda m: m.receiver == N3)
    group.step(N3, LogDurable(now_ms=group.now_ms, index=8, term=2))
    assert group.core(N3).durable_index < index


def test_a_leader_without_a_snapshot_goes_on_asking_and_leading() -> None:
    group = compacted()
    group.node(N1).snapshot = None
    for _ in range(40):
        group.heartbeat(N1)
    assert group.core(N1).role is R.LEADER
    assert group.core(N1).progress[N3].state is ProgressState.SNAPSHOT


def test_a_snapshots_configuration_is_in_force_after_the_install_and_a_restart() -> None:
    group = compacted(joiners=1)
    assert group.add(N1, N4).change_refused is None
    group.stabilize([N1, N2])
    group.node(N1).take_snapshot()
    group.node(N1).compact(group.core(N1).commit_index)
    for _ in range(4):
        group.heartbeat(N1)
    for name in (N3, N4):
        assert group.core(name).configuration == group.core(N1).configuration
        assert group.core(name).commit_index == group.core(N1).commit_index
        group.node(name).crash()
        group.node(name).restart(group.now_ms)
        assert group.core(name).configuration == group.core(N1).configuration
    assert group.promote(N1, N4).change_refused is None
    group.stabilize()
    group.elect(N4)


def test_a_snapshot_may_be_newer_than_the_log_behind_its_base() -> None:
    """Entries up to it come after the install; its configuration is in force all the while."""
    group = compacted(joiners=1)
    base_index = group.node(N1).storage.base_index
    assert group.add(N1, N4).change_refused is None
    group.stabilize([N1, N2])
    known = group.core(N1).configuration
    group.node(N1).take_snapshot()
    last_indexes: list[int] = []

    def look(name: NodeId, _: Ready) -> None:
        n3 = group.node(N3)
        if name == N3 and n3.storage.base_index:
            last_indexes.append(n3.core.last_index)
            assert n3.core.configuration == known

    group.on_ready = look
    for _ in range(3):
        group.heartbeat(N1)
    assert group.node(N3).storage.base_index == base_index < known.index
    assert last_indexes[0] == base_index, "the entry of the configuration comes later"
    assert last_indexes[-1] == group.core(N1).last_index


@pytest.mark.parametrize("event", [ChunkStored, SnapshotStored])
def test_what_was_stored_is_told_to_the_leader_that_sent_it_alone(event: type) -> None:
    group = compacted()
    if event is ChunkStored:
        ready = group.step(
            N2,
            ChunkStored(
                now_ms=group.now_ms, leader=N3, base_index=4, snapshot_index=6, next_offset=1
            ),
        )
    else:
        ready = group.step(
            N2,
            SnapshotStored(
                now_ms=group.now_ms,
                leader=N3,
                base=LogBase(index=4, term=1),
                configuration=group.core(N1).configuration,
                snapshot_index=6,
                next_offset=3,
            ),
        )
    assert not ready.messages
    assert not ready.messages_after_sync


# Room.


def test_a_follower_without_room_takes_no_entries_and_acknowledges_what_it_has() -> None:
    group = Group(3)
    group.elect(N1)
    group.heartbeat(N1)
    group.room(N2, writable=False)
    group.propose(N1)
    group.deliver(lambda m: m.receiver == N2)
    [reply] = group.take(lambda m: m.sender == N2)
    assert isinstance(reply, AppendEntriesReply)
    assert (reply.success, reply.match_index, reply.writable) == (True, 1, False)
    assert group.core(N2).last_index == 1


def test_a_follower_without_room_truncates_nothing() -> None:
    group = Group(3)
    group.set_up(N2, terms=[1, 1, 2], current_term=2)
    group.room(N2, writable=False)
    entries = tuple(make_entries([1, 1, 3])[1:])
    ready = group.receive(_append(N1, N2, entries, commit=3, term=3, prev=(1, 1)))
    assert ready.truncate_from is None
    assert ready.commit_index == 2, "only what it holds of what was sent"
    [reply] = ready.messages_after_sync
    assert isinstance(reply, AppendEntriesReply)
    assert reply.match_index == 2


def test_nothing_is_sent_to_a_follower_without_room_but_heartbeats() -> None:
    group = Group(3)
    group.elect(N1)
    group.room(N3, writable=False)
    group.propose(N1)
    group.stabilize()
    group.network.clear()
    group.propose(N1)
    assert [m.receiver for m in group.network] == [N2]
    group.stabilize()
    assert group.core(N1).commit_index == 3, "the others go on"
    group.tick(N1)
    assert {m.receiver for m in group.network} == {N2, N3}


def test_a_follower_with_room_again_gets_what_it_lacks() -> None:
    group = Group(3)
    group.elect(N1)
    for _ in range(5):
        group.propose(N1)  # in flight when the room runs out
    group.room(N3, writable=False)
    group.stabilize()
    group.heartbeat(N1)
    assert group.core(N3).last_index == 1
    assert group.core(N1).commit_index == 6

    group.room(N3, writable=True)
    group.heartbeat(N1)
    group.heartbeat(N1)
    assert group.core(N3).commit_index == 6


def test_a_node_without_room_lets_others_campaign_first() -> None:
    group = Group(3)
    group.elect(N1)
    group.heartbeat(N1)
    with_room_ms = group.core(N2).next_deadline_ms
    group.room(N3, writable=False)
    group.heartbeat(N1)
    assert group.core(N3).next_deadline_ms - group.core(N2).next_deadline_ms == 600
    assert group.core(N2).next_deadline_ms > with_room_ms
    group.unreachable(N3, N1)
    assert group.core(N3).next_deadline_ms - group.core(N2).next_deadline_ms == 600


def test_a_snapshot_is_not_begun_where_there_is_no_room() -> None:
    group = compacted()
    group.room(N3, writable=False)
    group.heartbeat(N1)
    assert group.core(N1).progress[N3].state is ProgressState.PROBE
    group.room(N3, writable=True)
    for _ in range(3):
        group.heartbeat(N1)
    assert group.core(N3).last_index == 6


# The preferred leader.


def preferring(name: NodeId) -> Group:
    group = Group(3, preferred_leader=name, preferred_after_ms=1000)
    group.elect(N1)
    return group


def beat(group: Group, until_ms: int, names: list[NodeId] | None = None) -> None:
    while group.now_ms < until_ms and group.core(N1).role is R.LEADER:
        group.tick(N1)
        group.stabilize(names)


def test_leadership_goes_to_the_preferred_node_once_it_followed_steadily() -> None:
    group = preferring(N3)
    begin_ms = group.now_ms
    beat(group, begin_ms + 900)
    assert group.core(N1).role is R.LEADER
    beat(group, begin_ms + 1200)
    assert group.core(N3).role is R.LEADER
    assert group.core(N1).leader_id == N3


@pytest.mark.parametrize("why", ["silent", "no room", "far behind"])
def test_leadership_is_not_given_to_a_preferred_node_that_does_not_follow(why: str) -> None:
    group = preferring(N3)
    names = [N1, N2, N3]
    if why == "silent":
        names.remove(N3)
    elif why == "no room":
        group.room(N3, writable=False)
    else:
        group.node(N3).core._follower_role.writable = False
        group.room(N3, writable=False)
        for _ in range(1100):
            group.propose(N1)
        group.stabilize()
    beat(group, group.now_ms + 5000, names)
    assert group.core(N1).role is R.LEADER


def test_a_preferred_node_that_does_not_take_over_is_asked_again_later() -> None:
    group = preferring(N3)
    attempts: list[int] = []
    group.on_send = lambda m: attempts.append(group.now_ms) if isinstance(m, TimeoutNow) else None
    until_ms = group.now_ms + 5000
    while group.now_ms < until_ms:
        group.tick(N1)
        group.take(lambda m: isinstance(m, TimeoutNow))
        group.deliver()
        group.take(lambda m: isinstance(m, TimeoutNow))
        group.stabilize()
    waits = {later - one for one, later in itertools.pairwise(attempts)}
    assert group.core(N1).role is R.LEADER
    assert len(attempts) >= 2
    assert all(wait < 700 or wait >= 1000 for wait in waits)


# What is durable.


def test_a_report_of_the_hard_state_lets_heartbeats_be_answered_without_waiting() -> None:
    group = Group(3, auto_sync=False)
    heartbeat = _append(N2, N1, (), commit=0, term=1, prev=(0, 0))
    ready = group.receive(heartbeat)
    assert (len(ready.messages), len(ready.messages_after_sync)) == (0, 1)
    ready = group.receive(heartbeat)
    assert (len(ready.messages), len(ready.messages_after_sync)) == (0, 1)
    group.step(N1, HardStateDurable(now_ms=group.now_ms, term=0))
    assert not group.receive(heartbeat).messages, "that of another term proves nothing"
    group.step(N1, HardStateDurable(now_ms=group.now_ms, term=1))
    ready = group.receive(heartbeat)
    assert (len(ready.messages), len(ready.messages_after_sync)) == (1, 0)


def test_who_has_no_room_for_a_first_entry_does_not_campaign() -> None:
    group = Group(3)
    group.room(N1, writable=False, can_begin=False)
    group.tick(N1)
    group.stabilize()
    assert group.core(N1).role is R.FOLLOWER
    group.room(N1, writable=False, can_begin=True)
    group.elect(N1)


def test_a_campaign_ends_with_the_room_for_a_first_entry() -> None:
    group = Group(3)
    group.tick(N1)
    assert group.core(N1).role is R.PRE_CANDIDATE
    group.room(N1, writable=False, can_begin=False)
    group.stabilize()
    assert group.core(N1).role is R.FOLLOWER


def test_who_has_no_room_for_a_first_entry_takes_no_leadership_over() -> None:
    group = Group(3)
    group.elect(N1)
    group.room(N2, writable=False, can_begin=False)
    group.receive(TimeoutNow(sender=N1, receiver=N2, term=group.core(N1).current_term))
    group.stabilize()
    assert group.core(N1).role is R.LEADER
    assert group.core(N2).role is R.FOLLOWER


def test_room_has_no_effect_on_leading() -> None:
    group = Group(3)
    group.elect(N1)
    group.step(N1, RoomChanged(now_ms=group.now_ms, writable=False))
    for _ in range(10):
        group.heartbeat(N1)
    assert group.core(N1).ready, "handing over is the shell's decision"


def _append(
    sender: NodeId,
    receiver: NodeId,
    entries: tuple[Entry, ...] | list[Entry],
    *,
    commit: int,
    term: int = 1,
    prev: tuple[int, int] = (0, 0),
) -> AppendEntries:
    return AppendEntries(
        sender=sender,
        receiver=receiver,
        term=term,
        prev_log_index=prev[0],
        prev_log_term=prev[1],
        entries=tuple(entries),
        leader_commit=commit,
        read_round=0,
    )


def _at(chunk: InstallSnapshot, offset: int) -> InstallSnapshot:
    return replace(chunk, offset=offset)


def _later(event: object, now_ms: int) -> SnapshotStored:
    assert isinstance(event, SnapshotStored)
    return replace(event, now_ms=now_ms)
