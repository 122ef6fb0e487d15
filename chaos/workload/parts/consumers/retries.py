"""Retries and dead letters: a push group that refuses some messages once, twice or always.

Place in the data path: a feed sends to the part's topic; refused messages come again through
`%RETRY%group`, reconsume counts up, and what is refused more than `retries_max` times stands in
`%DLQ%group`, which is read once all members have ended.

Invariants: how often a message is refused follows from its value alone, so that every member
refuses it alike; a delivery has one message, so that each is refused for itself; the part is
settled when nothing that was refused can still come again.

Source: RocketMQ CONSUMER_SEND_MSG_BACK; rules C6, C7, C8, C18.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.recording.history import MessageRow
from chaos.scenario.part_sections import RetriesSection
from chaos.workload.context import Slot
from chaos.workload.parts.common.failing_listener import CONSUME_TIMEOUT_MS, refuse
from chaos.workload.parts.common.fed_part import FedPart
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
from chaos.workload.parts.consumers.dead_letters import DeadLetters
from chaos.workload.push_reader import REBALANCE_MS_MAX
from client.connection.send_codec import CompressionType
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["SPEC", "refusals_of"]

NAME: Final = "retries"
GROUP: Final = f"{NAME}-consumers"
READER_GROUP: Final = f"{NAME}-dead-letters"
DELAY_LEVEL: Final = 1  # the broker's choice begins with ten seconds, and runs are short
DELAY_MS: Final = 1_000  # of that level
CRASH_SHARE: Final = 0.5
# A refused message is stored again, or here, within its timeout, once the listener has ended.
LAST_REFUSAL_MS: Final = 4_000 + CONSUME_TIMEOUT_MS


def refusals_of(value: str, *, retries_max: int, refuse_share: float, poison_share: float) -> int:
    """Return how often a message is refused; more than `retries_max`: whenever it comes."""
    luck = zlib.crc32(value.encode()) / 2**32
    if luck < poison_share:
        return retries_max + 1_000
    if luck < poison_share + refuse_share:
        return 1 + zlib.crc32(value[::-1].encode()) % max(1, retries_max)
    return 0


class RetriesPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: RetriesSection = kit.section
        self._owed = Owed()
        self._waiting: set[str] = set()  # refused, and to come again
        self._refused_s = 0.0
        self._feed = Feed(
            kit,
            NAME,
            f"{NAME}-sender",
            rate=self._section.rate,
            kinds=tuple(CompressionType),
            on_acked=lambda row: self._owed.acknowledged(row.value),
        )
        self._members = [
            self._slot_members(kit.slots[f"{NAME}-{i}"], random.Random(kit.rng.getrandbits(64)))
            for i in range(int(self._section.clients))
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """A message that is always refused is never read ok, so C6 takes the place of A5."""
        common = {"kind": "cluster", "at_least_once": False, "ordered": False}
        return {
            GROUP: common
            | {
                "topics": [NAME],
                "rebalance_ms": REBALANCE_MS_MAX,
                "retries_max": int(self._section.retries_max),
                "retry_delay_ms": DELAY_MS,
            },
            READER_GROUP: common | {"topics": [DLQ_PREFIX + GROUP]},
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        await super().run(stop, drained)
        await DeadLetters(
            self._kit.context, self._kit.slots[f"{NAME}-dead"], group=GROUP, reader=READER_GROUP
        ).read()

    def is_settled(self) -> bool:
        quiet_s = asyncio.get_running_loop().time() - self._refused_s
        return not self._waiting and self._owed.is_empty and quiet_s >= LAST_REFUSAL_MS / 1000

    def has_read(self) -> bool:
        return not self._waiting and self._owed.is_empty

    def _slot_members(self, slot: Slot, rng: random.Random) -> PushMembers:
        def make(client: str) -> Member:
            deliveries = Deliveries(self._kit, client=client, group=GROUP)

            async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
                if await self._consume(messages, deliveries, rng):
                    return ConsumeStatus.CONSUME_SUCCESS
                return await refuse(rng)

            return make_member(
                self._kit,
                slot,
                listen,
                client=client,
                group=GROUP,
                topics=[NAME],
                settings={
                    "retry_delay_level": DELAY_LEVEL,
                    "reconsume_times_max": int(self._section.retries_max),
                    "consume_timeout_ms": CONSUME_TIMEOUT_MS,
                },
            )

        return PushMembers(
            slot,
            make,
            restart_s=self._section.restart_s,
            crash=lambda: rng.random() < CRASH_SHARE,
            rng=rng,
        )

    async def _consume(
        self, messages: Sequence[DeliveredMessage], deliveries: Deliveries, rng: random.Random
    ) -> bool:
        """Record a call of the listener; return whether it consumes."""
        rows = rows_of(messages)
        with deliveries.delivery(messages[0].queue, rows) as operation:
            await asyncio.sleep(rng.uniform(0, 2 * self._section.consume_ms / 1000))
            (row,) = rows
            refused = messages[0].reconsume_times < self._refusals(row)
            operation.complete("fail" if refused else "ok")
        if not refused:
            self._waiting.discard(row.value)
            self._owed.consumed([row.value])
            return True
        self._refused_s = asyncio.get_running_loop().time()
        if messages[0].reconsume_times < self._section.retries_max:
            self._waiting.add(row.value)
        else:  # it goes to the dead letters
            self._waiting.discard(row.value)
            self._owed.consumed([row.value])
        return False

    def _refusals(self, row: MessageRow) -> int:
        return refusals_of(
            row.value,
            retries_max=int(self._section.retries_max),
            refuse_share=self._section.refuse_share,
            poison_share=self._section.poison_share,
        )


def _slots(section: RetriesSection) -> Sequence[str]:
    members = [f"{NAME}-{i}" for i in range(int(section.clients))]
    return [f"{NAME}-sender", f"{NAME}-dead", *members]


SPEC: Final = PartSpec(
    name=NAME,
    summary="a push group that refuses some messages once, twice or always: retries, dead letters",
    topics=lambda _: [NAME],
    slots=_slots,
    make=RetriesPart,
    judged_by=("C6", "C7", "C8", "C10", "C18", "A12"),
)
