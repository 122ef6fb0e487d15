"""Drills of messages that have come and are sent on to another topic as they are, with the UNIQ_KEY
that RocketMQ's clients leave on what they have received.

Place in the data path: `drills` makes one with each new topic of one queue; it pulls what a runner
has sent, and sends it there by raw requests: by itself, in a batch, with a delay.

Invariants: what is answered as stored stands in that topic at the place answered, or comes there
when its delay is over; nothing else stands there. A refusal is no answer to fear: our brokers take
the key of another topic's message for none of theirs to store (docs/DIVERGENCE.md), RocketMQ's
store it. In a topic of a system's name, whose keys nobody remembers, it is stored in any case. Each
has a value of its own, since it is a new message to whoever sends it.

Source: RocketMQ MessageClientIDSetter.setUniqID, SendMessageProcessor; promise G2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE, wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import (
    UNLISTED,
    Drill,
    EndedError,
    Stored,
    Unsure,
    batch_fields,
)
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.common.shown_answers import code_of, records_of, values_of
from chaos.workload.parts.drills.topic_of_drill import make_topic
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["OnwardDrill"]

SENT: Final = 3
LISTED_SHARE: Final = 0.7  # of topics whose keys brokers remember
DELAY_S: Final = 1.0  # of level 1
LATE_S: Final = 2.0
PULLED_MAX: Final = 32
_BATCHED: Final = "in a batch"
_DELAYED: Final = "with a delay"  # sent behind the others, so that it stands there behind them
_WAYS: Final = ("by itself", "by itself", _BATCHED, _DELAYED)
_BODY: Final = b"sent on"  # of an application that changes it
_STORED: Final = "0"
_REFUSED: Final = "13"
_NOTHING: Final = frozenset({17, 19})
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag


class OnwardDrill:
    """One topic, and what is sent on to it."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._is_listed = drill.rng.random() < LISTED_SHARE
        self._topic = f"{'' if self._is_listed else UNLISTED}drills-onward-{group}"
        self._count = 0
        self._stands: list[str] = []  # values, by their places
        self._waits: list[str] = []  # values that are there in a second

    async def run(self) -> None:
        """Make the topic, send some messages on, and see what is there. Raises Unsure,
        EndedError."""
        await make_topic(self.drill, self._topic)
        # Brokers surely remember the keys of what was sent so late.
        since_s = asyncio.get_running_loop().time() - self.drill.window_ms / 2_000
        fresh = [one for one in self.drill.stored if one.sent_s > since_s]
        some = self.drill.rng.sample(fresh, min(SENT, len(fresh)))
        ways = self.drill.rng.choices(_WAYS, k=len(some))
        for one, way in zip(some, sorted(ways, key=_DELAYED.__eq__), strict=True):
            await self._send_on(one, await self._receive(one), way)
        await self._hold()
        raise Unsure  # the next one makes a topic of its own

    async def _receive(self, one: Stored) -> Mapping[str, str]:
        """Pull a message; return all that stands on it."""
        answer = await self._pull(
            self.drill.place(), one.offset, f"0 {one.offset}:{one.value}", count=1
        )
        if answer is None:
            raise Unsure
        return records_of(answer)[0].property_map()

    # Sends ---------------------------------------------------------------------------------------

    async def _send_on(self, one: Stored, left: Mapping[str, str], way: str) -> None:
        value = f"{self._group}.onward-{self._count}"
        self._count += 1
        properties = {**left, PROPERTY_VALUE: value}
        if way == _DELAYED:
            properties[PropertyName.DELAY] = "1"
        body = self.drill.rng.choice((one.command.body, one.command.body, _BODY))
        what = f"send {one.value} on to {self._topic}, {way}"
        answer = await self._request(what, way, properties, body)
        if answer is None or answer.code != int(_STORED):
            return
        if way == _DELAYED:
            self._waits.append(value)  # its place is that of what waits
            return
        place = "queueId", "queueOffset"
        self.drill.record(
            f"place in {self._topic} of what was stored there, {way}",
            expected=f"0 {len(self._stands)}",
            answered=" ".join(answer.ext_fields.get(name, "?") for name in place),
        )
        self._stands.append(value)

    async def _request(
        self, what: str, way: str, properties: Mapping[str, str], body: bytes
    ) -> RemotingCommand | None:
        """Send once; the answer is that of success, or of a refusal where keys are remembered."""
        block = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = batch_fields(f"{self._group}-producers", self._topic, self.drill.queue.broker_name)
        fields |= {"c": DEFAULT_TOPIC, "g": wall_ms()}
        if way == _BATCHED:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = encode_batch_body([BatchItem(body, block.encode(), 0)])
        else:
            code = RequestCode.SEND_MESSAGE_V2
            fields |= {"i": block, "m": "false"}
        return await self.drill.request(
            what,
            code,
            fields,
            body=body,
            expected="stored or refused" if self._is_listed else _STORED,
            show=self._show_sent,
            changes=True,
        )

    def _show_sent(self, answer: RemotingCommand) -> str:
        code = code_of(answer)
        return "stored or refused" if self._is_listed and code in {_STORED, _REFUSED} else code

    # What is there -------------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Hold that all that was answered as stored is there, and nothing else."""
        if self._waits and await sleep_until_set(self.drill.ends, DELAY_S + LATE_S):
            raise EndedError
        wanted = [*self._stands, *self._waits]
        place = {"topic": self._topic, "queueId": 0, "bname": self.drill.queue.broker_name}
        await self._pull(place, 0, f"stands {wanted}", count=PULLED_MAX)

    async def _pull(
        self, place: Mapping[str, object], offset: int, expected: str, *, count: int
    ) -> RemotingCommand | None:
        def show(answer: RemotingCommand) -> str:
            if count == 1:
                return f"{answer.code} {values_of(answer)}"
            if answer.code not in {0, *_NOTHING}:
                return code_of(answer)
            values = [each.property_map().get(PROPERTY_VALUE, "?") for each in records_of(answer)]
            return f"stands {values}"

        return await self.drill.request(
            f"pull from {offset} of {place['topic']}, {count} at most",
            RequestCode.PULL_MESSAGE,
            {
                **place,
                "consumerGroup": self._group,
                "queueOffset": offset,
                "maxMsgNums": count,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
            },
            expected=expected,
            show=show,
            is_calm=True,
        )
