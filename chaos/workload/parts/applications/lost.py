"""Clients whose connections are lost: brokers know them again at once, not by the next heartbeat.

Place in the data path: `client.connection.instance`. A broker forgets a client with its connection;
replies, checks of transactions, notices and the listing of a group need it back.

Invariant: heartbeats are thirty seconds apart, and a drill is shorter, so that a client which is
known again has said so because its connection was lost.

Source: RocketMQ ClientChannelInfo, ProducerManager.doChannelCloseEvent; docs/CLIENT.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.request_reply import NoReplyError
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
)
from remoting.protocol.codes import RequestCode
from remoting.records.property_names import PropertyName

__all__ = ["LostConnections"]

QUEUES: Final = 2
FORGOTTEN_S: Final = 0.3  # by when a broker has seen that a connection has ended
KNOWN_S: Final = 2.0
INVISIBLE_MS: Final = 20_000
POLL_MS: Final = 200
HELD_MS: Final = 8_000
ENDS_S: Final = 0.5
AT_ONCE: Final = 4
GIVEN_S: Final = 4.0
REPLY_MS: Final = 2_500
CHECK_SLACK_S: Final = 3.0
CHECK_S_MAX: Final = 12.0  # what a scenario's broker may take to check, for it to be waited for
ROUNDS: Final = 2


class LostConnections:
    """One producer of transactions, a member that answers requests, and one that pops."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._given: set[bytes] = set()
        self._checked: set[str] = set()
        self._replier = bench.producer()
        self._responder = bench.consumer(self._answer)
        self._responder.subscribe(bench.topic)
        self._popper, self._holder = (bench.popper(f"{bench.name}-poppers") for _ in range(2))
        self._producer, self._twin = (
            bench.transactions(self, group=f"{bench.name}-askers") for _ in range(2)
        )

    async def run(self) -> None:
        """Lose the connections of each client, a few times. Raises ClientError."""
        await self._bench.make_topic(QUEUES)
        clients = (self._replier, self._responder, self._popper, self._holder, self._producer)
        async with contextlib.AsyncExitStack() as stack:
            for client in (*clients, self._twin):
                await stack.enter_async_context(client)
            await self._send_and_see()
            await self._producer.send(self._bench.message())  # knows a route, and is known
            for _ in range(ROUNDS):
                await self._lose_producer()
                await self._lose_responder()
                await self._lose_popper()
            await self._request_at_once()
            await self._lose_held_pop()
            await self._lose_checked()

    # The producer --------------------------------------------------------------------------------

    async def _lose_producer(self) -> None:
        bench, producer = self._bench, self._producer
        bench.drop_connections(producer.instance)
        if bench.rng.random() < 0.5:
            await producer.send(bench.message())  # connects anew to the leader
        await asyncio.sleep(FORGOTTEN_S)
        await self._hold_listed(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, "producerGroup", producer.group
        )
        bench.drop_connections(producer.instance)
        await self._request(producer, "of a client that had lost its connections")

    async def _request(self, producer: TransactionProducer, whose: str) -> None:
        """Request once, and hold that it gets its own reply. Raises ClientError."""
        message = self._bench.message()
        try:
            reply = await producer.request(message, REPLY_MS)
            answered = "its reply" if reply.body == b"re " + message.body else "another reply"
        except NoReplyError:
            answered = "no reply"
        self._bench.hold(f"request {whose}", expected="its reply", answered=answered)

    async def _request_at_once(self) -> None:
        """Have two clients of a process request at one time, several times each."""
        await asyncio.gather(
            *(
                self._request(producer, "of one of several clients")
                for producer in (self._producer, self._twin)
                for _ in range(AT_ONCE)
            )
        )

    async def _lose_checked(self) -> None:
        """Lose the connections behind a half: a broker asks for it over a new one."""
        bench, settings = self._bench, self._bench.kit.context.scenario.transactions
        check_s = (settings.timeout_ms + 2 * settings.check_interval_ms) / 1000
        if check_s > CHECK_S_MAX:
            return
        half = await self._producer.send_half(bench.message())
        bench.drop_connections(self._producer.instance)
        await bench.becomes(
            "whether a producer is asked for a half that it sent over a lost connection",
            lambda: half.msg_id in self._checked,
            expected=True,
            within_s=check_s + CHECK_SLACK_S,
        )

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Count a check-back, and roll back."""
        self._checked.add(message.uniq_key)
        return Decision.ROLLBACK

    # The consumers -------------------------------------------------------------------------------

    async def _lose_responder(self) -> None:
        bench = self._bench
        bench.drop_connections(self._responder.instance)
        await asyncio.sleep(FORGOTTEN_S)
        await self._hold_listed(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, "consumerGroup", self._responder.group
        )
        bench.drop_connections(self._responder.instance)
        await self._send_and_see()

    async def _send_and_see(self) -> None:
        """Send, and hold that the member is given it."""
        message = self._bench.message()
        await self._replier.send(message)
        await self._bench.becomes(
            "whether a member whose connections come and go is given a message",
            lambda: message.body in self._given,
            expected=True,
            within_s=GIVEN_S,
        )

    async def _lose_popper(self) -> None:
        """Lose the connections between two pops, and behind them, so that what was popped is
        acknowledged over new ones. Raises ClientError."""
        bench = self._bench
        bench.drop_connections(self._popper.instance)
        message = bench.message()
        await self._replier.send(message)
        popped = await self._pop_until(message.body, GIVEN_S, drops=True)
        bench.hold(
            f"whether a popper that lost its connections has a message, within {GIVEN_S:g} s",
            expected=True,
            answered=message.body in popped,
        )

    async def _pop_until(
        self, body: bytes | None, within_s: float, *, drops: bool = False
    ) -> set[bytes]:
        """Pop and acknowledge until a body was popped, or the time is over; return what was.
        `drops`: connections are lost before each acknowledgement. Raises ClientError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s * self._bench.patience
        popped: set[bytes] = set()
        while body not in popped and loop.time() < end_s:
            found = await self._popper.pop(
                self._bench.topic, invisible_ms=INVISIBLE_MS, poll_ms=POLL_MS
            )
            if drops:
                self._bench.drop_connections(self._popper.instance)
            for each in found:
                await self._popper.ack(each)
            popped.update(each.message.body for each in found)
        return popped

    async def _lose_held_pop(self) -> None:
        """Lose the connection of a pop that is held: what comes then is for others at once. Raises
        ClientError."""
        bench = self._bench
        await self._pop_until(None, ENDS_S)  # nothing is left
        held = asyncio.create_task(
            self._holder.pop(bench.topic, invisible_ms=INVISIBLE_MS, poll_ms=HELD_MS)
        )
        await asyncio.sleep(FORGOTTEN_S)
        await self._holder.crash()
        await asyncio.wait([held])
        lost = held.exception()
        if not isinstance(lost, ClientError):
            return  # a message was on its way to it: nothing can be said
        await asyncio.sleep(FORGOTTEN_S)
        message = bench.message()
        await self._replier.send(message)
        popped = await self._pop_until(message.body, GIVEN_S)
        bench.hold(
            "whether a message is popped that came when a held pop's client was gone",
            expected=True,
            answered=message.body in popped,
        )

    async def _answer(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for message in messages:
            self._given.add(message.body)
            if message.properties.get(PropertyName.REPLY_TO_CLIENT):
                try:
                    await self._replier.reply(message, b"re " + message.body, REPLY_MS)
                except ClientError:
                    continue  # who asked says whether it had its reply
        return ConsumeStatus.CONSUME_SUCCESS

    async def _hold_listed(self, code: RequestCode, field: str, group: str) -> None:
        """Hold that the leader lists the group's client again. Raises ClientError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + KNOWN_S * self._bench.patience
        shown: list[str] = []
        owner = self._producer if field == "producerGroup" else self._responder
        while owner.client_id not in shown and loop.time() < end_s:
            answer = await self._bench.request(code, {field: group})
            rows = (
                json.loads(answer.body or b"{}").get("connectionSet", ()) if not answer.code else ()
            )
            shown = [str(row.get("clientId")) for row in rows]
            await asyncio.sleep(0.1)
        self._bench.hold(
            f"whether {code.name} lists a client behind a lost connection, within {KNOWN_S:g} s",
            expected="it is there",
            answered="it is there" if owner.client_id in shown else shown,
        )
