"""Drills of what consumers send back: to the dead letters at once, to the retries after a delay,
and from there to the dead letters.

Place in the data path: `drills` makes one with each new group; CONSUMER_SEND_MSG_BACK, and pulls of
`%RETRY%group` and `%DLQ%group`, whose contents are known beforehand: which message, how often it
was tried, where it comes from at first, what it brings for whoever consumes it.

Source: RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack; C6 to C8 judge push consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE
from chaos.workload.parts.common.drill import Drill, Stored, Unsure
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.brought import brought, brought_by
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import DLQ_PREFIX, RETRY_PREFIX
from remoting.records.property_names import PropertyName

__all__ = ["BackDrill"]

DEAD: Final = -1  # delay levels
ONE_SECOND: Final = 1
WITHIN_S: Final = 2.0
LATER_SHARE: Final = 0.25
_PULLED_MAX: Final = 32
_WITH_SUBSCRIPTION: Final = 4


class BackDrill:
    """A group that sends messages back; what its dead letters and retries hold, as shown."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._dead: list[str] = []
        self._retried: list[str] = []

    async def run(self) -> None:
        """Send one back. Raises Unsure, EndedError."""
        one = self.drill.rng.choice(self.drill.stored)
        if len(self._dead) >= _PULLED_MAX or len(self._retried) >= _PULLED_MAX:
            raise Unsure  # more than a pull shows
        position = _position(one)
        if self.drill.rng.random() >= LATER_SHARE:
            await self._bury(position, one, tries=1)
            return
        await self._send_back(position, ONE_SECOND)
        self._retried.append(self._shown(one, len(self._retried), tries=1, is_dead=False))
        await asyncio.sleep(WITHIN_S)
        answer = await self._pull(RETRY_PREFIX, self._retried)
        if answer is None:
            raise Unsure
        await self._find(RETRY_PREFIX, one, self._retried)
        await self._bury(records_of(answer)[-1].physical_offset, one, tries=2)

    async def _bury(self, position: int, one: Stored, *, tries: int) -> None:
        """Send back what stands at a place in the log, which shall not come again."""
        await self._send_back(position, DEAD)
        self._dead.append(self._shown(one, len(self._dead), tries=tries, is_dead=True))
        await self._pull(DLQ_PREFIX, self._dead)
        await self._find(DLQ_PREFIX, one, self._dead)

    async def _find(self, prefix: str, one: Stored, held: Sequence[str]) -> None:
        """Query a message by its key, as an operator does who wants to know what became of it."""
        places = [each.partition(" ")[0] for each in held]
        own = [place for place in places if place.partition(":")[2] == one.value]
        await self.drill.find(f"{prefix}{self._group}", one.uniq_key, own)

    async def _send_back(self, position: int, level: int) -> None:
        await self.drill.request(
            f"send back what stands at {position}, level {level}, of {self._group}",
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {
                "offset": position,
                "group": self._group,
                "delayLevel": level,
                "originTopic": self.drill.queue.topic,
                "unitMode": "false",
                "maxReconsumeTimes": 16,
                "bname": self.drill.queue.broker_name,
            },
            expected="0",
            changes=True,
        )

    async def _pull(self, prefix: str, held: list[str]) -> RemotingCommand | None:
        return await self.drill.request(
            f"pull of {prefix}{self._group}",
            RequestCode.PULL_MESSAGE,
            {
                "topic": f"{prefix}{self._group}",
                "queueId": 0,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": self._group,
                "queueOffset": 0,
                "maxMsgNums": _PULLED_MAX,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
            },
            expected=" ".join(["0", *held]),
            show=_show,
            is_calm=True,
        )

    def _shown(self, one: Stored, offset: int, *, tries: int, is_dead: bool) -> str:
        topic = self.drill.queue.topic
        first = one.offset_msg_id[-16:]
        origin = f"{topic},{first}" if is_dead else "None,None"
        return (
            f"{offset}:{one.value} tried {tries} of {topic},{first}, dead of {origin}"
            f" {brought_by(one, is_sent_back=True)}"
        )


def _position(one: Stored) -> int:
    return int(one.offset_msg_id[-16:], 16)


def _show(answer: RemotingCommand) -> str:
    shown = []
    for record in records_of(answer):
        properties = record.property_map()
        first, dead = (
            f"{properties.get(topic)},{_last(properties.get(message))}"
            for topic, message in (
                (PropertyName.RETRY_TOPIC, PropertyName.ORIGIN_MESSAGE_ID),
                (PropertyName.DLQ_ORIGIN_TOPIC, PropertyName.DLQ_ORIGIN_MESSAGE_ID),
            )
        )
        shown.append(
            f"{record.queue_offset}:{properties.get(PROPERTY_VALUE)} tried {record.reconsume_times}"
            f" of {first}, dead of {dead} {brought(properties)}"
        )
    return " ".join([str(answer.code), *shown])


def _last(message_id: str | None) -> str | None:
    """Return the place that an id names, without the address of whoever gave it."""
    return None if message_id is None else message_id[-16:]
