"""Each test proves a sentence of chapter 4 of Ongaro's dissertation, or of its correction."""

from __future__ import annotations

import itertools

import pytest

import raft.core.core
from raft.core.membership_rules import change_refusal
from raft.events import (
    ChangeMembership,
    ChangeRefusal,
    ChangeRefused,
    LogDurable,
    Receive,
    Role,
    Tick,
)
from raft.membership import Configuration, RemoveMember, decode_membership
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Message,
    NodeId,
    RequestVote,
    TimeoutNow,
)
from tests.raft.core_group import Group, member, node_names

N1, N2, N3, N4, N5 = node_names(5)


def joined(learners: int = 1, voters: int = 3, promotion_lag_max: int = 1000) -> Group:
    """n1 leads `voters` nodes and as many learners as told, all caught up."""
    group = Group(voters, joiners=learners, has_roster=True, promotion_lag_max=promotion_lag_max)
    group.elect(N1)
    for name in list(group.nodes)[voters:]:
        assert group.add(N1, name).change_refused is None
        group.stabilize()
        group.heartbeat(N1)
    return group


def refusal(group: Group, reason: ChangeRefusal, name: str = N1) -> None:
    """A change at `name` is refused for that reason."""
    ready = group.remove(name, N3)
    assert ready.change_refused is not None
    assert ready.change_refused.reason is reason
    assert not ready.entries


def voters(group: Group, name: NodeId) -> tuple[NodeId, ...]:
    return group.core(name).voters


def is_append(message: Message) -> bool:
    return isinstance(message, AppendEntries)


# 4.1: safety.


def test_a_configuration_is_in_force_from_its_append() -> None:
    group = joined()
    group.promote(N1, N4)
    assert voters(group, N1) == (N1, N2, N3, N4)
    assert group.core(N1).configuration.index > group.core(N1).commit_index

    group.deliver(lambda m: is_append(m) and m.receiver == N2)
    assert voters(group, N2) == (N1, N2, N3, N4)
    assert voters(group, N3) == (N1, N2, N3)


def test_the_ready_tells_the_configuration_where_it_changes() -> None:
    group = joined()
    ready = group.promote(N1, N4)
    [entry] = ready.entries
    assert entry.kind is EntryKind.CONFIG
    assert ready.configuration == group.core(N1).configuration
    assert ready.configuration == Configuration(
        index=entry.index, membership=decode_membership(entry.payload)
    )
    assert group.propose(N1).configuration is None


def test_a_truncation_takes_a_configuration_back() -> None:
    group = joined()
    group.promote(N1, N4)
    group.network.clear()
    before = group.core(N2).configuration
    group.elect(N2, [N2, N3])
    group.tick(N2)
    ready = [group.receive(m) for m in group.take(lambda m: is_append(m) and m.receiver == N1)]
    group.stabilize()
    group.heartbeat(N2)

    assert any(one.configuration == before for one in ready + group.node(N1).readies[-5:])
    assert group.core(N1).configuration == before
    assert voters(group, N1) == (N1, N2, N3)


def test_one_change_at_a_time() -> None:
    group = joined()
    group.promote(N1, N4)
    refusal(group, ChangeRefusal.UNDERWAY)
    group.stabilize()
    assert group.core(N1).commit_index == group.core(N1).configuration.index
    assert group.remove(N1, N3).change_refused is None


def test_an_entry_of_the_own_term_is_committed_before_a_change() -> None:
    group = Group(3)
    group.tick(N1)
    group.stabilize_votes()
    assert group.core(N1).role is Role.LEADER
    refusal(group, ChangeRefusal.NOT_READY)
    group.heartbeat(N1)
    assert group.remove(N1, N3).change_refused is None


def committed(group: Group) -> list[list[Entry]]:
    return [node.storage.stored[: node.core.commit_index] for node in group.nodes.values()]


def single_server_bug(group: Group) -> None:
    """The schedule of raft-dev, "bug in single-server membership changes": n1 to n4 are voters and
    n5 a learner. n1 makes n5 a voter, which reaches n5 alone; n2 takes over and removes n1, which
    reaches n3 alone; n1 takes over again with the votes of n4 and n5."""
    group.promote(N1, N5)
    group.deliver(lambda m: m.receiver == N5)
    group.network.clear()

    for _ in range(3):
        group.tick(N2)  # until the lease of n1 has passed
    group.network.clear()
    group.tick(N2)
    group.stabilize_votes()
    assert group.core(N2).role is Role.LEADER
    group.remove(N2, N1)
    group.tick(N2)
    group.stabilize([N2, N3])
    assert group.core(N2).role is Role.LEADER

    for _ in range(3):
        group.tick(N1)
    group.network.clear()
    for _ in range(8):
        if group.core(N1).role is Role.LEADER:
            break
        group.tick(N1)
        group.stabilize([N1, N4, N5])
    group.propose_if_ready(N1)
    group.stabilize([N1, N4, N5])


def group_of_the_bug() -> Group:
    group = joined(voters=4)
    group.heartbeat(N1)
    return group


def test_a_change_is_judged_at_its_own_time() -> None:
    """Who asks first and then steps with the same time gets one answer from both."""
    group = joined()
    group.heartbeat(N1)
    core = group.core(N1)
    change = RemoveMember(node_id=N4)
    assert core.change_refusal(change, group.now_ms) is None
    later_ms = group.now_ms + 10_000
    refused = core.change_refusal(change, later_ms)
    assert refused is not None
    assert refused.reason is ChangeRefusal.NO_MAJORITY

    ready = group.step(N1, ChangeMembership(now_ms=later_ms, change=change))

    assert ready.change_refused == refused
    assert not ready.entries


def test_the_single_server_bug_does_not_happen() -> None:
    group = group_of_the_bug()
    single_server_bug(group)
    logs = sorted(committed(group), key=len)
    for shorter, longer in itertools.pairwise(logs):
        assert longer[: len(shorter)] == shorter


def test_without_the_rule_the_schedule_loses_a_committed_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the test above can fail."""

    def without_own_term(*args: object, **kwargs: object) -> ChangeRefused | None:
        refused = change_refusal(*args, **kwargs)  # type: ignore[arg-type]  # as it was called
        if refused is not None and refused.reason is ChangeRefusal.NOT_READY:
            return None
        return refused

    monkeypatch.setattr(raft.core.core, "change_refusal", without_own_term)
    group = group_of_the_bug()
    single_server_bug(group)
    one, other = (committed(group)[place] for place in (0, 1))
    assert one != other
    assert one[: len(other)] != other
    assert other[: len(one)] != one


# 4.2.1: catching up new servers.


def test_a_learner_gets_everything_and_counts_in_nothing() -> None:
    group = joined(learners=2)
    group.propose(N1)
    group.stabilize([N1, N4, N5])
    assert group.core(N4).last_index == group.core(N1).last_index
    assert group.core(N1).commit_index < group.core(N1).last_index, "two learners are no voters"
    group.heartbeat(N1)
    assert group.core(N1).commit_index == group.core(N1).last_index


def test_a_learner_never_campaigns() -> None:
    group = joined()
    group.network.clear()
    for _ in range(5):
        group.tick(N4)
    group.receive(TimeoutNow(sender=N1, receiver=N4, term=group.core(N4).current_term))
    assert group.core(N4).role is Role.FOLLOWER
    assert not group.network


def test_a_learner_is_promoted_only_once_it_has_nearly_all_of_the_log() -> None:
    group = joined(promotion_lag_max=3)
    for _ in range(5):
        group.propose(N1)
        group.stabilize([N1, N2, N3])
    refused = group.promote(N1, N4).change_refused
    assert refused == ChangeRefused(reason=ChangeRefusal.NOT_CAUGHT_UP)
    for _ in range(3):
        group.heartbeat(N1)
    assert group.promote(N1, N4).change_refused is None


def test_a_silent_learner_is_not_promoted() -> None:
    group = joined()
    for _ in range(10):
        group.tick(N1)
        group.stabilize([N1, N2, N3])
    refused = group.promote(N1, N4).change_refused
    assert refused == ChangeRefused(reason=ChangeRefusal.NOT_CAUGHT_UP)


def test_leadership_is_not_handed_to_a_learner() -> None:
    group = joined()
    group.transfer(N1, N4)
    assert not group.network
    assert group.core(N1).ready


def test_the_successor_is_the_voter_that_has_room_and_most_of_the_log() -> None:
    group = joined()
    assert group.core(N2).successor() is None, "it leads nobody"
    group.propose(N1)
    group.stabilize([N1, N3, N4])
    assert group.core(N1).successor() == N3
    group.room(N3, writable=False)
    group.heartbeat(N1)
    assert group.core(N1).successor() == N2
    alone = Group(1)
    alone.elect(N1)
    assert alone.core(N1).successor() is None


# 4.2.2: removing the current leader.


def test_a_leader_that_removes_itself_does_not_count_itself() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N1)
    config_index = group.core(N1).last_index
    assert not group.core(N1).ready, "nothing new is proposed any more"

    group.stabilize([N1, N2])
    assert group.core(N1).commit_index < config_index, "n2 alone is no majority of n2 and n3"
    assert group.core(N1).role is Role.LEADER, "it leads until the change is committed"

    group.tick(N1)
    group.deliver(lambda m: m.receiver == N3)
    group.deliver(lambda m: m.receiver == N1)
    for _ in range(3):
        group.deliver(lambda m: not isinstance(m, TimeoutNow))
    assert group.core(N1).commit_index == config_index
    assert group.core(N1).role is Role.FOLLOWER


def test_a_removed_leader_tells_the_best_follower_to_campaign() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N1)
    group.stabilize()
    leaders = [name for name, node in group.nodes.items() if node.core.role is Role.LEADER]
    assert leaders in ([N2], [N3])
    assert group.core(leaders[0]).current_term == 2
    assert group.core(leaders[0]).voters == (N2, N3)
    assert group.core(N1).role is Role.FOLLOWER


def test_a_voter_whose_removal_is_not_committed_still_campaigns() -> None:
    """4.2.2: its log may be what the others need. Its own vote does not count."""
    group = Group(2)
    group.elect(N1)
    group.propose(N1)
    group.remove(N1, N1)
    group.network.clear()  # n2 has neither entry, and nothing of n1's may be voted over
    for _ in range(10):
        group.tick(N1)
        group.network.clear()
    assert group.core(N1).role is not Role.LEADER
    while group.core(N2).commit_index < 3:
        group.tick(N1)
        group.stabilize()
    assert group.core(N2).role is Role.LEADER
    assert voters(group, N2) == (N2,)
    group.network.clear()
    for _ in range(5):
        group.tick(N1)
    assert not group.network, "it is committed, and n1 knows it"


# 4.2.3: disruptive servers.


def test_a_removed_member_hears_of_it_and_stays_quiet() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N3)
    group.stabilize()
    for _ in range(3):
        group.heartbeat(N1)
    assert voters(group, N3) == (N1, N2)
    assert group.core(N3).commit_index == group.core(N1).commit_index
    assert N3 not in group.core(N1).progress, "and then it is told no more"
    assert group.core(N1).peer_ids == {N2}

    group.network.clear()
    for _ in range(5):
        group.tick(N3)
    assert group.core(N3).role is Role.FOLLOWER
    assert not group.network


def test_a_removed_member_that_is_down_is_given_up() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N3)
    assert group.core(N1).peer_ids == {N2, N3}
    for _ in range(20):
        group.tick(N1)
        group.stabilize([N1, N2])
    assert group.core(N1).peer_ids == {N2}


def test_a_removed_member_that_does_not_know_it_disturbs_nobody() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N3)
    group.stabilize([N1, N2])
    term = group.core(N1).current_term
    for _ in range(5):
        group.tick(N3)
        group.stabilize()
        group.tick(N1)
        group.stabilize([N1, N2])
    assert group.core(N1).role is Role.LEADER
    assert group.core(N1).current_term == term


# What a person is saved from.


def test_a_change_that_could_not_be_committed_is_refused() -> None:
    group = Group(3)
    group.elect(N1)
    for _ in range(10):
        group.tick(N1)
        group.stabilize([N1, N2])
    ready = group.remove(N1, N2)
    assert ready.change_refused == ChangeRefused(
        reason=ChangeRefusal.NO_MAJORITY, detail="of n1, n3 only n1 would answer"
    )
    assert group.remove(N1, N3).change_refused is None, "the dead one can be removed"


@pytest.mark.parametrize("change", ["add n2", "promote n2", "remove n9", "promote n9"])
def test_a_change_that_does_not_fit_is_refused(change: str) -> None:
    group = Group(3)
    group.elect(N1)
    verb, name = change.split()
    ready = getattr(group, verb)(N1, name)
    assert ready.change_refused.reason is ChangeRefusal.IMPOSSIBLE
    assert ready.change_refused.detail


def test_only_a_leader_changes_members() -> None:
    group = Group(3)
    group.elect(N1)
    refusal(group, ChangeRefusal.NOT_LEADER, name=N2)
    group.transfer(N1, N2)
    refusal(group, ChangeRefusal.HANDING_OVER)


# The first configuration, and starting again.


def test_the_first_leader_writes_the_roster_behind_its_no_op() -> None:
    group = Group(3, has_roster=True)
    group.elect(N1)
    group.stabilize()
    kinds = [entry.kind for entry in group.node(N1).storage.stored]
    assert kinds == [EntryKind.NOOP, EntryKind.CONFIG]
    group.heartbeat(N1)
    assert group.core(N3).configuration.index == 2
    assert group.core(N3).configuration.membership.member(N1) == member(N1)

    group.transfer(N1, N2)
    group.stabilize()
    group.heartbeat(N2)
    kinds = [entry.kind for entry in group.node(N2).storage.stored]
    assert kinds == [EntryKind.NOOP, EntryKind.CONFIG, EntryKind.NOOP], "it is written once"


def test_a_group_of_which_only_names_are_known_writes_nothing() -> None:
    group = Group(3)
    group.elect(N1)
    assert [entry.kind for entry in group.node(N1).storage.stored] == [EntryKind.NOOP]


def test_a_joiner_hears_from_the_log_who_belongs_to_the_group() -> None:
    group = joined()
    assert group.core(N4).configuration == group.core(N1).configuration
    assert group.core(N4).configuration.membership.learner_ids == (N4,)
    group.promote(N1, N4)
    group.stabilize()
    group.elect(N4)


def test_a_restart_finds_the_configuration_in_the_log() -> None:
    group = joined()
    group.promote(N1, N4)
    group.stabilize()
    group.heartbeat(N1)
    known = group.core(N2).configuration
    assert known.membership.voter_ids == (N1, N2, N3, N4)
    group.node(N2).crash()
    group.node(N2).restart(group.now_ms)
    assert group.core(N2).configuration == known
    assert group.core(N2).configuration_at(3).membership.voter_ids == (N1, N2, N3)


def test_a_single_voter_sends_learners_nothing_before_its_term_is_durable() -> None:
    group = Group(1, joiners=1, has_roster=True)
    group.elect(N1)
    group.add(N1, N2)
    group.stabilize()
    group.node(N1).crash()
    group.node(N1).restart(group.now_ms)
    group.auto_sync = False
    ready = group.step(N1, Tick(now_ms=group.now_ms))
    assert ready.role is Role.LEADER
    assert ready.hard_state is not None
    assert not ready.messages
    group.sync(N1)
    assert [m.receiver for m in group.network] == [N2]


# A name that is borne anew.


def test_what_an_earlier_bearer_of_a_name_said_moves_no_progress() -> None:
    """n3 acknowledged much, lost its disk, was removed and added again in the same term."""
    group = Group(3, has_roster=True)
    group.elect(N1)
    group.propose(N1)
    late = []
    group.on_send = lambda m: late.append(m) if m.sender == N3 else None
    group.stabilize()
    group.on_send = lambda _: None
    assert any(isinstance(m, AppendEntriesReply) and m.match_index == 3 for m in late)

    group.node(N3).wipe()
    group.remove(N1, N3)
    group.stabilize([N1, N2])
    group.add(N1, N3)
    group.stabilize([N1, N2])
    for message in late:
        group.receive(message)
    assert group.core(N1).progress[N3].match_index == 0

    group.node(N3).restart(group.now_ms)
    for _ in range(3):
        group.heartbeat(N1)
    assert group.core(N1).progress[N3].match_index == group.core(N1).last_index
    assert group.promote(N1, N3).change_refused is None


def test_a_new_store_is_not_the_voter_of_its_name_in_older_configurations() -> None:
    """n1 was the only voter once. It hands over to n2, is removed, loses its disk and is added
    again: while it catches up it reads that n1 is the only voter, and must not lead."""
    group = Group(1, joiners=1, has_roster=True)
    group.elect(N1)
    group.add(N1, N2)
    for _ in range(3):
        group.heartbeat(N1)
    only_voter_index = group.core(N1).last_index
    group.promote(N1, N2)
    group.stabilize()
    group.heartbeat(N1)
    group.remove(N1, N1)
    group.stabilize()
    assert group.core(N2).role is Role.LEADER

    group.node(N1).wipe()
    group.node(N1).restart(group.now_ms)
    assert group.add(N2, N1).change_refused is None
    group.network.clear()
    entries = tuple(group.node(N2).storage.stored[:only_voter_index])
    group.receive(
        AppendEntries(
            sender=N2,
            receiver=N1,
            term=group.core(N2).current_term,
            prev_log_index=0,
            prev_log_term=0,
            entries=entries,
            leader_commit=only_voter_index,
            read_round=0,
        )
    )
    assert voters(group, N1) == (N1,)
    for _ in range(5):
        group.tick(N1)
    assert group.core(N1).role is Role.FOLLOWER


def test_votes_are_asked_of_voters_alone() -> None:
    group = joined()
    group.network.clear()
    group.tick(N2)
    asked = {m.receiver for m in group.network if isinstance(m, RequestVote)}
    assert asked == {N1, N3}


def test_a_change_by_which_entries_become_committed_commits_them_at_once() -> None:
    """Two voters of which one is removed: the other is a majority by itself."""
    group = Group(2, auto_sync=False)
    group.tick(N1)
    group.sync(N1)
    for _ in range(10):
        group.deliver()
        group.sync(N1)
        group.sync(N2)
    assert group.core(N1).ready
    group.network.clear()
    index = group.remove(N1, N2).entries[-1].index
    group.sync(N1)
    assert group.core(N1).commit_index == index


def test_late_answers_of_a_removed_member_are_passed_over() -> None:
    group = Group(3)
    group.elect(N1)
    group.remove(N1, N3)
    for _ in range(20):
        group.tick(N1)
        group.stabilize([N1, N2])
    ready = group.step(
        N1,
        Receive(
            now_ms=group.now_ms,
            message=AppendEntriesReply(
                sender=N3,
                receiver=N1,
                term=1,
                success=True,
                match_index=1,
                rejected_prev_index=0,
                conflict_index=0,
                conflict_term=0,
                read_round=0,
                writable=True,
            ),
        ),
    )
    assert ready.role is Role.LEADER


def test_a_late_fsync_of_a_configuration_that_was_truncated_does_not_count() -> None:
    group = joined()
    group.auto_sync = False
    index = group.promote(N1, N4).entries[-1].index
    group.network.clear()
    term = group.core(N1).current_term
    entry = Entry(index=index, term=term + 1, kind=EntryKind.NOOP, payload=b"")
    group.receive(
        AppendEntries(
            sender=N2,
            receiver=N1,
            term=term + 1,
            prev_log_index=index - 1,
            prev_log_term=term,
            entries=(entry,),
            leader_commit=index - 1,
            read_round=0,
        )
    )
    group.step(N1, LogDurable(now_ms=group.now_ms, index=index, term=term))
    assert group.core(N1).durable_index == index - 1
    assert voters(group, N1) == (N1, N2, N3)
