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
from chaos.workload.parts.calls_asked import AskedMember
from chaos.workload.parts.calls_members import GROUP, START_GROUPS, MovingMembers, StartingGroup
from chaos.workload.parts.calls_pairs import GROUP as PAIR_GROUP
from chaos.workload.parts.calls_pairs import Pair
from chaos.workload.parts.calls_popper import Popper
from chaos.workload.parts.calls_sender import GROUP as PRODUCERS
from chaos.workload.parts.calls_sender import CallsSender, Sent
from chaos.workload.parts.owed import Owed
from chaos.workload.parts.part import PartKit, PartSpec
from chaos.workload.parts.trace_records import Trace, traces_of
from client.administer.admin import Admin, AdminSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError

__all__ = ["SPEC"]

NAME: Final = "calls"
PAIR: Final = (f"{NAME}-pair-0", f"{NAME}-pair-1")
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
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
        self._asked = AskedMember(kit, kit.slots[f"{NAME}-asked"], self._sent, topic=NAME)
        self._popper = Popper(kit, kit.slots[f"{NAME}-popper"], self._sent, topic=NAME)
        self._pair = Pair(kit, [kit.slots[name] for name in PAIR], topic=NAME)
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
            **self._asked.consumer_groups(),
            **self._pair.consumer_groups(),
            **self._popper.consumer_groups(),
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(stop))
            for members in self._members:
                tasks.create_task(members.members.run(stop, drained))
            tasks.create_task(self._asked.run(stop, drained))
            tasks.create_task(self._pair.run(stop, drained))
            tasks.create_task(self._popper.run(drained))
            for starting in self._starts:
                tasks.create_task(starting.run(stop, drained))
        await _Traces(self._kit, self._sent).hold()
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
            since_ns=begun_ns,
        )

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        missing = self._asked.missing() | self._popper.missing()
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


class _Traces:
    """Reads what the part's clients traced, and holds it against what was sent."""

    def __init__(self, kit: PartKit, sent: Mapping[str, Sent]) -> None:
        self._context = kit.context
        self._slot = kit.slots[f"{NAME}-traces"]
        self._sent = {str(each.message.uniq_key): each for each in sent.values()}
        self._expectations = Expectations(
            kit.context.history, client=self._slot.next_client(), client_group=PRODUCERS
        )

    async def hold(self) -> None:
        try:
            traces = await self._read()
        except ClientError:
            return  # nobody answers any more: what can't be read is not judged
        published: set[str] = set()
        for trace in traces:
            if trace["kind"] == "Pub":
                published.update(self._hold_published(trace))
            elif trace["kind"] == "SubAfter":
                told = trace.get("code"), trace.get("success")
                self._expectations.hold(
                    "return code in a trace of a delivery, and success",
                    expected=("0", "true") if told[0] == "0" else ("4", "false"),
                    answered=told,
                )
        # Traces of a client may be lost with a broker; not those of all its sends.
        enough = len(self._sent) >= 10
        self._expectations.hold(
            "whether sends of a traced client were traced",
            expected=True if enough else None,
            answered=bool(published & self._sent.keys()),
        )

    def _hold_published(self, trace: Trace) -> Sequence[str]:
        keys = trace["msg_id"].split(",")
        first = self._sent.get(keys[0])
        if first is None:
            return ()  # its answer was lost on the way to the application
        message = first.message
        self._expectations.hold(
            "trace of a send",
            expected={
                "group": PRODUCERS,
                "topic": NAME,
                "tags": message.tags or "null",
                "keys": " ".join(message.keys) or "null",
                "body_size": str(len(message.body)),
                "type": "0",
                "offset_msg_id": first.result.offset_msg_id,
                "store_host": first.result.address,
                "success": "true",
            },
            answered={
                name: trace.get(name)
                for name in (
                    *("group", "topic", "tags", "keys", "body_size", "type"),
                    *("offset_msg_id", "store_host", "success"),
                )
            },
        )
        return keys

    async def _read(self) -> list[Trace]:
        """Read the trace topic to its end. Raises ClientError."""
        traces: list[Trace] = []
        settings = PullConsumerSettings(register=False, instance=self._slot.instance_settings())
        async with PullConsumer(
            PRODUCERS, self._context.name_servers, self._slot.dial, settings=settings
        ) as consumer:
            for queue in await consumer.queues(TRACE_TOPIC):
                position, end = 0, await consumer.max_offset(queue)
                while position < end:
                    result = await consumer.pull(queue, position)
                    for message in result.messages:
                        traces += traces_of(message.body)
                    if result.next_begin_offset <= position:
                        break
                    position = result.next_begin_offset
        return traces


def _slots(section: CallsSection) -> Sequence[str]:
    members = [f"{NAME}-{number}" for number in range(int(section.clients))]
    alone = [f"{NAME}-{what}" for what in ("sender", "traces", "asked", "popper")]
    return [*alone, *PAIR, *members, *START_GROUPS]


SPEC: Final = PartSpec(
    name=NAME,
    summary="the calls of the client that no other part makes, and what they promise",
    topics=lambda _: [NAME],
    slots=_slots,
    make=CallsPart,
    judged_by=("M12", "C18", "C19", "A5", "A12", "A18", "A22"),
)
