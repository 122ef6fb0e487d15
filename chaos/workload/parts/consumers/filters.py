"""Filters: push groups that subscribe to some tags, by name or by an SQL92 expression.

Place in the data path: a feed sends to the part's topic, whose messages have four tags in turn; one
group wants two of them as `a || b`, one wants others by SQL92, and one that filters by name too
joins when the others have consumed for a while, as a new subscriber does. Beside them `sql_readers`
has a group for each operator of SQL92, which pull the same topic.

Invariants: what a group wants is told in the manifest as tags, whatever its expression; every group
begins at the first message that is there.

Source: RocketMQ ExpressionMessageFilter, FilterAPI; rules C13, S5, A12.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.recording.history import MessageRow
from chaos.scenario.part_sections import FiltersSection
from chaos.workload.context import Slot
from chaos.workload.messages import tag_of
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.push_members import (
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.consumers.sql_readers import SqlReaders
from chaos.workload.push_reader import REBALANCE_MS_MAX
from client.connection.heartbeat import ExpressionType
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage

__all__ = ["SPEC"]

NAME: Final = "filters"
CRASH_SHARE: Final = 0.5
BATCH_MAX: Final = 4
SQL_SENDER: Final = f"{NAME}-sql-sender"
SQL_READER: Final = f"{NAME}-sql-reader"
LATE_SHARE: Final = 0.4  # of the load, before the last group joins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a group subscribes to, and the tags that it thereby wants."""

    group: str
    expression: str
    kind: ExpressionType
    tags: tuple[str, ...]
    joins_late: bool = False


_GROUPS: Final = (
    _Wanted(
        group=f"{NAME}-by-tag",
        expression="T0 || T2",
        kind=ExpressionType.TAG,
        tags=("T0", "T2"),
    ),
    _Wanted(
        group=f"{NAME}-by-sql",
        expression="TAGS IN ('T1', 'T3') AND u_number IS NOT NULL",
        kind=ExpressionType.SQL92,
        tags=("T1", "T3"),
    ),
    _Wanted(
        group=f"{NAME}-late",
        expression="T1||T2||T3",
        kind=ExpressionType.TAG,
        tags=("T1", "T2", "T3"),
        joins_late=True,
    ),
)


class FiltersPart:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: FiltersSection = kit.section
        self._owed = {wanted.group: Owed() for wanted in _GROUPS}
        self._feed = Feed(
            kit, NAME, f"{NAME}-sender", rate=self._section.rate, on_acked=self._acked
        )
        self._sql = SqlReaders(
            kit, topic=NAME, prefix=f"{NAME}-sql", send_slot=SQL_SENDER, read_slot=SQL_READER
        )
        self._members = [
            (wanted, self._members_of(wanted, kit.slots[_slot(wanted)])) for wanted in _GROUPS
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {wanted.group: _manifest(wanted.tags) for wanted in _GROUPS} | {
            group: _manifest(tags) for group, tags in self._sql.tags_by_group().items()
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed.run(stop))
            tasks.create_task(self._sql.run(stop, drained))
            for wanted, members in self._members:
                tasks.create_task(self._join(wanted, members, stop, drained))

    async def idle(self) -> None:
        await self._feed.idle()
        await self._sql.idle()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return self._sql.has_read() and all(owed.is_empty for owed in self._owed.values())

    async def _join(
        self, wanted: _Wanted, members: PushMembers, stop: asyncio.Event, drained: asyncio.Event
    ) -> None:
        if wanted.joins_late:
            await sleep_until_set(stop, LATE_SHARE * self._kit.context.scenario.load.seconds)
        await members.run(stop, drained)

    def _acked(self, row: MessageRow) -> None:
        for wanted in _GROUPS:
            if tag_of(row.value) in wanted.tags:
                self._owed[wanted.group].acknowledged(row.value)

    def _members_of(self, wanted: _Wanted, slot: Slot) -> PushMembers:
        rng = random.Random(self._kit.rng.getrandbits(64))

        def make(client: str) -> Member:
            deliveries = Deliveries(self._kit, client=client, group=wanted.group)

            async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
                rows = rows_of(messages)
                with deliveries.delivery(messages[0].queue, rows) as operation:
                    operation.complete("ok")
                self._owed[wanted.group].consumed(row.value for row in rows)
                return ConsumeStatus.CONSUME_SUCCESS

            return make_member(
                self._kit,
                slot,
                listen,
                client=client,
                group=wanted.group,
                topics=[NAME],
                settings={"consume_batch_max": BATCH_MAX},
                expression=wanted.expression,
                kind=wanted.kind,
            )

        return PushMembers(
            slot,
            make,
            restart_s=self._section.restart_s,
            crash=lambda: rng.random() < CRASH_SHARE,
            rng=rng,
        )


def _manifest(tags: Sequence[str]) -> Mapping[str, object]:
    return {
        "kind": "cluster",
        "at_least_once": False,
        "ordered": False,
        "rebalance_ms": REBALANCE_MS_MAX,
        "topics": [NAME],
        "tags": list(tags),
    }


def _slot(wanted: _Wanted) -> str:
    return f"{wanted.group}-0"


SPEC: Final = PartSpec(
    name=NAME,
    summary="groups that want some tags, by name or by SQL92 with every operator; one joins late",
    topics=lambda _: [NAME],
    slots=lambda _: [f"{NAME}-sender", SQL_SENDER, SQL_READER, *map(_slot, _GROUPS)],
    make=FiltersPart,
    judged_by=("C13", "S5", "A12"),
)
