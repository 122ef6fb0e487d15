"""From when on a name server may have held lookups for want of a leader, as the model has it."""

from __future__ import annotations

from chaos.workload.parts.administration.route_lookups import Lookup, first_without_leader

LED, NOT_LED = {"broker-a": True}, {"broker-a": False}


def first(*lookups: tuple[float, float | None, dict[str, bool]]) -> float:
    made = [Lookup(begun_s=begin, ended_s=end, shown=shown) for begin, end, shown in lookups]
    return first_without_leader(made, "broker-a", made[-1])


def test_a_lookup_that_found_no_leader_first_is_its_own_measure() -> None:
    assert first((1.0, 1.1, LED), (2.0, 3.5, NOT_LED)) == 2.0


def test_another_one_that_is_held_already_shares_its_time() -> None:
    assert first((1.0, 1.1, LED), (2.0, None, {}), (3.0, 3.5, NOT_LED)) == 2.0
    assert first((1.0, 1.1, LED), (2.0, 3.5, NOT_LED), (3.0, 3.5, NOT_LED)) == 2.0


def test_what_was_held_before_a_leader_was_seen_does_not_count() -> None:
    held = (1.0, 2.5, NOT_LED)
    assert first(held, (3.0, 3.1, LED), (4.0, 4.1, NOT_LED)) == 4.0


def test_what_was_under_way_when_a_leader_was_seen_may_have_come_behind_it() -> None:
    assert first((0.9, None, {}), (1.0, 1.1, LED), (4.0, 4.1, NOT_LED)) == 0.9


def test_a_leader_that_was_seen_at_the_same_time_says_nothing() -> None:
    assert first((1.0, 1.1, LED), (2.0, 2.6, LED), (2.5, 4.0, NOT_LED)) == 2.0
    assert first((1.0, 1.1, LED), (2.0, 2.4, LED), (2.5, 4.0, NOT_LED)) == 2.5


def test_the_leader_of_another_group_says_nothing() -> None:
    assert first((1.0, 1.1, {"broker-b": True}), (2.0, 3.5, NOT_LED)) == 1.0
