"""A core over a log of which a part is damaged, its terms unknown: committed, and never asked for.

Every message that may ask for the term of an entry is tried at every index, in every role.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from chaos.sim.machine.disk import SimDisk
from raft.config import RaftConfig
from raft.core.core import Core
from raft.events import Event, LogDurable, ReadIndexRequest, Ready, Receive, Role, Tick
from raft.log.damage import DamagedLogError
from raft.log.log_format import HEADER_SIZE
from raft.log.readable_log import ReadableLog
from raft.log.segment_log import SegmentLog
from raft.membership import Configuration, Member, make_membership
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Index,
    InstallSnapshot,
    LogBase,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)

LAST, COMMITTED, TERM = 30, 22, 7
PAYLOAD_SIZE = 20
NAMES = ("n1", "n2", "n3")
ME, PEER, OTHER = (NodeId(name) for name in NAMES)


def term_of(index: Index) -> Term:
    """Three terms in the segment that is damaged, so that its terms can't be told from its ends."""
    return 1 if index < 10 else 2 if index < 13 else 4 if index < 25 else 6


def entry(index: Index, term: Term | None = None) -> Entry:
    known = term_of(index) if term is None else term
    return Entry(index=index, term=known, kind=EntryKind.DATA, payload=b"%02d" % index * 10)


def damaged_log(first: Index, last: Index, *, sidecar: bool = False) -> SegmentLog:
    """Without the sidecar of the segment that holds the damage, or with it."""
    disk = SimDisk(random.Random(1))
    size = HEADER_SIZE + PAYLOAD_SIZE

    def opened() -> SegmentLog:
        return SegmentLog(disk, "commitlog", segment_size_bytes_max=8 * size, tail_size_bytes_max=1)

    log = opened()
    for index in range(1, LAST + 1):
        log.append([entry(index)])
    log.sync()
    log.close()
    for index in range(first, last + 1):
        position = (index - 1) // 8 * 8 * size
        path = f"commitlog/{position:020d}"
        data = bytearray(disk.content(path))
        start = (index - 1) % 8 * size
        data[start : start + size] = bytes(size)
        disk.spoil(path, bytes(data))
        if f"{path}.index" in disk.paths() and not sidecar:
            disk.lose(f"{path}.index")
    log = opened()
    if sidecar:
        scrub = log.scrub()
        while not (step := scrub.step(1 << 20)).done:
            log.note_damages(step.damages)
        log.note_damages(step.damages)
    damaged = [range(damage.first_index, damage.last_index + 1) for damage in log.damages]
    assert [*itertools.chain(*damaged)] == [*range(first, last + 1)]
    return log


DAMAGES = [(10, 12), (10, 13), (9, 14), (12, 16), (9, 16)]


class Rig:
    """One core; it carries out what the core says of the log, and keeps time."""

    def __init__(
        self, damage: tuple[Index, Index], term: Term = TERM, *, sidecar: bool = False
    ) -> None:
        self.log = damaged_log(*damage, sidecar=sidecar)
        self.now_ms = 0
        config = RaftConfig(node_id=ME, voters=(ME, PEER, OTHER), log_cache_size_bytes_max=1)
        self.core = Core(
            config,
            ReadableLog(self.log),
            HardState(current_term=term, voted_for=None),
            random.Random(1),
            0,
            commit_index=COMMITTED,
            configuration=Configuration(
                index=0, membership=make_membership(Member(node_id=name) for name in NAMES)
            ),
        )

    def step(self, event: Event) -> Ready:
        ready = self.core.step(event)
        assert ready.truncate_from is None or ready.truncate_from > COMMITTED
        if ready.truncate_from is not None:
            self.log.truncate_from(ready.truncate_from)
        self.log.append(ready.entries)
        return ready

    def receive(self, message: object) -> Ready:
        return self.step(Receive(now_ms=self.now_ms, message=message))  # type: ignore[arg-type]

    def lead(self) -> None:
        self.now_ms += 10_000
        self.step(Tick(now_ms=self.now_ms))
        for pre_vote in (True, False):
            term = self.core.current_term + pre_vote
            for peer in (PEER, OTHER):
                self.receive(
                    RequestVoteReply(
                        sender=peer, receiver=ME, term=term, granted=True, pre_vote=pre_vote
                    )
                )
        assert self.core.role is Role.LEADER
        last = self.core.last_index
        self.step(LogDurable(now_ms=self.now_ms, index=last, term=self.core.current_term))


def test_what_both_ends_tell_is_known() -> None:
    log = damaged_log(19, 20)
    assert [log.term(index) for index in range(17, 22)] == [4] * 5, "terms never fall"
    log = damaged_log(10, 12)
    with pytest.raises(DamagedLogError):
        log.term(11)
    with pytest.raises(DamagedLogError):
        log.term(9)  # before the damage and not confirmed: it may be stale
    assert (log.term(8), log.term(13)) == (1, 4)
    log.note_term(12, 2)
    assert log.term(12) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_follower_answers_whatever_its_leader_sends(damage: tuple[Index, Index]) -> None:
    for prev, own_term in itertools.product(range(LAST + 3), (True, False)):
        rig = Rig(damage)
        # Up to what is committed a leader of now has what this node has; behind, and in earlier
        # terms, anything may come.
        terms = {term_of(prev)} if prev <= COMMITTED and own_term else {1, 3, 4, 5, 6}
        for prev_term in sorted(terms) if prev else [0]:
            entries = tuple(entry(index, TERM) for index in (prev + 1, prev + 2))
            if prev < COMMITTED:
                entries = tuple(entry(index) for index in range(prev + 1, COMMITTED + 1))
            message = AppendEntries(
                sender=PEER,
                receiver=ME,
                term=TERM if own_term else TERM - 1,
                prev_log_index=prev,
                prev_log_term=prev_term,
                entries=entries,
                leader_commit=prev,
                read_round=0,
            )
            ready = rig.receive(message)
            assert [type(m) for m in (*ready.messages, *ready.messages_after_sync)] == [
                AppendEntriesReply
            ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_follower_that_holds_the_base_needs_no_snapshot(damage: tuple[Index, Index]) -> None:
    for index in range(1, LAST + 1):
        rig = Rig(damage)
        base = LogBase(index=index, term=term_of(index), position=0, chain=0)
        ready = rig.receive(
            InstallSnapshot(
                sender=PEER,
                receiver=ME,
                term=TERM,
                base=base,
                configuration=rig.core.configuration,
                snapshot_index=index,
                snapshot_size=1,
                offset=0,
                data=b"",
                crc=0,
            )
        )
        assert ready.received_chunk is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_votes_depend_on_the_logs_end_alone(damage: tuple[Index, Index]) -> None:
    for term, last in itertools.product((1, 4, 6, 8), range(LAST + 2)):
        rig = Rig(damage)
        request = RequestVote(
            sender=PEER,
            receiver=ME,
            term=TERM + 1,
            last_log_index=last,
            last_log_term=term,
            pre_vote=False,
            leadership_transfer=False,
        )
        ready = rig.receive(request)
        (reply,) = (*ready.messages, *ready.messages_after_sync)
        assert isinstance(reply, RequestVoteReply)
        assert reply.granted == ((term, last) >= (6, LAST))


def refusals(rig: Rig) -> Iterator[AppendEntriesReply]:
    for rejected, conflict_term in itertools.product(range(LAST + 2), range(8)):
        for conflict_index in {1, rejected // 2 + 1, rejected}:
            yield AppendEntriesReply(
                sender=PEER,
                receiver=ME,
                term=rig.core.current_term,
                success=False,
                match_index=0,
                rejected_prev_index=rejected,
                conflict_index=conflict_index,
                conflict_term=conflict_term,
                read_round=0,
                writable=True,
            )


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_leader_goes_on_whatever_a_follower_refuses(damage: tuple[Index, Index]) -> None:
    rig = Rig(damage)
    rig.lead()
    term = rig.core.current_term
    for number, refusal in enumerate(refusals(rig)):
        peer = rig.core.progress[PEER]
        peer.become_probe(refusal.rejected_prev_index + 1)
        rig.receive(refusal)
        rig.now_ms += rig.core._config.heartbeat_ms
        ready = rig.step(Tick(now_ms=rig.now_ms))
        beats = [m for m in ready.messages if isinstance(m, AppendEntries)]
        assert {beat.receiver for beat in beats} == {PEER, OTHER}, "both are kept in touch"
        for beat in beats:
            prev = beat.prev_log_index
            known = 0 if not prev else term_of(prev) if prev <= LAST else term
            assert beat.prev_log_term == known
        if number % 3 == 0:
            rig.step(ReadIndexRequest(now_ms=rig.now_ms, request_id=number))
        rig.receive(
            AppendEntriesReply(
                sender=OTHER,
                receiver=ME,
                term=term,
                success=True,
                match_index=number % LAST,
                rejected_prev_index=0,
                conflict_index=0,
                conflict_term=0,
                read_round=0,
                writable=True,
            )
        )
    assert rig.core.role is Role.LEADER


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_leader_keeps_in_touch_with_whom_it_can_send_nothing(
    damage: tuple[Index, Index],
) -> None:
    """A follower at every index: what it has acknowledged, it is asked for no more."""
    for match in range(LAST + 1):
        rig = Rig(damage)
        rig.lead()
        for _ in range(3):
            rig.receive(
                AppendEntriesReply(
                    sender=PEER,
                    receiver=ME,
                    term=rig.core.current_term,
                    success=True,
                    match_index=match,
                    rejected_prev_index=0,
                    conflict_index=0,
                    conflict_term=0,
                    read_round=0,
                    writable=True,
                )
            )
            rig.now_ms += rig.core._config.heartbeat_ms
            ready = rig.step(Tick(now_ms=rig.now_ms))
            sent = [m for m in ready.messages if getattr(m, "receiver", None) == PEER]
            assert sent
            rig.core.progress[PEER].on_unreachable(rig.now_ms)


@pytest.mark.parametrize("repaired", [False, True])
def test_a_leader_that_cannot_read_what_is_to_be_committed_makes_way(repaired: bool) -> None:
    """Nobody else may have the entry: while this node leads, nothing is committed any more."""
    rig = Rig((COMMITTED + 1, COMMITTED + 2), sidecar=True)
    rig.lead()
    begin_ms, read_round = rig.now_ms, 0
    while rig.core.role is Role.LEADER and rig.now_ms < begin_ms + 5_000:
        if repaired and rig.now_ms > begin_ms + 100 and rig.log.damages:
            for index in (COMMITTED + 1, COMMITTED + 2):
                rig.log.repair(index, [entry(index)])
        for peer in (PEER, OTHER):
            rig.receive(
                AppendEntriesReply(
                    sender=peer,
                    receiver=ME,
                    term=rig.core.current_term,
                    success=True,
                    match_index=COMMITTED if rig.log.damages else rig.core.last_index,
                    rejected_prev_index=0,
                    conflict_index=0,
                    conflict_term=0,
                    read_round=read_round,
                    writable=True,
                )
            )
        rig.now_ms += rig.core._config.heartbeat_ms
        rig.step(Tick(now_ms=rig.now_ms))
    assert (rig.core.role is Role.LEADER) == repaired
