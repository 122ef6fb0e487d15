"""Each test proves a sentence of the Raft paper, or of Ongaro's dissertation, and names it.

Numbers from 5 and "figure" are the paper's; 3.10, 4.2.3, 6.2, 6.4, 9.6 and 10.2.1 are the
dissertation's. Shape: init, test, check.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from raft.core.progress import ProgressState
from raft.events import LogDurable, Ready, Receive, Role, Tick
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
    TimeoutNow,
)
from tests.raft.core_group import Group, make_entries, node_names

N1, N2, N3, N4, N5 = node_names(5)


def append_entries(
    sender: NodeId,
    receiver: NodeId,
    *,
    term: Term,
    prev: tuple[int, int] = (0, 0),
    entries: tuple[Entry, ...] = (),
    commit: int = 0,
    read_round: int = 0,
) -> AppendEntries:
    return AppendEntries(
        sender=sender,
        receiver=receiver,
        term=term,
        prev_log_index=prev[0],
        prev_log_term=prev[1],
        entries=entries,
        leader_commit=commit,
        read_round=read_round,
    )


def append_reply(
    sender: NodeId, receiver: NodeId, *, term: Term, match_index: int = 0, success: bool = True
) -> AppendEntriesReply:
    return AppendEntriesReply(
        sender=sender,
        receiver=receiver,
        term=term,
        success=success,
        match_index=match_index,
        rejected_prev_index=0,
        conflict_index=0,
        conflict_term=0,
        read_round=0,
        writable=True,
    )


def request_vote(
    sender: NodeId,
    receiver: NodeId,
    *,
    term: Term,
    last: tuple[int, int] = (0, 0),
    pre_vote: bool = False,
    leadership_transfer: bool = False,
) -> RequestVote:
    return RequestVote(
        sender=sender,
        receiver=receiver,
        term=term,
        last_log_index=last[0],
        last_log_term=last[1],
        pre_vote=pre_vote,
        leadership_transfer=leadership_transfer,
    )


def vote_reply(
    sender: NodeId, receiver: NodeId, *, term: Term, granted: bool, pre_vote: bool = False
) -> RequestVoteReply:
    return RequestVoteReply(
        sender=sender, receiver=receiver, term=term, granted=granted, pre_vote=pre_vote
    )


def is_append(message: Message) -> bool:
    return isinstance(message, AppendEntries)


def group_in_role(role: Role) -> Group:
    """Three nodes, n1 in `role`, in term 1 (a pre-candidate in term 0)."""
    group = Group(3)
    if role is Role.LEADER:
        group.elect(N1)
    elif role is Role.FOLLOWER:
        group.receive(append_entries(N2, N1, term=1))
    else:
        group.tick(N1)
        if role is Role.CANDIDATE:
            group.receive(vote_reply(N2, N1, term=1, granted=True, pre_vote=True))
    group.network.clear()
    assert group.core(N1).role is role
    return group


# 5.1 Terms


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(
    "message",
    [
        append_entries(N3, N1, term=9),
        append_reply(N3, N1, term=9, success=False),
        vote_reply(N3, N1, term=9, granted=False),
        vote_reply(N3, N1, term=9, granted=False, pre_vote=True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_5_1_a_higher_term_is_adopted_and_makes_a_follower(role: Role, message: Message) -> None:
    group = group_in_role(role)

    ready = group.receive(message)

    assert ready.hard_state == HardState(current_term=9, voted_for=None)
    assert (ready.role, ready.term) == (Role.FOLLOWER, 9)
    assert ready.leader_id == (N3 if is_append(message) else None)


@pytest.mark.parametrize("role", list(Role))
def test_5_1_a_request_of_an_earlier_term_is_refused_with_the_current_one(role: Role) -> None:
    group = group_in_role(role)
    term = group.core(N1).current_term
    group.receive(append_reply(N3, N1, term=term + 5, success=False))

    appended = group.receive(append_entries(N2, N1, term=1, entries=tuple(make_entries([1]))))
    voted = group.receive(request_vote(N2, N1, term=1, last=(9, 9)))

    assert appended.entries == ()
    [refusal] = appended.messages_after_sync  # behind the fsync of the term it tells
    assert isinstance(refusal, AppendEntriesReply)
    assert (refusal.success, refusal.term) == (False, term + 5)
    [vote] = voted.messages_after_sync
    assert isinstance(vote, RequestVoteReply)
    assert (vote.granted, vote.term) == (False, term + 5)


def test_5_1_replies_of_an_earlier_term_never_move_progress() -> None:
    group = Group(3)
    group.elect(N1, [N1, N2])  # term 1
    group.propose(N1)
    group.network.clear()
    group.receive(append_reply(N2, N1, term=2, success=False))  # deposed
    group.tick(N1)
    group.receive(vote_reply(N2, N1, term=3, granted=True, pre_vote=True))
    group.receive(vote_reply(N2, N1, term=3, granted=True))
    assert group.core(N1).role is Role.LEADER
    commit_index = group.core(N1).commit_index

    group.receive(append_reply(N2, N1, term=1, match_index=3))
    group.receive(append_reply(N3, N1, term=2, match_index=3))

    assert group.core(N1).commit_index == commit_index
    assert [peer.match_index for peer in group.core(N1).progress.values()] == [0, 0]


# 5.2 Leader election


def test_5_2_a_silent_leader_is_replaced_by_a_candidate_that_votes_for_itself() -> None:
    group = group_in_role(Role.FOLLOWER)

    group.tick(N1)
    ready = group.receive(vote_reply(N3, N1, term=2, granted=True, pre_vote=True))

    assert ready.hard_state == HardState(current_term=2, voted_for=N1)
    assert ready.role is Role.CANDIDATE
    requests = ready.messages_after_sync
    assert [(type(m), m.receiver, m.term) for m in requests] == [
        (RequestVote, N2, 2),
        (RequestVote, N3, 2),
    ]
    assert ready.messages == ()  # figure 2: term and vote are durable before the requests leave


@pytest.mark.parametrize(
    ("count", "granted", "refused", "role"),
    [
        (1, 0, 0, Role.LEADER),
        (2, 0, 0, Role.CANDIDATE),
        (2, 1, 0, Role.LEADER),
        (2, 0, 1, Role.FOLLOWER),
        (3, 1, 0, Role.LEADER),
        (3, 1, 1, Role.LEADER),
        (3, 0, 1, Role.CANDIDATE),
        (3, 0, 2, Role.FOLLOWER),
        (4, 1, 1, Role.CANDIDATE),
        (4, 2, 0, Role.LEADER),
        (4, 1, 2, Role.FOLLOWER),
        (5, 1, 2, Role.CANDIDATE),
        (5, 2, 2, Role.LEADER),
        (5, 1, 3, Role.FOLLOWER),
        (7, 3, 3, Role.LEADER),
        (7, 2, 4, Role.FOLLOWER),
    ],
)
def test_5_2_a_majority_of_votes_makes_a_leader(
    count: int, granted: int, refused: int, role: Role
) -> None:
    group = Group(count)
    peers = node_names(count)[1:]
    group.tick(N1)
    for peer in peers:
        if group.core(N1).role is Role.PRE_CANDIDATE:
            group.receive(vote_reply(peer, N1, term=1, granted=True, pre_vote=True))
    for number, peer in enumerate(peers[: granted + refused]):
        reply_term = 1
        group.receive(vote_reply(peer, N1, term=reply_term, granted=number < granted))

    assert group.core(N1).role is role
    assert group.core(N1).current_term == 1


def test_5_2_a_voter_counts_once() -> None:
    group = Group(5)
    group.tick(N1)
    for peer in (N2, N3):
        group.receive(vote_reply(peer, N1, term=1, granted=True, pre_vote=True))

    for _ in range(3):
        group.receive(vote_reply(N2, N1, term=1, granted=True))

    assert group.core(N1).role is Role.CANDIDATE


def test_5_2_one_vote_per_term_first_come_first_served_and_repeated_on_request() -> None:
    group = Group(3)

    first = group.receive(request_vote(N2, N1, term=1))
    other = group.receive(request_vote(N3, N1, term=1))
    again = group.receive(request_vote(N2, N1, term=1))

    assert first.hard_state == HardState(current_term=1, voted_for=N2)
    assert first.messages == ()
    assert first.messages_after_sync == (vote_reply(N1, N2, term=1, granted=True),)
    assert other.hard_state is None
    assert [*other.messages, *other.messages_after_sync] == [
        vote_reply(N1, N3, term=1, granted=False)
    ]
    assert again.hard_state is None
    assert again.messages_after_sync == (vote_reply(N1, N2, term=1, granted=True),)


def test_5_2_a_vote_survives_a_restart() -> None:
    group = Group(3)
    group.receive(request_vote(N2, N1, term=1))
    group.node(N1).crash()
    group.node(N1).restart(group.now_ms)

    ready = group.receive(request_vote(N3, N1, term=1, last=(9, 9)))

    assert ready.hard_state is None
    assert [m.granted for m in ready.messages if isinstance(m, RequestVoteReply)] == [False]


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_5_2_a_candidate_that_hears_a_leader_of_its_term_follows_it(role: Role) -> None:
    group = group_in_role(role)
    term = group.core(N1).current_term

    ready = group.receive(append_entries(N3, N1, term=term))

    assert (ready.role, ready.term, ready.leader_id) == (Role.FOLLOWER, term, N3)
    assert ready.hard_state is None  # within a term the vote stands


def test_5_2_a_split_vote_ends_in_a_new_term_after_a_new_timeout() -> None:
    group = Group(4)
    group.tick(N1)
    for peer in (N2, N3):
        group.receive(vote_reply(peer, N1, term=1, granted=True, pre_vote=True))
    group.receive(vote_reply(N2, N1, term=1, granted=True))
    group.receive(vote_reply(N3, N1, term=1, granted=False))
    assert group.core(N1).role is Role.CANDIDATE
    deadline_ms = group.core(N1).next_deadline_ms

    assert deadline_ms >= group.now_ms + 300
    group.network.clear()
    group.tick(N1)
    group.stabilize()

    assert group.core(N1).role is Role.LEADER
    assert group.core(N1).current_term == 2


def test_5_2_timeouts_are_drawn_from_the_whole_range() -> None:
    group = Group(3, rng=Random)
    timeouts_ms = set()
    for _ in range(2000):
        group.tick(N1)
        timeouts_ms.add(group.core(N1).next_deadline_ms - group.now_ms)

    assert min(timeouts_ms) == 300
    assert max(timeouts_ms) == 600
    assert len(timeouts_ms) > 280


def test_5_2_a_leader_sends_heartbeats_to_all_and_they_prevent_elections() -> None:
    group = Group(3)
    group.elect(N1)
    group.stabilize()
    for _ in range(20):
        ready = group.tick(N1)
        assert {m.receiver for m in ready.messages if is_append(m)} <= {N2, N3}
        group.stabilize()
        for follower in (N2, N3):
            assert group.step(follower, Tick(now_ms=group.now_ms)).role is Role.FOLLOWER

    assert group.now_ms > 1000
    assert {node.core.current_term for node in group.nodes.values()} == {1}


# 5.3 Log replication


def test_5_3_a_proposal_is_appended_and_sent_in_parallel() -> None:
    group = Group(3, auto_sync=False)
    for name in (N1, N2):
        group.sync(name)
    group.tick(N1)
    group.deliver()  # pre-votes
    group.deliver()
    group.sync(N1)
    group.deliver()
    group.sync(N2)
    group.deliver()
    assert group.core(N1).role is Role.LEADER
    group.sync(N1)
    group.deliver(lambda m: m.receiver == N2)
    group.sync(N2)
    group.deliver(lambda m: m.receiver == N1)

    ready = group.propose(N1, b"hello")

    [entry] = ready.entries
    assert (entry.index, entry.term, entry.kind, entry.payload) == (2, 1, EntryKind.DATA, b"hello")
    sent = [m for m in ready.messages if isinstance(m, AppendEntries) and m.receiver == N2]
    assert [m.entries for m in sent] == [(entry,)]
    assert ready.messages_after_sync == ()


@pytest.mark.parametrize(
    ("count", "acks", "is_committed"),
    [
        (1, 0, True),
        (2, 0, False),
        (2, 1, True),
        (3, 0, False),
        (3, 1, True),
        (5, 1, False),
        (5, 2, True),
        (5, 4, True),
        (6, 2, False),
        (6, 3, True),
        (7, 2, False),
        (7, 3, True),
    ],
)
def test_5_3_an_entry_is_committed_once_a_majority_has_it(
    count: int, acks: int, is_committed: bool
) -> None:
    group = Group(count)
    group.elect(N1)
    group.propose(N1)
    group.network.clear()

    for peer in node_names(count)[1 : 1 + acks]:
        group.receive(append_reply(peer, N1, term=1, match_index=2))

    assert group.core(N1).commit_index == (2 if is_committed else 1)


def test_5_3_the_leader_counts_itself_only_once_its_own_fsync_is_done() -> None:
    group = Group(3)
    group.elect(N1)
    group.auto_sync = False
    group.propose(N1)
    group.network.clear()

    group.receive(append_reply(N2, N1, term=1, match_index=2))
    assert group.core(N1).commit_index == 1
    group.sync(N1)
    assert group.core(N1).commit_index == 2


def test_5_3_a_majority_of_others_commits_without_the_leaders_fsync() -> None:
    group = Group(3)
    group.elect(N1)
    group.auto_sync = False
    group.propose(N1)
    group.network.clear()

    group.receive(append_reply(N2, N1, term=1, match_index=2))
    group.receive(append_reply(N3, N1, term=1, match_index=2))

    assert group.core(N1).commit_index == 2
    assert group.core(N1).durable_index == 1


def test_5_3_committing_commits_all_before_it_those_of_earlier_terms_too() -> None:
    group = Group(3)
    group.set_up(N1, terms=[1, 1, 2], current_term=2)
    group.elect(N1)

    assert group.core(N1).commit_index == 4
    assert {node.core.last_index for node in group.nodes.values()} == {4}


def test_5_3_followers_learn_the_commit_index() -> None:
    group = Group(3)
    group.elect(N1)
    group.propose(N1)
    group.stabilize()
    assert [group.core(name).commit_index for name in (N1, N2, N3)] == [2, 1, 1]

    group.tick(N1)  # the notice, some milliseconds later
    group.stabilize()

    assert group.now_ms <= 300 + group.node(N1).config.commit_notice_delay_ms
    assert [group.core(name).commit_index for name in (N1, N2, N3)] == [2, 2, 2]


def test_5_3_a_follower_commits_no_further_than_it_is_known_to_match() -> None:
    group = Group(3)
    group.set_up(N1, terms=[1, 1, 1], current_term=1)

    ready = group.receive(append_entries(N2, N1, term=2, prev=(1, 1), commit=3))

    assert ready.commit_index == 1


@pytest.mark.parametrize(
    ("prev", "success"),
    [
        ((0, 0), True),
        ((1, 1), True),
        ((2, 2), True),
        ((1, 2), False),
        ((2, 3), False),
        ((3, 2), False),
    ],
)
def test_5_3_the_entry_before_must_match(prev: tuple[int, int], success: bool) -> None:
    group = Group(3)
    group.set_up(N1, terms=[1, 2], current_term=3)

    ready = group.receive(append_entries(N2, N1, term=3, prev=prev))

    [reply] = ready.messages
    assert isinstance(reply, AppendEntriesReply)
    assert reply.success is success
    assert reply.match_index == (prev[0] if success else 0)
    assert ready.truncate_from is None


@pytest.mark.parametrize(
    ("prev", "terms", "truncate_from", "appended", "expected"),
    [
        ((2, 2), [3], None, 1, [1, 2, 3]),
        ((1, 1), [3, 4], 2, 2, [1, 3, 4]),
        ((0, 0), [3, 4], 1, 2, [3, 4]),
        ((0, 0), [1], None, 0, [1, 2]),
        ((0, 0), [1, 2, 4], None, 1, [1, 2, 4]),
        ((0, 0), [1, 3], 2, 1, [1, 3]),
    ],
)
def test_5_3_conflicting_entries_are_replaced_and_matching_ones_left(
    prev: tuple[int, int],
    terms: list[int],
    truncate_from: int | None,
    appended: int,
    expected: list[int],
) -> None:
    group = Group(3)
    group.set_up(N1, terms=[1, 2], current_term=2)
    entries = tuple(
        Entry(index=prev[0] + n, term=term, kind=EntryKind.DATA, payload=b"")
        for n, term in enumerate(terms, start=1)
    )

    ready = group.receive(append_entries(N2, N1, term=4, prev=prev, entries=entries))

    assert ready.truncate_from == truncate_from
    assert len(ready.entries) == appended
    assert group.node(N1).log_terms() == expected


def test_5_3_a_stale_or_repeated_append_never_shortens_the_log() -> None:
    group = Group(3)
    entries = tuple(make_entries([1, 1, 1, 1]))
    group.receive(append_entries(N2, N1, term=1, entries=entries))

    for stale in (entries[:1], entries[:2], (), entries):
        ready = group.receive(append_entries(N2, N1, term=1, entries=stale))
        assert (ready.truncate_from, ready.entries) == (None, ())

    assert group.core(N1).last_index == 4


FIGURE_7_LEADER = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
FIGURE_7_FOLLOWERS = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("follower", FIGURE_7_FOLLOWERS)
def test_figure_7_the_leader_brings_each_followers_log_into_line(follower: str) -> None:
    group = Group(3)
    group.set_up(N1, terms=FIGURE_7_LEADER, current_term=7)
    group.set_up(N2, terms=FIGURE_7_FOLLOWERS[follower], current_term=7)
    group.set_up(N3, terms=[1, 1, 1, 4], current_term=7)  # a second vote, as it needs
    group.elect(N1)
    group.heartbeat(N1)

    assert group.core(N1).current_term == 8
    assert group.node(N2).log_terms() == [*FIGURE_7_LEADER, 8]
    assert group.core(N2).commit_index == 11


def test_5_3_back_off_skips_a_term_per_refusal() -> None:
    group = Group(3)
    group.set_up(N1, terms=[1] * 10 + [5] * 100, current_term=5)
    group.set_up(N2, terms=[1] * 10 + [2] * 40 + [3] * 40 + [4] * 40, current_term=4)
    group.set_up(N3, terms=[1], current_term=5)
    refusals = 0

    def count(_name: NodeId, ready: Ready) -> None:
        nonlocal refusals
        for message in (*ready.messages, *ready.messages_after_sync):
            if isinstance(message, AppendEntriesReply) and message.sender == N2:
                refusals += not message.success

    group.on_ready = count
    group.elect(N1)
    group.heartbeat(N1)

    assert group.node(N2).log_terms() == group.node(N1).log_terms()
    assert refusals <= 4


# 5.4 Safety


@pytest.mark.parametrize(
    ("own", "candidate", "granted"),
    [
        ([1], (1, 1), True),
        ([1], (2, 1), True),
        ([1, 1], (1, 1), False),
        ([1], (1, 2), True),
        ([1, 1], (1, 2), True),
        ([2], (1, 1), False),
        ([2], (2, 1), False),
        ([1, 2], (9, 1), False),
    ],
)
@pytest.mark.parametrize("pre_vote", [True, False])
def test_5_4_1_votes_go_to_logs_at_least_as_up_to_date(
    own: list[int], candidate: tuple[int, int], granted: bool, pre_vote: bool
) -> None:
    group = Group(3)
    group.set_up(N1, terms=own, current_term=2)

    ready = group.receive(request_vote(N2, N1, term=3, last=candidate, pre_vote=pre_vote))

    [reply] = (*ready.messages, *ready.messages_after_sync)
    assert isinstance(reply, RequestVoteReply)
    assert reply.granted is granted
    assert (ready.term, group.core(N1).voted_for) == (
        (2, None) if pre_vote else (3, N2 if granted else None)
    )


def test_5_4_2_figure_8_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    group = Group(5)
    group.set_up(N1, terms=[1, 2], current_term=3)  # (c): S1 is elected again, in term 4
    group.set_up(N2, terms=[1, 2], current_term=3)
    group.set_up(N3, terms=[1], current_term=3)
    group.tick(N1)
    group.stabilize_votes()
    leader = group.core(N1)
    assert (leader.role, leader.current_term) == (Role.LEADER, 4)

    group.receive(append_reply(N2, N1, term=4, match_index=2))
    group.receive(append_reply(N3, N1, term=4, match_index=2))
    group.receive(append_reply(N4, N1, term=4, match_index=2))
    assert leader.commit_index == 0  # index 2 is on four of five, but of term 2

    group.receive(append_reply(N2, N1, term=4, match_index=3))
    group.receive(append_reply(N3, N1, term=4, match_index=3))
    assert leader.commit_index == 3


# Figure 2: what must be durable before what


def test_figure_2_new_entries_are_acknowledged_only_after_their_fsync() -> None:
    group = Group(3, auto_sync=False)
    entries = tuple(make_entries([1, 1]))

    ready = group.receive(append_entries(N2, N1, term=1, entries=entries))

    assert ready.hard_state == HardState(current_term=1, voted_for=None)
    assert ready.messages == ()
    [reply] = ready.messages_after_sync
    assert isinstance(reply, AppendEntriesReply)
    assert (reply.success, reply.match_index) == (True, 2)


def test_figure_2_a_heartbeat_claims_only_what_is_durable() -> None:
    group = Group(3)
    group.receive(append_entries(N2, N1, term=1, entries=tuple(make_entries([1, 1]))))
    group.auto_sync = False
    entry = Entry(index=3, term=1, kind=EntryKind.DATA, payload=b"")
    group.receive(append_entries(N2, N1, term=1, prev=(2, 1), entries=(entry,)))

    heartbeat = append_entries(N2, N1, term=1, prev=(3, 1))
    ready = group.receive(heartbeat)
    repeated = group.receive(append_entries(N2, N1, term=1, prev=(2, 1), entries=(entry,)))

    assert [m.match_index for m in ready.messages if isinstance(m, AppendEntriesReply)] == [2]
    assert repeated.messages == ()  # it claims index 3, behind the fsync that is under way
    group.sync(N1)
    ready = group.receive(heartbeat)
    assert [m.match_index for m in ready.messages if isinstance(m, AppendEntriesReply)] == [3]


def test_figure_2_nothing_of_a_term_leaves_before_the_term_is_durable() -> None:
    group = Group(3, auto_sync=False)
    entered = group.receive(append_entries(N2, N1, term=4))
    assert entered.hard_state is not None
    assert entered.messages == ()

    heartbeat = group.receive(append_entries(N2, N1, term=4))
    refused_vote = group.receive(request_vote(N3, N1, term=3))
    refused_append = group.receive(append_entries(N3, N1, term=3))

    for ready in (heartbeat, refused_vote, refused_append):
        assert ready.messages == ()
        assert len(ready.messages_after_sync) == 1


def test_a_report_of_an_fsync_does_not_count_for_an_entry_that_came_back() -> None:
    """Entry (2, term 1) is truncated and returns while the fsync of its first writing is on."""
    group = Group(3, auto_sync=False)
    [first, second] = make_entries([1, 1])
    group.receive(append_entries(N2, N1, term=1, entries=(first, second)))
    replacement = Entry(index=2, term=2, kind=EntryKind.NOOP, payload=b"")
    group.receive(append_entries(N3, N1, term=2, prev=(1, 1), entries=(replacement,)))
    own = Entry(index=3, term=3, kind=EntryKind.NOOP, payload=b"")
    group.receive(append_entries(N2, N1, term=3, prev=(1, 1), entries=(second, own)))

    group.step(N1, LogDurable(now_ms=0, index=2, term=1))  # late, of the first writing
    assert group.core(N1).durable_index == 0
    group.step(N1, LogDurable(now_ms=0, index=2, term=2))  # late, of what is gone
    assert group.core(N1).durable_index == 0
    group.step(N1, LogDurable(now_ms=0, index=3, term=3))
    assert group.core(N1).durable_index == 3


# 3.10 Leadership transfer


def test_3_10_a_caught_up_target_is_told_to_campaign_and_wins_in_spite_of_leases() -> None:
    group = Group(3)
    group.elect(N1)

    ready = group.transfer(N1, N3)
    assert not group.core(N1).ready  # no new proposals meanwhile
    assert ready.messages == (TimeoutNow(sender=N1, receiver=N3, term=1),)
    group.stabilize()

    assert group.core(N3).role is Role.LEADER
    assert group.core(N3).current_term == 2
    assert group.core(N1).role is Role.FOLLOWER


def test_3_10_a_target_behind_is_brought_up_first() -> None:
    group = Group(3)
    group.elect(N1, [N1, N2])
    for _ in range(3):
        group.propose(N1)
    group.stabilize([N1, N2])

    ready = group.transfer(N1, N3)
    assert not any(isinstance(m, TimeoutNow) for m in ready.messages)
    group.tick(N1)
    group.heartbeat(N1)

    assert group.core(N3).role is Role.LEADER
    assert group.core(N3).last_index == 5


def test_3_10_a_transfer_that_does_not_happen_ends_and_the_leader_goes_on() -> None:
    group = Group(3)
    group.elect(N1)
    group.transfer(N1, N3)
    while group.now_ms < 300 + 600:
        group.stabilize([N1, N2])
        group.tick(N1)

    assert group.core(N1).role is Role.LEADER
    assert group.core(N1).ready


@pytest.mark.parametrize("target", ["n1", "n9"])
def test_3_10_an_impossible_target_changes_nothing(target: str) -> None:
    group = Group(3)
    group.elect(N1)

    ready = group.transfer(N1, target)

    assert ready.messages == ()
    assert group.core(N1).ready


# 4.2.3 Disruptive servers; 6.2 check-quorum; 9.6 pre-vote


@pytest.mark.parametrize("pre_vote", [True, False])
def test_4_2_3_who_hears_a_leader_gives_no_vote_and_keeps_its_term(pre_vote: bool) -> None:
    group = Group(3)
    group.elect(N1)
    for voter in (N1, N2):
        request = request_vote(N3, voter, term=7, last=(99, 7), pre_vote=pre_vote)
        ready = group.receive(request)
        assert (ready.hard_state, ready.term) == (None, 1)
        assert ready.messages == (vote_reply(voter, N3, term=1, granted=False, pre_vote=pre_vote),)

    ready = group.receive(request_vote(N3, N2, term=7, last=(99, 7), leadership_transfer=True))
    assert ready.hard_state == HardState(current_term=7, voted_for=N3)


def test_4_2_3_the_lease_ends_with_the_minimum_election_timeout() -> None:
    group = Group(3)
    group.elect(N1)
    heard_ms = group.now_ms
    request = request_vote(N3, N2, term=2, last=(9, 9), pre_vote=True)

    group.now_ms = heard_ms + 299
    [refused] = group.receive(request).messages
    group.now_ms = heard_ms + 300
    [granted] = group.receive(request).messages

    assert isinstance(refused, RequestVoteReply)
    assert isinstance(granted, RequestVoteReply)
    assert (refused.granted, granted.granted) == (False, True)


@pytest.mark.parametrize("count", [3, 5])
def test_6_2_a_leader_without_a_majority_steps_down_within_an_election_timeout(count: int) -> None:
    group = Group(count)
    group.elect(N1)
    cut_ms = group.now_ms
    minority = list(node_names(count)[: (count - 1) // 2])
    group.read(N1, 1)
    while group.core(N1).role is Role.LEADER:
        group.tick(N1)
        group.stabilize(minority)

    assert 600 - 2 * 75 <= group.now_ms - cut_ms <= 600
    assert group.core(N1).current_term == 1
    assert [(s.request_id, s.index) for s in group.node(N1).read_states] == [(1, None)]


def test_6_2_a_leader_with_a_bare_majority_stays() -> None:
    group = Group(5)
    group.elect(N1)
    for _ in range(40):
        group.tick(N1)
        group.stabilize([N1, N2, N3])

    assert group.now_ms > 2000
    assert group.core(N1).role is Role.LEADER


def test_6_2_a_leader_that_slept_steps_down_at_its_first_tick() -> None:
    group = Group(3)
    group.elect(N1)
    group.now_ms += 10_000

    ready = group.step(N1, Tick(now_ms=group.now_ms))

    assert ready.role is Role.FOLLOWER
    assert ready.messages == ()


def test_9_6_a_node_that_was_cut_off_comes_back_without_raising_the_term() -> None:
    group = Group(3)
    group.elect(N1)
    while group.now_ms < 5000:  # n3 alone, campaigning again and again
        group.tick(N1)
        group.stabilize([N1, N2])
        group.step(N3, Tick(now_ms=group.now_ms))
        group.network.clear()
    assert group.core(N3).role is Role.PRE_CANDIDATE
    group.tick(N3)
    group.stabilize()  # its pre-votes arrive now
    group.heartbeat(N1)

    assert group.core(N1).role is Role.LEADER
    assert group.core(N3).leader_id == N1
    assert {node.core.current_term for node in group.nodes.values()} == {1}


def test_9_6_pre_votes_change_nothing_at_the_voter() -> None:
    group = Group(3)

    ready = group.receive(request_vote(N2, N1, term=1, pre_vote=True))
    other = group.receive(request_vote(N3, N1, term=1, pre_vote=True))

    assert ready.hard_state is None
    assert ready.messages == (vote_reply(N1, N2, term=1, granted=True, pre_vote=True),)
    assert other.messages == (vote_reply(N1, N3, term=1, granted=True, pre_vote=True),)
    assert group.core(N1).current_term == 0


def test_9_6_a_pre_vote_of_an_earlier_term_is_refused_with_the_term_to_adopt() -> None:
    group = Group(3)
    group.set_up(N1, terms=[1], current_term=8)
    group.set_up(N2, terms=[1, 2], current_term=3)

    group.tick(N2)
    group.deliver(lambda m: m.receiver == N1)
    group.deliver(lambda m: m.receiver == N2)

    assert group.core(N2).current_term == 8
    assert group.core(N2).role is Role.FOLLOWER
    group.elect(N2)  # and is elected, though it was behind in terms


def test_9_6_grants_of_another_term_or_kind_do_not_count() -> None:
    group = Group(3)
    group.set_up(N1, terms=[], current_term=4)
    group.tick(N1)

    group.receive(vote_reply(N2, N1, term=4, granted=True, pre_vote=True))  # of an earlier one
    group.receive(vote_reply(N2, N1, term=6, granted=True, pre_vote=True))
    group.receive(vote_reply(N2, N1, term=4, granted=True, pre_vote=False))
    assert group.core(N1).role is Role.PRE_CANDIDATE

    group.receive(vote_reply(N2, N1, term=5, granted=True, pre_vote=True))
    assert group.core(N1).role is Role.CANDIDATE
    group.receive(vote_reply(N3, N1, term=5, granted=True, pre_vote=True))  # late
    assert group.core(N1).role is Role.CANDIDATE


def test_a_node_in_a_higher_term_that_nobody_elects_frees_itself() -> None:
    """A candidate was cut off in term 2; the leader of term 1 still has its majority."""
    group = Group(3)
    group.elect(N1)
    group.receive(append_reply(N2, N3, term=2, success=False))
    assert group.core(N3).current_term == 2

    group.tick(N1)
    group.stabilize()  # n3 refuses the heartbeat with its term: the leader steps down
    assert group.core(N1).current_term == 2
    group.elect(N1)
    assert {node.core.current_term for node in group.nodes.values()} == {3}


# A broken connection is a hint


def test_a_killed_leader_is_replaced_after_a_short_delay() -> None:
    group = Group(3, rng=Random)
    group.elect(N1)
    killed_ms = group.now_ms
    group.node(N1).crash()
    for follower in (N2, N3):
        group.unreachable(follower, N1)
    first = min((N2, N3), key=lambda name: group.core(name).next_deadline_ms)

    group.elect(first, [N2, N3])

    assert 10 <= group.now_ms - killed_ms <= 60
    assert group.core(first).ready


def test_a_follower_that_lost_its_connection_alone_deposes_nobody() -> None:
    group = Group(3)
    group.elect(N1)
    group.unreachable(N3, N1)
    group.tick(N3)
    group.stabilize()

    assert group.core(N1).role is Role.LEADER
    assert group.core(N3).role is Role.FOLLOWER
    assert {node.core.current_term for node in group.nodes.values()} == {1}
    group.heartbeat(N1)
    assert group.core(N3).leader_id == N1


def test_a_leader_probes_a_peer_whose_connection_broke() -> None:
    group = Group(3)
    group.elect(N1)
    group.propose(N1)
    group.network.clear()  # lost with the connection
    group.unreachable(N1, N2)
    assert group.core(N1).progress[N2].state is ProgressState.PROBE

    group.propose(N1)
    group.stabilize([N1, N2])

    assert group.node(N2).storage.stored == group.node(N1).storage.stored
    assert group.core(N1).progress[N2].state is ProgressState.REPLICATE


def test_a_lost_message_is_found_by_the_next_heartbeat() -> None:
    group = Group(3)
    group.elect(N1)
    group.propose(N1)
    group.network.clear()
    assert group.core(N1).progress[N2].state is ProgressState.REPLICATE

    group.now_ms = 300 + 75
    group.step(N1, Tick(now_ms=group.now_ms))
    group.stabilize()

    assert group.core(N1).commit_index == 2
    assert group.core(N2).last_index == 2


# 6.4 Linearizable reads


def test_6_4_a_read_waits_for_a_majority_that_was_asked_after_it() -> None:
    group = Group(5)
    group.elect(N1)
    group.propose(N1)
    before = group.take(lambda m: m.receiver in {N2, N3})

    ready = group.read(N1, 7)
    rounds = [m for m in ready.messages if isinstance(m, AppendEntries)]
    assert len(rounds) == 4
    for message in before:  # answered after the read was asked, but sent before
        group.receive(message)
    group.deliver(lambda m: m.receiver == N1)
    assert group.node(N1).read_states == []

    group.receive(rounds[0])
    group.deliver(lambda m: m.receiver == N1)
    assert group.node(N1).read_states == []
    group.receive(rounds[1])
    group.deliver(lambda m: m.receiver == N1)
    assert [(s.request_id, s.index) for s in group.node(N1).read_states] == [(7, 1)]


def test_6_4_requests_share_rounds() -> None:
    group = Group(3)
    group.elect(N1)
    group.network.clear()
    sent = sum(len(group.read(N1, request_id).messages) for request_id in range(50))
    group.stabilize()

    assert sent == 2  # the first read's round; the others wait for the next
    assert len(group.node(N1).read_states) == 50
    appends = sum(is_append(m) for r in group.node(N1).readies[-54:] for m in r.messages)
    assert appends == 4


def test_6_4_a_new_leader_answers_once_its_no_op_is_committed() -> None:
    group = Group(3)
    group.set_up(N1, terms=[1, 1], current_term=1)
    group.tick(N1)
    group.stabilize_votes()
    group.read(N1, 1)
    assert not group.core(N1).ready
    assert group.node(N1).read_states == []

    group.heartbeat(N1)

    assert [(s.request_id, s.index) for s in group.node(N1).read_states] == [(1, 3)]


def test_6_4_a_deposed_leader_answers_none() -> None:
    group = Group(3)
    group.elect(N1)
    group.read(N1, 1)
    group.read(N1, 2)
    ready = group.receive(append_entries(N2, N1, term=2))

    assert [(s.request_id, s.index) for s in ready.read_states] == [(1, None), (2, None)]
    assert [s.index for s in group.read(N1, 3).read_states] == [None]


def test_6_4_a_follower_answers_none() -> None:
    group = Group(3)
    group.elect(N1)
    assert [(s.request_id, s.index) for s in group.read(N2, 5).read_states] == [(5, None)]


def test_6_4_a_group_of_one_reads_at_once() -> None:
    group = Group(1)
    group.elect(N1)
    group.propose(N1)
    assert [(s.request_id, s.index) for s in group.read(N1, 5).read_states] == [(5, 2)]


def test_6_4_too_many_reads_are_turned_away() -> None:
    group = Group(3, read_requests_count_max=4)
    group.elect(N1)
    for request_id in range(6):
        group.read(N1, request_id)
    assert [(s.request_id, s.index) for s in group.node(N1).read_states] == [(4, None), (5, None)]


# 10.2.1 Pipelining


def test_10_2_1_appends_are_pipelined_within_the_window() -> None:
    group = Group(3, inflight_count_max=4)
    group.elect(N1)
    group.network.clear()
    for _ in range(10):
        group.propose(N1)
    sent = [m for m in group.network if isinstance(m, AppendEntries) and m.receiver == N2]
    assert [m.prev_log_index for m in sent] == [1, 2, 3, 4]

    group.stabilize()

    assert {node.core.last_index for node in group.nodes.values()} == {11}
    assert group.core(N1).commit_index == 11
    assert group.core(N1).progress[N2].inflight_size_bytes == 0


def test_10_2_1_the_window_is_bounded_in_bytes_too() -> None:
    group = Group(3, inflight_size_bytes_max=2500, append_size_bytes_max=1000)
    group.elect(N1)
    group.network.clear()
    for _ in range(10):
        group.propose(N1, bytes(1000))

    sent = [m for m in group.network if isinstance(m, AppendEntries) and m.receiver == N2]
    assert len(sent) == 3
    group.stabilize()
    assert {node.core.last_index for node in group.nodes.values()} == {11}


@pytest.mark.parametrize(
    ("make_group", "expected"),
    [
        (partial(Group, 3, append_count_max=3), [3, 3, 3, 3, 1]),
        (partial(Group, 3, append_size_bytes_max=250), [3, 2, 2, 2, 2, 2]),
        (partial(Group, 3, append_size_bytes_max=1), [1] * 13),
    ],
)
def test_10_2_1_messages_are_bounded_in_entries_and_bytes(
    make_group: Callable[[], Group], expected: list[int]
) -> None:
    group = make_group()
    group.elect(N1, [N1, N2])
    for _ in range(12):
        group.propose(N1, bytes(100))
        group.stabilize([N1, N2])
    lengths = []
    while group.core(N3).last_index < 13:
        group.step(N1, Tick(now_ms=group.now_ms + 80))
        group.now_ms += 80
        while group.network:
            lengths += [
                len(m.entries)
                for m in group.network
                if isinstance(m, AppendEntries) and m.receiver == N3 and m.entries
            ]
            group.deliver()

    assert lengths == expected


def test_a_follower_that_catches_up_gets_little_at_a_time() -> None:
    group = Group(3, catch_up_size_bytes_max=500)
    group.elect(N1, [N1, N2])
    for _ in range(20):
        group.propose(N1, bytes(100))
        group.stabilize([N1, N2])
    in_flight = []
    group.heartbeat(N1)
    while group.core(N3).last_index < 21:
        group.step(N1, Tick(now_ms=group.now_ms + 80))
        group.now_ms += 80
        while group.network:
            in_flight.append(group.core(N1).progress[N3].inflight_size_bytes)
            group.deliver()

    assert 0 < max(in_flight) < 1000  # the last message may overshoot
    # What is not committed goes through the whole window: a majority may wait for it.
    group.network.clear()
    for _ in range(20):
        group.propose(N1, bytes(100))
    sent = [m for m in group.network if isinstance(m, AppendEntries) and m.receiver == N3]
    assert sum(len(m.entries) for m in sent) == 20


def test_sending_to_followers_that_keep_up_reads_no_storage() -> None:
    group = Group(3)
    group.elect(N1)
    for _ in range(100):
        group.propose(N1, bytes(1000))
        group.stabilize()

    assert group.node(N1).storage.reads_count == 0


def test_messages_are_taken_from_strangers() -> None:
    """4.2.3: the sender may stand in a configuration that is newer than the receiver's."""
    group = Group(3)
    stranger = NodeId("stranger")

    [vote] = group.step(
        N1, Receive(now_ms=0, message=request_vote(stranger, N1, term=9, last=(9, 9)))
    ).messages_after_sync
    assert vote == vote_reply(N1, stranger, term=9, granted=True)

    group.receive(append_entries(stranger, N1, term=10, entries=tuple(make_entries([10]))))
    assert group.core(N1).leader_id == stranger
    assert group.core(N1).last_index == 1


def test_votes_of_strangers_do_not_count() -> None:
    group = Group(3)
    group.tick(N1)
    for name in ("stranger", "other"):
        group.receive(vote_reply(NodeId(name), N1, term=1, granted=True, pre_vote=True))
    assert group.core(N1).role is Role.PRE_CANDIDATE
