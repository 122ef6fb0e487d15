"""A drill: requests to a broker group's leader, sent one after the other by one client, of which
each has one right answer, known before it is sent.

Place in the data path: `drills` runs drills in a queue that nobody else writes to; each kind of
drill (`drills.pops`, `drills.queues`, `drills.owners`) has a model of what a broker should answer,
which shares no code with any broker. Requests are raw, so that nothing is between the answer and
the history.

Invariants: one row per `request`: what was requested, what is expected, what was answered. What
changes something and ends without an answer makes the model unsure: the drill ends, and the next
one begins anew. So does one that was answered otherwise than expected, which is reported once.

Source: docs/RUN_FORMAT.md (ask; M12).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.messages import row_of_message, wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.first_error import first_of
from chaos.workload.parts.common.leader_requests import (
    DEFAULT_TOPIC,
    pipeline_requests,
    request_leader,
)
from chaos.workload.parts.common.shown_answers import code_of, places_of
from client.connection.instance import ClientInstance
from client.errors import BrokerRefusedError, ClientError
from client.message import Message, MessageQueue
from remoting.errors import ConnectionLostError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = [
    "UNLISTED",
    "Drill",
    "EndedError",
    "Stored",
    "Unsure",
    "batch_fields",
]

TIMEOUT_MS: Final = 2_000
ERROR_SIZE_MAX: Final = 300
CALM: Final = "calm"
DRILLS: Final = "drills"  # of a send that is no measure of what is acknowledged
POLL_S: Final = 0.02
FOUND_MAX: Final = 64  # messages of one query
FOREVER_MS: Final = (1 << 62) - 1
# Begins the name of a topic of which only a drill knows what was sent there: rules take it for one
# of the system's own, and brokers for any other.
UNLISTED: Final = "RMQ_SYS_"
_NO_ANSWERS: Final = frozenset({1, 2, 11, 14, 215})  # of a broker that can't, or not now

_UNSERVED: Final = frozenset({3})
_REFUSALS: Final = frozenset({13, 16, 17, 29})  # of a send, whoever leads and whenever it comes

Show: TypeAlias = Callable[[RemotingCommand], str]


class Unsure(Exception):
    """The model does not know any more what a broker should answer."""


class EndedError(Exception):
    """No more is to be requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message of the queue: where it stands, what it is found by, how and when it was sent."""

    offset: int
    value: str
    tag: str
    uniq_key: str
    keys: Sequence[str]
    offset_msg_id: str
    command: RemotingCommand
    sent_s: float  # of the loop's clock


class _Answers:
    """Codes that say something of the state of things. `more` are accepted in a drill's question
    where they are the answer expected, `fewer` say nothing there."""

    def __init__(
        self, more: frozenset[int] = frozenset(), fewer: frozenset[int] = frozenset()
    ) -> None:
        self._more = more
        self._none = _NO_ANSWERS | fewer

    def __contains__(self, code: object) -> bool:
        return code not in self._none or code in self._more


class Drill:
    """What every drill has: a client, an actor, a queue, and what stands there. What is sent twice
    at one time goes through another client's connection as well.

    `queue_count`: queues of the topic at the broker group. `ends`: set when no request may follow.
    """

    def __init__(
        self,
        context: WorkContext,
        instances: tuple[ClientInstance, ClientInstance],
        actor: Actor,
        queue: MessageQueue,
        stored: Sequence[Stored],
        *,
        queue_count: int,
        ends: asyncio.Event,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._instances = instances
        self._actor = actor
        self.queue = queue
        self.stored = stored
        self.queue_count = queue_count
        self.ends = ends
        self.rng = rng
        self.node: str | None = None  # who answered last

    def beside(self, name: str) -> Drill:
        """Return a drill that may work while this one waits. `name` is unique in this one."""
        return Drill(
            self._context,
            self._instances,
            self._actor.other(name),
            self.queue,
            self.stored,
            queue_count=self.queue_count,
            ends=self.ends,
            rng=self.rng,
        )

    @property
    def end(self) -> int:
        """The queue's end: the offset of its next message."""
        return len(self.stored)

    @property
    def is_guarded(self) -> bool:
        """Whether brokers check what users may do."""
        return self._context.scenario.cluster.access

    @property
    def window_ms(self) -> int:
        """For how long brokers remember a UNIQ_KEY."""
        return self._context.scenario.dedupe.window_ms

    async def request(
        self,
        what: str,
        code: RequestCode,
        fields: Mapping[str, object],
        *,
        expected: str,
        show: Show | None = None,
        body: bytes = b"",
        changes: bool = False,
        is_calm: bool = False,
        may_be: frozenset[int] = frozenset(),
        is_own: bool = False,
        only_by: str | None = None,
        from_other: bool = False,
        via: ClientInstance | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand | None:
        """Send one request; return the answer, None where there was none.

        `show`: what the history has of the answer, to be held against `expected`; its code alone
        where there is none. `is_calm`: a leader that was deposed and has not heard of it may answer
        otherwise by right, or one that clients have not found yet. `is_own`: brokers of RocketMQ,
        and older ones of ours, don't know the request. `only_by`: another node's answer says
        nothing. `from_other`: through the other client's connection; `via`: through that of a
        client which is no part of the drill.

        Raises Unsure where a change was not answered, or anything was answered otherwise;
        EndedError.
        """
        if self.ends.is_set():
            raise EndedError
        ext_fields = {name: str(value) for name, value in fields.items()}
        with self._actor.operation(
            "ask",
            broker_group=self.queue.broker_name,
            topic=self.queue.topic,
            queue=self.queue.queue_id,
            key=what,
            ref=expected,
            decision=CALM if is_calm else None,
        ) as operation:
            try:
                answer, address = await request_leader(
                    via or self._instances[from_other],
                    self.queue.broker_name,
                    lambda: RemotingCommand(code=code, ext_fields=ext_fields, body=body),
                    timeout_ms=timeout_ms,
                    accept=_Answers(may_be, _UNSERVED if is_own else frozenset()),
                )
            except ClientError as error:
                if is_calm and isinstance(error.__cause__, ConnectionLostError):
                    # Where there is no fault, nobody closes a connection: M12 says so.
                    operation.complete("ok", status="the connection was lost")
                    raise Unsure from error
                operation.failed(error)
                if changes:
                    raise Unsure from error
                return None
            answered = (show or code_of)(answer)
            self.node = self._context.node(address)
            if only_by is not None and only_by != self.node:
                operation.complete("info", error="another node answered", node=self.node)
                return None
            operation.complete("ok", status=answered, node=self.node)
        if answered != expected:
            raise Unsure
        return answer

    async def call(
        self, code: RequestCode, fields: Mapping[str, object], *, body: bytes = b""
    ) -> tuple[RemotingCommand, str | None]:
        """Request without a row in the history, beside others over the same connection; return the
        answer and whose it is. What follows from it, `record` holds. Raises ClientError."""
        ext_fields = {name: str(value) for name, value in fields.items()}
        answer, address = await request_leader(
            self._instances[0],
            self.queue.broker_name,
            lambda: RemotingCommand(code=code, ext_fields=ext_fields, body=body),
            timeout_ms=TIMEOUT_MS,
            accept=_Answers(),
        )
        return answer, self._context.node(address)

    async def find(self, topic: str, uniq_key: str, found: Sequence[str]) -> None:
        """Query the messages of a topic under a UNIQ_KEY: `found`, each as "offset:value".
        Raises Unsure, EndedError."""
        await self.request(
            f"all of {topic} under its {uniq_key}",
            RequestCode.QUERY_MESSAGE,
            {
                "topic": topic,
                "key": uniq_key,
                "maxNum": FOUND_MAX,
                "beginTimestamp": 0,
                "endTimestamp": FOREVER_MS,
                "_UNIQUE_KEY_QUERY": "true",
            },
            expected=" ".join(["0" if found else "22", *sorted(found)]),
            show=lambda answer: " ".join([str(answer.code), *sorted(places_of(answer))]),
        )

    async def wait_for(
        self,
        what: str,
        probe: Callable[[], str],
        *,
        expected: str,
        within_s: float,
        stays: bool = False,
    ) -> None:
        """Wait until `probe` shows what is expected, at most `within_s`; with `stays` that long in
        any case. It is an ask whose answer is what was shown at last, judged in calm times only.

        Raises Unsure where anything else was shown, EndedError.
        """
        if self.ends.is_set():
            raise EndedError
        loop = asyncio.get_running_loop()
        with self._actor.operation(
            "ask",
            broker_group=self.queue.broker_name,
            topic=self.queue.topic,
            queue=self.queue.queue_id,
            key=what,
            ref=expected,
            decision=CALM,
        ) as operation:
            end_s = loop.time() + within_s
            while loop.time() < end_s and (stays or probe() != expected):
                if await sleep_until_set(self.ends, POLL_S):
                    raise EndedError
            shown = probe()
            operation.complete("ok", status=shown)
        if shown != expected:
            raise Unsure

    async def send(
        self, messages: Sequence[Message], command: RemotingCommand, *, queue_id: int
    ) -> RemotingCommand:
        """Send once, as an operation of its own; return the answer of success.

        `queue_id` -1: the broker chooses. The operation is `info` all the same: the topic may be
        one that nobody drains, so that its drill alone says what has to stand there. Where a broker
        finds something wrong with the request, that is an answer that was not expected.

        Raises Unsure where there was no answer of success, EndedError.
        """
        if self.ends.is_set():
            raise EndedError
        group, queue = self.queue.broker_name, None if queue_id < 0 else queue_id
        rows = [row_of_message(each, broker_group=group, queue=queue) for each in messages]
        with self._actor.operation(
            "send",
            broker_group=group,
            topic=messages[0].topic,
            queue=queue,
            messages=rows,
            ref=DRILLS,
        ) as operation:
            try:
                answer, address = await request_leader(
                    self._instances[0], group, lambda: command, timeout_ms=TIMEOUT_MS
                )
            except ClientError as error:
                operation.failed(error)
                code = error.code if isinstance(error, BrokerRefusedError) else None
                if code not in _REFUSALS:
                    raise Unsure from error
            else:
                fields = answer.ext_fields
                queue, first = int(fields.get("queueId", -1)), int(fields.get("queueOffset", -1))
                stored = [
                    row_of_message(each, broker_group=group, queue=queue, offset=first + place)
                    for place, each in enumerate(messages)
                ]
                operation.complete(
                    "info",
                    messages=stored,
                    queue=queue,
                    error="its drill reads it back",
                    node=self._context.node(address),
                )
                return answer
        self.record(
            f"send of {len(messages)} to queue {queue_id} of {messages[0].topic}",
            expected="0",
            answered=str(code),
        )
        raise Unsure

    def record(self, what: str, *, expected: str, answered: str) -> None:
        """Record an answer that is there already. Raises Unsure where another was expected."""
        with self._actor.operation(
            "ask", broker_group=self.queue.broker_name, key=what, ref=expected
        ) as operation:
            operation.complete("ok", status=answered)
        if answered != expected:
            raise Unsure

    async def request_twice(
        self,
        what: str,
        code: RequestCode,
        requests: Sequence[tuple[Mapping[str, object], bytes]],
        *,
        expected: Sequence[str],
        show: Show | None = None,
    ) -> list[RemotingCommand]:
        """Send two requests at one time through two connections, both of which change something;
        return their answers, which may be the expected ones in either order. Raises Unsure,
        EndedError."""
        if self.ends.is_set():
            raise EndedError
        with self._actor.operation(
            "ask",
            broker_group=self.queue.broker_name,
            topic=self.queue.topic,
            queue=self.queue.queue_id,
            key=f"twice at one time: {what}",
            ref=_in_any_order(expected),
        ) as operation:
            unanswered: ClientError | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    in_flight = [
                        tasks.create_task(self._one_of_two(instance, code, fields, body))
                        for instance, (fields, body) in zip(self._instances, requests, strict=True)
                    ]
            except* ClientError as errors:
                unanswered = first_of(errors)
            if unanswered is not None:
                operation.complete("info", error=str(unanswered)[:ERROR_SIZE_MAX])
                raise Unsure from unanswered
            answers = [each.result() for each in in_flight]
            answered = _in_any_order([(show or code_of)(answer) for answer in answers])
            operation.complete("ok", status=answered)
        if answered != _in_any_order(expected):
            raise Unsure
        return answers

    async def _one_of_two(
        self,
        instance: ClientInstance,
        code: RequestCode,
        fields: Mapping[str, object],
        body: bytes,
    ) -> RemotingCommand:
        ext_fields = {name: str(value) for name, value in fields.items()}
        answer, _ = await request_leader(
            instance,
            self.queue.broker_name,
            lambda: RemotingCommand(code=code, ext_fields=ext_fields, body=body),
            timeout_ms=TIMEOUT_MS,
            accept=_Answers(),
        )
        return answer

    async def request_behind(
        self,
        what: str,
        ahead: Sequence[RemotingCommand],
        question: RemotingCommand,
        *,
        expected: str,
        show: Show,
        is_calm: bool,
    ) -> None:
        """Send a request right behind others, over the same connection and before any is answered.

        `is_calm`: one of `ahead` has no answer that says whether it was carried out. Raises Unsure
        where it is not known, or the answer was another one; EndedError.
        """
        if self.ends.is_set():
            raise EndedError
        group = self.queue.broker_name
        with self._actor.operation(
            "ask",
            broker_group=group,
            topic=self.queue.topic,
            queue=self.queue.queue_id,
            key=f"{what}, right behind",
            ref=expected,
            decision=CALM if is_calm else None,
        ) as operation:
            try:
                answers, address = await pipeline_requests(
                    self._instances[0], group, [*ahead, question], timeout_ms=TIMEOUT_MS
                )
            except ClientError as error:
                operation.failed(error)
                raise Unsure from error
            accepted = _Answers()
            if any(answer.code not in accepted for answer in answers):
                operation.complete("info", error=f"answered {[each.code for each in answers]}")
                raise Unsure
            answered = show(answers[-1])
            operation.complete("ok", status=answered, node=self._context.node(address))
        if answered != expected:
            raise Unsure

    def client_key(self) -> str:
        """Return a new UNIQ_KEY as clients make them: a broker has a short way for those."""
        return self._instances[0].next_uniq_key(wall_ms())

    def place(self, **more: object) -> dict[str, object]:
        """Return the fields that name the queue, and `more`."""
        queue = self.queue
        return {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "bname": queue.broker_name,
            **more,
        }


def _in_any_order(answers: Sequence[str]) -> str:
    return " & ".join(sorted(answers))


def batch_fields(group: str, topic: str, broker_name: str) -> dict[str, object]:
    """Return the header of a SEND_BATCH_MESSAGE to queue 0 of `topic`, born in 1970."""
    fields: dict[str, object] = {"a": group, "b": topic, "c": DEFAULT_TOPIC, "d": 4, "e": 0, "f": 0}
    return fields | {"g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "true", "n": broker_name}
