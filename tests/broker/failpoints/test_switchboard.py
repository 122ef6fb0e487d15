"""All failpoints of a process together: put in, switched, taken out."""

from __future__ import annotations

import time

import pytest

from broker.failpoints.catalogue import points_of
from broker.failpoints.installation import resolve
from broker.failpoints.orders import Action, Arming, Order, OrderError
from broker.failpoints.switchboard import Switchboard


@pytest.mark.parametrize("engine", ["raft", "sync"])
def test_installed_and_removed_leaves_every_function_as_it_was(engine: str):
    places = [resolve(row.place) for row in points_of(engine)]
    before = [vars(owner)[name] for owner, name in places]
    clocks = time.time, time.time_ns
    switchboard = Switchboard(engine)
    switchboard.install()
    try:
        assert not any(vars(o)[n] is f for (o, n), f in zip(places, before, strict=True))
    finally:
        switchboard.remove()
    assert all(vars(o)[n] is f for (o, n), f in zip(places, before, strict=True))
    assert (time.time, time.time_ns) == clocks


def test_an_order_is_carried_out_whole_or_not_at_all():
    board = Switchboard()
    good = Arming(point="log.sync.before", action=Action.DELAY, ms=1)
    board.carry_out(Order(arm=[good]))
    bad = Arming(point="no.such", action=Action.CRASH)
    for wrong in (Order(disarm=["*"], arm=[bad]), Order(arm=[good], disarm=["no.such"])):
        with pytest.raises(OrderError, match=r"no failpoint 'no\.such'"):
            board.carry_out(wrong)
        assert [each.name for each in board.carry_out(Order()).points if each.armed] == [good.point]
    assert not any(each.armed for each in board.carry_out(Order(disarm=["*"])).points)
