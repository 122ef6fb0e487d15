"""An orderly member whose lock is lost: it consumes and commits nothing more of that queue.

However the lock is lost: refused, granted again too late, or ended by the clock while no broker
answers. Another member is the queue's then, and its offset is that one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from campaigns.rig.waiting import until
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage
from remoting.protocol.codes import RequestCode
from tests.client.fake_cluster import Act, FakeGroup, Seen
from tests.client.push_setup import Listener, Recorder, Setup, setup

KEY = ("CG", "T", 0)
COMMIT, LOCK = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ
_OTHERS_OFFSET = 5
_OVER_MS = 70_000  # longer than a broker keeps a lock


class HeldListener(Listener):
    """Is at the message `b"1"` until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        status = await super().__call__(messages)
        if messages[0].body == b"1":
            await self.go_on.wait()
        return status


def silent(*codes: RequestCode) -> Callable[[Seen], Act | tuple[int, str]]:
    return lambda seen: Act.IGNORE if seen.command.code in codes else Act.ANSWER


def of_queue(seen: Seen) -> bool:
    return seen.command.ext_fields.get("queueId") == "0"


def give_away(group: FakeGroup) -> None:
    """Another member has the lock, and has come further."""
    group.locks[KEY] = "somebody else"
    group.offsets[KEY] = _OTHERS_OFFSET


async def a_member_in_the_middle(
    cluster: Setup, listener: HeldListener, **changes: object
) -> PushConsumer:
    """It has committed 1 of eight, and its listener is at the second."""
    for number in range(8):
        await cluster.send(b"%d" % number)
    consumer = await cluster.consumer(listener, ordered=True, lock_interval_ms=50, **changes)
    await until(lambda: cluster.group.offsets.get(KEY) == 1 and b"1" in listener.bodies)
    return consumer


async def commits_pass(cluster: Setup, listener: Listener) -> None:
    """The member's commits of other queues are stored, twice."""
    queue = ("CG", "T", 1)
    for _ in range(2):
        await cluster.send(b"other", queue_id=1)
        end = len(cluster.group.queues["T", 1])
        await until(lambda end=end: cluster.group.offsets.get(queue) == end)  # type: ignore[misc]


def shift_clock(consumer: PushConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much time passes for the member, as where its machine sleeps."""
    before = consumer.instance.now_ms
    monkeypatch.setattr(consumer.instance, "now_ms", lambda: before() + _OVER_MS)


@pytest.mark.parametrize("how", ["refused", "granted too late"])
async def test_a_queue_whose_lock_was_lost_is_let_alone(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setup() as cluster:
        listener, recorder = HeldListener(), Recorder()
        # Nothing is rebalanced until the test says so.
        consumer = await a_member_in_the_middle(cluster, listener, rebalance_interval_ms=60_000)
        old = next(one for queue, one in consumer._owned.items() if queue.queue_id == 0)
        wants_rebalance = consumer._rebalance_wanted
        monkeypatch.setattr(consumer, "_rebalance_wanted", asyncio.Event())
        monkeypatch.setattr(consumer, "_observer", recorder)
        if how == "refused":
            give_away(cluster.group)
        else:  # the other one had it, and gave it back
            cluster.group.offsets[KEY] = _OTHERS_OFFSET
            shift_clock(consumer, monkeypatch)
        await until(lambda: all(queue.queue_id for queue in consumer.queues))
        listener.go_on.set()
        await until(lambda: old.state().commit_offset == 2)
        await until(lambda: bool(recorder.assignments))
        assert cluster.group.offsets[KEY] == _OTHERS_OFFSET
        assert listener.bodies == [b"0", b"1"]
        # It is given back: one consumer goes on, at the offset of whoever had it.
        cluster.group.locks.pop(KEY, None)
        monkeypatch.undo()
        wants_rebalance.set()
        await until(lambda: cluster.group.offsets[KEY] == 8, seconds=10)
        await commits_pass(cluster, listener)
        assert [body for body in listener.bodies if body != b"other"] == [
            b"0", b"1", b"5", b"6", b"7",
        ]  # fmt: skip
        assert cluster.group.offsets[KEY] == 8


async def test_a_queue_is_not_taken_again_while_its_listener_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call at a time for an ordered queue, also of a member that loses and regains it."""
    async with setup() as cluster:
        listener = HeldListener()
        consumer = await a_member_in_the_middle(cluster, listener)
        shift_clock(consumer, monkeypatch)
        await until(lambda: all(queue.queue_id for queue in consumer.queues))
        await consumer._rebalance()
        assert all(queue.queue_id for queue in consumer.queues)
        assert listener.bodies == [b"0", b"1"]
        listener.go_on.set()
        await until(lambda: cluster.group.offsets[KEY] == 8, seconds=10)
        assert listener.bodies == [b"0", *(b"%d" % number for number in (1, *range(1, 8)))]


async def test_nothing_is_committed_once_the_lock_has_ended_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The brokers were silent for long; commits get through again before the locks do."""
    async with setup() as cluster:
        listener = HeldListener()
        consumer = await a_member_in_the_middle(cluster, listener)
        cluster.group.script = silent(COMMIT, LOCK)
        listener.go_on.set()
        await until(lambda: b"7" in listener.bodies)
        shift_clock(consumer, monkeypatch)
        give_away(cluster.group)
        await until(lambda: not _holds(consumer))
        seen = len(cluster.group.seen)
        cluster.group.script = silent(LOCK)
        await asyncio.gather(*(consumer.commit() for _ in range(3)))
        assert not [one for one in cluster.group.seen[seen:] if one.command.code == COMMIT]
        cluster.group.script = lambda _: Act.ANSWER
        await until(lambda: all(queue.queue_id for queue in consumer.queues))
        await consumer.stop()
        assert cluster.group.offsets[KEY] == _OTHERS_OFFSET


async def test_a_commit_without_an_answer_is_not_repeated_once_the_lock_is_lost() -> None:
    async with setup() as cluster:
        listener = HeldListener()
        retry = RetryPolicy(attempt_timeout_ms=100, backoff_ms_max=20)
        consumer = await a_member_in_the_middle(cluster, listener, timeout_ms=30_000, retry=retry)
        cluster.group.script = silent(COMMIT)
        listener.go_on.set()
        since = len(cluster.group.seen)
        await until(
            lambda: any(
                one.command.code == COMMIT and of_queue(one) for one in cluster.group.seen[since:]
            )
        )
        give_away(cluster.group)
        await until(lambda: all(queue.queue_id for queue in consumer.queues))
        cluster.group.script = lambda _: Act.ANSWER
        await commits_pass(cluster, listener)
        await consumer.stop()
        assert cluster.group.offsets[KEY] == _OTHERS_OFFSET


async def test_an_answer_that_comes_when_its_lease_is_over_grants_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member's machine slept between asking and hearing: the queue may be another's by now."""
    async with setup() as cluster:
        consumer = await cluster.consumer(Listener(), ordered=True, lock_interval_ms=600_000)
        locks = consumer._locks
        assert locks is not None
        await until(lambda: len(consumer.queues) > 0 and _holds(consumer))
        (queue,) = [queue for queue in consumer.queues if queue.queue_id == 0]
        ask = locks._request_quietly

        async def sleep_over_it(*what: Any) -> Any:
            answer = await ask(*what)
            shift_clock(consumer, monkeypatch)
            return answer

        monkeypatch.setattr(locks, "_request_quietly", sleep_over_it)
        answer = await locks.lock([queue])
        assert answer.granted == frozenset()
        assert answer.refused == {queue}
        assert not locks.holds(queue)
        assert queue in locks._table.queues  # to be named where it gives all back
        monkeypatch.setattr(locks, "_request_quietly", ask)
        assert (await locks.lock([queue])).granted == frozenset()  # somebody may have had it
        assert (await locks.lock([queue])).granted == {queue}


def _holds(consumer: PushConsumer) -> bool:
    assert consumer._locks is not None
    return consumer._locks.holds(consumer.queues[0])


async def test_locks_whose_answer_is_on_its_way_are_given_back_by_a_stop() -> None:
    async with setup() as cluster:
        group = cluster.group
        group.script = lambda seen: Act.STORE_SILENTLY if seen.command.code == LOCK else Act.ANSWER
        leaves = await cluster.consumer(Listener(), ordered=True)
        await until(lambda: len(group.locks) == 4)
        await leaves.stop()
        assert not group.locks
