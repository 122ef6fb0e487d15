"""The rules of timers, POP and deletions, each broken once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from broker.entry.payload import DeliverTimersCommand, RecallTimerCommand
from broker.entry.pop_commands import AckCommand, ChangeInvisibleCommand, PopCommand, ReviveCommand
from broker.entry.topics import TIMER_TOPIC
from chaos.sim.groups.models.client_checker import ClientChecker
from chaos.sim.groups.models.log_model import LogModel
from chaos.sim.groups.models.pop_model import PopModel
from chaos.sim.groups.models.stored import Stored
from chaos.sim.groups.models.timer_model import TimerModel
from chaos.sim.machine.violation import Violation

KEY = ("G", "P", 0)
RETRY = "%RETRY%G_P"


def stored(value: str, topic: str, offset: int = 0, *, store_ms: int = 0) -> Stored:
    return Stored(
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        index=1,
        position=100 * offset,
        uniq_key=f"key of {value}",
        value=value,
        store_ms=store_ms,
    )


# Timers ------------------------------------------------------------------------------------------


@pytest.fixture
def timers() -> TimerModel:
    """Offset 0 waits until 1,000."""
    model = TimerModel(Counter())
    model.on_timer(stored("a", TIMER_TOPIC), 1_000)
    return model


def deliver(timers: TimerModel, store_ms: int, *added: Stored) -> None:
    visible = added or [stored("a", "T", store_ms=store_ms)]
    timers.deliver(DeliverTimersCommand([0]), visible, lambda _: False)


def test_a_timer_is_delivered_at_its_time(timers: TimerModel) -> None:
    deliver(timers, 1_000)
    assert not timers.waiting


def test_a_timer_before_its_time(timers: TimerModel) -> None:
    with pytest.raises(Violation, match="1 ms before its time"):
        deliver(timers, 999)


def test_a_timer_delivered_into_no_entry(timers: TimerModel) -> None:
    with pytest.raises(Violation, match="not in the entry"):
        deliver(timers, 1_000, stored("b", "T", store_ms=1_000))


def test_a_timer_delivered_twice(timers: TimerModel) -> None:
    deliver(timers, 1_000)
    with pytest.raises(Violation, match="does not wait"):
        deliver(timers, 1_000)


def test_a_timer_delivered_after_its_recall(timers: TimerModel) -> None:
    timers.recall(RecallTimerCommand(0))
    assert timers.is_recalled("a")
    with pytest.raises(Violation, match="does not wait"):
        deliver(timers, 1_000)
    with pytest.raises(Violation, match="was recalled, and is delivered"):
        timers.on_visible(stored("a", "T"))


def test_a_recall_that_is_answered_and_not_in_the_log() -> None:
    checker = ClientChecker(LogModel(Counter(), lambda: 0), Counter())
    value = checker.new_value(is_delayed=True)
    checker.on_recalling(value)
    with pytest.raises(Violation, match="the log has no recall"):
        checker.on_recalled(value)


# POP ---------------------------------------------------------------------------------------------


class Popped:
    """A queue of four messages, a, b, c and d, of which the group has popped a and b at 50 until
    150."""

    def __init__(self) -> None:
        self.begin = 0
        self.queues = {("P", 0): [stored(v, "P", at) for at, v in enumerate("abcd")]}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.floors: dict[tuple[str, int], int] = {}
        self.model = PopModel(self.queues, self.offsets, self.floors, Counter(), lambda: self.begin)
        self.pop(-1, 2, [0, 1])

    def pop(self, expected: int, next_offset: int, offsets: list[int]) -> None:
        self.model.apply(PopCommand(*KEY, expected, next_offset, 50, 100, offsets), 50, [])

    def ack(self, offset: int, pop_ms: int = 50) -> None:
        self.model.apply(AckCommand(*KEY, [[offset, pop_ms]]), 60, [])

    def revive(self, store_ms: int, added: Sequence[Stored]) -> None:
        self.model.apply(ReviveCommand([[*KEY, 0, 50]]), store_ms, added)


@pytest.fixture
def popped() -> Popped:
    return Popped()


AGAIN = stored("a", RETRY, store_ms=150)


def test_a_pop_an_acknowledgement_and_another_try(popped: Popped) -> None:
    assert popped.offsets == {KEY: 2}
    assert popped.model.pending("G", "P") == 4
    popped.ack(1)
    popped.revive(150, [AGAIN])
    assert list(popped.model.rows()) == []
    popped.queues[RETRY, 0] = [AGAIN]
    assert popped.model.pending("G", "P") == 3


def test_nobody_waits_for_what_a_deleted_topic_had(popped: Popped) -> None:
    popped.queues[RETRY, 0] = [AGAIN]
    popped.floors["P", 0] = 4
    popped.model.drop_topic("P")
    assert popped.model.pending("G", "P") == 0
    popped.model.make_topic("P")
    assert popped.model.pending("G", "P") == 1


def test_a_message_popped_twice(popped: Popped) -> None:
    popped.offsets[KEY] = 1
    with pytest.raises(Violation, match="popped twice"):
        popped.pop(1, 2, [1])


def test_a_message_popped_after_its_acknowledgement(popped: Popped) -> None:
    popped.ack(0)
    popped.queues[RETRY, 0] = [AGAIN]
    command = PopCommand("G", RETRY, 0, -1, 1, 200, 100, [0])
    with pytest.raises(Violation, match="was acknowledged"):
        popped.model.apply(command, 200, [])


def test_a_message_passed_over(popped: Popped) -> None:
    with pytest.raises(Violation, match="passes over 2"):
        popped.pop(2, 4, [3])


def test_a_message_that_the_log_has_lost_may_be_passed_over(popped: Popped) -> None:
    popped.begin = 201
    popped.pop(2, 4, [3])
    assert popped.offsets == {KEY: 4}


def test_a_message_popped_that_is_not_committed(popped: Popped) -> None:
    with pytest.raises(Violation, match="are popped of 0 to 4"):
        popped.pop(2, 5, [2, 3, 4])


def test_a_message_popped_below_a_floor(popped: Popped) -> None:
    popped.floors["P", 0] = 3
    with pytest.raises(Violation, match="are popped of 3 to 4"):
        popped.pop(2, 4, [2, 3])


def test_a_void_pop_holds_nothing(popped: Popped) -> None:
    popped.pop(0, 4, [2, 3])
    assert popped.offsets == {KEY: 2}
    assert not popped.model.has_held(KEY, 2, 50)


def test_an_older_handle_ends_nothing(popped: Popped) -> None:
    popped.model.apply(ChangeInvisibleCommand(*KEY, 0, 50, 60, 300, False), 60, [])
    popped.ack(0, pop_ms=50)
    assert popped.model.holds(KEY, 0, 60)
    popped.ack(0, pop_ms=60)
    assert not popped.model.holds(KEY, 0, 60)


def test_a_message_stored_again_too_early(popped: Popped) -> None:
    with pytest.raises(Violation, match="1 ms too early"):
        popped.revive(149, [AGAIN])


def test_a_message_stored_again_after_its_acknowledgement(popped: Popped) -> None:
    popped.ack(0)
    popped.revive(150, [])  # changes nothing
    with pytest.raises(Violation, match="held no more, and stored again"):
        popped.revive(150, [AGAIN])


@pytest.mark.parametrize("added", [[], [AGAIN, AGAIN]], ids=["lost", "twice"])
def test_a_holding_that_ends_without_its_copy(popped: Popped, added: list[Stored]) -> None:
    with pytest.raises(Violation, match=f"stored again {len(added)} times"):
        popped.revive(150, added)


def test_what_consumers_were_told() -> None:
    log = LogModel(Counter(), lambda: 0)
    log.queues["P", 0] = [stored("a", "P")]
    checker = ClientChecker(log, Counter())
    with pytest.raises(Violation, match="not there"):
        checker.on_popped(KEY, 0, 50, "b")
    with pytest.raises(Violation, match="no such pop"):
        checker.on_popped(KEY, 0, 50, "a")
    with pytest.raises(Violation, match="postponed"):
        checker.on_postponed(KEY, 0, 50)
    log.pop.apply(PopCommand(*KEY, -1, 1, 50, 100, [0]), 50, [])
    checker.on_popped(KEY, 0, 50, "a")
    with pytest.raises(Violation, match="given to two"):
        checker.on_popped(KEY, 0, 50, "a")
    with pytest.raises(Violation, match="still held"):
        checker.on_pop_acknowledged(KEY, 0, 50)


# Deletions ---------------------------------------------------------------------------------------


def test_a_deletion_that_left_what_was_acknowledged() -> None:
    log = LogModel(Counter(), lambda: 0)
    log.queues["D", 0] = [stored("v0", "D")]
    checker = ClientChecker(log, Counter())
    checker.on_acknowledged(checker.new_value(), "D", 0, 0)
    ends = checker.acknowledged_ends("D")
    assert ends == {("D", 0): 1}
    with pytest.raises(Violation, match="its floor is 0, 1 were acknowledged"):
        checker.on_deleted(ends)
    log.floors["D", 0] = 1
    checker.on_deleted(ends)
    checker.on_min_offset("D", 0, 1)
    with pytest.raises(Violation, match="begins at 0, its floor is 1"):
        checker.on_min_offset("D", 0, 0)
