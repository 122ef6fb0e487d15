"""The rules of resets, locks, pops in order and answers, each broken once."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.entry.payload import ClearResetCommand, LockCommand, ResetCommand, UnlockCommand
from broker.entry.pop_commands import AckOrderCommand, ChangeInvisibleCommand, PopOrderCommand
from chaos.sim.groups.models.answered_requests import AnsweredRequests
from chaos.sim.groups.models.lock_model import LockModel
from chaos.sim.groups.models.order_model import OrderModel
from chaos.sim.groups.models.reset_model import ResetModel
from chaos.sim.groups.models.stored import Stored
from chaos.sim.machine.violation import Violation
from client.errors import BrokerBusyError, UnansweredError

KEY = ("G", "Q", 0)


# Answers -----------------------------------------------------------------------------------------


def test_what_is_told_is_in_the_log() -> None:
    asked = AnsweredRequests(Counter())
    with asked.request("user", "a") as request:
        asked.note("user", "a")
        request.is_done = True
    with pytest.raises(Violation, match="answered as done"), asked.request("user", "a") as again:
        again.is_done = True


def test_what_was_surely_refused_is_not_in_the_log() -> None:
    asked = AnsweredRequests(Counter())
    with pytest.raises(BrokerBusyError), asked.request("user", "a"):
        raise BrokerBusyError(2, "busy", "n0")
    asked.check_final()
    asked.note("user", "a")
    with pytest.raises(Violation, match="surely refused"):
        asked.check_final()


def test_what_nobody_knows_may_be_in_the_log() -> None:
    asked = AnsweredRequests(Counter())
    with pytest.raises(BrokerBusyError), asked.request("user", "a"):
        raise BrokerBusyError(2, "busy", "n0")
    with pytest.raises(UnansweredError), asked.request("user", "a"):
        raise UnansweredError("n0")
    asked.note("user", "a")
    asked.check_final()


def test_a_request_whose_client_died_may_be_in_the_log() -> None:
    asked = AnsweredRequests(Counter())
    never_ended = asked.request("user", "a")
    never_ended.__enter__()
    with pytest.raises(BrokerBusyError), asked.request("user", "a"):
        raise BrokerBusyError(2, "busy", "n0")
    asked.note("user", "a")
    asked.check_final()


def test_what_was_overtaken_never_comes() -> None:
    asked = AnsweredRequests(Counter())
    with asked.request("offset", 7):
        pass
    asked.overtaken("offset", 7)
    asked.check_final()
    asked.note("offset", 7)
    with pytest.raises(Violation, match="surely refused"):
        asked.check_final()


# Resets ------------------------------------------------------------------------------------------


@pytest.fixture
def now_ms() -> list[int]:
    return [0]


@pytest.fixture
def resets(now_ms: list[int]) -> ResetModel:
    """The group was sent back to 3, and to 5 after that."""
    model = ResetModel(Counter(), lambda: now_ms[0])
    model.reset(ResetCommand("G", "Q", [[0, 3]]))
    model.reset(ResetCommand("G", "Q", [[0, 5]]))
    return model


def test_a_consumer_follows_each_reset_once(resets: ResetModel) -> None:
    resets.on_sent_back(KEY, 9, 3)
    resets.on_sent_back(KEY, 3, 5)
    with pytest.raises(Violation, match="sent from 7 to 5"):
        resets.on_sent_back(KEY, 7, 5)


def test_a_consumer_is_sent_where_nobody_reset(resets: ResetModel) -> None:
    with pytest.raises(Violation, match="sent from 9 to 4"):
        resets.on_sent_back(KEY, 9, 4)


def test_an_older_reset_after_a_newer_one(resets: ResetModel) -> None:
    resets.on_sent_back(KEY, 9, 5)
    with pytest.raises(Violation, match="sent from 5 to 3"):
        resets.on_sent_back(KEY, 5, 3)


def test_a_consumer_that_began_behind_a_reset_is_not_sent_back(resets: ResetModel) -> None:
    resets.on_begun(KEY, resets.made_count(KEY))
    with pytest.raises(Violation, match="sent from 6 to 5"):
        resets.on_sent_back(KEY, 6, 5)


def test_a_reset_may_be_repeated_by_an_answer_that_its_deletion_overtook(
    resets: ResetModel,
) -> None:
    """Only to the very place where the consumer is, and in the answer of a pull from before."""
    resets.on_sent_back(KEY, 9, 5)
    resets.on_pull(KEY, 5)
    resets.drop(group="G")
    assert not resets.pending
    resets.on_sent_back(KEY, 5, 5)
    with pytest.raises(Violation, match="sent from 6 to 5"):
        resets.on_sent_back(KEY, 6, 5)
    resets.on_pull(KEY, 5)
    with pytest.raises(Violation, match="sent from 5 to 5"):
        resets.on_sent_back(KEY, 5, 5)


def test_a_reset_may_be_repeated_by_an_answer_that_the_next_reset_overtook(
    resets: ResetModel,
) -> None:
    """Another leader had the first one pending still when it answered (group seed 13227)."""
    resets.on_sent_back(KEY, 9, 5)
    resets.on_pull(KEY, 5)
    resets.reset(ResetCommand("G", "Q", [[0, 8]]))
    resets.on_sent_back(KEY, 5, 5)
    resets.on_pull(KEY, 5)
    with pytest.raises(Violation, match="sent from 5 to 5"):
        resets.on_sent_back(KEY, 5, 5)


def test_a_reset_is_pending_until_its_own_clearing(resets: ResetModel) -> None:
    resets.clear(ClearResetCommand(*KEY, 3))
    assert resets.pending == {KEY: 5}
    resets.clear(ClearResetCommand(*KEY, 5))
    assert not resets.pending


def test_a_reset_that_is_cleared_and_was_not_followed(resets: ResetModel) -> None:
    resets.on_pull(KEY, 5)
    resets.on_pull(KEY, 9)
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    with pytest.raises(Violation, match=r"to 5 is cleared, the consumer has pulled from \[9\]"):
        resets.clear(ClearResetCommand(*KEY, 5))
    resets.on_pull(KEY, 5)
    resets.on_pull(KEY, 7)
    resets.clear(ClearResetCommand(*KEY, 5))
    assert not resets.pending


def test_a_pull_that_nobody_answered_may_arrive_behind_a_reset(resets: ResetModel) -> None:
    resets.on_pull(KEY, 5)
    resets.on_lost(KEY, 5)
    resets.on_pull(KEY, 9)
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    resets.clear(ClearResetCommand(*KEY, 5))
    assert not resets.pending
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    with pytest.raises(Violation, match="the reset to 5 is cleared"):
        resets.clear(ClearResetCommand(*KEY, 5))


def test_a_pull_that_nobody_answered_does_not_arrive_ages_later(
    resets: ResetModel, now_ms: list[int]
) -> None:
    resets.on_pull(KEY, 5)
    resets.on_lost(KEY, 5)
    resets.on_pull(KEY, 9)
    now_ms[0] = 30_001
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    with pytest.raises(Violation, match="the reset to 5 is cleared"):
        resets.clear(ClearResetCommand(*KEY, 5))


def test_a_reset_may_be_followed_before_it_is_committed(resets: ResetModel) -> None:
    """Each try of one request is an entry of its own; none counts from before it was asked for."""
    resets.on_pull(KEY, 9)
    resets.on_requested(KEY, 5)
    resets.on_pull(KEY, 5)
    resets.on_pull(KEY, 7)
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    resets.on_requested(KEY, 2)  # not committed yet
    resets.clear(ClearResetCommand(*KEY, 5))
    resets.on_requested(KEY, 5)
    resets.on_pull(KEY, 8)
    resets.reset(ResetCommand("G", "Q", [[0, 5]]))
    with pytest.raises(Violation, match=r"the consumer has pulled from \[7, 8\] since"):
        resets.clear(ClearResetCommand(*KEY, 5))


def test_a_reset_that_was_told_and_not_made(resets: ResetModel) -> None:
    resets.on_answered(KEY, 5)
    with pytest.raises(Violation, match="a reset to 4"):
        resets.on_answered(KEY, 4)


# Locks -------------------------------------------------------------------------------------------


@pytest.fixture
def locks() -> LockModel:
    """a owns queue 0 and believes so; b does not."""
    model = LockModel(Counter())
    model.join("G", "a", host="c0", lives=lambda: True, holds=lambda topic, queue_id: True)
    model.join("G", "b", host="c1", lives=lambda: True, holds=lambda topic, queue_id: False)
    model.lock(LockCommand("G", "a", [["Q", 0]]))
    model.on_granted("G", "a", "Q", 0)
    return model


def test_a_queue_granted_and_not_owned_in_the_log(locks: LockModel) -> None:
    with pytest.raises(Violation, match="b is granted Q/0, it is a's"):
        locks.on_granted("G", "b", "Q", 0)


def test_a_queue_granted_while_another_holds_it_still(locks: LockModel) -> None:
    locks.lock(LockCommand("G", "b", [["Q", 0]]))
    with pytest.raises(Violation, match="a holds it still"):
        locks.on_granted("G", "b", "Q", 0)


def test_a_queue_consumed_without_owning_it(locks: LockModel) -> None:
    locks.on_consumed("G", "a", "Q", 0)
    locks.unlock(UnlockCommand("G", "b", [["Q", 0]]))
    locks.on_consumed("G", "a", "Q", 0)
    locks.unlock(UnlockCommand("G", "a", [["Q", 0]]))
    with pytest.raises(Violation, match="a consumes Q/0, it is None's"):
        locks.on_consumed("G", "a", "Q", 0)


def test_a_queue_claimed_anew_is_not_given_up_by_an_older_unlock(locks: LockModel) -> None:
    locks.lock(LockCommand("G", "a", [["Q", 0]], 2))
    locks.unlock(UnlockCommand("G", "a", [["Q", 0]], 1))
    locks.lock(LockCommand("G", "a", [["Q", 0]], 1))
    assert locks.rows() == {("G", "Q", 0, "a", 2)}
    locks.on_consumed("G", "a", "Q", 0)
    locks.unlock(UnlockCommand("G", "a", [["Q", 0]], 2))
    assert locks.rows() == set()


# Pops in order -----------------------------------------------------------------------------------


class Order:
    """Six messages; 0 and 1 are popped at 50 until 150 by the attempt x."""

    def __init__(self) -> None:
        queue = [
            Stored(
                topic="Q",
                queue_id=0,
                queue_offset=offset,
                index=1,
                position=100 * offset,
                uniq_key=f"key of {offset}",
                value=f"v{offset}",
                store_ms=0,
            )
            for offset in range(6)
        ]
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.begin = 0
        self.model = OrderModel({("Q", 0): queue}, self.offsets, {}, Counter(), lambda: self.begin)
        self.pop(50, [0, 1], attempt="x")

    def pop(self, pop_ms: int, offsets: list[int], *, attempt: str = "") -> None:
        expected = self.offsets.get(KEY, -1)
        command = PopOrderCommand(*KEY, expected, offsets[0], pop_ms, 100, attempt, offsets)
        self.move(self.model.pop(command))

    def ack(self, offset: int, pop_ms: int) -> None:
        self.move(self.model.ack(AckOrderCommand(*KEY, offset, pop_ms)))

    def move(self, offset: int | None) -> None:
        if offset is not None:
            self.offsets[KEY] = offset


@pytest.fixture
def order() -> Order:
    return Order()


def test_in_order_the_group_goes_on_behind_what_is_done(order: Order) -> None:
    order.ack(1, 50)
    assert order.offsets[KEY] == 0
    order.ack(0, 50)
    assert order.offsets[KEY] == 2
    order.pop(60, [2, 3])


def test_in_order_nothing_is_popped_while_something_is_held(order: Order) -> None:
    order.ack(0, 50)
    with pytest.raises(Violation, match=r"\[1\] are popped in order while \[1\] are held"):
        order.pop(149, [1])
    order.pop(150, [1])


def test_in_order_the_same_attempt_asks_again(order: Order) -> None:
    order.pop(60, [0, 1], attempt="x")
    with pytest.raises(Violation, match="are held"):
        order.pop(70, [0, 1], attempt="y")


def test_in_order_a_postponed_message_holds_its_queue(order: Order) -> None:
    order.model.change(ChangeInvisibleCommand(*KEY, 0, 50, 50, 400, True))
    with pytest.raises(Violation, match=r"while \[0\] are held"):
        order.pop(399, [0, 1])


def test_in_order_a_message_passed_over(order: Order) -> None:
    with pytest.raises(Violation, match="passes over 0"):
        order.pop(200, [1, 2])
    order.begin = 100  # the log has it no more
    order.pop(200, [1, 2])


def test_in_order_what_is_done_is_not_popped_again(order: Order) -> None:
    order.ack(0, 50)
    with pytest.raises(Violation, match="are popped of 1"):
        order.pop(200, [0, 1])


def test_in_order_an_older_handle_is_void(order: Order) -> None:
    order.pop(200, [0, 1])
    order.ack(0, 50)
    assert order.model.is_open(KEY, 0, 200)
    assert not order.model.is_open(KEY, 0, 50)
    assert order.model.has_given(KEY, 0, 50)
