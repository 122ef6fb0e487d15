"""Sends that are stored but not as safe as they are to be: what their answers say, traces say too.

Place in the data path: `client.produce` and `client.trace`. Between a producer and its brokers
stands somebody who changes the code of their answers to sends, as brokers answer whose disk is slow
or whose slaves are behind or gone: so every engine shows every status.

Invariants: such a message is stored, and once, since to send it again would store it twice; a half
whose storing is not sure is never executed, and is rolled back.

Source: RocketMQ SendStatus, DefaultMQProducerImpl (retryAnotherBrokerWhenNotStoreOK is off),
TransactionMQProducer (a half that is not SEND_OK), SendMessageTraceHookImpl (isSuccess).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.trace_records import traces_of
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.produce.producer import Producer
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer
from client.trace.tracer import TraceSettings
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["UnsafeSends"]

STATUSES: Final = {
    0: "SEND_OK",
    10: "FLUSH_DISK_TIMEOUT",
    11: "SLAVE_NOT_AVAILABLE",
    12: "FLUSH_SLAVE_TIMEOUT",
}
SENDS: Final = 3  # by each way, of each status
BATCH: Final = 3
_SENDS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)

Send = Callable[[list[Message]], Awaitable[SendResult]]


class _OtherCodes:
    """The connections of a client; sends that succeeded are answered with `code`."""

    def __init__(self, rpc: RemotingClient) -> None:
        self._rpc = rpc
        self.code = 0
        self.unsure = 0  # sends that a broker itself was not sure of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rpc, name)

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        answer = await self._rpc.request(address, command, timeout_ms)
        if command.code in _SENDS:
            self.unsure += answer.code != 0
            answer.code = answer.code or self.code
        return answer


class UnsafeSends:
    """One queue, and a traced producer each for what is sent at once and for transactions."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._traces = f"{UNLISTED}{bench.name}-records"
        self._executed: set[bytes] = set()
        self._wanted: dict[str, str] = {}  # by UNIQ_KEY, the status of its send
        self._halves: dict[str, bytes] = {}  # bodies, by UNIQ_KEY

    async def run(self) -> None:
        """Send with each status by each way, and read what was stored and traced. Raises
        ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        await bench.admin.create_topic(self._traces, queues=1, broker_names=[bench.broker_group])
        trace = TraceSettings(topic=self._traces)
        plain = bench.producer(trace=trace)
        deciding = bench.transactions(self, trace=trace)
        stored: list[bytes] = []
        async with plain, deciding:
            codes = [_between(producer) for producer in (plain, deciding)]
            todo = [code for code in STATUSES for _ in range(SENDS)]
            for code in bench.rng.sample(todo, len(todo)):
                for each in codes:
                    each.code = code
                stored += await self._send_all(plain, queue, STATUSES[code])
                stored += await self._decide(deciding, queue, STATUSES[code])
            is_sure = not any(each.unsure for each in codes)
        await self._hold_stored(queue, stored, is_sure=is_sure)
        await self._hold_traced(is_sure=is_sure)

    async def _send_all(self, producer: Producer, queue: MessageQueue, status: str) -> list[bytes]:
        """Send by each way of a producer; return the bodies. Raises ClientError."""
        ways: dict[str, tuple[int, Send]] = {
            "send": (1, lambda each: producer.send(each[0], queue=queue)),
            "send_async": (1, lambda each: _sent_async(producer, each[0], queue)),
            "send_batch": (BATCH, lambda each: producer.send_batch(each, queue=queue)),
        }
        bodies = []
        for way, (count, send) in ways.items():
            messages = [self._bench.message() for _ in range(count)]
            self._note(messages, await send(messages), way, status)
            bodies += [message.body for message in messages]
        return bodies

    def _note(self, messages: list[Message], sent: SendResult, way: str, status: str) -> None:
        self._bench.hold(
            f"{way} that is answered with {status}",
            expected=f"{status} at the attempt 1",
            answered=f"{sent.status.name} at the attempt {sent.attempts}",
        )
        self._wanted.update({str(message.uniq_key): status for message in messages})

    async def _decide(
        self, producer: TransactionProducer, queue: MessageQueue, status: str
    ) -> list[bytes]:
        """Send in a transaction; return the body where it is to be committed. Raises
        ClientError."""
        message, is_sure = self._bench.message(), status == STATUSES[0]
        ended = await producer.send_in_transaction(message, queue=queue)
        self._halves[str(message.uniq_key)] = message.body
        self._note([message], ended.send, "half", status)
        self._bench.hold(
            f"transaction whose half is answered with {status}",
            expected=f"executed {is_sure}, {'COMMIT' if is_sure else 'ROLLBACK'}",
            answered=f"executed {message.body in self._executed}, {ended.decision.name}",
        )
        return [message.body] if is_sure else []

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Commit, and note that it came so far."""
        self._executed.add(message.body)
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Decide as the first time."""
        return Decision.COMMIT if message.body in self._executed else Decision.ROLLBACK

    async def _hold_stored(self, queue: MessageQueue, sent: list[bytes], *, is_sure: bool) -> None:
        found = [message.body for message in await self._bench.read(queue)]
        self._bench.hold(
            "messages that are stored twice, or not, of sends with every status",
            expected=[] if is_sure else None,
            answered=sorted({each for each in (*sent, *found) if found.count(each) != 1}),
        )

    async def _hold_traced(self, *, is_sure: bool) -> None:
        """Hold that each send was traced as it was answered. Raises ClientError."""
        traced: dict[str, set[str]] = {}
        for message in await self._bench.read(
            MessageQueue(self._traces, self._bench.broker_group, 0)
        ):
            for record in traces_of(message.body):
                if record["kind"] == "Pub":
                    for key in record["msg_id"].split(","):
                        traced.setdefault(key, set()).add(record.get("success", "-"))
        for status in STATUSES.values():
            keys = [key for key, each in self._wanted.items() if each == status]
            wanted = {"true" if status == STATUSES[0] else "false"}
            self._bench.hold(
                f"traces of sends with {status}, by what they say of success",
                expected=f"{len(keys)} with {wanted}" if is_sure else None,
                answered="; ".join(
                    f"{sum(traced.get(key, set()) == shown for key in keys)} with {shown or '-'}"
                    for shown in ({"true"}, {"false"}, {"true", "false"}, set[str]())
                    if any(traced.get(key, set()) == shown for key in keys)
                ),
            )


def _between(producer: Producer) -> _OtherCodes:
    """Stand between a producer and its brokers; what it greets and asks them is left alone."""
    codes = _OtherCodes(producer.instance.rpc)
    producer.instance.rpc = cast("RemotingClient", codes)
    return codes


async def _sent_async(producer: Producer, message: Message, queue: MessageQueue) -> SendResult:
    future: asyncio.Future[SendResult] = await producer.send_async(message, queue=queue)
    return await future
