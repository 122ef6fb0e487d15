"""Sends to topics that are not there yet: the first one makes its topic, in whichever way it is
sent, and is stored in one of the queues that the topic has then.

Place in the data path: `client.connection.route_view` and `client.produce`, which choose among the
queues of the default topic as long as no name server knows the new one; `broker.send`, which makes
a topic with as many queues as the default topic has, but no more than the producer wants. A way to
send has a producer of its own, which sends to one new topic after another, so that its turn comes
to every queue of the default topic; another producer, which finds the topic there, sends on.

Invariants: a producer wants four queues, the default topic has eight; nothing is sent twice, so
what stands in all queues, and in those beyond the four, is known.

Source: RocketMQ MQClientInstance.updateTopicRouteInfoFromNameServer (isDefault),
DefaultMQProducer.defaultTopicQueueNums, TopicConfigManager.createTopicInSendMessageMethod.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.leader_requests import request_leader
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from client.produce.transaction_producer import Decision, HalfMessage
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["FirstSends"]

DEFAULT_QUEUES: Final = 8  # of the topic that is the model
WANTED: Final = 4  # queues, by a producer
TOPICS: Final = DEFAULT_QUEUES  # of each way
AT_ONCE: Final = 6
BATCH: Final = 3
STORED_S: Final = 5.0
PULLED: Final = 32

_Way = Callable[[Producer, str], Awaitable[Sequence[MessageQueue]]]


class FirstSends:
    """All ways to send, one after the other, each to new topics."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._bodies: list[bytes] = []  # of what is sent to the topic at hand

    async def run(self) -> None:
        """Send to topics that are not there. Raises ClientError."""
        bench = self._bench
        ways: Mapping[str, _Way] = {
            "alone": self._send,
            "at-once": self._send_at_once,
            "in-a-batch": self._send_batch,
            "to-a-selected-queue": self._send_selected,
            "without-an-answer": self._send_oneway,
        }
        async with bench.producer() as next_one:
            for name, way in ways.items():
                async with bench.producer() as first:
                    if not await self._send_first(name, functools.partial(way, first), next_one):
                        return  # what is wrong once need not be waited for in fifty topics
            transactions = bench.transactions(_Committing())
            async with transactions:

                async def transact(topic: str) -> Sequence[MessageQueue]:
                    result = await transactions.send_in_transaction(self._message(topic))
                    # The answer to a half names a queue of the topic of halves.
                    return [MessageQueue(topic, result.half.broker_name, 0)]

                await self._send_first("in-a-transaction", transact, next_one)

    async def _send_first(
        self,
        name: str,
        way: Callable[[str], Awaitable[Sequence[MessageQueue]]],
        next_one: Producer,
    ) -> bool:
        """Return whether each topic holds what was sent to it."""
        bench = self._bench
        for number in range(TOPICS):
            topic = f"{bench.topic}-{name}-{number}"
            self._bodies = []
            try:
                queues = {*await way(topic)}
                sent = "sent"
            except ClientError as error:
                queues, sent = set(), f"{type(error).__name__}: {error}"
            bench.hold(f"the first send to {topic}, {name}", expected="sent", answered=sent)
            if not queues:
                continue
            result = await next_one.send(self._message(topic))
            if not await self._check_topic(topic, {*queues, result.queue}):
                return False
        return True

    async def _check_topic(self, topic: str, queues: set[MessageQueue]) -> bool:
        """Hold what the topic is, and what stands in it; return whether that is what was sent."""
        bench = self._bench
        groups = sorted({queue.broker_name for queue in queues})
        bench.hold(
            f"queues of {topic} that were sent to beyond its {WANTED}",
            expected=[],
            answered=sorted(each.queue_id for each in queues if each.queue_id >= WANTED),
        )
        for group in groups:
            bench.hold(
                f"what {topic} is in {group}, made by a send",
                expected=f"read {WANTED} write {WANTED} perm 6",
                answered=await self._config(topic, group),
            )

        async def stored() -> list[str]:
            found = [
                message.body.decode()
                for group in groups
                for number in range(WANTED)
                for message in await self._all_of(MessageQueue(topic, group, number))
            ]
            return sorted(found)

        return await bench.comes(
            f"what stands in {topic}",
            stored,
            expected=sorted(body.decode() for body in self._bodies),
            within_s=STORED_S,
        )

    async def _all_of(self, queue: MessageQueue) -> Sequence[DeliveredMessage]:
        return (await self._bench.reader.pull(queue, 0, PULLED)).messages

    async def _config(self, topic: str, group: str) -> str:
        answer, _ = await request_leader(
            self._bench.admin.instance,
            group,
            lambda: RemotingCommand(code=RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic}),
            timeout_ms=self._bench.timeout_ms,
        )
        config = json.loads(answer.body)
        return (
            f"read {config.get('readQueueNums')} write {config.get('writeQueueNums')}"
            f" perm {config.get('perm')}"
        )

    # Ways to send --------------------------------------------------------------------------------

    def _message(self, topic: str) -> Message:
        message = self._bench.message()
        message.topic = topic
        self._bodies.append(message.body)
        return message

    async def _send(self, producer: Producer, topic: str) -> Sequence[MessageQueue]:
        return [(await producer.send(self._message(topic))).queue]

    async def _send_at_once(self, producer: Producer, topic: str) -> Sequence[MessageQueue]:
        sends = [await producer.send_async(self._message(topic)) for _ in range(AT_ONCE)]
        await asyncio.wait(sends)  # all of them, though the first one may have failed
        for each in sends:
            if error := each.exception():
                raise error
        return [each.result().queue for each in sends]

    async def _send_batch(self, producer: Producer, topic: str) -> Sequence[MessageQueue]:
        messages = [self._message(topic) for _ in range(BATCH)]
        return [(await producer.send_batch(messages)).queue]

    async def _send_selected(self, producer: Producer, topic: str) -> Sequence[MessageQueue]:
        """Send to the last queue that the client offers."""

        def choose(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
            return max(queues, key=lambda queue: (queue.queue_id, queue.broker_name))

        return [(await producer.send(self._message(topic), selector=choose)).queue]

    async def _send_oneway(self, producer: Producer, topic: str) -> Sequence[MessageQueue]:
        """Send without an answer to the first queue that the client offers, or the last one."""
        chosen: list[MessageQueue] = []

        def choose(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
            chosen.append(self._bench.rng.choice((queues[0], queues[-1])))
            return chosen[-1]

        await producer.send_oneway(self._message(topic), selector=choose)
        return chosen


class _Committing:
    """Commits each transaction at once."""

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.COMMIT
