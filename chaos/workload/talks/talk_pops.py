"""POP: messages that are popped, and what becomes of them.

Place in the data path: a speaker of `talk`. A handle is used once: RocketMQ takes one again for
what was acknowledged by it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from chaos.workload.talks.talk_desk import QUEUES, Desk, Popped
from remoting.protocol.codes import RequestCode as Code

__all__ = ["PopTalk"]

_INVISIBLE_MS: Final = 3_600_000


class PopTalk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kinds(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        """Return the questions, and how often each is sent."""
        return {self._pop: 5, self._ack: 4, self._change: 2, self._ack_many: 2}

    async def _pop(self) -> None:
        rng = self._desk.rng
        topic, group, queue = self._desk.topic(), self._desk.popping_group(), rng.randrange(QUEUES)
        subscription = self._desk.subscription()
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue,
            "maxMsgNums": self._desk.odd(2, 1, 32, 33),
            "invisibleTime": _INVISIBLE_MS,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "initMode": self._desk.odd(0, 1),
            "expType": subscription["expressionType"],
            "exp": subscription["subscription"],
            "order": "false",
        }
        answer = await self._desk.step("pop", Code.POP_MESSAGE, fields)
        if answer.code:
            return
        shown = answer.ext_fields
        for row in filter(None, shown.get("msgOffsetInfo", "").split(";")):
            kind, at, offsets = row.split(" ")
            if kind not in ("0", topic):
                continue
            for offset in offsets.split(","):
                extra = (
                    f"{offset} {shown['popTime']} {shown['invisibleTime']} {shown['reviveQid']} 0"
                    f" {self._desk.broker_name} {at} {offset}"
                )
                self._desk.known.popped.append(
                    Popped(topic=topic, queue=int(at), group=group, offset=int(offset), extra=extra)
                )

    def _ack_fields(self, popped: Popped, moved: int) -> dict[str, Any]:
        return {
            "consumerGroup": popped.group,
            "topic": popped.topic,
            "queueId": popped.queue,
            "extraInfo": popped.extra,
            "offset": popped.offset + moved,
        }

    async def _ack(self) -> None:
        popped, moved = self._desk.one_of(self._desk.known.popped), self._desk.odd(0, 50, share=0.1)
        if popped is not None:
            self._desk.known.popped.remove(popped)
            fields = self._ack_fields(popped, moved)
            await self._desk.step("acknowledge", Code.ACK_MESSAGE, fields)

    async def _change(self) -> None:
        popped, time_ms = (
            self._desk.one_of(self._desk.known.popped),
            self._desk.odd(_INVISIBLE_MS, 60_000),
        )
        if popped is not None:
            self._desk.known.popped.remove(popped)
            fields = {**self._ack_fields(popped, 0), "invisibleTime": time_ms}
            await self._desk.step(
                "change invisible time", Code.CHANGE_MESSAGE_INVISIBLETIME, fields
            )

    async def _ack_many(self) -> None:
        popped = self._desk.one_of(self._desk.known.popped)
        if popped is None:
            return
        self._desk.known.popped.remove(popped)
        pop_ms, invisible_ms, revive = popped.extra.split(" ")[1:4]
        row = {
            "c": popped.group,
            "t": popped.topic,
            "r": "0",
            "so": popped.offset,
            "q": popped.queue,
            "rq": int(revive),
            "pt": int(pop_ms),
            "it": int(invisible_ms),
            "b": "AQ==",
        }
        body = {"brokerName": self._desk.broker_name, "acks": [row]}
        await self._desk.step(
            "acknowledge many", Code.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode()
        )
