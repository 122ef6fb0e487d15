"""The whole workload: its clients, the slots they dial from, and the order in which they end.

Place in the data path: `chaos.experiment.experiment` starts it for the load, then ends it in steps:
senders stop, transactions are decided while their producers still answer checks, readers drain,
everything ends.

Invariants: shards are dealt to plain processes so that each has one writer; every slot is used by
one kind of client; a reader is ended only after the drain.

Source: the run format (consumer_groups); docs/DESIGN.md section 7.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
from collections.abc import Collection, Coroutine, Sequence
from typing import Final

from chaos.scenario.scenario import Scenario, WorkloadSection
from chaos.scenario.schedule import FaultStep
from chaos.workload.context import Slot, WorkContext
from chaos.workload.final_drain import DRAIN_GROUP
from chaos.workload.key_reader import KeyReader, KnownKeys
from chaos.workload.local_database import LocalDatabase
from chaos.workload.namespaced_history import NamespacedHistory
from chaos.workload.namespaces import application_name, namespace_name, wire_name
from chaos.workload.offset_reader import OffsetReader
from chaos.workload.parts.catalogue import PARTS
from chaos.workload.parts.common.part import PartKit, WorkloadPart
from chaos.workload.plain_sender import PlainClient
from chaos.workload.pull_reader import PullReader
from chaos.workload.push_reader import REBALANCE_MS_MAX, PushGroup, PushReader
from chaos.workload.transactional_sender import TransactionalClient
from client.message import MessageQueue

__all__ = [
    "PLAIN_GROUP",
    "PUSH_GROUP",
    "TOOL_SLOT",
    "TRANSACTION_GROUP",
    "Workload",
    "part_manifest",
    "part_topics",
    "slot_names",
]

PLAIN_GROUP: Final = "plain-producers"
TRANSACTION_GROUP: Final = "transaction-producers"
PUSH_GROUP: Final = "push-consumers"
TOOL_SLOT: Final = "tool"
PLAIN_SLOT: Final = "plain-"
TRANSACTION_SLOT: Final = "tx-"
OFFSET_SLOT: Final = "offsets"
KEY_SLOT: Final = "keys"
DRAIN_SLOT: Final = "drain"
_ROUND_TRIP_MS_MAX: Final = 1_000  # of clocks' readings, see broker.state.group_clock


def slot_names(scenario: Scenario) -> tuple[str, ...]:
    """Return every slot that clients dial from; the world makes proxies for each."""
    settings = scenario.workload
    of_parts = [
        slot for name, section in scenario.parts.items() for slot in PARTS[name].slots(section)
    ]
    return (
        *(f"{PLAIN_SLOT}{i}" for i in range(settings.plain_clients)),
        *(f"{TRANSACTION_SLOT}{i}" for i in range(settings.transaction_clients)),
        *(f"push-{i}" for i in range(settings.push_clients)),
        *(f"pull-{i}" for i in range(settings.pull_clients)),
        OFFSET_SLOT,
        KEY_SLOT,
        DRAIN_SLOT,
        TOOL_SLOT,
        *of_parts,
    )


def part_topics(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    """Return the topics of each part that the scenario lists."""
    return {
        name: tuple(
            wire_name(namespace_of(scenario, name), topic) for topic in PARTS[name].topics(section)
        )
        for name, section in scenario.parts.items()
    }


def namespace_of(scenario: Scenario, part: str) -> str:
    """Return the namespace that the clients of a part work in; empty: none."""
    return namespace_name(part) if part in scenario.workload.namespaced else ""


def part_manifest(scenario: Scenario, steps: Sequence[FaultStep] = ()) -> dict[str, object]:
    """Return the keys of run.json that the parts of the scenario add, where these were its
    faults."""
    added = {
        key: value
        for name, section in scenario.parts.items()
        for key, value in PARTS[name].manifest(section).items()
    }
    delays = added.get("delays")
    if isinstance(delays, dict):
        added["delays"] = {**delays, "early_ms": delays["early_ms"] + _clock_error_ms(steps)}
    return added


def _clock_error_ms(steps: Sequence[FaultStep]) -> int:
    """Return by how much slow links may put the time of a broker group wrong: by half of what one
    direction is slower than the other, and no round trip of more than a second is heeded."""
    slower_ms = [
        float(step.params.get("latency_ms", 0)) + 2 * float(step.params.get("jitter_ms", 0))
        for step in steps
    ]
    return min(_ROUND_TRIP_MS_MAX, math.ceil(max(slower_ms, default=0))) // 2


class Workload:
    """The clients of one run. `run` returns when all of them have ended."""

    def __init__(self, context: WorkContext, rng: random.Random) -> None:
        self._context = context
        self._rng = rng
        self._senders_stop = asyncio.Event()
        self._transactions_end = asyncio.Event()
        self._drained = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._dropped: set[str] = set()
        database = LocalDatabase()
        self._known = KnownKeys()
        settings = context.scenario.workload
        self._plain = [
            PlainClient(
                context,
                self._slot(f"{PLAIN_SLOT}{i}"),
                group=PLAIN_GROUP,
                shards=_deal_shards(settings, i),
                known=self._known,
                rng=self._child(),
            )
            for i in range(settings.plain_clients)
        ]
        self._transactional = [
            TransactionalClient(
                context,
                self._slot(f"{TRANSACTION_SLOT}{i}"),
                group=TRANSACTION_GROUP,
                database=database,
                rng=self._child(),
            )
            for i in range(settings.transaction_clients if settings.transaction_rate > 0 else 0)
        ]
        self._push_group = PushGroup(PUSH_GROUP)
        self._push = [
            PushReader(context, self._slot(f"push-{i}"), self._push_group, rng=self._child())
            for i in range(settings.push_clients)
        ]
        self._pull = [
            PullReader(context, self._slot(f"pull-{i}"), group=f"pull-{i}", rng=self._child())
            for i in range(settings.pull_clients)
        ]
        self._parts = {name: self._make_part(name) for name in context.scenario.parts}
        self.drain_slot = self._slot(DRAIN_SLOT)

    def consumer_groups(self) -> dict[str, dict[str, object]]:
        """Return the manifest's consumer_groups.

        A group is ordered if its one member reads each queue in order; a push member hands queues
        to a listener side by side. The final drain reads the topics of all parts too.
        """
        groups: dict[str, dict[str, object]] = {DRAIN_GROUP: _group(ordered=True)}
        for name, part in self._parts.items():
            groups |= self._groups_of(name, part)
        own = {"topics": list(self._context.scenario.workload.topics)} if self._parts else {}
        if self._push:
            groups[PUSH_GROUP] = _group(ordered=False) | {"rebalance_ms": REBALANCE_MS_MAX} | own
        for reader in self._pull:
            groups[reader.group] = _group(ordered=True) | own
        return groups

    def _groups_of(self, name: str, part: WorkloadPart) -> dict[str, dict[str, object]]:
        """Return a part's groups and their topics by the names that brokers know."""
        space = namespace_of(self._context.scenario, name)
        groups = {
            wire_name(space, group): dict(row) for group, row in part.consumer_groups().items()
        }
        for row in groups.values():
            if name in self._dropped:
                row["at_least_once"] = False
            if isinstance(topics := row.get("topics"), list):
                row["topics"] = [wire_name(space, topic) for topic in topics]
        return groups

    async def run(self) -> None:
        work: dict[str, Coroutine[None, None, None]] = {}
        for i, client in enumerate(self._plain):
            work[f"{PLAIN_SLOT}{i}"] = client.run(self._senders_stop)
        for i, producer in enumerate(self._transactional):
            work[f"{TRANSACTION_SLOT}{i}"] = producer.run(
                self._senders_stop, self._transactions_end
            )
        for i, push in enumerate(self._push):
            work[f"push-{i}"] = push.run(self._senders_stop, self._drained)
        for i, pull in enumerate(self._pull):
            work[f"pull-{i}"] = pull.run(self._senders_stop, self._drained)
        offsets_rate = self._context.scenario.workload.offset_reads_rate
        if offsets_rate > 0:
            reader = OffsetReader(
                self._context, self._slot(OFFSET_SLOT), rate=offsets_rate, rng=self._child()
            )
            work[OFFSET_SLOT] = reader.run(self._senders_stop)
        keys_rate = self._context.scenario.workload.key_queries_rate
        if keys_rate > 0:
            key_reader = KeyReader(
                self._context,
                self._slot(KEY_SLOT),
                self._known,
                rate=keys_rate,
                rng=self._child(),
            )
            work[KEY_SLOT] = key_reader.run(self._senders_stop)
        for name, part in self._parts.items():
            work[name] = part.run(self._senders_stop, self._drained)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = [tasks.create_task(each, name=name) for name, each in work.items()]

    def working(self) -> list[str]:
        """Return the slots whose clients have not ended."""
        return [task.get_name() for task in self._tasks if not task.done()]

    def stop_sending(self) -> None:
        self._senders_stop.set()

    async def idle(self, seconds: float) -> list[str]:
        """Wait until senders have completed what they have begun, and no transaction is open;
        return the clients that have not within `seconds`."""
        plain = [task for task in self._tasks if task.get_name().startswith(PLAIN_SLOT)]
        waits = {
            **{task.get_name(): _ended(task) for task in plain},
            **{f"{TRANSACTION_SLOT}{i}": tx.idle() for i, tx in enumerate(self._transactional)},
            **{name: part.idle() for name, part in self._parts.items()},
        }
        tasks = [asyncio.create_task(wait, name=name) for name, wait in waits.items()]
        try:
            done, left = await asyncio.wait(tasks, timeout=seconds) if tasks else ((), ())
        finally:
            for task in tasks:
                task.cancel()
        for task in done:
            task.result()
        return sorted(task.get_name() for task in left)

    def drop(self, names: Collection[str]) -> None:
        """Cancel clients, so that the others go on.

        The part of such a client is waited for no more, and its groups are not to read all.
        """
        self._dropped.update(names)
        for task in self._tasks:
            if task.get_name() in names:
                task.cancel()

    def unsettled_parts(self) -> list[str]:
        """Return the parts by whose doing more may be stored."""
        return [name for name, part in self._waited_for() if not part.is_settled()]

    def last_check_ns(self) -> int:
        """Return when a check last came or was answered, in nanoseconds of the run; 0: never."""
        return max(
            (log.last_ns for client in self._transactional for log in client.checks), default=0
        )

    def end_transactions(self) -> None:
        """Stop answering checks from now on."""
        self._transactions_end.set()

    def readers_reached(self, ends: dict[MessageQueue, int]) -> bool:
        """Return whether every consumer group has read up to these offsets of its topics."""
        # Each is asked, done or not: some begin their last round when they are first asked.
        have_read = [part.has_read() for _, part in self._waited_for()]
        if not all(have_read):
            return False
        own = set(self._context.queues)
        ends = {queue: end for queue, end in ends.items() if queue in own}
        pulled = all(reader.reached(ends) for reader in self._pull)
        return pulled and (not self._push or self._push_group.reached(ends))

    def end_readers(self) -> None:
        self._drained.set()

    def _waited_for(self) -> list[tuple[str, WorkloadPart]]:
        return [(name, part) for name, part in self._parts.items() if name not in self._dropped]

    def _make_part(self, name: str) -> WorkloadPart:
        section = self._context.scenario.parts[name]
        spec = PARTS[name]
        slots = {slot: self._slot(slot) for slot in spec.slots(section)}
        context = self._context
        namespace = namespace_of(context.scenario, name)
        if namespace:
            for slot in slots.values():
                slot.namespace = namespace
            context = _in_namespace(context, name, namespace)
        return spec.make(PartKit(context=context, section=section, slots=slots, rng=self._child()))

    def _slot(self, name: str) -> Slot:
        return self._context.slot(name, self._child())

    def _child(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])  # whose error is its task group's


def _in_namespace(context: WorkContext, name: str, namespace: str) -> WorkContext:
    """Return the context of a part whose clients know names without their namespace."""
    queues = [
        dataclasses.replace(queue, topic=application_name(namespace, queue.topic))
        for queue in context.part_queues[name]
    ]
    return dataclasses.replace(
        context,
        history=NamespacedHistory(context.history, namespace),
        part_queues={**context.part_queues, name: queues},
    )


def _deal_shards(settings: WorkloadSection, client: int) -> Sequence[Sequence[int]]:
    """Return the shards of each process of a plain client.

    Every shard has one process of one client.
    """
    processes = settings.plain_processes
    count = settings.plain_clients * processes
    return [range(client * processes + i, settings.shards, count) for i in range(processes)]


def _group(*, ordered: bool) -> dict[str, object]:
    return {"kind": "cluster", "at_least_once": True, "ordered": ordered}
