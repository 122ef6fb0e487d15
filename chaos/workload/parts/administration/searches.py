"""The part `searches`: messages sent, then searched for by time, and by key within a time.

Place in the data path: SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME and QUERY_MESSAGE
with a range, at the leader, through the part's own proxies.

Invariants: what was queried and what came is recorded as it is: nothing is left out of an answer.
Times are those that brokers store, in Unix milliseconds; `from_ms` and `to_ms` are never compared
with the run's own clock.

Source: the run format (search; M5); RocketMQ AdminBrokerProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.scenario.part_sections import SearchesSection
from chaos.workload.actor import Actor
from chaos.workload.expectations import Expectations
from chaos.workload.messages import row_of_delivered, wall_ms
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace
from chaos.workload.parts.accounts.file import PULL_ANSWERS, pull_command
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.shown_answers import records_of
from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.delivery import delivered_message
from client.errors import ClientError, MalformedAnswerError
from client.message import DeliveredMessage, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = ["SPEC"]

TOPIC: Final = "searches"
TOOLS: Final = "search-tools"
TIMEOUT_MS: Final = 4_000
COUNT_MAX: Final = 32
MESSAGES_PER_KEY: Final = 8
KNOWN_MAX: Final = 256
_AROUND_MS: Final = 400
_EXACT_SHARE: Final = 0.6
_BEGINNING_SHARE: Final = 0.3
_BEHIND_ALL_MS: Final = 86_400_000
_RANGE_ANSWERS: Final = frozenset({ResponseCode.SUCCESS.value, ResponseCode.QUERY_NOT_FOUND.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An acknowledged message: about when it was stored, and under which key."""

    queue: MessageQueue
    at_ms: int
    key: str


class _Searches:
    def __init__(self, kit: PartKit) -> None:
        section: SearchesSection = kit.section
        self._kit = kit
        self._section = section
        self._queues = list(kit.context.part_queues["searches"])
        self._known: deque[_Known] = deque(maxlen=KNOWN_MAX)
        self._times: deque[_Known] = deque(maxlen=KNOWN_MAX)  # with exact times of storing
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(stop))
            tasks.create_task(self._search(stop))

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _send(self, stop: asyncio.Event) -> None:
        kit, slot = self._kit, self._kit.slots["searches-send"]
        rng = random.Random(kit.rng.getrandbits(64))
        client = slot.next_client()
        settings = ProducerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
        producer = Producer(
            "searches-producers", kit.context.name_servers, slot.dial, settings=settings
        )
        pace, count = Pace(self._section.send_rate, rng), 0
        async with producer:
            sender = PartSender(kit.context, producer, root=client, ref=None, rng=rng)
            while await pace.wait(stop):
                queue = rng.choice(self._queues)
                message = sender.make(TOPIC)
                key = f"shared-{count // MESSAGES_PER_KEY}"
                message.keys = (*message.keys, key)
                count += 1
                if await sender.send(message, queue):
                    self._known.append(_Known(queue=queue, at_ms=wall_ms(), key=key))
        self._idle.set()

    async def _search(self, stop: asyncio.Event) -> None:
        kit, slot = self._kit, self._kit.slots["searches-ask"]
        rng = random.Random(kit.rng.getrandbits(64))
        pace = Pace(self._section.search_rate, rng)
        client = slot.next_client()
        actor = Actor(kit.context.history, root=client, client=client, client_group=TOOLS)
        async with make_tool(kit.context, slot) as tool:
            expectations = Expectations(kit.context.history, client=client, client_group=TOOLS)
            questions = _Questions(tool.instance, actor, expectations, self._times)
            while await pace.wait(stop):
                if not self._known:
                    continue
                known = rng.choice(self._known)
                at_ms = known.at_ms + rng.randint(-_AROUND_MS, _AROUND_MS)
                if self._times and rng.random() < _EXACT_SHARE:
                    # At the very time, or next to it: where searches are off by one.
                    known = rng.choice(self._times)
                    at_ms = known.at_ms + rng.randint(-1, 1)
                match rng.randrange(10):
                    case 0:
                        await questions.earliest(known.queue)
                    case 1 | 2 | 3:
                        await questions.by_time(known.queue, at_ms, upper=False)
                    case 4 | 5:
                        await questions.by_time(known.queue, at_ms, upper=True)
                    case 6 | 7:
                        known = rng.choice(self._known)
                        await questions.by_key(known, 0, known.at_ms + _BEHIND_ALL_MS)
                        if self._times:  # the answer has told exact ones
                            known = self._times[-1]
                            await questions.around(known.queue, known.at_ms)
                    case _:
                        length_ms = rng.choice((0, rng.randrange(4 * _AROUND_MS)))
                        await questions.by_key(known, at_ms, at_ms + length_ms)
                if rng.random() < _BEGINNING_SHARE:
                    await questions.beginning(known.queue)


class _Questions:
    """The process that searches."""

    def __init__(
        self,
        instance: ClientInstance,
        actor: Actor,
        expectations: Expectations,
        times: deque[_Known],
    ) -> None:
        """Make it; what queries show is put into `times`."""
        self._instance = instance
        self._actor = actor
        self._expectations = expectations
        self._times = times

    async def by_time(self, queue: MessageQueue, at_ms: int, *, upper: bool) -> None:
        """Search the first message stored at a time or later; with `upper` the last until then."""
        fields = _of_queue(queue) | {
            "timestamp": str(at_ms),
            "boundaryType": "UPPER" if upper else "LOWER",
        }
        with self._actor.operation(
            "search",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            ref="last" if upper else "first",
            from_ms=at_ms,
        ) as operation:
            try:
                answer = await self._query(
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue.broker_name, fields
                )
                offset = _number(answer, "offset")
            except ClientError as error:
                operation.failed(error)
                return
            operation.complete("ok", offset=offset)

    async def around(self, queue: MessageQueue, stored_ms: int) -> None:
        """Search by both boundaries at a time of storing, beside it, before and behind all."""
        for at_ms in (stored_ms - 1, stored_ms, stored_ms + 1, 0, stored_ms + _BEHIND_ALL_MS):
            for upper in (False, True):
                await self.by_time(queue, at_ms, upper=upper)

    async def earliest(self, queue: MessageQueue) -> None:
        """Query when the queue's first message was stored."""
        with self._actor.operation(
            "search",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            ref="earliest",
        ) as operation:
            try:
                answer = await self._query(
                    RequestCode.GET_EARLIEST_MSG_STORETIME, queue.broker_name, _of_queue(queue)
                )
                at_ms = _number(answer, "timestamp")
            except ClientError as error:
                operation.failed(error)
                return
            operation.complete("ok", from_ms=at_ms)

    async def beginning(self, queue: MessageQueue) -> None:
        """Hold the time of the first message against the message itself, wherever the queue
        begins: retention may have taken others before it."""
        try:
            ends = await self._ends(queue)
            begin, end = ends
            stored_ms = -1 if begin == end else await self._stored_ms(queue, begin)
            answer = await self._query(
                RequestCode.GET_EARLIEST_MSG_STORETIME, queue.broker_name, _of_queue(queue)
            )
            earliest_ms = _number(answer, "timestamp")
            ends_later = await self._ends(queue)
        except ClientError:
            return  # nobody knows both
        has_stayed = ends_later[0] == begin and (begin < end or ends_later == ends)
        self._expectations.hold(
            f"earliest time of the queue, which begins at {begin}",
            expected=stored_ms if has_stayed else None,
            answered=earliest_ms,
            queue=queue,
        )

    async def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the queue's first offset and the one behind its last. Raises ClientError."""
        fields, group = _of_queue(queue), queue.broker_name
        begin = await self._query(RequestCode.GET_MIN_OFFSET, group, fields)
        end = await self._query(RequestCode.GET_MAX_OFFSET, group, fields)
        return _number(begin, "offset"), _number(end, "offset")

    async def _stored_ms(self, queue: MessageQueue, offset: int) -> int | None:
        """Return when the message at an offset was stored; None where it is gone already. Raises
        ClientError."""
        pull = pull_command(queue.topic, TOOLS)
        fields = {**pull.ext_fields, **_of_queue(queue), "queueOffset": str(offset)}
        answer = await self._query(
            RequestCode.PULL_MESSAGE, queue.broker_name, fields, accept=PULL_ANSWERS
        )
        shown = records_of(answer)
        return shown[0].store_timestamp_ms if shown and shown[0].queue_offset == offset else None

    async def by_key(self, known: _Known, from_ms: int, to_ms: int) -> None:
        """Query the messages of a key that were stored within a time, both ends included."""
        group = known.queue.broker_name
        fields = {
            "topic": known.queue.topic,
            "key": known.key,
            "maxNum": str(COUNT_MAX),
            "beginTimestamp": str(from_ms),
            "endTimestamp": str(to_ms),
            "bname": group,
        }
        with self._actor.operation(
            "search",
            broker_group=group,
            topic=known.queue.topic,
            key=known.key,
            ref="range",
            from_ms=from_ms,
            to_ms=to_ms,
        ) as operation:
            try:
                answer = await self._query(
                    RequestCode.QUERY_MESSAGE, group, fields, accept=_RANGE_ANSWERS
                )
                messages = _messages(answer, group)
            except ClientError as error:
                operation.failed(error)
                return
            operation.complete("ok", messages=[row_of_delivered(each) for each in messages])
        self._times.extend(
            _Known(queue=each.queue, at_ms=each.store_timestamp_ms, key=known.key)
            for each in messages
        )

    async def _query(
        self,
        code: RequestCode,
        group: str,
        fields: Mapping[str, str],
        accept: frozenset[int] = frozenset({0}),
    ) -> RemotingCommand:
        answer, _ = await call_group(
            self._instance,
            group,
            lambda: RemotingCommand(code=code, ext_fields=dict(fields)),
            topic=TOPIC,
            timeout_ms=TIMEOUT_MS,
            policy=RetryPolicy(attempt_timeout_ms=TIMEOUT_MS),
            accept=accept,
        )
        return answer


def _of_queue(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


def _number(answer: RemotingCommand, field: str) -> int:
    """Return a number of an answer's header. Raises MalformedAnswerError."""
    text = answer.ext_fields.get(field, "")
    try:
        return int(text)
    except ValueError as error:
        raise MalformedAnswerError(f"{field} is {text[:40]!r}, no number") from error


def _messages(answer: RemotingCommand, group: str) -> list[DeliveredMessage]:
    try:
        return [
            delivered_message(record, MessageQueue(record.topic, group, record.queue_id))
            for record in (decode_records(answer.body) if answer.body else ())
        ]
    except RecordError as error:
        raise MalformedAnswerError(f"records of {group}: {error}") from error


SPEC: Final = PartSpec(
    name="searches",
    summary="searches by time, and by key within a time",
    topics=lambda section: (TOPIC,),
    slots=lambda section: ("searches-send", "searches-ask"),
    make=_Searches,
    judged_by=("M5",),
)
