"""The rules on bare cores by themselves: what counts when a disk was wiped or a log cut short."""

from __future__ import annotations

import pytest

from chaos.sim.cores.invariants import Invariants
from chaos.sim.machine.violation import Violation
from raft.events import Role
from raft.membership import Configuration, Member, Membership, encode_membership, make_membership
from raft.messages import (
    Entry,
    EntryKind,
    HardState,
    LogBase,
    NodeId,
    RequestVote,
    RequestVoteReply,
)

_N0, _N1, _N2 = (NodeId(f"n{number}") for number in range(3))
_STORES = {node: f"{number:032x}" for number, node in enumerate((_N0, _N1, _N2), start=1)}
_NEW_STORE = f"{9:032x}"


def _members(**stores: str) -> Membership:
    return make_membership(
        Member(node_id=node, store_id=stores.get(node, store)) for node, store in _STORES.items()
    )


def _entry(index: int, *, membership: Membership | None = None) -> Entry:
    kind = EntryKind.DATA if membership is None else EntryKind.CONFIG
    payload = b"x" if membership is None else encode_membership(membership)
    return Entry(index=index, term=1, kind=kind, payload=payload)


def _vote(rules: Invariants, voter: NodeId, candidate: NodeId, term: int) -> None:
    rules.on_hard_state_durable(voter, HardState(current_term=term, voted_for=candidate))
    if voter == candidate:
        rules.on_send(
            voter,
            RequestVote(
                sender=candidate,
                receiver=_N2,
                term=term,
                last_log_index=0,
                last_log_term=0,
                pre_vote=False,
                leadership_transfer=False,
            ),
        )
        return
    rules.on_send(
        voter,
        RequestVoteReply(sender=voter, receiver=candidate, term=term, granted=True, pre_vote=False),
    )


def _with_leader() -> Invariants:
    """n0 leads term 1 by its own vote and that of n1."""
    rules = Invariants(_STORES, _members())
    _vote(rules, _N0, _N0, 1)
    _vote(rules, _N1, _N0, 1)
    rules.on_role(_N0, Role.LEADER, 1)
    return rules


def _append(rules: Invariants, entry: Entry, *holders: NodeId) -> None:
    for node in holders:
        rules.on_append(node, entry, 100 + entry.index)
        rules.on_fsync(node, entry.index)


def test_what_a_wiped_store_had_acknowledged_may_be_counted() -> None:
    rules = _with_leader()
    _append(rules, _entry(1), _N0, _N2)
    rules.forget(_N2, _NEW_STORE)
    assert rules.on_commit(_N0, 1) == 1


def test_what_the_wiped_store_never_had_may_not() -> None:
    rules = _with_leader()
    _append(rules, _entry(1), _N0)
    rules.forget(_N2, _NEW_STORE)
    with pytest.raises(Violation, match=r"R9: .*durable on \['n0'\]"):
        rules.on_commit(_N0, 1)


@pytest.mark.parametrize("new_has_it", [False, True])
def test_where_a_configuration_names_the_new_store_it_alone_counts(*, new_has_it: bool) -> None:
    rules = _with_leader()
    _append(rules, _entry(1), _N0, _N1, _N2)
    rules.on_commit(_N0, 1)
    rules.forget(_N2, _NEW_STORE)
    entries = _entry(1), _entry(2, membership=_members(n2=_NEW_STORE))
    _append(rules, entries[1], _N0)
    if new_has_it:
        for entry in entries:
            _append(rules, entry, _N2)
        assert rules.on_commit(_N0, 2) == 1
    else:
        with pytest.raises(Violation, match=r"R9: .*durable on \['n0'\]"):
            rules.on_commit(_N0, 2)


def test_the_vote_of_a_new_store_is_not_that_of_the_voter() -> None:
    rules = Invariants(_STORES, _members())
    _vote(rules, _N0, _N0, 1)
    rules.forget(_N1, _NEW_STORE)
    _vote(rules, _N1, _N0, 1)
    with pytest.raises(Violation, match="R1"):
        rules.on_role(_N0, Role.LEADER, 1)


def test_a_store_votes_once_in_a_term() -> None:
    rules = _with_leader()
    with pytest.raises(Violation, match="R2"):
        _vote(rules, _N1, _N2, 1)
    rules.forget(_N1, _NEW_STORE)
    _vote(rules, _N1, _N2, 1)  # another store, whose vote counts for nobody who knows its name


class _Log:
    """What a node has found: nothing but the base of its log."""

    def __init__(self, base: LogBase) -> None:
        self.base = base
        self.last_index = base.index

    def term(self, index: int) -> int:
        assert index == self.base.index
        return self.base.term

    def chain(self, index: int) -> int:
        assert index == self.base.index
        return self.base.chain

    def entries(self, low: int, high: int, size_max: int) -> tuple[Entry, ...]:
        return ()


def test_a_log_that_lost_its_beginning_is_durable_up_to_there() -> None:
    """n2 was slow: the others committed, it took a snapshot, and no fsync was ever reported."""
    rules = _with_leader()
    _append(rules, _entry(1), _N0, _N1)
    rules.on_append(_N2, _entry(1), 101)
    rules.on_commit(_N0, 1)
    rules.on_commit(_N2, 1)
    base = LogBase(index=1, term=1, position=64, chain=101)
    rules.on_drop(_N2, base)
    state = HardState(current_term=1, voted_for=None)
    kept = rules.on_start(_N2, state, _Log(base), commit_hint=1, restored_index=1)
    assert kept == 0
    shorter = _Log(LogBase())
    with pytest.raises(Violation, match="R9"):
        rules.on_start(_N2, state, shorter, commit_hint=0, restored_index=0)


@pytest.mark.parametrize("term_is_durable", [False, True])
def test_a_sole_voter_leads_again_in_a_term_of_which_nothing_is_left(
    *, term_is_durable: bool
) -> None:
    alone = make_membership([Member(node_id=_N0, store_id=_STORES[_N0])])
    rules = Invariants(_STORES, alone)
    rules.on_role(_N0, Role.LEADER, 1)
    rules.on_append(_N0, _entry(1), 101)
    if term_is_durable:
        rules.on_hard_state_durable(_N0, HardState(current_term=1, voted_for=_N0))
    state = HardState(current_term=int(term_is_durable), voted_for=_N0)
    rules.on_start(_N0, state, _Log(LogBase()), commit_hint=0, restored_index=0)
    if term_is_durable:
        with pytest.raises(Violation, match="R1"):
            rules.on_role(_N0, Role.LEADER, 1)
    else:
        rules.on_role(_N0, Role.LEADER, 1)
        rules.on_append(_N0, _entry(1), 999)  # other than the one that nobody has seen


def test_what_a_lost_store_led_is_not_forgotten_when_the_new_one_restarts() -> None:
    rules = _with_leader()
    _append(rules, _entry(1), _N0, _N1)
    rules.forget(_N0, _NEW_STORE)
    unborn = HardState(current_term=0, voted_for=None)
    rules.on_start(_N0, unborn, _Log(LogBase()), commit_hint=0, restored_index=0)
    with pytest.raises(Violation, match="unlike the others'"):
        rules.on_append(_N2, _entry(1), 999)  # the lost store has sent another one in this term
    rules.on_append(_N2, _entry(1), 101)


def test_an_install_brings_a_configuration_that_was_committed() -> None:
    rules = _with_leader()
    _append(rules, _entry(1, membership=_members()), _N0, _N1)
    rules.on_commit(_N0, 1)
    base = LogBase(index=1, term=1, position=64, chain=101)
    other = Configuration(index=1, membership=_members(n2=_NEW_STORE))
    with pytest.raises(Violation, match="members"):
        rules.on_install(_N2, base, other)
