"""The part `operator`: changes what an operator may change, and queries all nodes afterwards.

Place in the data path: topics with all their settings, routes and lists of name servers
(`chaos.workload.parts.operator.topics`), members of a broker group of its own (`registrations`),
offsets of groups without members (`offsets`), a member that comes and goes (`members`),
subscription groups (`groups`), settings of brokers and who leads (`brokers`), replicas that are
down (`silence`), and those that follow (`followers`), what is to be refused (`refusals`), entries
and settings of name servers and the right to write (`servers`), what such settings do (`rules`),
and what becomes of halves meanwhile (`halves`). All changes go into the history as `set`, all
answers as `get`, or as `ask` where a model knows the answer.

Invariants: nobody else changes what it changes; it goes on for `calm_s` after the senders have
stopped, since what other replicas and name servers answer is compared only in calm times; the right
to write is taken when all readers have read.

Source: the run format (set, get; M14); RocketMQ mqadmin.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import OperatorSection
from chaos.scenario.scenario import route_expiry_ms
from chaos.workload.actor import Actor
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.operator.broker_settings import BrokerSettings
from chaos.workload.parts.operator.brokers import BrokerKeeper
from chaos.workload.parts.operator.effects import SettingEffects
from chaos.workload.parts.operator.elsewhere import ElsewhereEffects
from chaos.workload.parts.operator.followers import FollowerKeeper
from chaos.workload.parts.operator.groups import GroupKeeper
from chaos.workload.parts.operator.halves import HalfEffects
from chaos.workload.parts.operator.members import MemberKeeper
from chaos.workload.parts.operator.offsets import OffsetKeeper
from chaos.workload.parts.operator.pulls import PullBounds
from chaos.workload.parts.operator.refusals import RefusalKeeper
from chaos.workload.parts.operator.registrations import RegistrationKeeper
from chaos.workload.parts.operator.relays import RelayEffects
from chaos.workload.parts.operator.requests import OperatorRequests
from chaos.workload.parts.operator.room import RoomEffects
from chaos.workload.parts.operator.rules import RuleEffects
from chaos.workload.parts.operator.servers import ServerKeeper, WriteRight
from chaos.workload.parts.operator.silence import SilenceWatcher
from chaos.workload.parts.operator.topics import TopicKeeper
from client.connection.instance import ClientInstance
from client.message import MessageQueue

__all__ = ["SPEC"]

NAME: Final = "operator"
TOOLS: Final = "operator-tools"
ENDS_S_MAX: Final = 57.0  # behind the drain, from which on an experiment waits for a minute
EFFECTS_S: Final = 18.0  # that all effects take at most where requests are answered at once
DELETES_S: Final = 22.0  # and those of deletion besides
OTHERS_END_S: Final = 3.0
LONGEST_S: Final = 45  # of the 60 s in which clients have to end
MEMBERS: Final = 2
BODY_BYTES_MAX: Final = 64 << 10  # of messages of which a pull brings as many as are counted
SEGMENT_BYTES: Final = 64 << 20  # of the log, where the scenario has none
_Step = Callable[[], Awaitable[None]]


class _Operator:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: OperatorSection = kit.section
        self._working = 0
        self._ended = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return nothing: the groups have no members and are owed nothing."""
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        kit, slot = self._kit, self._kit.slots[NAME]
        client = slot.next_client()
        async with make_tool(kit.context, slot) as tool:
            members = self._members(tool.instance, client)
            registrations = self._registrations(client)
            steps = [
                *self._steps(tool.instance, client),
                *(member.step for member in members),
                *(keeper.step for keeper in registrations),
            ]
            self._working = len(steps)
            async with asyncio.TaskGroup() as tasks:
                for step in steps:
                    tasks.create_task(self._repeat(step, stop, drained))
                for watcher in self._watchers(tool.instance, client):
                    tasks.create_task(watcher.watch(stop))
            for member in members:
                await member.end()
            await drained.wait()
            end_s = asyncio.get_running_loop().time() + ENDS_S_MAX
            await asyncio.sleep(OTHERS_END_S)
            if self._section.takes_write:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._take_write(tool.instance, client))
                    for keeper in registrations:  # in the time that this takes
                        tasks.create_task(keeper.be_silent())
            if self._section.shows_effects:
                await self._show_in_time(tool.instance, client, end_s)

    async def _show_in_time(self, instance: ClientInstance, client: str, end_s: float) -> None:
        """Show the effects of settings, for as long as that takes where requests are answered: a
        run whose clients do not end is no run."""
        began_ns, left_s = time.monotonic_ns(), end_s - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(end_s):
                await self._show_effects(instance, client)
            ended = "in time"
        except TimeoutError:
            ended = f"not within {ENDS_S_MAX:g} s of the drain"
        # A busy machine takes its time, and what a scenario wants before may leave too little.
        is_enough = left_s >= EFFECTS_S + DELETES_S * self._section.deletes
        is_due = is_enough and self._kit.context.world.links.name == "simulated"
        self._expectations(f"{client}.in-time").hold(
            "how the operator's requests about settings ended",
            expected="in time" if is_due else None,
            answered=ended,
            calm_since=began_ns,
        )

    async def _show_effects(self, instance: ClientInstance, client: str) -> None:
        """Have settings of all broker groups forbid what they are about, one after the other."""
        layout = self._kit.context.world.layout
        body_bytes = self._kit.context.scenario.workload.body_bytes
        if len(layout.groups) > 1:
            await self._elsewhere(instance, client).show()
        async with asyncio.TaskGroup() as tasks:
            for group, queues in self._queues().items():
                effects = SettingEffects(
                    OperatorRequests(instance),
                    self._record(f"{client}.effects.{group}", client),
                    self._expectations(f"{client}.effects.{group}"),
                    places=layout.groups[group],
                    servers=layout.name_servers,
                    queue=queues[0],
                    sender=self._sender(f"{client}.sends.{group}", client),
                    rng=self._child(),
                )
                room = RoomEffects(
                    OperatorRequests(instance),
                    self._record(f"{client}.room.{group}", client),
                    self._expectations(f"{client}.room.{group}"),
                    places=layout.groups[group],
                    queue=queues[0],
                    segment_bytes=self._segment_bytes(),
                )
                bounds = [
                    PullBounds(
                        OperatorRequests(instance),
                        self._record(f"{client}.bounds.{group}", client),
                        self._expectations(f"{client}.bounds.{group}"),
                        places=layout.groups[group],
                        queue=queue,
                    )
                    for queue in self._kit.context.queues
                    if queue.broker_name == group and body_bytes <= BODY_BYTES_MAX
                ]
                relays = RelayEffects(
                    self._kit.context,
                    OperatorRequests(instance),
                    self._expectations(f"{client}.relays.{group}"),
                    self._kit.slots[NAME],
                    queue=queues[0],
                )
                halves = HalfEffects(
                    OperatorRequests(instance),
                    BrokerSettings(
                        OperatorRequests(instance),
                        self._record(f"{client}.halves.{group}", client),
                        layout.groups[group],
                        broker_group=group,
                    ),
                    self._expectations(f"{client}.halves.{group}"),
                    broker_group=group,
                    rng=self._child(),
                )
                tasks.create_task(self._show_group(relays, effects, halves, room, bounds[:1]))
            for server in layout.name_servers:
                rules = RuleEffects(
                    OperatorRequests(instance),
                    self._expectations(f"{client}.rules.{server.name}"),
                    place=server,
                    rng=self._child(),
                    is_young=self._kit.context.world.system.processes is not None,
                )
                tasks.create_task(rules.show())

    def _elsewhere(self, instance: ClientInstance, client: str) -> ElsewhereEffects:
        layout = self._kit.context.world.layout
        full = self._child().choice(sorted(layout.groups))
        requests = OperatorRequests(instance)
        return ElsewhereEffects(
            self._kit.context,
            requests,
            self._expectations(f"{client}.elsewhere"),
            BrokerSettings(
                requests,
                self._record(f"{client}.elsewhere.{full}", client),
                layout.groups[full],
                broker_group=full,
            ),
            self._kit.slots[NAME],
            groups=sorted(layout.groups),
            full=full,
        )

    async def _show_group(
        self,
        relays: RelayEffects,
        effects: SettingEffects,
        halves: HalfEffects,
        room: RoomEffects,
        bounds: Sequence[PullBounds],
    ) -> None:
        await relays.show()
        await effects.show()
        await halves.show()
        for each in bounds:
            await each.show()
        await room.show_room()
        if self._section.deletes:
            await room.show_retention()

    def _segment_bytes(self) -> int:
        settings = self._kit.context.world.layout.broker_settings
        return int(str(settings.get("segment_size_bytes_max", SEGMENT_BYTES)))

    async def idle(self) -> None:
        """Return at once: nothing is sent."""

    def is_settled(self) -> bool:
        return self._ended.is_set()

    def has_read(self) -> bool:
        return True

    def _steps(self, instance: ClientInstance, client: str) -> list[_Step]:
        """Return what is done over and over, each by a process of its own."""
        context, requests = self._kit.context, OperatorRequests(instance)
        steps: list[_Step] = []
        for number, group in enumerate(self._groups() * self._section.topics):
            topics = TopicKeeper(
                context,
                requests,
                self._record(f"{client}.topic{number}", client),
                name=f"{NAME}-{number}",
                group=group,
                rng=self._child(),
            )
            steps.append(topics.step)
        for group, queues in self._queues().items():
            offsets = OffsetKeeper(
                context,
                requests,
                self._record(f"{client}.offsets.{group}", client),
                name=f"{NAME}-group-{group}",
                queues=queues,
                rng=self._child(),
            )
            steps.append(offsets.step)
            configured = GroupKeeper(
                context,
                requests,
                self._record(f"{client}.groups.{group}", client),
                queue=queues[0],
                rng=self._child(),
            )
            brokers = BrokerKeeper(
                context,
                requests,
                self._record(f"{client}.brokers.{group}", client),
                group=group,
                rng=self._child(),
            )
            refusals = RefusalKeeper(
                context,
                requests,
                self._record(f"{client}.refusals.{group}", client),
                topic=queues[0].topic,
                group=group,
                rng=self._child(),
            )
            followers = FollowerKeeper(
                context,
                requests,
                self._expectations(f"{client}.followers.{group}"),
                queue=queues[0],
                rng=self._child(),
            )
            steps += [configured.step, brokers.step, refusals.step, followers.step]
        for place in context.world.layout.name_servers:
            server = ServerKeeper(
                requests,
                self._record(f"{client}.{place.name}", client),
                place=place,
                rng=self._child(),
            )
            steps.append(server.step)
        return steps

    def _members(self, instance: ClientInstance, client: str) -> list[MemberKeeper]:
        return [
            MemberKeeper(
                self._kit.context,
                OperatorRequests(instance),
                self._record(f"{client}.member.{group}.{number}", client),
                self._kit.slots[NAME],
                name=f"{NAME}-members-{group}-{number}",
                queues=queues,
                rng=self._child(),
            )
            for group, queues in self._queues().items()
            for number in range(MEMBERS)
        ]

    def _registrations(self, client: str) -> list[RegistrationKeeper]:
        servers = self._kit.context.world.layout.name_servers
        return [
            RegistrationKeeper(
                self._kit.context,
                self._kit.slots[NAME],
                self._expectations(f"{client}.registrations.{place.name}"),
                place=place,
                others=[each for each in servers if each is not place],
                rng=self._child(),
            )
            for place in servers
        ]

    def _watchers(self, instance: ClientInstance, client: str) -> list[SilenceWatcher]:
        return [
            SilenceWatcher(
                self._kit.context,
                OperatorRequests(instance),
                self._expectations(f"{client}.silence.{group}"),
                group=group,
            )
            for group in self._groups()
        ]

    async def _repeat(self, step: _Step, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Do it at the section's pace, until `calm_s` after `stop`."""
        pace = Pace(1 / self._section.change_s, self._child())
        while await pace.wait(stop):
            await step()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._section.calm_s
        while loop.time() < end_s and not await sleep_until_set(drained, self._section.change_s):
            await step()
        self._working -= 1
        if not self._working:
            self._ended.set()

    async def _take_write(self, instance: ClientInstance, client: str) -> None:
        """Take the right to write from all broker groups at once, and give it back."""
        context = self._kit.context
        if route_expiry_ms(context.scenario) > LONGEST_S * 1000:
            return  # brokers register too seldom to wait for
        async with asyncio.TaskGroup() as tasks:
            for group, queues in self._queues().items():
                count = len(queues)
                right = WriteRight(
                    context,
                    OperatorRequests(instance),
                    self._record(f"{client}.write.{group}", client),
                    group=group,
                    topics={queues[0].topic: f"read={count} write={count} perm=6 flag=0"},
                )
                tasks.create_task(right.take_and_give())

    def _record(self, root: str, client: str) -> SettingsRecord:
        return SettingsRecord(self._kit.context, root=root, client=client, client_group=TOOLS)

    def _sender(self, root: str, client: str) -> Actor:
        return Actor(self._kit.context.history, root=root, client=client, client_group=TOOLS)

    def _expectations(self, client: str) -> Expectations:
        return Expectations(self._kit.context.history, client=client, client_group=TOOLS)

    def _groups(self) -> list[str]:
        return list(self._kit.context.world.layout.groups)

    def _queues(self) -> dict[str, list[MessageQueue]]:
        queues = self._kit.context.part_queues[NAME]
        return {
            group: [queue for queue in queues if queue.broker_name == group]
            for group in self._groups()
        }

    def _child(self) -> random.Random:
        return random.Random(self._kit.rng.getrandbits(64))


SPEC: Final = PartSpec(
    name=NAME,
    summary="topics, offsets, entries and rights as an operator changes and shows them",
    topics=lambda section: (NAME,),
    slots=lambda section: (NAME,),
    make=_Operator,
    judged_by=("M14", "M12", "A15", "M5"),
)
