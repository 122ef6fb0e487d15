"""Clients in a namespace, as an administrator without one sees them.

Place in the data path: `client.namespace` and whatever names a client tells brokers: heartbeats,
progress, answers to administrators' requests. Members that push, poll and pop, and a producer of
transactions, work in a namespace; who asks has none, and names all as brokers know it.

Invariants: the brokers' names are made by `chaos.workload.namespaces`, not by the client; the
namespace's name is one that rules take for the system's own.

Source: RocketMQ NamespaceUtil, HeartbeatData (subscriptionDataSet), ConsumerRunningInfo;
AdminBrokerProcessor (GET_CONSUME_STATS, QUERY_TOPIC_CONSUME_BY_WHO).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from chaos.workload.namespaces import wire_name
from chaos.workload.parts.applications.bench import SENT_ONCE, Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.whole_polls import poll_whole
from client.administer.admin import Admin
from client.consume.listener import ConsumeStatus
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import NoRouteError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.transaction_producer import Decision, HalfMessage
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.group_topics import DLQ_PREFIX
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["NamesOfOthers"]

QUEUES: Final = 2
MESSAGES: Final = 3  # of each queue
FAILING: Final = "fails"
DEAD: Final = "dead"
KNOWN_S: Final = 3.0
GIVEN_S: Final = 4.0
COMMIT_MS: Final = 200
INVISIBLE_MS: Final = 30_000
RETRY: Final = "%RETRY%"


class NamesOfOthers:
    """A topic in the namespace, one for who pops alone, and one member for each way to consume."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._space = f"{UNLISTED}{bench.name}"
        self._topic = f"{bench.name}-topic"
        self._wire_topic = wire_name(self._space, self._topic)
        self._other_topic = f"{bench.name}-other"
        self._push, self._poll, self._pop, self._produce = (
            f"{bench.name}-{way}" for way in ("push", "poll", "pop", "producers")
        )
        self._given: list[tuple[str, int, int]] = []  # topic, queue, number of failures

    async def run(self) -> None:
        """Work in the namespace, and ask about it. Raises ClientError."""
        bench = self._bench
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            inside = await enter(bench.admin_of(self._space))
            for topic in (self._topic, self._other_topic):
                await inside.create_topic(topic, queues=QUEUES, broker_names=[bench.broker_group])
            producer = await enter(
                bench.transactions(self, group=self._produce, instance=bench.own(self._space))
            )
            for number in range(QUEUES * MESSAGES):
                queue = MessageQueue(self._topic, bench.broker_group, number % QUEUES)
                body = f"{bench.name} {number}".encode()
                await producer.send(Message(topic=self._topic, body=body), queue=queue)
            settings: dict[str, Any] = {"commit_interval_ms": COMMIT_MS, "suspend_ms": 500}
            pushed = bench.consumer(
                self._listen,
                group=self._push,
                instance=bench.own(self._space),
                retry_delay_level=1,
                **SENT_ONCE,
                **settings,
            )
            polling = bench.poller(self._poll, instance=bench.own(self._space), **settings)
            for member in (pushed, polling):
                member.subscribe(self._topic)
                await enter(member)
            popper = await enter(bench.popper(self._pop, instance=bench.own(self._space)))
            await self._hold_polled(partial(poll_whole, polling))
            await self._hold_popped(popper)
            await popper.pop(self._other_topic)  # nothing is there
            for group in (self._push, self._poll):
                await self._hold_progress(bench.admin, self._space, group)
                await self._hold_progress(inside, "", group)
            await self._hold_known(producer.client_id)
            await self._hold_running(pushed.client_id)
            await self._fail_one(producer.send)
            await self._hold_dead(producer.send)
            await self._reset()

    # Members -------------------------------------------------------------------------------------

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for message in messages:
            times = message.reconsume_times
            self._given.append((message.topic, message.queue.queue_id, times))
            if message.tags == FAILING and not times:
                return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Nothing is sent in a transaction."""
        return Decision.ROLLBACK

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Nothing is asked for."""
        return Decision.ROLLBACK

    async def _hold_polled(self, poll: Any) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        topics: list[str] = []
        while len(topics) < QUEUES * MESSAGES and loop.time() < end_s:
            topics += [message.topic for message in await poll(200)]
        await poll(1)  # what was polled counts as consumed
        self._hold_topics("polls", topics)

    async def _hold_popped(self, popper: Any) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        topics: list[str] = []
        while len(topics) < QUEUES * MESSAGES and loop.time() < end_s:
            popped = await popper.pop(self._topic, invisible_ms=INVISIBLE_MS, poll_ms=200)
            for each in popped:
                await popper.ack(each)
            topics += [each.message.topic for each in popped]
        self._hold_topics("pops", topics)

    def _hold_topics(self, does: str, topics: Sequence[str]) -> None:
        self._bench.hold(
            f"topics of what a member in a namespace {does}",
            expected=[self._topic] * QUEUES * MESSAGES,
            answered=list(topics),
        )

    # Questions -----------------------------------------------------------------------------------

    def _wire(self, group: str) -> str:
        return wire_name(self._space, group)

    async def _hold_progress(self, admin: Admin, space: str, group: str) -> None:
        """Hold what an administrator sees who knows names in `space` as the brokers do."""
        topic = wire_name(space, self._topic)

        async def shown() -> list[tuple[int, int, int]]:
            progress = await admin.consumer_progress(wire_name(space, group))
            return [
                (queue.queue_id, of.broker_offset, of.consumer_offset)
                for queue, of in sorted(progress.items())
                if queue.topic == topic
            ]

        await self._bench.comes(
            f"progress of {wire_name(space, group)} in {topic}",
            shown,
            expected=[(number, MESSAGES, MESSAGES) for number in range(QUEUES)],
            within_s=GIVEN_S,
        )

    async def _hold_known(self, producer_id: str) -> None:
        """Hold the groups of the topic, what each subscribes to, and who produces."""
        consumers = (self._push, self._poll, self._pop)

        async def groups() -> list[str]:
            body = await self._query(
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": self._wire_topic}
            )
            return sorted(body.get("groupList", ()))

        await self._bench.comes(
            f"groups that consume {self._wire_topic}",
            groups,
            expected=sorted(map(self._wire, consumers)),
            within_s=KNOWN_S,
        )
        for group in consumers:
            more = [f"{RETRY}{self._wire(group)}"]
            if group == self._pop:
                more = [wire_name(self._space, self._other_topic)]

            async def subscribed(group: str = group) -> list[str]:
                body = await self._query(
                    RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": self._wire(group)}
                )
                return sorted(body.get("subscriptionTable", {}))

            await self._bench.comes(
                f"topics to which {self._wire(group)} is said to subscribe",
                subscribed,
                expected=sorted([self._wire_topic, *more]),
                within_s=KNOWN_S,
            )

        async def producing() -> list[str]:
            body = await self._query(
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                {"producerGroup": self._wire(self._produce)},
            )
            return [str(row.get("clientId")) for row in body.get("connectionSet", ())]

        await self._bench.comes(
            f"clients that produce as {self._wire(self._produce)}",
            producing,
            expected=[producer_id],
            within_s=KNOWN_S,
        )

    async def _hold_running(self, client_id: str) -> None:
        """Hold the names of what a member says of itself, through a broker."""
        retry = f"{RETRY}{self._wire(self._push)}"

        async def shown() -> tuple[list[str], list[str]]:
            fields = {"consumerGroup": self._wire(self._push), "clientId": client_id}
            body = await self._query(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            subscribed = {str(each.get("topic")) for each in body.get("subscriptionSet", ())}
            owned = {parse_queue_name(key).topic for key in body.get("mqTable", {})}
            return sorted(subscribed), sorted(owned - {retry})

        await self._bench.comes(
            "topics that a member in a namespace says it subscribes to, and has queues of",
            shown,
            expected=(sorted([self._wire_topic, retry]), [self._wire_topic]),
            within_s=KNOWN_S,
        )

    async def _query(self, code: RequestCode, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of an answer's body; none where it was refused. Raises ClientError."""
        answer = await self._bench.request(code, fields)
        if answer.code or not answer.body:
            return {}
        try:
            return fastjson.decode(answer.body, dict[str, Any])
        except BodyError:
            return {}

    # Retries and resets --------------------------------------------------------------------------

    async def _fail_one(self, send: Any) -> None:
        """Send one that fails once: it comes again under the application's name of its topic."""
        self._given.clear()
        await send(Message(topic=self._topic, body=b"fails once", tags=FAILING))
        await self._bench.becomes(
            "what a member in a namespace is given of a message that fails once",
            lambda: [(topic, times) for topic, _, times in self._given],
            expected=[(self._topic, 0), (self._topic, 1)],
            within_s=GIVEN_S,
        )

    async def _hold_dead(self, send: Any) -> None:
        """Have a group give one message up: it is among the dead letters that clients in the
        namespace and clients without one read, each by its own name. Raises ClientError."""
        bench, servers = self._bench, self._bench.kit.context.name_servers
        group, body = f"{bench.name}-gives-up", b"is given up"
        refusing = bench.consumer(
            self._refuse,
            group=group,
            instance=bench.own(self._space),
            retry_delay_level=-1,
            suspend_ms=500,
            **SENT_ONCE,
        )
        refusing.subscribe(self._topic, DEAD)
        own = PullConsumerSettings(
            timeout_ms=bench.timeout_ms, register=False, instance=bench.own(self._space)
        )
        inside = PullConsumer(f"{group}-readers", servers, bench.slot.dial, settings=own)
        await send(Message(topic=self._topic, body=body, tags=DEAD))
        async with refusing, inside:
            for reader, name in ((bench.reader, self._wire(group)), (inside, group)):
                await bench.comes(
                    f"dead letters of {self._wire(group)} under the name {DLQ_PREFIX}{name}",
                    partial(_read, reader, f"{DLQ_PREFIX}{name}"),
                    expected=[body],
                    within_s=GIVEN_S,
                )

    async def _refuse(self, _: Sequence[DeliveredMessage]) -> ConsumeStatus:
        return ConsumeStatus.RECONSUME_LATER

    async def _reset(self) -> None:
        """Have an administrator without a namespace reset the group: its member hears of it."""
        self._given.clear()
        queue = MessageQueue(self._wire_topic, self._bench.broker_group, 0)
        await self._bench.admin.reset_queue(self._wire(self._push), queue, offset=0)
        await self._bench.becomes(
            "whether a member in a namespace is given messages again behind a reset",
            lambda: self._given.count((self._topic, 0, 0)) >= MESSAGES,
            expected=True,
            within_s=GIVEN_S,
        )


async def _read(reader: PullConsumer, topic: str) -> list[bytes]:
    """Return the bodies of a topic, none where it is not there. Raises ClientError."""
    try:
        queues = await reader.queues(topic)
    except NoRouteError:
        return []
    return [each.body for queue in queues for each in (await reader.pull(queue, 0)).messages]
