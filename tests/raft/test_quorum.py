"""Majorities against a model that tries every subset of voters."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.core.quorum import VoteResult, majority_count, majority_reached, vote_result
from raft.messages import NodeId
from tests.raft.core_group import node_names

values_of_voters = st.lists(st.integers(0, 8), min_size=1, max_size=7)


def majorities(count: int) -> list[tuple[int, ...]]:
    """Every set of voters that is more than half of them."""
    sizes = [size for size in range(count + 1) if 2 * size > count]
    return [chosen for size in sizes for chosen in combinations(range(count), size)]


@pytest.mark.parametrize("count", range(1, 8))
def test_any_two_majorities_share_a_voter_and_no_smaller_number_does(count: int) -> None:
    needed = majority_count(count)
    assert 2 * needed > count
    assert 2 * (needed - 1) <= count


@given(values_of_voters)
def test_majority_reached_is_the_most_that_some_majority_has(values: list[int]) -> None:
    model = max(min(values[voter] for voter in chosen) for chosen in majorities(len(values)))
    assert majority_reached(values) == model


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=7))
def test_votes_are_won_lost_or_pending_as_every_completion_says(
    answers: list[bool | None],
) -> None:
    voters = node_names(len(answers))
    votes = {
        voter: answer for voter, answer in zip(voters, answers, strict=True) if answer is not None
    }

    def is_won(granted: set[int]) -> bool:
        return any(set(chosen) <= granted for chosen in majorities(len(answers)))

    worst = {n for n, answer in enumerate(answers) if answer is True}
    best = {n for n, answer in enumerate(answers) if answer is not False}
    expected = VoteResult.PENDING
    if is_won(worst):
        expected = VoteResult.WON
    elif not is_won(best):
        expected = VoteResult.LOST
    assert vote_result(voters, votes) is expected


def test_answers_of_others_do_not_count() -> None:
    votes = {NodeId("n1"): True, NodeId("x"): True, NodeId("y"): True}
    assert vote_result(node_names(3), votes) is VoteResult.PENDING
