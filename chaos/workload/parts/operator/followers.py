"""Replicas that do not lead, in the part `operator`: they answer nothing that only a leader knows.

Place in the data path: a group's members send their heartbeats to some of the replicas; then a
replica that does not lead is asked for them, and for much else that a leader alone may answer, once
as a client that follows hints and once as one of another language, for which it asks its leader.

Invariants: who leads comes from the replicas' own status, read past every proxy, and what is
answered counts only where the same node leads in the same term behind all answers; a request that
is carried out all the same changes nothing that another part looks at.

Source: RocketMQ ConsumerManager, AdminBrokerProcessor (of masters); docs/DIVERGENCE.md (followers);
the run format (ask; M12).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.cluster.layout import BrokerPlace
from chaos.systems.base import SystemFailedError
from chaos.workload.context import WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["FollowerKeeper"]

QUESTIONS: Final = 6  # of a step
MEMBERS: Final = 3
FOREVER_MS: Final = (1 << 62) - 1
NO_QUEUE: Final = 4_711
_JAVA: Final = 0  # a language whose clients know of no hints
_REFUSED: Final = 14
_NOT_LEADER: Final = "not the leader"
_HINT: Final = "leader is "
_NO_ANSWERS: Final = frozenset({2, 11, 14, 215})
_C: Final = RequestCode

Show = Callable[[RemotingCommand], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    place: BrokerPlace
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A request; `is_forwarded`: a replica asks its leader for clients of other languages."""

    code: RequestCode
    fields: Mapping[str, object]
    body: bytes = b""
    is_forwarded: bool = True

    def command(self, language: int | None = None) -> RemotingCommand:
        fields = {name: str(value) for name, value in self.fields.items()}
        command = RemotingCommand(code=self.code, ext_fields=fields, body=self.body)
        if language is not None:
            command.language = language
        return command


class FollowerKeeper:
    """Queries the replicas of one broker group that do not lead. `queue`: one that nobody uses."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        expectations: Expectations,
        *,
        queue: MessageQueue,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._requests = requests
        self._expectations = expectations
        self._queue = queue
        self._rng = rng
        self._places = context.world.layout.groups[queue.broker_name]
        self._turn = 0

    async def step(self) -> None:
        """Have members greet some replicas, and query one that does not lead."""
        began_ns = time.monotonic_ns()
        lead = await self._lead()
        others = [place for place in self._places if lead is None or place is not lead.place]
        if lead is None or not others:
            return
        self._turn += 1
        place = self._rng.choice(others)
        group = f"operator-followers-{self._queue.broker_name}-{self._turn}"
        answers: list[tuple[str, str, str]] = []
        try:
            answers += await self._query_members(group, lead.place, place)
            for question in self._rng.sample(_questions(self._queue, group), QUESTIONS):
                answers += await self._query(question, lead.place, place)
        except ClientError:
            return  # somebody did not answer: nothing is compared
        if await self._lead() != lead:
            return
        for what, expected, answered in answers:
            self._expectations.hold(
                what,
                expected=expected,
                answered=answered,
                queue=self._queue,
                calm_since=began_ns,
            )

    async def _query_members(
        self, group: str, leader: BrokerPlace, place: BrokerPlace
    ) -> list[tuple[str, str, str]]:
        """Query the members of a group of which a replica knows some, none or all; return what
        was requested, expected, answered. Raises ClientError."""
        members = [f"{group}@{number}" for number in range(self._rng.randint(1, MEMBERS))]
        known = self._rng.sample(members, self._rng.randint(0, len(members)))
        for member in members:
            await self._greet(member, group, leader)
            if member in known:
                await self._greet(member, group, place)
        question = _Question(code=_C.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": group})
        answers = await self._query(question, leader, place)
        listed = f"0 {' '.join(members)}"
        for language, name in ((None, leader.name), (_JAVA, place.name)):
            address = leader.address if language is None else place.address
            answer = await self._requests.any_at(address, question.command(language))
            what = f"members of {group}, of whom {place.name} knows {len(known)}, by {name}"
            answers.append((what, listed, _members_of(answer)))
        for member in members:
            for each in (leader, place):
                await self._leave(member, group, each)
        return answers

    async def _query(
        self, question: _Question, leader: BrokerPlace, place: BrokerPlace
    ) -> list[tuple[str, str, str]]:
        """Query a replica as either kind of client; return what was requested, expected, answered.
        Raises ClientError."""
        name = question.code.name.lower()
        answer = await self._requests.any_at(place.address, question.command())
        expected = f"refused, the leader is {leader.address}"
        rows = [(f"{name} at {place.name}, which follows", expected, _refusal(answer, leader))]
        if question.is_forwarded:
            leader_answer = await self._requests.any_at(leader.address, question.command(_JAVA))
            answer = await self._requests.any_at(place.address, question.command(_JAVA))
            if leader_answer.code not in _NO_ANSWERS:
                what = f"{name} at {place.name}, which asks {leader.name} for clients of Java"
                rows.append((what, str(leader_answer.code), str(answer.code)))
        return rows

    async def _greet(self, member: str, group: str, place: BrokerPlace) -> None:
        """Send one heartbeat of a member to a replica. Raises ClientError."""
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "BROADCASTING",  # no topic for retries is made
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": self._queue.topic, "subString": "*"}],
        }
        body = {"clientID": member, "producerDataSet": [], "consumerDataSet": [consumer]}
        command = RemotingCommand(code=_C.HEART_BEAT, body=json.dumps(body).encode())
        await self._requests.at(place.address, command)

    async def _leave(self, member: str, group: str, place: BrokerPlace) -> None:
        fields = {"clientID": member, "consumerGroup": group}
        command = RemotingCommand(code=_C.UNREGISTER_CLIENT, ext_fields=fields)
        await self._requests.at(place.address, command)

    async def _lead(self) -> _Lead | None:
        """Return who leads the group; None where it is not sure."""
        system = self._context.world.system
        leads = []
        for place in self._places:
            try:
                status = await system.status(place.name)
            except SystemFailedError:
                return None
            if status is not None and status.ready:
                leads.append(_Lead(place=place, term=status.term))
        return leads[0] if len(leads) == 1 else None


def _refusal(answer: RemotingCommand, leader: BrokerPlace) -> str:
    """Return what a refusal says of who leads; any other answer by its code."""
    remark = answer.remark or ""
    if answer.code != _REFUSED or not remark.startswith(_NOT_LEADER):
        return f"answered with {answer.code}"
    return f"refused, the {_HINT}{remark.rpartition(_HINT)[2]}"


def _members_of(answer: RemotingCommand) -> str:
    listed = json_of(answer, "a replica").get("consumerIdList", []) if answer.body else []
    return " ".join([str(answer.code), *sorted(map(str, listed))])


def _questions(queue: MessageQueue, group: str) -> Sequence[_Question]:
    """Return requests that a leader alone answers, none of which changes what others look at."""
    at: dict[str, object] = {"topic": queue.topic, "queueId": queue.queue_id}
    of: dict[str, object] = {**at, "consumerGroup": group}
    pop: dict[str, object] = {**of, "maxMsgNums": 1, "invisibleTime": 1_000, "pollTime": 0}
    ack: dict[str, object] = {**of, "extraInfo": "0 0 1000 0 0 nobody 0 0", "offset": 0}
    times: dict[str, object] = {"beginTimestamp": 0, "endTimestamp": FOREVER_MS}
    half: dict[str, object] = {"tranStateTableOffset": 0, "commitLogOffset": 0}
    lock = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": NO_QUEUE}
    locks = json.dumps({"consumerGroup": group, "clientId": "nobody", "mqSet": [lock]}).encode()
    send = {"a": group, "b": queue.topic, "c": queue.topic, "d": 1, "e": NO_QUEUE, "f": 0}
    sent: dict[str, object] = {**send, "g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}
    no_topic: dict[str, object] = {"topic": "no topic!", "defaultTopic": "", "perm": 6}
    queues: dict[str, object] = {"readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}
    kind: dict[str, object] = {"topicFilterType": "SINGLE_TAG", "order": "false"}
    return (
        _Question(code=_C.SEND_MESSAGE_V2, fields=sent, body=b"nothing"),
        _Question(code=_C.QUERY_CONSUMER_OFFSET, fields=of),
        _Question(code=_C.UPDATE_CONSUMER_OFFSET, fields={**of, "commitOffset": 0}),
        _Question(code=_C.GET_MAX_OFFSET, fields=at),
        _Question(code=_C.GET_MIN_OFFSET, fields=at),
        _Question(code=_C.SEARCH_OFFSET_BY_TIMESTAMP, fields={**at, "timestamp": 0}),
        _Question(code=_C.GET_EARLIEST_MSG_STORETIME, fields=at),
        _Question(
            code=_C.QUERY_MESSAGE,
            fields={"topic": queue.topic, "key": "no-such-key", "maxNum": 1, **times},
        ),
        _Question(code=_C.POP_MESSAGE, fields={**pop, "initMode": 0}, is_forwarded=False),
        _Question(code=_C.PEEK_MESSAGE, fields={**of, "maxMsgNums": 1}),
        _Question(
            code=_C.NOTIFICATION,
            fields={**of, "pollTime": 0, "bornTime": 0},
            is_forwarded=False,
        ),
        _Question(code=_C.ACK_MESSAGE, fields=ack),
        _Question(code=_C.CHANGE_MESSAGE_INVISIBLETIME, fields={**ack, "invisibleTime": 1_000}),
        _Question(code=_C.LOCK_BATCH_MQ, fields={}, body=locks),
        _Question(code=_C.UNLOCK_BATCH_MQ, fields={}, body=locks),
        _Question(
            code=_C.END_TRANSACTION,
            fields={
                **half,
                "producerGroup": group,
                "commitOrRollback": 12,
                "fromTransactionCheck": "false",
            },
        ),
        _Question(code=_C.GET_TOPIC_STATS_INFO, fields={"topic": queue.topic}),
        _Question(code=_C.GET_CONSUME_STATS, fields={"consumerGroup": group}),
        _Question(code=_C.QUERY_CONSUME_TIME_SPAN, fields={"topic": queue.topic, "group": group}),
        _Question(code=_C.QUERY_CONSUME_QUEUE, fields={**of, "index": 0, "count": 1}),
        _Question(code=_C.GET_ALL_CONSUMER_OFFSET, fields={}),
        _Question(code=_C.GET_ALL_DELAY_OFFSET, fields={}),
        _Question(code=_C.UPDATE_AND_CREATE_TOPIC, fields={**no_topic, **queues, **kind}),
        _Question(
            code=_C.CLONE_GROUP_OFFSET,
            fields={"srcGroup": group, "destGroup": group, "topic": queue.topic},
        ),
    )
