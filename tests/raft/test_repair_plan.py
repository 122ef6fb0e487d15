"""Whom a node asks for good copies of damaged entries."""

from __future__ import annotations

import random

import pytest

from raft.messages import Entry, EntryKind, FetchEntries, FetchEntriesReply, NodeId
from raft.repair.repair_plan import RepairPlan, Wanted

ME = NodeId("n0")
PEERS = (NodeId("n1"), NodeId("n2"))
FIRST, SECOND = Wanted(first_index=5, last_index=9), Wanted(first_index=20, last_index=20)


def reply(
    request: FetchEntries, *, missing: bool = False, first: int | None = None
) -> FetchEntriesReply:
    index = request.first_index if first is None else first
    entry = Entry(index=index, term=1, kind=EntryKind.DATA, payload=b"x")
    return FetchEntriesReply(
        sender=request.receiver,
        receiver=ME,
        request_id=request.request_id,
        entries=() if missing else (entry,),
        chain_before=0,
        missing=missing,
        commit_index=100,
    )


def ask(repair: RepairPlan, now_ms: int, *wanted: Wanted) -> FetchEntries:
    request = repair.next(wanted, PEERS, now_ms)
    assert request is not None
    return request


def test_one_request_is_out_at_a_time() -> None:
    repair = RepairPlan(ME)
    request = ask(repair, 0, FIRST)
    assert (request.first_index, request.last_index) == (5, 9)
    assert repair.next([FIRST], PEERS, 500) is None
    assert repair.answered(reply(request)) == request
    repair.taken()
    assert ask(repair, 500, SECOND).first_index == 20


def test_a_peer_that_has_no_copy_is_passed_over() -> None:
    repair = RepairPlan(ME)
    request = ask(repair, 0, FIRST)
    assert repair.answered(reply(request, missing=True)) is None
    other = ask(repair, 0, FIRST)
    assert {request.receiver, other.receiver} == set(PEERS)


def test_a_peer_that_does_not_answer_is_passed_over() -> None:
    repair = RepairPlan(ME)
    request = ask(repair, 0, FIRST)
    other = ask(repair, 1000, FIRST)
    assert other.receiver != request.receiver
    assert repair.answered(reply(request)) is None, "late: another one is asked by now"
    assert repair.answered(reply(other)) == other


def test_answers_to_something_else_do_not_count() -> None:
    repair = RepairPlan(ME)
    request = ask(repair, 0, FIRST)
    other = PEERS[0] if request.receiver == PEERS[1] else PEERS[1]
    forged = reply(request)
    assert (
        repair.answered(
            FetchEntriesReply(
                sender=other,
                receiver=ME,
                request_id=forged.request_id,
                entries=forged.entries,
                chain_before=0,
                missing=False,
                commit_index=0,
            )
        )
        is None
    )
    assert repair.answered(reply(request, first=6)) is None, "it must begin where it was asked"


def test_what_nobody_has_is_told_and_does_not_keep_the_rest_waiting() -> None:
    repair = RepairPlan(ME)
    for _ in PEERS:
        repair.answered(reply(ask(repair, 0, FIRST, SECOND), missing=True))
    assert repair.next([FIRST, SECOND], PEERS, 0) is None
    assert repair.in_vain == FIRST
    assert repair.answered_in_vain == set(PEERS)
    request = ask(repair, 0, FIRST, SECOND)
    assert request.first_index == 20
    assert repair.answered(reply(request)) == request
    repair.taken()


def test_who_was_silent_is_not_told_to_have_no_copy() -> None:
    repair = RepairPlan(ME)
    silent = ask(repair, 0, FIRST).receiver
    assert repair.answered(reply(ask(repair, 1_000, FIRST), missing=True)) is None
    assert repair.next([FIRST], PEERS, 1_000) is None
    assert repair.in_vain == FIRST
    assert repair.answered_in_vain == set(PEERS) - {silent}


def test_asking_begins_anew_after_a_while() -> None:
    repair = RepairPlan(ME)
    told = 0
    asked: list[int] = []
    for now_ms in range(0, 10_000, 50):
        request = repair.next([FIRST], PEERS, now_ms)
        told += repair.in_vain is not None
        if request is not None:
            asked.append(now_ms)
            repair.answered(reply(request, missing=True))
    assert told == len(asked) // 2
    assert 6 <= told <= 10, "once a round, a round a second"


def test_without_peers_nobody_is_asked() -> None:
    repair = RepairPlan(ME)
    assert repair.next([FIRST], (ME,), 0) is None
    assert repair.in_vain == FIRST
    assert repair.next([], PEERS, 5_000) is None


def test_who_was_of_use_is_asked_on() -> None:
    repair = RepairPlan(ME)
    repair.answered(reply(ask(repair, 0, FIRST), missing=True))
    useful = ask(repair, 0, FIRST)
    for first in range(6, 10):
        assert repair.answered(reply(useful)) is not None
        repair.taken()
        useful, before = ask(repair, 0, Wanted(first_index=first, last_index=9)), useful
        assert useful.receiver == before.receiver


@pytest.mark.parametrize("seed", range(200))
def test_a_round_ends_whatever_peers_answer(seed: int) -> None:
    """Each answers in its own way: what it sends turns out wrong after some of it was taken, so
    that it is forgotten, or what stands before is wanted too, or it lacks some. Without any time
    passing, only so many requests are sent."""
    rng = random.Random(seed)
    repair = RepairPlan(ME)
    peers = [NodeId(f"n{number}") for number in range(1, rng.randrange(3, 6))]
    ends = [9, 20][: rng.randrange(1, 3)]
    low = {9: 5, 20: 15}
    wanted = dict(low)  # by the end of a damage
    wrong_at = {(peer, end): rng.randrange(1, end + 1) for peer in peers for end in ends}
    doubts = {peer for peer in peers if rng.random() < 0.5}
    count = 0
    while True:
        damages = [Wanted(first_index=wanted[end], last_index=end) for end in ends]
        request = repair.next(damages, peers, 0)
        if request is None:
            if repair.in_vain is None:
                break
            wanted = dict(low)  # as `forget_repairs` does
            continue
        count += 1
        assert count < 500, "nobody is asked for ever at once"
        end = request.last_index
        if request.first_index < wrong_at[request.receiver, end]:
            assert repair.answered(reply(request)) == request
            repair.taken()
            wanted[end] += 1
        elif rng.random() < 0.5:
            repair.answered(reply(request, missing=True))
        else:
            assert repair.answered(reply(request)) == request
            repair.refuse()
            wanted[end] = 1 if request.receiver in doubts and wanted[end] >= low[end] else low[end]
    assert count >= len(peers)
