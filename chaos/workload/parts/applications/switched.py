"""Requests that a broker holds until a message comes, of a group that is switched off meanwhile, or
in a topic that is taken from its readers: the next message is not theirs.

Place in the data path: `broker.request` (pops and pulls that are held), in a topic of the drill's
own. A pop or a pull waits; its group's consumeEnable, or its topic's permission to read, is taken;
a message is sent; then all is given back.

Invariants: the answer is a refusal, or nothing, and no message; what is asked behind that is
refused; once it is given back, the message comes, once, and for the first time.

Source: RocketMQ PopLongPollingService and PullRequestHoldService, which run the whole request
again; PopMessageProcessor, PullMessageProcessor (consumeEnable, isReadable).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.errors import BrokerRefusedError
from client.message import Message, MessageQueue
from client.produce.producer import Producer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_records

__all__ = ["SwitchedGroups"]

HELD_MS: Final = 3_000
HELD_S: Final = 0.4  # by when a request is held
GIVEN_S: Final = 4.0
POLL_MS: Final = 300
STAYS_MS: Final = 700
COUNT: Final = 32  # messages of a pull
READS: Final = 6  # of a topic's permission
WRITES: Final = 2
_SUSPEND: Final = 2  # of a pull's sysFlag
_NONE: Final = "no message"
_REFUSED: Final = "refused with 16"
Bodies = list[tuple[bytes, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How one group gets messages: which ones within some milliseconds, each tried how often."""

    group: str
    kind: str
    get: Callable[[int], Awaitable[Bodies]]


class SwitchedGroups:
    """A group that pops and two that pull, one queue, and whoever switches them off."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._offset = 0  # of the group that pulls

    async def run(self) -> None:
        """Switch off and on. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        name = f"{bench.name}-group"
        async with (
            bench.producer() as producer,
            bench.popper(f"{name}-pops") as popper,
            bench.tool(f"{name}-pulls") as puller,
        ):
            for reader in (
                self._popping(popper),
                self._pulling(puller, queue),
                await self._pulling_as_told(queue, f"{name}-pulls-as-told"),
            ):
                await self._switch(producer, reader)

    def _popping(self, popper: PopConsumer) -> _Reader:
        async def get(poll_ms: int) -> Bodies:
            popped = await popper.pop(self._bench.topic, poll_ms=poll_ms)
            for each in popped:
                await popper.ack(each)
            return [(each.message.body, each.message.reconsume_times) for each in popped]

        return _Reader(group=popper.group, kind="pop", get=get)

    def _pulling(self, puller: PullConsumer, queue: MessageQueue) -> _Reader:
        async def get(poll_ms: int) -> Bodies:
            pulled = await puller.pull(queue, self._offset, suspend_ms=poll_ms)
            self._offset = pulled.next_begin_offset
            return [(each.body, each.reconsume_times) for each in pulled.messages]

        return _Reader(group=puller.group, kind="pull", get=get)

    async def _pulling_as_told(self, queue: MessageQueue, group: str) -> _Reader:
        """Return a reader whose subscription its heartbeat names, and no pull. Raises
        ClientError."""
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": queue.topic, "subString": "*"}],
        }
        beat = {"clientID": group, "producerDataSet": [], "consumerDataSet": [consumer]}
        offset = 0

        async def get(poll_ms: int) -> Bodies:
            nonlocal offset
            await self._bench.request(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
            fields = {
                "consumerGroup": group,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": str(COUNT),
                "sysFlag": str(_SUSPEND if poll_ms else 0),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(poll_ms),
                "subVersion": "0",
                "bname": queue.broker_name,
            }
            answer = await self._bench.request(RequestCode.PULL_MESSAGE, fields, wait_ms=poll_ms)
            if answer.code == ResponseCode.NO_PERMISSION:
                raise BrokerRefusedError(answer.code, answer.remark, queue.broker_name)
            if answer.code != ResponseCode.SUCCESS:
                return []
            offset = int(answer.ext_fields["nextBeginOffset"])
            return [(each.body, each.reconsume_times) for each in decode_records(answer.body)]

        return _Reader(group=group, kind="pull by a heartbeat's subscription", get=get)

    async def _switch(self, producer: Producer, reader: _Reader) -> None:
        """Take from one reader what it needs, in each way, and give it back. Raises ClientError."""
        await self._let_group(reader.group, consumes=True)
        while await reader.get(0):
            pass  # what was sent for the others
        ways: dict[str, Callable[[bool], Awaitable[None]]] = {
            "its group is switched off": lambda on: self._let_group(reader.group, consumes=on),
            "its topic is taken from readers": self._let_read,
        }
        for how, switch in ways.items():
            message = self._bench.message()
            await producer.send(message)
            await self._hold_given(reader, message, f"before {how}")
            await self._hold_refused(producer, reader, how, switch)

    async def _hold_refused(
        self,
        producer: Producer,
        reader: _Reader,
        how: str,
        switch: Callable[[bool], Awaitable[None]],
    ) -> None:
        """Switch off while a request is held, send, and switch on. Raises ClientError."""
        bench, message = self._bench, self._bench.message()
        held = asyncio.create_task(self._shown(reader, HELD_MS * bench.patience))
        try:
            await asyncio.sleep(HELD_S)
            await switch(False)
            await producer.send(message)
            answered = await held
        finally:
            held.cancel()
        bench.hold(
            f"what a {reader.kind} is given that is held while {how}",
            expected=_NONE,
            answered=_NONE if answered == _REFUSED else answered,
        )
        bench.hold(
            f"what a {reader.kind} is given when {how}",
            expected=_REFUSED,
            answered=await self._shown(reader, 0),
        )
        await switch(True)
        await self._hold_given(reader, message, f"once it is over that {how}")

    async def _shown(self, reader: _Reader, poll_ms: int) -> str:
        """Return what a reader gets. Raises ClientError."""
        try:
            got = await reader.get(poll_ms)
        except BrokerRefusedError as error:
            return f"refused with {error.code}"
        return " ".join(body.decode() for body, _ in got) or _NONE

    async def _hold_given(self, reader: _Reader, message: Message, when: str) -> None:
        """Hold that the reader gets a message, once, for the first time. Raises ClientError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        got: Bodies = []
        while not got and loop.time() < end_s:
            got += await reader.get(POLL_MS)
        got += await reader.get(STAYS_MS)
        self._bench.hold(
            f"what a {reader.kind} is given {when}", expected=[(message.body, 0)], answered=got
        )

    # What an operator takes and gives ------------------------------------------------------------

    async def _let_group(self, group: str, *, consumes: bool) -> None:
        """Let a group consume, or not. Raises ClientError."""
        config = {
            "groupName": group,
            "consumeEnable": consumes,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
        }
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = await self._bench.request(code, {}, json.dumps(config).encode())
        self._bench.hold(f"change of {group}", expected=0, answered=answer.code)

    async def _let_read(self, on: bool) -> None:
        """Let readers have the topic, or not. Raises ClientError."""
        bench = self._bench
        await bench.admin.create_topic(
            bench.topic, queues=1, perm=READS if on else WRITES, broker_names=[bench.broker_group]
        )
