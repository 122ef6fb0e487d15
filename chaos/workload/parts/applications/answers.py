"""Answers that get lost: what a client repeats within one call is one call.

Place in the data path: `client.connection.broker_call` and `client.produce`, which try again where
an attempt goes unanswered. While the drill loses what brokers send to its clients, each of them
makes a call that a broker carries out; the call ends when answers come again.

Invariants: an attempt's time is over before answers come again, so that each call is repeated; a
pop without order has lost what its first attempt hid until the time is over, and nothing else is.

Source: RocketMQ PopConsumerRequest attemptId (ConsumerOrderInfoManager), MQClientAPIImpl;
docs/CLIENT.md (retries).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from chaos.workload.parts.applications.bench import SEND_MS, Bench
from client.connection.retry import RetryPolicy
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.errors import ClientError, NotRecalledError
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.produce.transaction_producer import Decision, HalfMessage
from remoting.records.property_names import PropertyName

__all__ = ["LostAnswers"]

ROUNDS: Final = 2
FILLED: Final = 10
AT_ONCE: Final = 2  # messages of a pop
ATTEMPT_MS: Final = 700
LOST_S: Final = 1.0
ENDS_S: Final = 1.0  # beyond a call's own time
HIDDEN_MS: Final = 30_000  # of a pop in order: longer than the drill
INVISIBLE_MS: Final = 4_000  # of a pop without: longer than two calls that are repeated
COME_AGAIN_S: Final = 10.0
PAGE: Final = 32
RECALLED: Final = 3
RECALL_MS: Final = 900  # the first attempt comes before that, and no answer


class LostAnswers:
    """One queue that is full, a group that pops it in order, one that pops it without, one that
    commits; another one for what is sent, which brokers may store twice there: it is no topic of an
    application's."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        retry = RetryPolicy(attempt_timeout_ms=ATTEMPT_MS)
        often: dict[str, Any] = {"retry": retry, "timeout_ms": SEND_MS}
        self._producer = bench.producer(**often)
        self._deciding = bench.transactions(self, **often)
        self._in_order = bench.popper(f"{bench.name}-in-order", **often)
        self._plain = bench.popper(f"{bench.name}-plain", **often)
        self._tool = bench.tool(f"{bench.name}-committing")
        self._sent = MessageQueue(f"{bench.topic}-sent", bench.broker_group, 0)
        self._popped: list[int] = []  # offsets, by the group in order
        self._acked: set[bytes] = set()  # by the other one
        self._in_time: set[bytes] = set()  # of these, before they could be popped again
        self._began_s = 0.0  # its last pop
        self._again: list[bytes] = []  # popped though acknowledged

    async def run(self) -> None:
        """Lose answers, and look at what they were about. Raises ClientError, LinksError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        await bench.admin.create_topic(
            self._sent.topic, queues=1, broker_names=[bench.broker_group]
        )
        clients = (self._producer, self._deciding, self._in_order, self._plain, self._tool)
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:
                await stack.enter_async_context(client)
            async with bench.producer() as filling:
                for _ in range(FILLED):
                    await filling.send(self._bench.message(), queue=queue)
            for _ in range(ROUNDS):
                await self._round(queue)
            await self._recall_in_vain()
            await self._pop_the_rest(queue)

    async def _round(self, queue: MessageQueue) -> None:
        """Lose the answers of pops, sends and a commit, and then those of acknowledgements."""
        bench = self._bench
        first = len(self._popped)
        offset = bench.rng.randint(1, FILLED)
        popped: dict[str, Sequence[PoppedMessage]] = {}
        await self._unanswered(
            {
                "pop in order": self._pop(self._in_order, popped, "in order"),
                "pop": self._pop(self._plain, popped, "plain"),
                "send": self._send(),
                "batch": self._send_batch(),
                "commit": self._tool.commit_offset(queue, offset, SEND_MS),
                "transaction": self._decide(),
            }
        )
        offsets = [each.message.queue_offset for each in popped.get("in order", ())]
        bench.hold(
            "offsets of a pop in order whose answer was lost, and that is repeated in one call",
            expected=list(range(first, first + AT_ONCE)),
            answered=offsets,
        )
        self._popped += offsets
        bench.hold(
            "offset of a group whose commit went unanswered",
            expected=offset,
            answered=await self._tool.fetch_offset(queue),
        )
        await self._unanswered(
            {
                "acknowledgements in order": self._ack(self._in_order, popped, "in order"),
                "acknowledgements": self._ack(self._plain, popped, "plain"),
            }
        )
        self._note_acked(popped.get("plain", ()))

    async def _unanswered(self, calls: Mapping[str, Coroutine[Any, Any, object]]) -> None:
        """Make calls while answers are lost; hold that each ends well when they come again."""
        tasks = {name: asyncio.create_task(call) for name, call in calls.items()}
        try:
            async with self._bench.unheard():
                await asyncio.sleep(LOST_S)
            await asyncio.wait(tasks.values(), timeout=SEND_MS / 1000 + ENDS_S)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.wait(tasks.values())
        for name, task in tasks.items():
            error = "not in time" if task.cancelled() else task.exception()
            if isinstance(error, BaseException) and not isinstance(error, ClientError):
                raise error
            self._bench.hold(
                f"end of a call whose first answers were lost: {name}",
                expected="done",
                answered="done" if error is None else f"{type(error).__name__}: {error}",
            )

    # Calls ---------------------------------------------------------------------------------------

    async def _pop(
        self, popper: PopConsumer, popped: dict[str, Sequence[PoppedMessage]], name: str
    ) -> None:
        is_ordered = popper is self._in_order
        if not is_ordered:
            self._began_s = asyncio.get_running_loop().time()
        popped[name] = await popper.pop(
            self._bench.topic,
            count_max=AT_ONCE,
            invisible_ms=HIDDEN_MS if is_ordered else INVISIBLE_MS,
            in_order=is_ordered,
        )

    async def _ack(
        self, popper: PopConsumer, popped: Mapping[str, Sequence[PoppedMessage]], name: str
    ) -> None:
        for each in popped.get(name, ()):
            await popper.ack(each)

    def _message(self, tags: str | None = None) -> Message:
        return Message(topic=self._sent.topic, body=self._bench.message().body, tags=tags)

    async def _send(self) -> None:
        message = self._message()
        sent = await self._producer.send(message, queue=self._sent)
        await self._hold_there(sent.queue_offset, [message], "send")

    async def _send_batch(self) -> None:
        messages = [self._message() for _ in range(AT_ONCE)]
        sent = await self._producer.send_batch(messages, queue=self._sent)
        await self._hold_there(sent.queue_offset, messages, "batch")

    async def _hold_there(self, offset: int, messages: Sequence[Message], what: str) -> None:
        found = (await self._bench.reader.pull(self._sent, offset, len(messages))).messages
        self._bench.hold(
            f"what is at the place of a repeated {what}",
            expected=[message.body for message in messages],
            answered=[message.body for message in found],
        )

    async def _decide(self) -> None:
        await self._deciding.send_in_transaction(self._message("decided"))

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Commit."""
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Commit what nobody heard to be decided."""
        return Decision.COMMIT

    # Recalls -------------------------------------------------------------------------------------

    async def _recall_in_vain(self) -> None:
        """Recall messages whose time is over before the answers come again; hold that a call that
        ended definitely has said what became of its message. Raises ClientError, LinksError."""
        bench = self._bench
        sent: dict[bytes, SendResult] = {}
        for _ in range(RECALLED):
            message = self._message("recalled")
            message.properties = {PropertyName.TIMER_DELAY_MS: str(RECALL_MS * bench.patience)}
            sent[message.body] = await self._producer.send(message, queue=self._sent)
        tasks = {body: asyncio.create_task(self._recall(each)) for body, each in sent.items()}
        async with bench.unheard():
            await asyncio.sleep(LOST_S * bench.patience)
        outcomes = {body: await task for body, task in tasks.items()}
        late = [body for body, outcome in outcomes.items() if outcome is False]
        await bench.comes(
            "messages that do not come though it was too late to recall them",
            functools.partial(self._missing, late),
            expected=[],
            within_s=COME_AGAIN_S,
        )
        recalled = [body for body, outcome in outcomes.items() if outcome]
        bench.hold(
            "messages that came though they were recalled",
            expected=[],
            answered=sorted(set(recalled) - set(await self._missing(recalled))),
        )

    async def _recall(self, sent: SendResult) -> bool | None:
        """Return whether the message was recalled; None where nobody knows. Raises ClientError."""
        try:
            await self._producer.recall(sent)
        except NotRecalledError:
            return False
        except ClientError as error:
            if error.definite:
                raise
            return None
        return True

    async def _missing(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return those that can't be read. Raises ClientError."""
        end = await self._bench.reader.max_offset(self._sent)
        there: set[bytes] = set()
        position = 0
        while position < end:
            pulled = await self._bench.reader.pull(self._sent, position, PAGE)
            there.update(message.body for message in pulled.messages)
            position = max(position + 1, pulled.next_begin_offset)
        return sorted(set(bodies) - there)

    # What has come of it -------------------------------------------------------------------------

    def _note_acked(self, popped: Sequence[PoppedMessage]) -> None:
        bodies = [each.message.body for each in popped]
        self._again += [body for body in bodies if body in self._in_time]
        self._acked.update(bodies)
        if asyncio.get_running_loop().time() < self._began_s + INVISIBLE_MS / 1000:
            self._in_time.update(bodies)

    async def _pop_the_rest(self, queue: MessageQueue) -> None:
        """Pop and acknowledge all that is left. Raises ClientError."""
        bench = self._bench
        sent = (await bench.reader.pull(self._sent, 0, PAGE)).messages
        decided = {message.body for message in sent if message.tags == "decided"}
        bench.hold(
            "messages of transactions whose answers were lost",
            expected=ROUNDS,
            answered=len(decided),
        )
        bodies = {message.body for message in (await bench.reader.pull(queue, 0, PAGE)).messages}
        loop = asyncio.get_running_loop()
        end_s = loop.time() + COME_AGAIN_S
        while (len(self._popped) < FILLED or not self._acked >= bodies) and loop.time() < end_s:
            popped: dict[str, Sequence[PoppedMessage]] = {}
            await self._pop(self._in_order, popped, "in order")
            await self._pop(self._plain, popped, "plain")
            await self._ack(self._in_order, popped, "in order")
            await self._ack(self._plain, popped, "plain")
            self._popped += [each.message.queue_offset for each in popped["in order"]]
            self._note_acked(popped["plain"])
            await bench.pause()
        bench.hold(
            "offsets that a group pops in order, whose answers are lost at times",
            expected=list(range(FILLED)),
            answered=self._popped,
        )
        bench.hold(
            "messages that a group does not pop whose answers are lost at times",
            expected=[],
            answered=sorted(bodies - self._acked),
        )
        bench.hold(
            "messages that are popped though the answer to their acknowledgement was lost",
            expected=[],
            answered=self._again,
        )
