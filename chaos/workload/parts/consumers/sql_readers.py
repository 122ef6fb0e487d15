"""Readers by SQL92: messages of many kinds, and a group for each operator that a filter can have.

Place in the data path: a producer of the part `filters` sends messages whose tag names the kind of
their properties; one client then pulls the topic for every group, by the group's expression. Which
kinds a group wants comes from `sql_model`, and is told in the manifest as tags.

Invariants: a pull's messages are one delivery of the group, since filtered polls have gaps; each
group reads on from where its last answer ended; behind `drained` all are read once more.

Source: RocketMQ ExpressionMessageFilter; rule C13.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.scenario.part_sections import FiltersSection
from chaos.workload.messages import PROPERTY_VALUE, wall_ms
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.push_members import Deliveries, rows_of
from chaos.workload.parts.consumers.sql_model import conditions, is_wanted, spelled
from client.connection.heartbeat import ExpressionType, Subscription
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.consume.queue_requests import PullStatus, QueueRequests
from client.errors import ClientError
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings

__all__ = ["KINDS", "OTHER_TAGS", "SqlReaders"]

TIMEOUT_MS: Final = 4_000
COUNT_MAX: Final = 32
ROUND_PAUSE_S: Final = 1.0
OTHER_TAGS: Final = ("T0", "T1", "T2", "T3")  # of messages without any of the properties
KINDS: Final[Sequence[Mapping[str, str]]] = (
    {"p": "a", "n": "7"},
    {"p": "b", "n": "-3"},
    {"p": "c", "n": "7.5"},
    {"n": "10"},
    {"p": "A", "b": "true"},
    {"p": "it's", "b": "TRUE", "n": "8"},
    {"p": "a", "n": "abc"},
    {"p": "größer", "n": "007"},
    {"p": "ab", "n": "1e1"},
    {"b": "false"},
    {"n": "10", "m": "9", "k": "11"},
    {"n": "7", "m": "007", "p": "a", "q": "a"},
    {"n": "-3", "m": "2.5", "k": "-10", "p": "a", "q": "A"},
    {"n": "1e1", "m": "10", "k": "9.5d", "q": "b"},
    {"n": "100", "m": "abc", "p": "ab"},
    {"n": "8", "m": "8.0", "k": "9"},
    {"n": "2147483647"},
    {"n": "2147483648", "m": "-2147483649"},
    {"n": "-4294967296", "p": "b"},
    {"n": "4294967296", "m": "4294967295.5"},
    {"n": "1764000000000", "p": "a"},
    {"n": "9223372036854775806"},
    {"n": "9223372036854775808"},
    {"m": "8", "k": "70"},
)
_BY_TAG: Final = {f"K{number}": kind for number, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    name: str
    expression: str
    tags: tuple[str, ...]
    owed: Owed = field(default_factory=Owed)


class SqlReaders:
    """The sender and the reader of `topic`; groups' names begin with `prefix`."""

    def __init__(
        self, kit: PartKit, *, topic: str, prefix: str, send_slot: str, read_slot: str
    ) -> None:
        self._kit = kit
        self._section: FiltersSection = kit.section
        self._topic = topic
        self._queues = [each for each in kit.context.part_queues["filters"] if each.topic == topic]
        self._send_slot = kit.slots[send_slot]
        self._read_slot = kit.slots[read_slot]
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._groups = _groups(prefix, self._rng, self._section.sql_compositions)
        self._sent = asyncio.Event()

    def tags_by_group(self) -> Mapping[str, Sequence[str]]:
        """Return which tags each group wants."""
        return {group.name: group.tags for group in self._groups}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Send until `stop`; read in the middle of the load, and from its end until `drained`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(stop))
            tasks.create_task(self._read(stop, drained))

    async def idle(self) -> None:
        await self._sent.wait()

    def has_read(self) -> bool:
        return all(group.owed.is_empty for group in self._groups)

    async def _send(self, stop: asyncio.Event) -> None:
        slot, rng = self._send_slot, random.Random(self._rng.getrandbits(64))
        client = slot.next_client()
        producer = Producer(
            f"{self._topic}-sql-producers",
            self._kit.context.name_servers,
            slot.dial,
            settings=ProducerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings()),
        )
        pace, tags, number = Pace(self._section.sql_rate, rng), list(_BY_TAG), 0
        try:
            async with producer:
                sender = PartSender(self._kit.context, producer, root=client, ref=None, rng=rng)
                while await pace.wait(stop):
                    tag = tags[number % len(tags)]
                    number += 1
                    message = sender.make(self._topic)
                    message.tags = tag
                    message.properties = {**message.properties, **_BY_TAG[tag]}
                    if await sender.send(message, rng.choice(self._queues)):
                        for group in self._groups:
                            if tag in group.tags:
                                group.owed.acknowledged(message.properties[PROPERTY_VALUE])
        finally:
            self._sent.set()

    async def _read(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        await sleep_until_set(stop, self._kit.context.scenario.load.seconds / 2)
        client = self._read_slot.next_client()
        async with make_tool(self._kit.context, self._read_slot) as tool:
            readers = [
                _Reader(self._kit, tool.instance, group, self._queues, client=f"{client}-{number}")
                for number, group in enumerate(self._groups)
            ]
            await _round(readers)
            await stop.wait()
            while not drained.is_set():
                await _round(readers)
                await sleep_until_set(drained, ROUND_PAUSE_S)
            await _round(readers)


class _Reader:
    """One group's positions in the queues."""

    def __init__(
        self,
        kit: PartKit,
        instance: ClientInstance,
        group: _Group,
        queues: Sequence[MessageQueue],
        *,
        client: str,
    ) -> None:
        self._group = group
        self._deliveries = Deliveries(kit, client=client, group=group.name)
        self._positions = dict.fromkeys(queues, 0)
        self._version = wall_ms()
        self._requests = QueueRequests(
            instance, group.name, timeout_ms=TIMEOUT_MS, policy=RetryPolicy(attempts_max=2)
        )

    async def read(self) -> None:
        """Read every queue to its end; one without an answer is read on the next time."""
        for queue in self._positions:
            while await self._pull(queue):
                pass

    async def _pull(self, queue: MessageQueue) -> bool:
        """Pull once; return whether there may be more."""
        try:
            result = await self._requests.pull(
                queue,
                self._positions[queue],
                count_max=COUNT_MAX,
                suspend_ms=0,
                subscription=Subscription(
                    topic=queue.topic,
                    expression=self._group.expression,
                    kind=ExpressionType.SQL92,
                    version=self._version,
                ),
                timeout_ms=TIMEOUT_MS,
            )
        except ClientError:
            return False
        if result.messages:
            rows = rows_of(result.messages)
            with self._deliveries.delivery(queue, rows) as operation:
                operation.complete("ok")
            self._group.owed.consumed(row.value for row in rows)
        is_moved = result.next_begin_offset > self._positions[queue]
        self._positions[queue] = max(self._positions[queue], result.next_begin_offset)
        return is_moved and result.status in {PullStatus.FOUND, PullStatus.NO_MATCHED_MSG}


async def _round(readers: Sequence[_Reader]) -> None:
    for reader in readers:
        await reader.read()


def _groups(prefix: str, rng: random.Random, compositions: int) -> Sequence[_Group]:
    return [
        _Group(
            name=f"{prefix}-{number:02d}",
            expression=spelled(condition.text, rng),
            tags=(
                *(tag for tag, kind in _BY_TAG.items() if is_wanted(condition, kind)),
                *(OTHER_TAGS if is_wanted(condition, {}) else ()),
            ),
        )
        for number, condition in enumerate(conditions(rng, compositions))
    ]
