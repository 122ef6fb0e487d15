"""Lite pull: members of a group that poll, commit, pause queues and seek back in them.

Place in the data path: a feed sends to the part's topic; `client.consume.lite_pull_consumer` shares
its queues among the members, who subscribe by tag or, all of them, by a filter over properties.
What a poll returns is recorded as deliveries, one per queue; a seek as a reset by the member
itself.

A member is lazy at times: it polls nothing, while messages are prefetched for it, and then goes on,
commits, seeks, or leaves.

Invariants: a member seeks back only, to a message that it was given, so that nothing is skipped;
what a poll returned counts as consumed at once.

Source: RocketMQ DefaultLitePullConsumer; rules C9, A5, A12.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.recording.history import HistoryWriter
from chaos.scenario.part_sections import LitePullSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.member_observer import MemberObserver
from chaos.workload.messages import PROPERTY_VALUE
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.fed_part import FedPart
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.push_members import COMMON_SETTINGS, Deliveries, rows_of
from chaos.workload.push_reader import REBALANCE_MS_MAX
from chaos.workload.same_loop import BLOCKING_SHARE, through_blocking
from client.blocking.sync_clients import SyncLitePullConsumer
from client.connection.heartbeat import ExpressionType
from client.consume.listener import PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["SPEC"]

NAME: Final = "litepull"
GROUP: Final = f"{NAME}-consumers"
CRASH_SHARE: Final = 0.5
RESTART_PAUSE_S: Final = 0.5
POLL_MS: Final = 500
POLL_BATCH_MAX: Final = 8
ACTION_EVERY_S: Final = 2.0  # commits and pauses
PAUSE_S_MAX: Final = 1.5
EARLY_MS: Final = 50  # by which a loop may count otherwise than the client's clock
LAZY_SHARE: Final = 0.1  # of the actions: the application is at work elsewhere and polls nothing
LAZY_END_SHARE: Final = 0.6  # of the ends, which are no crashes then
LAZY_S: Final = (0.3, 2.0)
SEEK_BACK_MAX: Final = 10


class LitePullPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: LitePullSection = kit.section
        self._owed = Owed()
        self._feed = Feed(
            kit,
            NAME,
            f"{NAME}-sender",
            rate=self._section.rate,
            on_acked=lambda row: self._owed.acknowledged(row.value),
        )
        # Of a group all subscribe alike. The expression takes every message.
        expression, kind = kit.rng.choice(
            (
                ("*", ExpressionType.TAG),
                (f"{PROPERTY_VALUE} is not null", ExpressionType.SQL92),
            )
        )
        self._members = [
            _LitePullMembers(
                kit,
                kit.slots[f"{NAME}-{i}"],
                self._owed,
                subscription=(expression, kind),
                rng=random.Random(kit.rng.getrandbits(64)),
            )
            for i in range(int(self._section.clients))
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {
            GROUP: {
                "kind": "cluster",
                "at_least_once": True,
                "ordered": False,
                "rebalance_ms": REBALANCE_MS_MAX,
                "topics": [NAME],
            }
        }

    def has_read(self) -> bool:
        return self._owed.is_empty


class _LitePullMembers:
    """One slot's members, one after another."""

    def __init__(
        self,
        kit: PartKit,
        slot: Slot,
        owed: Owed,
        *,
        subscription: tuple[str, ExpressionType],
        rng: random.Random,
    ) -> None:
        self._kit = kit
        self._subscription = subscription
        self._section: LitePullSection = kit.section
        self._slot = slot
        self._owed = owed
        self._rng = rng

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run members that come and go until `stop`, then one until `drained`."""
        while not drained.is_set():
            client = self._slot.next_client()
            history = self._kit.context.history
            actor = Actor(history, root=client, client=client, client_group=GROUP)
            commits = _Commits(history, actor, client)
            consumer = LitePullConsumer(
                GROUP,
                self._kit.context.name_servers,
                self._slot.dial,
                settings=LitePullSettings(
                    poll_batch_max=POLL_BATCH_MAX,
                    poll_timeout_ms=POLL_MS,
                    consumer=PushConsumerSettings(
                        **{**COMMON_SETTINGS, "instance": self._slot.instance_settings()}
                    ),
                ),
                observer=commits,
            )
            if self._rng.random() < BLOCKING_SHARE:
                consumer = through_blocking(consumer, SyncLitePullConsumer)
            consumer.subscribe(NAME, *self._subscription)
            crashes = False
            try:
                await consumer.start()
            except ClientError:  # a broker parses the filter, and none is there
                await sleep_until_set(drained, RESTART_PAUSE_S)
                continue
            try:
                member = _LitePullMember(
                    self._kit,
                    consumer,
                    client=client,
                    owed=self._owed,
                    commits=commits,
                    rng=self._rng,
                )
                if await member.work(stop, drained):
                    lazy = await member.be_lazy(stop, LAZY_END_SHARE)
                    crashes = not lazy and self._rng.random() < CRASH_SHARE
            finally:
                if crashes:
                    await consumer.crash()
                else:
                    await consumer.stop()
                    with actor.operation("assign") as operation:
                        operation.complete("ok", assigned=[])
            await sleep_until_set(drained, RESTART_PAUSE_S)


class _Commits(MemberObserver):
    """Records what a member does, and knows what is committed beside where its polls have come."""

    def __init__(self, history: HistoryWriter, actor: Actor, client: str) -> None:
        super().__init__(
            history, actor, group=GROUP, client=client, on_assigned=self._forget_changed
        )
        self.failures = 0
        self.changes = 0  # of the queues that it owns
        self.places: dict[MessageQueue, int] = {}
        self._offsets: dict[MessageQueue, int] = {}
        self._owned: set[MessageQueue] = set()

    def committed(
        self,
        queue: MessageQueue,
        offset: int,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().committed(queue, offset, error, t_invoke=t_invoke, t_complete=t_complete)
        if error is None:
            self._offsets[queue] = offset
        else:
            self.failures += 1

    def offset_fetched(
        self,
        queue: MessageQueue,
        offset: int | None,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().offset_fetched(queue, offset, error, t_invoke=t_invoke, t_complete=t_complete)
        if error is None:
            self._offsets[queue] = offset or 0  # the beginning need not be committed

    def missing(self, owned: Sequence[MessageQueue]) -> list[str]:
        """Return those of the queues whose place is not what was committed last. One that is being
        given up is committed by whoever does that, later."""
        return [
            f"{queue.queue_id} at {place}: {self._offsets.get(queue)}"
            for queue, place in sorted(self.places.items())
            if queue in owned and self._offsets.get(queue) != place
        ]

    def _forget_changed(self, queues: Sequence[MessageQueue]) -> None:
        """Forget queues that went or came: they begin anew."""
        self.changes += 1
        for queue in self._owned.symmetric_difference(queues):
            self.places.pop(queue, None)
        self._owned = set(queues)


class _LitePullMember:
    """One member at work. Its polls, seeks and commits come one after another."""

    def __init__(
        self,
        kit: PartKit,
        consumer: LitePullConsumer,
        *,
        client: str,
        owed: Owed,
        commits: _Commits,
        rng: random.Random,
    ) -> None:
        self._section: LitePullSection = kit.section
        self._consumer = consumer
        self._commits = commits
        self._expectations = Expectations(kit.context.history, client=client, client_group=GROUP)
        self._deliveries = Deliveries(kit, client=client, group=GROUP)
        self._owed = owed
        self._rng = rng
        self._given: dict[MessageQueue, int] = {}  # the offset given last
        self._first: dict[MessageQueue, int] = {}  # the lowest offset given
        self._sought: dict[MessageQueue, tuple[int, int]] = {}  # changes of queues then, offset

    async def work(self, stop: asyncio.Event, drained: asyncio.Event) -> bool:
        """Poll until the member's time is up (True), or until `drained` (False)."""
        loop = asyncio.get_running_loop()
        life_s = self._section.restart_s
        end = loop.time() + (max(1.0, self._rng.expovariate(1 / life_s)) if life_s > 0 else 1e9)
        next_seek = self._next(loop.time(), self._section.seek_s)
        next_action = self._next(loop.time(), ACTION_EVERY_S)
        paused: tuple[MessageQueue, float] | None = None
        while not drained.is_set():
            now = loop.time()
            if not stop.is_set() and now >= end:
                return True
            self._consume(await self._poll())
            if paused is not None and now >= paused[1]:
                self._consumer.resume([paused[0]])
                paused = None
            if stop.is_set():
                continue
            if now >= next_seek:
                await self._seek()
                next_seek = self._next(now, self._section.seek_s)
            if now >= next_action:
                next_action = self._next(now, ACTION_EVERY_S)
                await self.be_lazy(stop, LAZY_SHARE)
                if self._rng.random() < 0.5:
                    await self._commit()
                elif paused is None and self._consumer.queues:
                    queue = self._rng.choice(self._consumer.queues)
                    self._consumer.pause([queue])
                    paused = (queue, now + self._rng.uniform(0, PAUSE_S_MAX))
        return False

    async def be_lazy(self, stop: asyncio.Event, share: float) -> bool:
        """Poll nothing for a while, with this chance, which is returned; what comes meanwhile is
        prefetched."""
        if self._rng.random() >= share:
            return False
        await sleep_until_set(stop, self._rng.uniform(*LAZY_S))
        return True

    async def _poll(self) -> list[DeliveredMessage]:
        """Poll, and hold that an empty answer took its time, and that a full one is no more than
        that."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        messages = await self._consumer.poll()
        waited_ms = (loop.time() - began_s) * 1000
        if not messages:
            await asyncio.sleep(max(0.0, (POLL_MS - waited_ms) / 1000))  # as `poll_whole` does
            self._expectations.hold(
                "time of a poll that returned nothing",
                expected="all",
                answered="all" if waited_ms > POLL_MS - EARLY_MS else waited_ms,
                topic=NAME,
            )
        elif len(messages) >= POLL_BATCH_MAX:
            self._expectations.hold(
                "messages of a full poll",
                expected=POLL_BATCH_MAX,
                answered=len(messages),
                topic=NAME,
            )
        return messages

    async def _commit(self) -> None:
        """Commit what was polled, and hold what was committed against it."""
        commits = self._commits
        before = (commits.failures, commits.changes)
        await self._consumer.commit()
        if before == (commits.failures, commits.changes):
            self._expectations.hold(
                "places of a commit that are not committed",
                expected=[],
                answered=commits.missing(self._consumer.queues),
                topic=NAME,
            )

    def _next(self, now: float, mean_s: float) -> float:
        return now + (self._rng.expovariate(1 / mean_s) if mean_s > 0 else 1e9)

    def _consume(self, messages: Sequence[DeliveredMessage]) -> None:
        for queue, batch in itertools.groupby(messages, key=lambda message: message.queue):
            rows = rows_of(list(batch))
            self._hold_sought(queue, rows[0].offset)
            with self._deliveries.delivery(queue, rows) as operation:
                operation.complete("ok")
            self._owed.consumed(row.value for row in rows)
            offsets = [row.offset for row in rows if row.offset is not None]
            self._given[queue] = max(offsets)
            self._commits.places[queue] = max(offsets) + 1
            self._first[queue] = min(*offsets, self._first.get(queue, offsets[0]))

    async def _seek(self) -> None:
        """Go back in one owned queue, to a message that this member was given."""
        queues = [queue for queue in self._consumer.queues if queue in self._given]
        if not queues:
            return
        queue = self._rng.choice(queues)
        lowest = max(self._first[queue], self._given[queue] - SEEK_BACK_MAX)
        offset = self._rng.randint(lowest, self._given[queue])
        with self._deliveries.seek(queue, offset) as operation:
            try:
                await self._consumer.seek(queue, offset)
            except ClientError as error:  # it lost the queue just now, or retention took the offset
                operation.failed(error)
                return
            operation.complete("ok")
        self._commits.places[queue] = offset
        self._sought[queue] = (self._commits.changes, offset)

    def _hold_sought(self, queue: MessageQueue, given: int | None) -> None:
        """Hold that the first message of a queue behind a seek is the one that was sought."""
        changes, offset = self._sought.pop(queue, (-1, 0))
        if changes == self._commits.changes:  # else the queue may have begun anew
            self._expectations.hold(
                "first message behind a seek", expected=offset, answered=given, queue=queue
            )


def _slots(section: LitePullSection) -> Sequence[str]:
    return [f"{NAME}-sender", *(f"{NAME}-{i}" for i in range(int(section.clients)))]


SPEC: Final = PartSpec(
    name=NAME,
    summary="members of a group that poll, commit, pause queues and seek back in them",
    topics=lambda _: [NAME],
    slots=_slots,
    make=LitePullPart,
    judged_by=("C9", "C19", "M12", "A5", "A12", "A22"),
)
