"""The members of the part `calls`: groups that start in all ways, and one that suspends,
unsubscribes and holds little.

Place in the data path: `client.consume.push_consumer`; what its application asks of it is held
against what it is given afterwards, by the time at which a message was sent first.

Invariants: the clocks compared are those of this process (a message tells when its client made it);
a group's start is judged only by messages that were sent, or acknowledged, more than a second away
from it; what a fault may delay is waited for, never judged by when it came.

Source: docs/CLIENT.md; RocketMQ ConsumeFromWhere, DefaultMQPushConsumer.suspend, unsubscribe.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.messages import wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.calls.sender import Sent
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.push_members import (
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.common.trace_records import Traced
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue
from client.trace.tracer import TraceSettings

__all__ = ["GROUP", "START_GROUPS", "MovingMembers", "StartingGroup"]

GROUP: Final = "calls-consumers"
START_GROUPS: Final = {
    "calls-from-first": ConsumeFrom.FIRST,
    "calls-from-timestamp": ConsumeFrom.TIMESTAMP,
    "calls-from-last": ConsumeFrom.LAST,
}
CRASH_SHARE: Final = 0.5
REFUSE_SHARE: Final = 0.05
SLOW_SHARE: Final = 0.15
SLOW_S: Final = 0.4
DESCRIBED_SHARE: Final = 0.2
ACTION_EVERY_S: Final = 1.5
QUIET_S: Final = (0.3, 1.5)
RELEASE_S_MAX: Final = 6.0  # a rebalance may wait that long for servers that are gone
POLL_S: Final = 0.1
MARGIN_MS: Final = 1_000
BACK_MS_MAX: Final = 2_000


class _Seen:
    """What one consumer's listener was given: the queue, and when its client had made it."""

    def __init__(self) -> None:
        self.rows: list[tuple[MessageQueue, int]] = []

    def newer(self, made_ms: int, queues: Sequence[MessageQueue] | None, since: int) -> int:
        """Count what was given behind the row `since` and made later than `made_ms`."""
        return sum(
            born_ms > made_ms and (queues is None or queue in queues)
            for queue, born_ms in self.rows[since:]
        )


class MovingMembers:
    """The members of one slot, who come and go, and are suspended and unsubscribed meanwhile."""

    def __init__(
        self, kit: PartKit, slot: Slot, owed: Owed, *, topic: str, restart_s: float, traced: bool
    ) -> None:
        self._kit = kit
        self._slot = slot
        self._owed = owed
        self._topic = topic
        self._traced = traced
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._seen = _Seen()
        self._given: list[Traced] = []  # to the member that is there
        self._changes = 0  # of the queues that the member owns
        self._expectations = self._expectations_of("none yet")
        self.members = PushMembers(
            slot,
            self._member,
            restart_s=restart_s,
            crash=lambda: self._rng.random() < CRASH_SHARE,
            rng=self._rng,
            disturb=self._disturb,
        )

    def _expectations_of(self, client: str) -> Expectations:
        return Expectations(self._kit.context.history, client=client, client_group=GROUP)

    def _member(self, client: str) -> Member:
        deliveries = Deliveries(self._kit, client=client, group=GROUP)
        seen = self._seen = _Seen()
        given = self._given = []
        self._expectations = self._expectations_of(client)
        rng = self._rng

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            rows, queue, began_ns = rows_of(messages), messages[0].queue, time.monotonic_ns()
            self._hold_call(messages, member.consumer.settings.consume_batch_max)
            if queue.topic == self._topic:
                seen.rows += [(queue, message.born_timestamp_ms) for message in messages]
            if rng.random() < SLOW_SHARE:
                await asyncio.sleep(SLOW_S)
                self._hold_bounds(member.consumer)
            refused = rng.random() < REFUSE_SHARE and messages[0].reconsume_times == 0
            with deliveries.delivery(queue, rows) as operation:
                operation.complete("fail" if refused else "ok")
            given.extend(
                Traced(uniq_key=message.uniq_key, began_ns=began_ns, is_taken=not refused)
                for message in messages
            )
            if refused:
                return ConsumeStatus.RECONSUME_LATER
            self._owed.consumed(row.value for row in rows)
            return ConsumeStatus.CONSUME_SUCCESS

        def count(_: Sequence[MessageQueue]) -> None:
            self._changes += 1

        member = make_member(
            self._kit,
            self._slot,
            listen,
            client=client,
            group=GROUP,
            topics=[self._topic],
            settings={
                "consume_batch_max": rng.randint(1, 4),
                "pull_batch_max": rng.choice((1, 3, 32)),
                "held_count_max": rng.choice((1, 4, 1_000)),
                "held_span_max": rng.choice((1, 5, 2_000)),
                "held_bytes_max": rng.choice((300, 100_000)),
                "retry_delay_level": 1,
                "trace": TraceSettings() if self._traced else None,
            },
            on_assigned=count,
        )
        return member

    def traced(self) -> list[Traced]:
        """Return what was given to the last member, if it is traced; it leaves in good order."""
        return self._given if self._traced else []

    async def _disturb(self, consumer: PushConsumer, over: asyncio.Event) -> None:
        actions = (self._suspend_all, self._suspend_one, self._unsubscribe, self._commit)
        while not await sleep_until_set(over, self._rng.expovariate(1 / ACTION_EVERY_S)):
            await self._rng.choice(actions)(consumer, over)

    def _hold_call(self, messages: Sequence[DeliveredMessage], count_max: int) -> None:
        """Hold one call of the listener: messages of one queue in its order, not too many."""
        offsets = [message.queue_offset for message in messages]
        is_right = (
            0 < len(messages) <= count_max
            and len({message.queue for message in messages}) == 1
            and all(one < other for one, other in pairwise(offsets))
        )
        self._hold("calls of a listener with too many messages, or not in order", int(not is_right))

    def _hold_bounds(self, consumer: PushConsumer) -> None:
        """Hold what each queue holds against its bounds, beyond which one pull may go."""
        settings = consumer.settings
        beyond = settings.pull_batch_max - 1
        over = [
            state.queue
            for state in consumer.states()
            if state.held > settings.held_count_max + beyond
            or (
                state.held
                and state.next_offset - state.commit_offset > settings.held_span_max + beyond
            )
        ]
        self._hold("queues that hold more than they may", len(over))

    async def _suspend_all(self, consumer: PushConsumer, over: asyncio.Event) -> None:
        made_ms, since = wall_ms(), len(self._seen.rows)
        consumer.suspend()
        await sleep_until_set(over, self._rng.uniform(*QUIET_S))
        newer = self._seen.newer(made_ms, None, since)
        self._hold("messages made after all was suspended, and given", newer)
        consumer.resume()

    async def _suspend_one(self, consumer: PushConsumer, over: asyncio.Event) -> None:
        if not consumer.queues:
            return
        queue = self._rng.choice(consumer.queues)
        made_ms, since, changes = wall_ms(), len(self._seen.rows), self._changes
        consumer.suspend([queue])
        await sleep_until_set(over, self._rng.uniform(*QUIET_S))
        if changes == self._changes:  # one that is lost and comes back is suspended no more
            newer = self._seen.newer(made_ms, [queue], since)
            self._hold("messages made after their queue was suspended, and given", newer)
        consumer.resume([queue])

    async def _commit(self, consumer: PushConsumer, over: asyncio.Event) -> None:
        """Commit now; what may be committed is a rule's matter."""
        await consumer.commit()

    async def _unsubscribe(self, consumer: PushConsumer, over: asyncio.Event) -> None:
        consumer.unsubscribe(self._topic)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + RELEASE_S_MAX
        while any(queue.topic == self._topic for queue in consumer.queues):
            if loop.time() > end_s:
                self._hold("topics that are still owned long after their subscription's end", 1)
                break
            if await sleep_until_set(over, POLL_S):
                break
        else:
            made_ms, since = wall_ms(), len(self._seen.rows)
            await sleep_until_set(over, self._rng.uniform(*QUIET_S))
            newer = self._seen.newer(made_ms, None, since)
            self._hold("messages of a topic that were given without a subscription", newer)
        consumer.subscribe(self._topic)

    def _hold(self, question: str, answered: int) -> None:
        self._expectations.hold(question, expected=0, answered=answered, topic=self._topic)


class StartingGroup:
    """One new group with one member, which starts at some time of the load."""

    def __init__(
        self,
        kit: PartKit,
        slot: Slot,
        sent: Mapping[str, Sent],
        *,
        group: str,
        topic: str,
        after_s: float,
    ) -> None:
        self._kit = kit
        self._slot = slot
        self._sent = sent
        self._group = group
        self._topic = topic
        self._after_s = after_s
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._given: set[str] = set()
        self._from_ms = 0
        self._ready_ms: int | None = None  # when it had a position in each of its queues

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Start within the load, read until `drained`, and hold what came against what was sent."""
        await sleep_until_set(stop, self._after_s)
        client = self._slot.next_client()
        self._from_ms = wall_ms() - self._rng.randint(0, BACK_MS_MAX)
        member = self._member(client)
        await member.consumer.start()
        try:
            await self._await_positions(member.consumer, drained)
            await drained.wait()
        finally:
            await member.consumer.stop()
            with member.actor.operation("assign") as operation:
                operation.complete("ok", assigned=[])
        expectations = Expectations(
            self._kit.context.history, client=f"{client}.end", client_group=self._group
        )
        for question, values in (
            ("sent behind the start of a group, and not given to it", sorted(self.missing())),
            ("acknowledged before the start of a group, and given", sorted(self._too_early())),
        ):
            answered = ", ".join(values) or "none"
            expectations.hold(question, expected="none", answered=answered, topic=self._topic)

    def missing(self) -> set[str]:
        """Return what is owed and was not given yet."""
        return self._owed() - self._given

    def _owed(self) -> set[str]:
        match START_GROUPS[self._group]:
            case ConsumeFrom.FIRST:
                return set(self._sent)
            case ConsumeFrom.TIMESTAMP:
                start_ms = self._from_ms
            case _ if self._ready_ms is None:
                return set()
            case _:
                start_ms = self._ready_ms
        return {value for value, each in self._sent.items() if each.began_ms > start_ms + MARGIN_MS}

    def _too_early(self) -> set[str]:
        if START_GROUPS[self._group] is not ConsumeFrom.TIMESTAMP:
            return set()  # a young topic is read from its beginning
        return {
            value
            for value, each in self._sent.items()
            if value in self._given and each.acked_ms < self._from_ms - MARGIN_MS
        }

    async def _await_positions(self, consumer: PushConsumer, drained: asyncio.Event) -> None:
        """Wait until the member knows where it is in every queue of the topic."""
        queues = len(self._kit.context.part_queues[self._topic])
        while not await sleep_until_set(drained, POLL_S):
            states = [each for each in consumer.states() if each.queue.topic == self._topic]
            if len(states) == queues and all(each.next_offset >= 0 for each in states):
                self._ready_ms = wall_ms()
                return

    def _member(self, client: str) -> Member:
        deliveries = Deliveries(self._kit, client=client, group=self._group)
        expectations = Expectations(
            self._kit.context.history, client=client, client_group=self._group
        )
        rng = self._rng

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            rows = rows_of(messages)
            with deliveries.delivery(messages[0].queue, rows) as operation:
                operation.complete("ok")
            for row, message in zip(rows, messages, strict=True):
                sent = self._sent.get(row.value)
                if sent is not None and rng.random() < DESCRIBED_SHARE:
                    _hold_description(expectations, sent, message)
            self._given.update(row.value for row in rows)
            return ConsumeStatus.CONSUME_SUCCESS

        return make_member(
            self._kit,
            self._slot,
            listen,
            client=client,
            group=self._group,
            topics=[self._topic],
            settings={
                "consume_from": START_GROUPS[self._group],
                "consume_from_timestamp_ms": self._from_ms,
                "consume_batch_max": 16,
            },
        )


def _hold_description(expectations: Expectations, sent: Sent, message: DeliveredMessage) -> None:
    """Hold what a delivery says of itself against what its sender was told."""
    result = sent.result
    if result.attempts > 1 or "," in result.offset_msg_id or message.reconsume_times:
        return  # an earlier attempt, or a batch's first message, may have stored it
    expectations.hold(
        "what a delivery says of itself",
        expected=f"made {sent.message.born_timestamp_ms}, id {result.offset_msg_id}, "
        f"stored at {int(result.offset_msg_id[-16:], 16)}",
        answered=f"made {message.born_timestamp_ms}, id {message.offset_msg_id}, "
        f"stored at {message.physical_offset}",
        queue=message.queue,
    )
