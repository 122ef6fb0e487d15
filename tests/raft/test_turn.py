"""The end of a turn: what is done there, in which order, and by whom outside of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from campaigns.rig.waiting import turns
from raft.fail_stop import FailStop
from raft.turn import Turn


def recording(turn: Turn) -> tuple[list[str], dict[str, Callable[[], object]]]:
    """Return a list of what was done, and things to do by name: c asks for more."""
    done: list[str] = []

    def more() -> None:
        done.append("c")
        turn.at_end(acts["a"])

    acts: dict[str, Callable[[], object]] = {
        "a": lambda: done.append("a"),
        "b": lambda: done.append("b"),
        "c": more,
    }
    return done, acts


def test_it_is_done_when_the_turn_ends_in_the_order_asked_for() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.enter()
    turn.at_end(acts["b"])
    turn.at_end(acts["c"])
    assert done == []
    turn.leave()
    assert done == ["b", "c", "a"], "what is asked for meanwhile belongs to it"
    turn.enter()
    turn.leave()
    assert done == ["b", "c", "a"], "once"


def test_a_turn_within_a_turn_ends_with_it() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.enter()
    turn.enter()
    turn.at_end(acts["a"])
    turn.leave()
    assert done == []
    turn.leave()
    assert done == ["a"]


async def test_outside_of_one_the_loop_does_it() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.at_end(acts["c"])
    turn.at_end(acts["b"])
    assert done == []
    await turns(2)
    assert done == ["c", "b", "a"]


async def test_a_turn_does_what_waits_for_the_loop_too_in_its_order() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.at_end(acts["b"])
    turn.enter()
    turn.at_end(acts["a"])
    turn.leave()
    assert done == ["b", "a"]
    await turns(2)
    assert done == ["b", "a"]


async def test_soon_waits_for_the_loop_within_a_turn_too() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.enter()
    turn.soon(acts["a"])
    turn.leave()
    assert done == []
    await turns(2)
    assert done == ["a"]


def test_what_is_raised_goes_to_the_guard_and_the_rest_is_done() -> None:
    raised: list[BaseException] = []
    turn = Turn(FailStop(raised.append))
    done, acts = recording(turn)
    turn.enter()
    turn.at_end(lambda: 1 // 0)
    turn.at_end(acts["a"])
    turn.leave()
    assert [type(error) for error in raised] == [ZeroDivisionError]
    assert done == ["a"]


def test_what_the_guard_lets_through_leaves_the_turn_usable() -> None:
    turn = Turn(nullcontext())
    done, acts = recording(turn)
    turn.enter()
    turn.at_end(lambda: 1 // 0)
    turn.at_end(acts["a"])
    with pytest.raises(ZeroDivisionError):
        turn.leave()
    turn.enter()
    turn.leave()
    assert done == ["a"]
