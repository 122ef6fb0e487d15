"""Drills: a client that asks a broker all that applications and operators may ask, and knows what
it should answer.

Place in the data path: each runner has a queue to itself, into which it sends; in turns it has
drills run on (`drill_*`, each of some requests); beside them there are members of groups that stay
for a while, and topics that change. A drill goes on with what it knows in a later round, behind
whatever faults and restarts there were; where it is unsure, another takes its place.

Invariants: nobody else sends to the topic, so that a queue holds what its runner had acknowledged;
a send is repeated until it is acknowledged, before anything else is asked; when a queue holds
anything else, its runner ends, since other rules say so.

Source: docs/RUN_FORMAT.md (ask; M12).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final

from chaos.scenario.part_sections import DrillsSection, part_settings
from chaos.workload.actor import Actor
from chaos.workload.context import Slot
from chaos.workload.messages import (
    PROPERTY_VALUE,
    MessageMaker,
    row_of_message,
    row_of_stored,
    wall_ms,
)
from chaos.workload.offset_reader import make_tool, make_tools
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Stored, Unsure
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.drills.brought import bring
from chaos.workload.parts.drills.kinds import (
    BESIDE,
    CLIENTS,
    DELETE,
    DELETING,
    MADE_MAX,
    OFTEN,
    RETAINED_MAX,
    RETAINED_OF,
    TIMED,
    DrillKind,
    runner_kinds,
)
from chaos.workload.parts.drills.owners import LEASE_MS, MemberDrill, Notices
from chaos.workload.parts.drills.queues import QueryDrill, Recallable
from client.connection.instance import ClientInstance
from client.connection.send_codec import prepare_message
from client.errors import ClientError
from client.message import Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import Producer, ProducerSettings
from remoting.records.property_names import PropertyName

__all__ = ["SPEC"]

NAME: Final = "drills"
MEMBERS: Final = f"{NAME}-members"
PRODUCERS: Final = f"{NAME}-producers"
GROUPS: Final = f"{NAME}-group"
TIMEOUT_MS: Final = 3_000
STORED_MAX: Final = 400  # of a queue; drills go on with few more
MORE_S: Final = 5.0  # between those: a sender that ended would be one that is not answered (A16)
SENT_MAX: Final = 4  # at a time
WAITING_MAX: Final = 40
WAIT_MS: Final = 3_600_000
WAITS: Final = (
    (PropertyName.TIMER_DELAY_MS, str(WAIT_MS)),
    (PropertyName.TIMER_DELAY_SEC, str(3 * 24 * 3_600)),  # as long as brokers let one wait
)
TIMER_SHARE: Final = 0.3
TOPICS_MAX: Final = 40  # groups that have members, or settings
RETAINED_SHARE: Final = 0.5  # of the rounds a drill that is there goes on, if there is one
RETRY_S: Final = 0.1
MEMBERS_PAUSE_S: Final = 0.5
MORE_PAUSE_S: Final = 0.4
LAST_S: Final = 10.0  # for which the last questions may take at most


class DrillsPart:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: DrillsSection = kit.section
        self._at_work = int(self._section.runners) + 1
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        queues = self._kit.context.part_queues[NAME]
        runners: list[_Runner] = []
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(self._section.runners)):
                runner = _Runner(
                    self._kit,
                    self._kit.slots[f"{NAME}-{number}"],
                    queues[number % len(queues)],
                    random.Random(self._kit.rng.getrandbits(64)),
                )
                runners.append(runner)
                tasks.create_task(self._count(runner.run(stop)))
            tasks.create_task(self._count(self._delete(runners[0], stop)))
            is_simulated = self._kit.context.world.links.name == "simulated"
            for name, (make, count) in BESIDE.items():
                if is_simulated or name not in TIMED:
                    more = self._have_more(name, make, runners[0], stop, drained, count_max=count)
                    tasks.create_task(more)
            for name, (of_clients, count) in CLIENTS.items():
                make = partial(
                    of_clients,
                    slot=self._kit.slots[name],
                    name_servers=self._kit.context.name_servers,
                )
                more = self._have_more(name, make, runners[0], stop, drained, count_max=count)
                tasks.create_task(more)
            tasks.create_task(self._have_members(stop, drained))

    async def _count(self, work: Coroutine[None, None, None]) -> None:
        await work
        self._at_work -= 1
        if self._at_work == 0:
            self._idle.set()

    async def idle(self) -> None:
        await self._idle.wait()

    async def _have_members(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Have groups whose members stay for longer than a client may be silent, one at a time,
        on until `drained`, so that there are some without faults."""
        slot, context = self._kit.slots[MEMBERS], self._kit.context
        client = slot.next_client()
        actor = Actor(context.history, root=client, client=client, client_group=GROUPS)
        rng = random.Random(self._kit.rng.getrandbits(64))
        async with make_tools(context, slot) as instances:
            notices = Notices(instances)
            for number in range(TOPICS_MAX):
                drill = Drill(
                    context,
                    instances,
                    actor,
                    context.part_queues[NAME][0],
                    (),
                    queue_count=0,
                    ends=drained if stop.is_set() else stop,
                    rng=rng,
                )
                members = MemberDrill(
                    drill,
                    f"{MEMBERS}-group-{number}",
                    notices,
                    silence_ms=self._section.silence_ms,
                )
                try:
                    await self._be_members(members, slot)
                except Unsure:
                    await sleep_until_set(drained, MEMBERS_PAUSE_S)
                except EndedError:
                    if drained.is_set():
                        return

    async def _delete(self, runner: _Runner, stop: asyncio.Event) -> None:
        """Have topics deleted, until `stop`, and once more when faults are over."""
        await self._have_more(DELETING, DELETE, runner, stop, stop)
        try:
            async with asyncio.timeout(LAST_S):
                last = f"{DELETING}-last"
                await self._have_more(last, DELETE, runner, stop, asyncio.Event(), count_max=1)
        except TimeoutError:
            return  # a broker group without a leader

    async def _have_more(
        self,
        name: str,
        make: Callable[[Drill, str], DrillKind],
        runner: _Runner,
        stop: asyncio.Event,
        drained: asyncio.Event,
        *,
        count_max: int = TOPICS_MAX,
    ) -> None:
        """Have drills of one kind beside the runners, which may read what one of them has sent, on
        until `drained`."""
        slot, context = self._kit.slots[name], self._kit.context
        client = slot.next_client()
        actor = Actor(context.history, root=client, client=client, client_group=GROUPS)
        rng = random.Random(self._kit.rng.getrandbits(64))
        async with make_tools(context, slot) as instances:
            for number in range(count_max):
                ends = drained if stop.is_set() else stop
                drill = Drill(
                    context,
                    instances,
                    actor,
                    runner.queue,
                    runner.stored,
                    queue_count=0,
                    ends=ends,
                    rng=rng,
                )
                try:
                    while not drill.stored:
                        if await sleep_until_set(drained, RETRY_S):
                            return
                    await make(drill, f"{name}-group-{number}").run()
                except Unsure:
                    await sleep_until_set(drained, MORE_PAUSE_S)
                except EndedError:
                    if drained.is_set():
                        return

    async def _be_members(self, drill: MemberDrill, slot: Slot) -> None:
        """Run a drill beside a client of which only the connections are used. Raises Unsure,
        EndedError."""
        third = make_tool(self._kit.context, slot)
        await third.start()
        try:
            await drill.run(third.instance)
        finally:
            await third.crash()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True


class _Runner:
    """One queue, its sender, and the drills in it."""

    def __init__(self, kit: PartKit, slot: Slot, queue: MessageQueue, rng: random.Random) -> None:
        self._kit = kit
        self._context = kit.context
        self._section: DrillsSection = kit.section
        self._slot = slot
        self.queue = queue
        self._rng = rng
        self._client = slot.next_client()
        self.stored: list[Stored] = []
        self._more_at_s = 0.0
        self._waiting: list[Recallable] = []
        self._retained: dict[str, list[DrillKind]] = {}
        settings = part_settings(kit.context.scenario.parts)
        self._lease_ms = settings.get("lock_lease_ms", LEASE_MS)
        self._made: Counter[str] = Counter()
        self._turns: list[str] = []  # kinds that are still to come in this round
        self._numbers = itertools.count()
        self._sender, self._requester = (
            Actor(
                kit.context.history,
                root=f"{self._client}.{what}",
                client=self._client,
                client_group=group,
            )
            for what, group in (("send", PRODUCERS), ("ask", GROUPS))
        )
        self._maker = MessageMaker(
            prefix=self._client, body_bytes=self._context.scenario.workload.body_bytes, rng=rng
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Send and query until `stop`; then query once more, once faults are over."""
        producer = Producer(
            PRODUCERS,
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(
                timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings()
            ),
        )
        async with producer, make_tools(self._context, self._slot) as instances:
            drill = self._drill(instances, stop)
            while not stop.is_set() and await self._send_some(producer, drill, stop):
                await self._have_one_go_on(drill)
                if await sleep_until_set(stop, self._section.pause_ms / 1000):
                    break
            last = self._drill(instances, asyncio.Event())
            try:
                async with asyncio.timeout(LAST_S):
                    await self._finish(last)
            except TimeoutError:
                return  # a broker group without a leader

    def _drill(
        self, instances: tuple[ClientInstance, ClientInstance], ends: asyncio.Event
    ) -> Drill:
        count = sum(
            queue.broker_name == self.queue.broker_name for queue in self._context.part_queues[NAME]
        )
        return Drill(
            self._context,
            instances,
            self._requester,
            self.queue,
            self.stored,
            queue_count=count,
            ends=ends,
            rng=self._rng,
        )

    async def _have_one_go_on(self, drill: Drill) -> None:
        if not self._turns:
            without = () if self._section.stretches else ("stretch",)
            self._turns = [*(kind for kind in self._kinds() if kind not in without), *OFTEN]
            self._rng.shuffle(self._turns)
        name = self._turns.pop()
        retained = self._retained.setdefault(name, [])
        if retained and (
            len(retained) >= RETAINED_OF.get(name, RETAINED_MAX)
            or self._rng.random() < RETAINED_SHARE
        ):
            one = self._rng.choice(retained)
        else:
            if self._made[name] >= MADE_MAX.get(name, sys.maxsize):
                return
            self._made[name] += 1
            client = self._client.replace(".", "-")  # a group's name has no points
            one = self._kinds()[name](drill, f"{client}-group-{next(self._numbers)}")
            retained.append(one)
        await self._go_on(name, one)

    async def _go_on(self, name: str, one: DrillKind) -> None:
        """Run a drill; one that ends in the midst of its requests is not run again, since what it
        would have put back, as a half that is to be rolled back, is still there."""
        try:
            await one.run()
        except (Unsure, EndedError):
            self._retained[name].remove(one)

    async def _finish(self, drill: Drill) -> None:
        """Have every drill go on that is left, and some questions asked of what is stored."""
        self._retained["keys"] = [QueryDrill(drill, is_last=True)]
        for name, retained in self._retained.items():
            for one in list(retained):
                one.drill = drill
                await self._go_on(name, one)

    def _kinds(self) -> Mapping[str, Callable[[Drill, str], DrillKind]]:
        return runner_kinds(
            self._slot,
            self._context.name_servers,
            window_ms=self._context.scenario.dedupe.window_ms,
            lease_ms=self._lease_ms,
            waiting=self._waiting,
        )

    # Sends -------------------------------------------------------------------------------------

    async def _send_some(self, producer: Producer, drill: Drill, stop: asyncio.Event) -> bool:
        """Send some messages; return False where the queue is not what it should be."""
        for _ in range(self._rng.randint(0 if self.stored else 2, SENT_MAX)):
            if stop.is_set() or not self._has_room():
                return bool(self.stored)
            message = self._make(producer)
            result = await self._until_acked(producer, message, stop)
            if result is None:
                return False
            if result.queue_offset != len(self.stored) or result.queue != self.queue:
                self._record_place(drill, result)
                return False
            prepared = prepare_message(message, group=PRODUCERS, compression=None)
            self.stored.append(
                Stored(
                    offset=result.queue_offset,
                    value=message.properties[PROPERTY_VALUE],
                    tag=message.tags or "",
                    uniq_key=message.uniq_key or "",
                    keys=tuple(message.keys),
                    offset_msg_id=result.offset_msg_id,
                    command=prepared.command(self.queue),
                    sent_s=asyncio.get_running_loop().time(),
                )
            )
        if len(self._waiting) < WAITING_MAX and self._rng.random() < TIMER_SHARE:
            await self._send_timer(producer)
        return True

    def _has_room(self) -> bool:
        """Whether one more may be sent now."""
        if len(self.stored) < STORED_MAX:
            return True
        now = asyncio.get_running_loop().time()
        if now < self._more_at_s:
            return False
        self._more_at_s = now + MORE_S
        return True

    def _record_place(self, drill: Drill, result: SendResult) -> None:
        """Record that a send was answered with another place than the queue's end."""
        expected = f"{self.queue} at {len(self.stored)}"
        with contextlib.suppress(Unsure):
            drill.record(
                "place of a send into a queue of one's own",
                expected=expected,
                answered=f"{result.queue} at {result.queue_offset}",
            )

    def _make(self, producer: Producer) -> Message:
        message = self._maker.make(NAME, uniq_key=producer.instance.next_uniq_key(wall_ms()))
        bring(message, self._rng, sender=self._client)
        return message

    async def _until_acked(
        self, producer: Producer, message: Message, stop: asyncio.Event
    ) -> SendResult | None:
        """Send until it is acknowledged, each attempt an operation; None at the load's end."""
        queue = self.queue
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        while not stop.is_set():
            with self._sender.operation(
                "send",
                broker_group=queue.broker_name,
                topic=NAME,
                queue=queue.queue_id,
                messages=[row],
            ) as operation:
                try:
                    result = await producer.send(message, queue=queue)
                except ClientError as error:
                    operation.failed(error)
                    await sleep_until_set(stop, RETRY_S)
                    continue
                acked = result.status is SendStatus.SEND_OK
                operation.complete(
                    "ok" if acked else "info",
                    messages=[row_of_stored(message, result)],
                    status=result.status.value,
                    node=self._context.node(result.address),
                )
            if acked:
                return result
        return None

    async def _send_timer(self, producer: Producer) -> None:
        """Send a message that waits for longer than any run lasts."""
        message, queue = self._make(producer), self.queue
        name, wait = self._rng.choice(WAITS)
        message.properties = {**message.properties, name: wait}
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with self._sender.operation(
            "delay",
            broker_group=queue.broker_name,
            topic=NAME,
            queue=queue.queue_id,
            messages=[row],
            due=self._context.history.now_ns() + WAIT_MS * 1_000_000,
        ) as operation:
            try:
                result = await producer.send(message, queue=queue)
            except ClientError as error:
                operation.failed(error)
                return
            # Whatever was answered: a delay that is known to wait is owed, when its time has come.
            operation.complete("info", status=result.status.value)
        if result.status is SendStatus.SEND_OK and result.recall_handle is not None:
            self._waiting.append(
                Recallable(uniq_key=message.uniq_key or "", handle=result.recall_handle)
            )


SPEC: Final = PartSpec(
    name=NAME,
    summary="a client that knows what each of its questions has to be answered with",
    topics=lambda _: [NAME],
    slots=lambda section: [
        MEMBERS,
        *BESIDE,
        *CLIENTS,
        DELETING,
        f"{DELETING}-last",
        *(f"{NAME}-{n}" for n in range(int(section.runners))),
    ],
    make=DrillsPart,
    judged_by=("M12",),
)
