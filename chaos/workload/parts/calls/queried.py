"""A member of the part `calls` that changes what it subscribes to, and consumes single messages for
an administrator.

Place in the data path: `client.consume.push_consumer` with another expression of tags every now and
then; CONSUME_MESSAGE_DIRECTLY, relayed by the leader, for messages that it has consumed before.

Invariants: a message is judged by the expression that was in force when its client made it, not by
an earlier one, and the next one comes only when all has been given that this one wants; what an
administrator has consumed is no delivery of the group; the tag T0 is never left out, so that its
messages are owed whenever they were made.

Source: RocketMQ DefaultMQPushConsumer.subscribe, ConsumeMessageDirectlyResult, CMResult.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.messages import wall_ms
from chaos.workload.namespaces import wire_name
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.calls.sender import TWIN_TAGS, Sent
from chaos.workload.parts.common.failing_listener import ListenerBugError
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.push_members import Deliveries, Member, make_member, rows_of
from client.connection.broker_call import call_group
from client.connection.heartbeat import ExpressionType
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError, InvalidParameterError
from client.message import DeliveredMessage
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["GROUP", "QueriedMember"]

GROUP: Final = "calls-asked"
OWED_TAG: Final = "T0"
WRONG_EXPRESSIONS: Final = ("a = ", "a > 'x", "(a = 1", "a between 1", "= 1")
OTHER_TAGS: Final = ("T1", "T2", TWIN_TAGS[0])
ACTION_EVERY_S: Final = 0.4
TIMEOUT_MS: Final = 3_000
SQL_SHARE: Final = 0.3  # of the subscriptions are by an expression over properties
_RESULTS: Final = {
    "consumed": "CR_SUCCESS",
    "later": "CR_LATER",
    "raised": "CR_THROW_EXCEPTION",
    "nothing": "CR_RETURN_NULL",
}


class QueriedMember:
    """The member, from the beginning of the load to the end of the drain."""

    def __init__(self, kit: PartKit, slot: Slot, sent: Mapping[str, Sent], *, topic: str) -> None:
        self._kit = kit
        self._slot = slot
        self._sent = sent
        self._topic = topic
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._given: set[str] = set()
        first = self._rng.sample(OTHER_TAGS, self._rng.randint(0, 1))
        self._tags: frozenset[str] | None = frozenset({OWED_TAG, *first})  # None: all
        self._since_ms = 0  # when they came into force
        self._unwanted = 0
        self._directly: dict[str, str] = {}  # how the next direct consumption of a value ends

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """What it is owed changes with its expression."""
        row = {"kind": "cluster", "at_least_once": False, "ordered": False, "topics": [self._topic]}
        return {GROUP: row}

    def missing(self) -> set[str]:
        """Return what is owed and was not given yet."""
        return self._of_the_owed_tag() | self._of_now()

    def _of_the_owed_tag(self) -> set[str]:
        owed = {value for value, each in self._sent.items() if each.message.tags == OWED_TAG}
        return owed - self._given

    def _of_now(self) -> set[str]:
        """Return what was made under the expression of now, is wanted by it and not given yet."""
        wanted = {
            value
            for value, each in self._sent.items()
            if (each.message.born_timestamp_ms or 0) > self._since_ms
            and (self._tags is None or each.message.tags in self._tags)
        }
        return wanted - self._given

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        client = self._slot.next_client()
        expectations = Expectations(self._kit.context.history, client=client, client_group=GROUP)
        member = self._member(client)
        consumer = member.consumer
        await consumer.start()
        try:
            while not await sleep_until_set(stop, self._rng.expovariate(1 / ACTION_EVERY_S)):
                draw = self._rng.random()
                if draw < 0.45:
                    self._change(consumer, expectations)
                elif draw < 0.8:
                    await self._have_consumed(consumer, expectations)
                elif draw < 0.92:
                    await self._query_member(consumer, expectations)
                else:
                    await self._start_in_vain(expectations)
            await drained.wait()
        finally:
            await consumer.stop()
            with member.actor.operation("assign") as operation:
                operation.complete("ok", assigned=[])
        self._hold_unwanted(expectations)
        for question, values in (
            ("messages of a tag that was always wanted, and not given", self._of_the_owed_tag()),
            ("messages that the last subscription wants, and not given", self._of_now()),
        ):
            answered = ", ".join(sorted(values)) or "none"
            expectations.hold(question, expected="none", answered=answered, topic=self._topic)

    def _change(self, consumer: PushConsumer, expectations: Expectations) -> None:
        """Subscribe to other tags, by their names or by an expression, unless something is owed."""
        if self._of_now():
            return
        self._hold_unwanted(expectations)
        others = self._rng.sample(OTHER_TAGS, self._rng.randint(0, len(OTHER_TAGS)))
        if len(others) == len(OTHER_TAGS):
            self._tags = None
            consumer.subscribe(self._topic)
        else:
            self._tags = frozenset({OWED_TAG, *others})
            if self._rng.random() < SQL_SHARE:
                listed = ", ".join(f"'{name}'" for name in sorted(self._tags))
                consumer.subscribe(self._topic, f"TAGS in ({listed})", ExpressionType.SQL92)
            else:
                consumer.subscribe(self._topic, self._expression())
        self._since_ms = wall_ms()
        self._unwanted = 0

    def _expression(self) -> str:
        """Return the tags of now as an application names them."""
        return "*" if self._tags is None else " || ".join(sorted(self._tags))

    def _hold_unwanted(self, expectations: Expectations) -> None:
        expectations.hold(
            "messages made under a subscription, given, and of another tag",
            expected=0,
            answered=self._unwanted,
            topic=self._topic,
        )

    async def _have_consumed(self, consumer: PushConsumer, expectations: Expectations) -> None:
        """Have the member consume one message that it was given before."""
        known = sorted(value for value in self._given if value in self._sent)
        if not known:
            return
        value = self._rng.choice(known)
        result = self._sent[value].result
        if "," in result.offset_msg_id:
            return  # of a batch: it has no id of its own
        manner = self._rng.choice(list(_RESULTS))
        self._directly[value] = manner
        fields = {
            "consumerGroup": wire_name(self._slot.namespace, GROUP),
            "clientId": consumer.client_id,
            "msgId": result.offset_msg_id,
            "brokerName": result.queue.broker_name,
            "topic": wire_name(self._slot.namespace, self._topic),
        }
        try:
            answer, _ = await call_group(
                consumer.instance,
                result.queue.broker_name,
                lambda: RemotingCommand(
                    code=RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields=dict(fields)
                ),
                topic=self._topic,
                timeout_ms=TIMEOUT_MS,
                policy=RetryPolicy(attempts_max=1),
            )
        except ClientError:
            return  # the leader may not know the member, or the message's node be gone
        finally:
            was_given = self._directly.pop(value, None) is None
        body: dict[str, Any] = msgspec.json.decode(answer.body)
        expectations.hold(
            "result of a message that an administrator had consumed",
            expected=f"{_RESULTS[manner]}, given True, ordered False",
            answered=f"{body.get('consumeResult')}, given {was_given}, ordered {body.get('order')}",
            topic=self._topic,
        )

    async def _query_member(self, consumer: PushConsumer, expectations: Expectations) -> None:
        """Query the member through a broker where it is, which it knows where nothing moves."""
        group = wire_name(self._slot.namespace, GROUP)
        topic = wire_name(self._slot.namespace, self._topic)
        broker_name = self._kit.context.part_queues[self._topic][0].broker_name
        if self._rng.random() < 0.5:
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            fields = {"consumerGroup": group, "clientId": consumer.client_id}
        else:
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            fields = {"group": group, "topic": topic, "clientAddr": consumer.client_id}
        before = self._places(consumer)
        try:
            answer, _ = await call_group(
                consumer.instance,
                broker_name,
                lambda: RemotingCommand(code=code, ext_fields=dict(fields)),
                topic=self._topic,
                timeout_ms=TIMEOUT_MS,
                policy=RetryPolicy(attempts_max=1),
            )
            places = _reported_places(answer, code, consumer.client_id, topic)
        except ClientError:
            return  # the leader may not know the member
        except BodyError as error:
            places = f"unreadable: {error}"
        expectations.hold(
            f"places of a member, by {code.name.lower()}",
            expected=before if before == self._places(consumer) else None,
            answered=places,
            topic=self._topic,
        )

    def _places(self, consumer: PushConsumer) -> str:
        """Return how far the member is in each queue that it has."""
        return ", ".join(
            f"{state.queue.broker_name} {state.queue.queue_id}: {state.commit_offset}"
            for state in consumer.states()
            if state.queue.topic == self._topic and state.commit_offset >= 0
        )

    async def _start_in_vain(self, expectations: Expectations) -> None:
        """Start a member whose expression no broker can parse."""
        member = self._member(self._slot.next_client())
        expression = self._rng.choice(WRONG_EXPRESSIONS)
        member.consumer.subscribe(self._topic, expression, ExpressionType.SQL92)
        answered: str | None = "started"
        try:
            await member.consumer.start()
            await member.consumer.stop()
        except InvalidParameterError:
            answered = "InvalidParameterError"
        except ClientError:
            answered = None  # no broker was there to parse it
        expectations.hold(
            f"start with the expression {expression}",
            expected=None if answered is None else "InvalidParameterError",
            answered=answered,
            topic=self._topic,
        )

    def _member(self, client: str) -> Member:
        deliveries = Deliveries(self._kit, client=client, group=GROUP)

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            rows = rows_of(messages)
            manner = self._directly.pop(rows[0].value, None)
            if manner is not None:
                return _end(manner)
            with deliveries.delivery(messages[0].queue, rows) as operation:
                operation.complete("ok")
            self._given.update(row.value for row in rows)
            self._unwanted += sum(
                self._tags is not None
                and message.born_timestamp_ms > self._since_ms
                and message.tags not in self._tags
                for message in messages
            )
            return ConsumeStatus.CONSUME_SUCCESS

        return make_member(
            self._kit,
            self._slot,
            listen,
            client=client,
            group=GROUP,
            topics=[self._topic],
            settings={},
            expression=self._expression(),
        )


def _reported_places(answer: RemotingCommand, code: RequestCode, client_id: str, topic: str) -> str:
    """Return how far a member is in each queue, as it reported to a broker. Raises BodyError."""
    body = fastjson.decode(answer.body, dict[str, Any])
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        places = {name: row.get("commitOffset") for name, row in body.get("mqTable", {}).items()}
    else:
        places = body.get("consumerTable", {}).get(client_id, {})
    named = {parse_queue_name(name): offset for name, offset in places.items()}
    return ", ".join(
        f"{name.broker_name} {name.queue_id}: {named[name]}"
        for name in sorted(named, key=lambda name: (name.broker_name, name.queue_id))
        if name.topic == topic and named[name] >= 0
    )


def _end(manner: str) -> ConsumeStatus:
    """End a call of the listener so. Raises ListenerBugError."""
    if manner == "raised":
        raise ListenerBugError("the listener failed")
    if manner == "nothing":
        return cast("ConsumeStatus", None)  # an application without type checks
    return ConsumeStatus.CONSUME_SUCCESS if manner == "consumed" else ConsumeStatus.RECONSUME_LATER
