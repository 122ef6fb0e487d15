"""Queries brokers for messages by key all the time: acknowledged messages must be found (S8).

Place in the data path: QUERY_MESSAGE through the slot's own proxies, at the leader of one broker
group; each answer is a query operation. Senders record here what was acknowledged to them. About
half of the queries follow a send at once, while the index may be behind; when the senders have
stopped, the keys of batches are queried once more, since one entry of the log holds all of a batch.

Invariants: the broker's answer is recorded as it came: no message is left out because it lacks the
key, as `client.administer.admin` does, since that would hide the broker's mistake.

Source: the run format (query; S8).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext
from chaos.workload.messages import row_of_delivered
from chaos.workload.offset_reader import GROUP, make_tool
from chaos.workload.pace import Pace
from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer
from client.delivery import delivered_message
from client.errors import ClientError, MalformedAnswerError
from client.message import DeliveredMessage, Message, MessageQueue
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = ["KeyReader", "KnownKeys"]

KNOWN_MAX: Final = 1_000
COUNT_MAX: Final = 32
TIMEOUT_MS: Final = 4_000  # an index may be seconds behind
END_MS: Final = (1 << 63) - 1
UNKNOWN_SHARE: Final = 0.05
FRESH_SHARE: Final = 0.5
FRESH_WAIT_S: Final = 1.0
LATER_S: Final = 0.001  # equal times prove no order: the query is to begin behind the answer
BATCH_KEYS_MAX: Final = 64
SWEEP_S: Final = 3.0
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS.value, ResponseCode.QUERY_NOT_FOUND.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The key of a query. `unique`: it is a UNIQ_KEY."""

    broker_group: str
    topic: str
    key: str
    unique: bool


@dataclass(slots=True)
class KnownKeys:
    """The keys of the last acknowledged messages."""

    _questions: deque[_Question] = field(default_factory=lambda: deque(maxlen=KNOWN_MAX))
    _of_batches: deque[_Question] = field(default_factory=lambda: deque(maxlen=BATCH_KEYS_MAX))
    _added: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledged(
        self, message: Message, queue: MessageQueue, *, in_batch: bool = False
    ) -> None:
        for keys, unique in (((message.uniq_key,), True), (message.keys, False)):
            for key in keys:
                if key is None:
                    continue
                question = _Question(
                    broker_group=queue.broker_name, topic=queue.topic, key=key, unique=unique
                )
                self._questions.append(question)
                if in_batch and not unique:
                    self._of_batches.append(question)
        self._added.set()

    def draw(self, rng: random.Random) -> _Question | None:
        return rng.choice(self._questions) if self._questions else None

    async def next(self, timeout_s: float) -> _Question | None:
        """Wait for the next acknowledged message; return its last key, or None on timeout."""
        self._added.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._added.wait()
        except TimeoutError:
            return None
        question = self._questions[-1]
        await asyncio.sleep(LATER_S)
        return question

    @property
    def of_batches(self) -> Sequence[_Question]:
        """The business keys of the last messages that were sent in batches."""
        return tuple(self._of_batches)


class KeyReader:
    """One process that makes `rate` queries per second."""

    def __init__(
        self, context: WorkContext, slot: Slot, known: KnownKeys, *, rate: float, rng: random.Random
    ) -> None:
        self._context = context
        self._slot = slot
        self._known = known
        self._rate = rate
        self._rng = rng

    async def run(self, stop: asyncio.Event) -> None:
        client = self._slot.next_client()
        actor = Actor(self._context.history, root=client, client=client, client_group=GROUP)
        pace = Pace(self._rate, self._rng)
        async with make_tool(self._context, self._slot) as tool:
            while await pace.wait(stop):
                if self._rng.random() < FRESH_SHARE:
                    question = await self._known.next(FRESH_WAIT_S)
                else:
                    question = self._known.draw(self._rng)
                if question is not None:
                    is_there = self._rng.random() >= UNKNOWN_SHARE
                    key = question.key if is_there else f"{question.key}-no-such"
                    await self._query_once(tool, actor, question, key)
            await self._sweep(tool, actor)

    async def _sweep(self, tool: PullConsumer, actor: Actor) -> None:
        """Query the keys of batches, as many as there is time for, until one is not answered."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + SWEEP_S
        for question in self._known.of_batches:
            if loop.time() >= end_s or not await self._query_once(
                tool, actor, question, question.key
            ):
                return

    async def _query_once(
        self, tool: PullConsumer, actor: Actor, question: _Question, key: str
    ) -> bool:
        """Query as one operation; return whether it was answered."""
        with actor.operation(
            "query", broker_group=question.broker_group, topic=question.topic, key=key
        ) as operation:
            try:
                messages = await _query(tool, question, key)
            except ClientError as error:
                operation.failed(error)
                return False
            operation.complete("ok", messages=[row_of_delivered(each) for each in messages])
        return True


async def _query(tool: PullConsumer, question: _Question, key: str) -> list[DeliveredMessage]:
    """Return all messages that the group's leader shows under the key. Raises ClientError."""
    fields = {
        "topic": question.topic,
        "key": key,
        "maxNum": str(COUNT_MAX),
        "beginTimestamp": "0",
        "endTimestamp": str(END_MS),
        "bname": question.broker_group,
    }
    if question.unique:
        fields["_UNIQUE_KEY_QUERY"] = "true"
    answer, address = await call_group(
        tool.instance,
        question.broker_group,
        lambda: RemotingCommand(code=RequestCode.QUERY_MESSAGE, ext_fields=dict(fields)),
        topic=question.topic,
        timeout_ms=TIMEOUT_MS,
        policy=RetryPolicy(attempt_timeout_ms=TIMEOUT_MS),
        accept=_ANSWERS,
    )
    try:
        return [
            delivered_message(
                record, MessageQueue(record.topic, question.broker_group, record.queue_id)
            )
            for record in (decode_records(answer.body) if answer.body else ())
        ]
    except RecordError as error:
        raise MalformedAnswerError(f"records from {address} for key {key}: {error}") from error
