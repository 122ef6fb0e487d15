"""Each rule on Raft traces stays silent on what is right, and says no to one planted event."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.sim.groups.models.trace_rules import TraceRules
from chaos.sim.machine.violation import Violation
from raft.messages import NodeId

_N0, _N1, _N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")
_VOTERS = ["n0", "n1", "n2"]


class _Story:
    """Events of a group, told one after the other; index and chain are the same number here."""

    def __init__(self) -> None:
        self.now_us = 0
        self.rules = TraceRules(lambda: self.now_us)
        for node in (_N0, _N1, _N2):
            self.tell(node, "start", 0, index=0, entry_term=0, chain=0, voters=_VOTERS)

    def tell(self, node: NodeId, event: str, term: int, **fields: Any) -> None:
        self.now_us += 10
        self.rules.on_event(node, event, term, fields)

    def vote(self, node: NodeId, term: int, peer: NodeId, last: tuple[int, int] = (0, 0)) -> None:
        self.tell(node, "vote", term, peer=peer, last_term=last[0], last_index=last[1])

    def append(self, node: NodeId, term: int, index: int, *, chain: int | None = None) -> None:
        chain = 100 * term + index if chain is None else chain
        self.tell(node, "append", term, index=index, entry_term=term, chain=chain)

    def commit(self, node: NodeId, term: int, index: int, *, entry_term: int | None = None) -> None:
        chain = 100 * (entry_term or term) + index
        self.tell(node, "commit", term, index=index, entry_term=entry_term or term, chain=chain)

    def elect(self, node: NodeId, term: int, last: tuple[int, int] = (0, 0)) -> None:
        for voter in (_N0, _N1):
            self.vote(voter, term, node, last)
        self.tell(node, "role", term, role="leader")

    def one_committed(self) -> None:
        """n0 leads term 1; entry 1 is durable on n0 and n1, and committed."""
        self.elect(_N0, 1)
        for node in (_N0, _N1):
            self.append(node, 1, 1)
            self.tell(node, "fsync", 1, index=1)
        self.commit(_N0, 1, 1)
        self.tell(_N0, "apply", 1, first=1, index=1, entry_term=1, chain=101)


@pytest.fixture
def story() -> _Story:
    return _Story()


def _expect(rule: str, story: _Story, node: NodeId, event: str, term: int, **fields: Any) -> None:
    with pytest.raises(Violation) as caught:
        story.tell(node, event, term, **fields)
    assert caught.value.rule == rule


def test_a_sound_story_is_not_objected_to(story: _Story) -> None:
    story.one_committed()
    story.commit(_N1, 1, 1)
    story.tell(_N1, "apply", 1, first=1, index=1, entry_term=1, chain=101)
    story.tell(_N0, "read", 1, index=1, requested_us=story.now_us)
    story.tell(_N1, "start", 1, index=1, entry_term=1, chain=101, voters=_VOTERS)
    story.tell(_N2, "role", 1, role="candidate")


def test_r1_two_leaders_of_a_term(story: _Story) -> None:
    story.elect(_N0, 1)
    _expect("R1", story, _N1, "role", 1, role="leader")


def test_r2_two_votes_in_a_term_across_a_restart(story: _Story) -> None:
    story.vote(_N2, 1, _N0)
    story.tell(_N2, "start", 1, index=0, entry_term=0, chain=0, voters=_VOTERS)
    _expect("R2", story, _N2, "vote", 1, peer=_N1, last_term=0, last_index=0)


def test_r3_a_term_that_falls(story: _Story) -> None:
    story.tell(_N0, "role", 3, role="follower")
    _expect("R3", story, _N0, "start", 2, index=0, entry_term=0, chain=0, voters=_VOTERS)


def test_r4_a_leader_that_truncates(story: _Story) -> None:
    story.elect(_N0, 1)
    story.append(_N0, 1, 1)
    _expect("R4", story, _N0, "truncate", 1, index=1)


def test_r4_an_entry_dropped_and_taken_again(story: _Story) -> None:
    story.append(_N1, 1, 1)
    story.tell(_N1, "truncate", 2, index=1)
    _expect("R4", story, _N1, "append", 2, index=1, entry_term=1, chain=101)


def test_r5_one_place_two_chains(story: _Story) -> None:
    story.append(_N0, 1, 1)
    _expect("R5", story, _N1, "append", 1, index=1, entry_term=1, chain=7)


def test_r6_another_entry_is_committed_there(story: _Story) -> None:
    story.one_committed()
    story.tell(_N2, "role", 2, role="follower")
    story.append(_N2, 2, 1)
    _expect("R6", story, _N2, "commit", 2, index=1, entry_term=2, chain=201)


def test_r7_a_leader_without_what_was_committed(story: _Story) -> None:
    story.one_committed()
    for node in (_N1, _N2):
        story.vote(node, 2, _N2, (1, 1))  # it says that it holds entry 1
    _expect("R7", story, _N2, "role", 2, role="leader")


def test_r8_a_commit_index_that_falls(story: _Story) -> None:
    story.one_committed()
    _expect("R8", story, _N0, "commit", 1, index=0, entry_term=0, chain=0)


def test_r8_an_old_entry_committed_by_counting(story: _Story) -> None:
    for node in (_N0, _N1):
        story.append(node, 1, 1)
        story.tell(node, "fsync", 1, index=1)
    story.elect(_N0, 2, (1, 1))
    _expect("R8", story, _N0, "commit", 2, index=1, entry_term=1, chain=101)


def test_r9_a_commit_without_a_durable_majority(story: _Story) -> None:
    story.elect(_N0, 1)
    story.append(_N0, 1, 1)
    story.tell(_N0, "fsync", 1, index=1)
    story.append(_N1, 1, 1)  # and no fsync there
    _expect("R9", story, _N0, "commit", 1, index=1, entry_term=1, chain=101)


def test_r9_what_was_durable_is_gone_after_a_restart(story: _Story) -> None:
    story.one_committed()
    _expect("R9", story, _N1, "start", 1, index=0, entry_term=0, chain=0, voters=_VOTERS)


def test_r9_the_majority_is_that_of_the_voters_in_force(story: _Story) -> None:
    story.elect(_N0, 1)
    for node in (_N0, _N1):
        story.append(node, 1, 1)
        story.tell(node, "fsync", 1, index=1)
    story.tell(_N0, "config", 1, index=1, voters=["n0", "n2", "n3"])
    _expect("R9", story, _N0, "commit", 1, index=1, entry_term=1, chain=101)


def test_r10_a_gap_in_what_is_applied(story: _Story) -> None:
    story.one_committed()
    story.append(_N0, 1, 2)
    _expect("R10", story, _N0, "apply", 1, first=3, index=3, entry_term=1, chain=103)


def test_r11_a_vote_for_a_shorter_log(story: _Story) -> None:
    story.append(_N1, 1, 1)
    _expect("R11", story, _N1, "vote", 2, peer=_N2, last_term=0, last_index=0)


def test_r14_another_state_at_the_same_index(story: _Story) -> None:
    story.tell(_N0, "state", 1, index=1, chain=-7)
    story.tell(_N1, "state", 1, index=1, chain=-7)
    _expect("R14", story, _N2, "state", 1, index=1, chain=8)


def test_r12_a_read_below_what_was_committed_before_it_was_asked(story: _Story) -> None:
    story.one_committed()
    _expect("R12", story, _N1, "read", 1, index=0, requested_us=story.now_us + 1)


def test_an_unknown_event_is_no_silence(story: _Story) -> None:
    _expect("trace", story, _N0, "dance", 1)


def test_r1_a_leader_by_too_few_votes(story: _Story) -> None:
    story.vote(_N0, 1, _N0)
    _expect("R1", story, _N0, "role", 1, role="leader")


@pytest.mark.parametrize("is_admitted", [False, True])
def test_a_new_store_votes_once_a_configuration_names_it(
    story: _Story, *, is_admitted: bool
) -> None:
    story.rules.forget(_N1)
    story.tell(_N1, "start", 0, index=0, entry_term=0, chain=0, voters=_VOTERS)
    if is_admitted:
        story.rules.admit(_N1)
        story.one_committed()
    else:
        with pytest.raises(Violation, match=r"R1: .*by the votes of \['n0'\]"):
            story.elect(_N0, 1)


def test_a_new_store_is_not_counted_before_a_configuration_names_it(story: _Story) -> None:
    story.elect(_N0, 1)
    story.rules.forget(_N1)
    story.tell(_N1, "start", 1, index=0, entry_term=0, chain=0, voters=_VOTERS)
    for node in (_N0, _N1):
        story.append(node, 1, 1)
        story.tell(node, "fsync", 1, index=1)
    with pytest.raises(Violation, match="R9"):
        story.commit(_N0, 1, 1)


def test_what_a_wiped_node_had_acknowledged_may_be_counted(story: _Story) -> None:
    story.elect(_N0, 1)
    for node in (_N0, _N2):
        story.append(node, 1, 1)
        story.tell(node, "fsync", 1, index=1)
    story.rules.forget(_N2)
    story.commit(_N0, 1, 1)
    story.append(_N0, 1, 2)
    story.tell(_N0, "fsync", 1, index=2)
    with pytest.raises(Violation, match="R9"):
        story.commit(_N0, 1, 2)


def test_another_store_of_the_same_name_has_a_vote_of_its_own(story: _Story) -> None:
    story.vote(_N1, 1, _N0)
    story.rules.forget(_N1)
    story.tell(_N1, "start", 1, index=0, entry_term=0, chain=0, voters=_VOTERS)
    story.vote(_N1, 1, _N2)
    with pytest.raises(Violation, match="R2"):
        story.vote(_N1, 1, _N0)


def test_a_configuration_outlives_an_install_that_has_it(story: _Story) -> None:
    """n1 held the configuration above what its log began with; the snapshot has it too."""
    story.elect(_N0, 1)
    for index in (1, 2, 3):
        for node in (_N0, _N2):
            story.append(node, 1, index)
            story.tell(node, "fsync", 1, index=index)
        story.commit(_N0, 1, index)
    story.append(_N1, 1, 1)
    story.tell(_N1, "config", 1, index=1, voters=["n1", "n2"])
    story.tell(_N1, "install", 1, index=3, entry_term=1, chain=103)
    with pytest.raises(Violation, match=r"R1.*among \('n1', 'n2'\)"):
        story.tell(_N1, "role", 2, role="leader")
    story.vote(_N2, 2, _N1, (1, 3))
    story.tell(_N1, "config", 2, index=0, voters=["n1"])
    story.tell(_N1, "role", 3, role="leader")


def test_entries_that_survived_untold_are_known_from_the_start_on(story: _Story) -> None:
    """They were written, and the node died before its trace said so."""
    story.one_committed()
    found = [(1, 1, 101), (2, 1, 102), (3, 1, 103)]
    for node in (_N0, _N1):
        story.tell(
            node, "start", 1, index=3, entry_term=1, chain=103, voters=_VOTERS, entries=found
        )
    assert [story.rules.chain(node, 2) for node in (_N0, _N1)] == [102, 102]


def test_r9_what_was_durable_is_another_entry_after_a_restart(story: _Story) -> None:
    """Though the log is as long as it was, and longer."""
    story.one_committed()
    _expect(
        "R9",
        story,
        _N1,
        "start",
        1,
        index=2,
        entry_term=1,
        chain=102,
        voters=_VOTERS,
        entries=[(1, 1, 999), (2, 1, 102)],
    )
