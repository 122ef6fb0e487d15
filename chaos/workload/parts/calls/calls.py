"""The calls of the client library that applications make and no other part does.

Place in the data path: a producer that sends in every way, directly and through the blocking
client, and is traced; members that suspend, unsubscribe and hold little; groups that start at the
beginning, at a time, or at the end; two members that share their queues when a broker tells them of
each other; one member that changes its expression and is asked to consume single messages; one that
pops by tags; the trace topic, read at the end.

Invariants: every send and delivery is an operation as any other part's; what the client promises
beyond that is held against what it did, as an expectation.

Source: docs/CLIENT.md; rules M12, A5, A12, A18, A23.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import CallsSection
from chaos.workload.expectations import Expectations
from chaos.workload.parts.calls.admin import AdminCalls
from chaos.workload.parts.calls.blocking import hold_blocking_calls
from chaos.workload.parts.calls.members import GROUP, START_GROUPS, MovingMembers, StartingGroup
from chaos.workload.parts.calls.pairs import GROUP as PAIR_GROUP
from chaos.workload.parts.calls.pairs import Pair
from chaos.workload.parts.calls.popper import Popper
from chaos.workload.parts.calls.queried import QueriedMember
from chaos.workload.parts.calls.sender import GROUP as PRODUCERS
from chaos.workload.parts.calls.sender import CallsSender, Sent
from chaos.workload.parts.calls.splits import hold_splits
from chaos.workload.parts.calls.tracers import hold_tracers
from chaos.workload.parts.calls.traces import TracesDrill
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from client.administer.admin import Admin, AdminSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError

__all__ = ["SPEC"]

NAME: Final = "calls"
PAIR: Final = (f"{NAME}-pair-0", f"{NAME}-pair-1")
REBALANCE_MS: Final = 10_000  # an unsubscribed member's queues are nobody's for a while
STARTS_WITHIN: Final = (0.1, 0.7)  # of the load


class CallsPart:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        section: CallsSection = kit.section
        self._owed = Owed()
        self._sent: dict[str, Sent] = {}
        self._sender = CallsSender(
            kit.context,
            kit.slots[f"{NAME}-sender"],
            kit.context.part_queues[NAME],
            rate=section.rate,
            rng=random.Random(kit.rng.getrandbits(64)),
            on_acked=self._acked,
        )
        self._members = [
            MovingMembers(
                kit,
                kit.slots[f"{NAME}-{number}"],
                self._owed,
                topic=NAME,
                restart_s=section.restart_s,
                traced=number == 0,
            )
            for number in range(int(section.clients))
        ]
        load_s = kit.context.scenario.load.seconds
        self._starts = [
            StartingGroup(
                kit,
                kit.slots[group],
                self._sent,
                group=group,
                topic=NAME,
                after_s=load_s * kit.rng.uniform(*STARTS_WITHIN),
            )
            for group in START_GROUPS
        ]
        self._queried = QueriedMember(kit, kit.slots[f"{NAME}-asked"], self._sent, topic=NAME)
        self._popper = Popper(kit, kit.slots[f"{NAME}-popper"], self._sent, topic=NAME)
        self._pair = Pair(kit, [kit.slots[name] for name in PAIR], topic=NAME)
        self._admin = AdminCalls(
            kit,
            kit.slots[f"{NAME}-admin"],
            self._sent,
            kit.context.part_queues[NAME],
            rng=random.Random(kit.rng.getrandbits(64)),
        )
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """A group that starts elsewhere than at the beginning is not owed all."""
        common = {"kind": "cluster", "ordered": False, "topics": [NAME]}
        return {
            GROUP: {**common, "at_least_once": True, "rebalance_ms": REBALANCE_MS},
            **{
                group: {**common, "at_least_once": group.endswith("first")}
                for group in START_GROUPS
            },
            **self._queried.consumer_groups(),
            **self._pair.consumer_groups(),
            **self._popper.consumer_groups(),
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        expectations = Expectations(
            self._kit.context.history, client=f"{NAME}-blocking", client_group=PRODUCERS
        )
        await hold_blocking_calls(expectations, random.Random(self._kit.rng.getrandbits(64)))
        hold_splits(expectations, random.Random(self._kit.rng.getrandbits(64)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(stop))
            tasks.create_task(self._admin.run(stop))
            tracers_rng = random.Random(self._kit.rng.getrandbits(64))
            tasks.create_task(hold_tracers(expectations, tracers_rng, stop))
            for members in self._members:
                tasks.create_task(members.members.run(stop, drained))
            tasks.create_task(self._queried.run(stop, drained))
            tasks.create_task(self._pair.run(stop, drained))
            tasks.create_task(self._popper.run(drained))
            for starting in self._starts:
                tasks.create_task(starting.run(stop, drained))
        await TracesDrill(
            self._kit, self._kit.slots[f"{NAME}-traces"], self._sent, topic=NAME
        ).hold(
            self._sender.ended_traced,
            [given for members in self._members for given in members.traced()],
        )
        if self._pair.owed.is_empty:
            await self._hold_progress()

    async def _hold_progress(self) -> None:
        """Hold that the pair, which has left, has committed all that there is."""
        context, slot = self._kit.context, self._kit.slots[f"{NAME}-traces"]
        expectations = Expectations(
            context.history, client=f"{slot.next_client()}.progress", client_group=PAIR_GROUP
        )
        begun_ns = time.monotonic_ns()
        admin = Admin(
            context.name_servers,
            slot.dial,
            settings=AdminSettings(instance=slot.instance_settings()),
        )
        settings = PullConsumerSettings(register=False, instance=slot.instance_settings())
        reader = PullConsumer(PRODUCERS, context.name_servers, slot.dial, settings=settings)
        try:
            async with admin, reader:
                queues = await reader.queues(NAME)
                ends = {queue: await reader.max_offset(queue) for queue in queues}
                progress = await admin.consumer_progress(PAIR_GROUP, NAME)
        except ClientError:
            return  # nobody answers any more: what can't be read is not judged
        expectations.hold(
            "progress of a group that has consumed all",
            expected=[
                f"{queue.broker_name} {queue.queue_id}: {ends[queue]} of {ends[queue]}"
                for queue in sorted(queues)
            ],
            answered=[
                f"{queue.broker_name} {queue.queue_id}: {progress[queue].consumer_offset}"
                f" of {progress[queue].broker_offset}"
                for queue in sorted(progress)
            ],
            topic=NAME,
            calm_since=begun_ns,
        )

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        missing = self._queried.missing() | self._popper.missing()
        missing = missing.union(*(each.missing() for each in self._starts))
        return self._owed.is_empty and self._pair.owed.is_empty and not missing

    async def _send(self, stop: asyncio.Event) -> None:
        try:
            await self._sender.run(stop)
        finally:
            self._idle.set()

    def _acked(self, sent: Sent) -> None:
        self._sent[sent.row.value] = sent
        self._owed.acknowledged(sent.row.value)
        self._pair.owed.acknowledged(sent.row.value)


def _slots(section: CallsSection) -> Sequence[str]:
    members = [f"{NAME}-{number}" for number in range(int(section.clients))]
    alone = [f"{NAME}-{what}" for what in ("sender", "admin", "traces", "asked", "popper")]
    return [*alone, *PAIR, *members, *START_GROUPS]


SPEC: Final = PartSpec(
    name=NAME,
    summary="the calls of the client that no other part makes, and what they promise",
    topics=lambda _: [NAME],
    slots=_slots,
    make=CallsPart,
    judged_by=("M12", "C18", "C19", "A5", "A12", "A18", "A22"),
)
