"""Who waits for what, and which status it gets."""

from __future__ import annotations

from broker.ha.acknowledgements import Acknowledgements
from raft.replicated_log import ProposalStatus as Status


def rig(
    *, for_disk: bool = False, for_slaves: bool = False, available: bool = True, count: int = 1
) -> tuple[Acknowledgements, list[tuple[int, Status]]]:
    waiting = Acknowledgements(sync_flush_timeout_ms=50, slave_timeout_ms=30)
    answered: list[tuple[int, Status]] = []
    for number in range(1, count + 1):
        waiting.add(
            100 * number,
            lambda status, number=number: answered.append((number, status)),
            now_ms=number,
            for_disk=for_disk,
            for_slaves=for_slaves,
            slaves_available=available,
        )
    return waiting, answered


def test_who_waits_for_nothing_is_answered_at_once() -> None:
    waiting, answered = rig()
    assert answered == [(1, Status.COMMITTED)]
    assert len(waiting) == 0
    assert waiting.next_deadline_ms is None


def test_several_may_wait_for_the_same_end() -> None:
    waiting, answered = rig(for_disk=True, for_slaves=True)
    for number in (2, 3):
        waiting.add(
            100,
            lambda status, number=number: answered.append((number, status)),  # type: ignore[misc]
            now_ms=number,
            for_disk=True,
            for_slaves=False,
            slaves_available=True,
        )
    assert len(waiting) == 3
    waiting.durable(100)
    assert answered == [(2, Status.COMMITTED), (3, Status.COMMITTED)]
    waiting.replicated(100)
    assert answered[2:] == [(1, Status.COMMITTED)]


def test_what_is_durable_answers_all_before_it_and_no_more() -> None:
    waiting, answered = rig(for_disk=True, count=3)
    waiting.durable(199)
    assert answered == [(1, Status.COMMITTED)]
    waiting.durable(300)
    assert answered == [(n, Status.COMMITTED) for n in (1, 2, 3)]


def test_disk_and_slaves_are_both_waited_for() -> None:
    waiting, answered = rig(for_disk=True, for_slaves=True, count=2)
    waiting.replicated(200)
    waiting.durable(100)
    assert answered == [(1, Status.COMMITTED)]
    waiting.expire(52)
    assert answered[1:] == [(2, Status.FLUSH_DISK_TIMEOUT)]


def test_the_slaves_status_goes_before_the_disks() -> None:
    waiting, answered = rig(for_disk=True, for_slaves=True)
    assert waiting.next_deadline_ms == 31
    waiting.expire(31)
    assert answered == []
    waiting.expire(51)
    assert answered == [(1, Status.FLUSH_SLAVE_TIMEOUT)]
    waiting, answered = rig(for_disk=True, for_slaves=True)
    waiting.expire(51)
    assert answered == [(1, Status.FLUSH_SLAVE_TIMEOUT)]


def test_without_a_slave_nobody_waits_for_one() -> None:
    waiting, answered = rig(for_slaves=True, available=False)
    assert answered == [(1, Status.SLAVE_NOT_AVAILABLE)]
    waiting, answered = rig(for_disk=True, for_slaves=True, available=False)
    assert answered == []
    waiting.expire(51)
    assert answered == [(1, Status.SLAVE_NOT_AVAILABLE)]


def test_a_wait_ends_at_its_own_time() -> None:
    waiting, answered = rig(for_slaves=True, count=2)
    waiting.expire(31)
    assert answered == [(1, Status.FLUSH_SLAVE_TIMEOUT)]
    assert waiting.next_deadline_ms == 32
    waiting.replicated(200)
    assert answered[1:] == [(2, Status.COMMITTED)]


def test_a_stop_answers_each_once() -> None:
    waiting, answered = rig(for_disk=True, for_slaves=True, count=2)
    waiting.stop()
    assert answered == [(1, Status.STOPPED), (2, Status.STOPPED)]
    waiting.expire(1_000)
    assert len(answered) == 2
