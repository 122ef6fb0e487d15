"""A clustering push group whose members come and go, some by leaving, some by dying.

Place in the data path: `client.consume.push_consumer` through the slot's own proxies. The listener
records what it gets, and asks for a later retry of a small share. Assignments, commits and fetches
are recorded as the client's hooks report them.

Invariants: a member's process delivers one batch at a time, since the listener waits only before it
has consumed anything; its assignments are recorded by the same process, those of offsets by a
process per queue; `drained` is believed only where every queue's committed offset has come to the
end and no requested retry is outstanding.

Source: the run format (deliver, assign, commit_offset, fetch_offset); guarantees G5 and G7.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import ROUTE_POLL_MS, Slot, WorkContext
from chaos.workload.member_observer import MemberObserver
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["REBALANCE_MS_MAX", "PushGroup", "PushReader"]

BATCH_MAX: Final = 8
SUSPEND_MS: Final = 2_000
ANSWER_SLACK_MS: Final = 1_500
COMMIT_INTERVAL_MS: Final = 1_000
REBALANCE_INTERVAL_MS: Final = 1_000  # RocketMQ's is 20 s; runs are short
# How long two members may hold a queue, A22's limit: a broker that is back knows a member once that
# has polled routes again and seen it there, and until then others take the member for gone.
REBALANCE_MS_MAX: Final = ROUTE_POLL_MS + REBALANCE_INTERVAL_MS + 500
REDELIVERY_MS: Final = 500
CRASH_SHARE: Final = 0.5
RESTART_PAUSE_S: Final = 0.5
RECONSUME_TIMES_MAX: Final = 2
RETRY_DELAY_LEVEL: Final = 1  # a second; the broker's choice begins with ten, and runs are short


class PushGroup:
    """The common progress of all members of the group, as far as the harness knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: dict[MessageQueue, int] = {}
        self.owed: set[str] = set()  # values sent back for a retry and not consumed since

    def is_committed(self, queue: MessageQueue, offset: int) -> None:
        # Not a maximum: after a crash a new owner begins again below what was delivered.
        self.committed[queue] = offset

    def reached(self, ends: dict[MessageQueue, int]) -> bool:
        """Return whether everything below these offsets is committed, and no retry outstanding."""
        return not self.owed and all(
            self.committed.get(queue, 0) >= end for queue, end in ends.items()
        )


class PushReader:
    """One slot's members of the group, one after another."""

    def __init__(
        self, context: WorkContext, slot: Slot, group: PushGroup, *, rng: random.Random
    ) -> None:
        self._context = context
        self._slot = slot
        self._group = group
        self._rng = rng

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run members that come and go until `stop`, then one until `drained`."""
        restart_s = self._context.scenario.workload.push_restart_s
        while not drained.is_set():
            client = self._slot.next_client()
            actor = Actor(
                self._context.history, root=client, client=client, client_group=self._group.name
            )
            consumer = self._make_consumer(client, actor)
            crashes = self._rng.random() < CRASH_SHARE
            await consumer.start()
            try:
                if restart_s <= 0 or await sleep_until_set(
                    stop, max(1.0, self._rng.expovariate(1 / restart_s))
                ):
                    crashes = False  # the last member leaves in good order
                    await drained.wait()
            finally:
                if crashes:
                    await consumer.crash()
                else:
                    await consumer.stop()
                    with actor.operation("assign") as operation:  # until then it held its queues
                        operation.complete("ok", assigned=[])
            await sleep_until_set(drained, RESTART_PAUSE_S)

    def _make_consumer(self, client: str, actor: Actor) -> PushConsumer:
        consumer = PushConsumer(
            self._group.name,
            self._context.name_servers,
            _Listener(self._context, actor, self._group, self._rng).consume,
            self._slot.dial,
            settings=PushConsumerSettings(
                consume_from=ConsumeFrom.FIRST,
                consume_batch_max=BATCH_MAX,
                suspend_ms=SUSPEND_MS,
                answer_slack_ms=ANSWER_SLACK_MS,
                commit_interval_ms=COMMIT_INTERVAL_MS,
                rebalance_interval_ms=REBALANCE_INTERVAL_MS,
                redelivery_ms_min=REDELIVERY_MS,
                retry_delay_level=RETRY_DELAY_LEVEL,
                instance=self._slot.instance_settings(),
            ),
            observer=MemberObserver(
                self._context.history,
                actor,
                group=self._group.name,
                client=client,
                on_committed=self._group.is_committed,
            ),
        )
        for topic in self._context.scenario.workload.topics:
            consumer.subscribe(topic)
        return consumer


class _Listener:
    """Consumes after a while, or sends back for a retry; the row is written at once, at the end."""

    def __init__(
        self, context: WorkContext, actor: Actor, group: PushGroup, rng: random.Random
    ) -> None:
        self._actor = actor
        self._group = group
        self._rng = rng
        self._reconsume_share = context.scenario.workload.reconsume_share
        self._consume_s = context.scenario.workload.consume_ms / 1000

    async def consume(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        if self._consume_s:
            # A member that crashes meanwhile has consumed nothing: another member gets the batch.
            await asyncio.sleep(self._rng.uniform(0, 2 * self._consume_s))
        rows = [row_of_delivered(message) for message in messages]
        queue = messages[0].queue
        again = max(message.reconsume_times for message in messages)
        later = again < RECONSUME_TIMES_MAX and self._rng.random() < self._reconsume_share
        with self._actor.operation(
            "deliver",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=rows,
        ) as operation:
            operation.complete("fail" if later else "ok", messages=rows)
        values = [row.value for row in rows]
        if later:
            self._group.owed.update(values)
            return ConsumeStatus.RECONSUME_LATER
        self._group.owed.difference_update(values)
        return ConsumeStatus.CONSUME_SUCCESS
