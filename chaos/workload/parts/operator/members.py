"""Members in the part `operator`: a consumer that comes and goes, and what brokers say of it.

Place in the data path: GET_CONSUMER_CONNECTION_LIST, GET_CONSUMER_LIST_BY_GROUP,
QUERY_TOPIC_CONSUME_BY_WHO and QUERY_SUBSCRIPTION_BY_CONSUMER at a group's leader, and what it has
from the member itself: GET_CONSUMER_RUNNING_INFO and INVOKE_BROKER_TO_GET_CONSUMER_STATUS.

Invariants: the group has one member at most, on a topic to which nobody sends; each member is of a
group of its own, since a group's offsets outlive it; brokers hear of a member by its heartbeats, so
that answers are compared as those of other nodes are.

Source: RocketMQ ConsumerConnectionSubCommand, ConsumerStatusSubCommand, ConsumerManager.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import ABSENT, SettingsRecord
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.connection.heartbeat import ConsumeFrom, MessageModel
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import MalformedAnswerError
from client.message import DeliveredMessage, MessageQueue
from remoting.errors import BodyError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["MemberKeeper"]

TIMEOUT_MS: Final = 3_000
_ANY: Final = frozenset(
    {0, ResponseCode.SYSTEM_ERROR.value, ResponseCode.CONSUMER_NOT_ONLINE.value}
)
_EXPRESSIONS: Final = ("*", "blue", "blue || green", "red||blue")
_WORDS: Final = ("members", "kind", "subscription", "asked", "status")


class MemberKeeper:
    """Starts and stops the member, and queries one broker group for it before each change."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        slot: Slot,
        *,
        name: str,
        queues: Sequence[MessageQueue],
        rng: random.Random,
    ) -> None:
        self._context = context
        self._requests = requests
        self._record = record
        self._slot = slot
        self._name = name
        self._topic = queues[0].topic
        self._broker_group = queues[0].broker_name
        self._queue_ids = [queue.queue_id for queue in queues]
        self._rng = rng
        self._turn = 0
        self._member: PushConsumer | None = None

    @property
    def _group(self) -> str:
        return f"{self._name}-{self._turn}"

    async def step(self) -> None:
        """Query the member; now and then it leaves, or the next one comes."""
        await self._query()
        if self._rng.random() < 0.3:
            return
        if self._member is None:
            await self._start()
        else:
            await self.end()

    async def end(self) -> None:
        """Have the member leave, if there is one."""
        member, self._member = self._member, None
        if member is None:
            return
        values = dict.fromkeys((self._key(word) for word in _WORDS), ABSENT)

        async def leave() -> str:
            await member.stop()
            return member.instance.client_id

        await self._record.change(values, leave, how="stop", broker_group=self._broker_group)

    # Changes -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._turn += 1
        expression = self._rng.choice(_EXPRESSIONS)
        settings = PushConsumerSettings(
            message_model=self._rng.choice(list(MessageModel)),
            consume_from=self._rng.choice((ConsumeFrom.FIRST, ConsumeFrom.LAST)),
            suspend_ms=2_000,
            rebalance_interval_ms=500,
            instance=self._slot.instance_settings(),
        )
        member = PushConsumer(
            self._group, self._context.name_servers, _consume, self._slot.dial, settings=settings
        )
        member.subscribe(self._topic, expression)
        model = "CLUSTERING"
        if settings.message_model is MessageModel.BROADCASTING:
            model = "BROADCASTING"
        values = {
            "members": member.instance.client_id,
            "kind": f"CONSUME_PASSIVELY {model} {settings.consume_from.value}",
            "subscription": _subscription(self._topic, expression),
            "asked": f"{self._topic} {expression}",
            "status": " ".join(str(queue_id) for queue_id in self._queue_ids),
            "known": "yes",
        }

        async def start() -> str:
            await member.start()
            return member.instance.client_id

        keyed = {self._key(word): value for word, value in values.items()}
        if (
            await self._record.change(keyed, start, how="start", broker_group=self._broker_group)
            == "ok"
        ):
            self._member = member

    # Questions ---------------------------------------------------------------------------------

    def _key(self, word: str) -> str:
        return f"{word} {self._group} {self._broker_group}"

    async def _query(self) -> None:
        await self._query_connections()
        group = {"group": self._group, "topic": self._topic}
        await self._query_one(
            "members",
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self._group},
            lambda body: " ".join(sorted(body.get("consumerIdList") or ())),
        )
        await self._query_one(
            "subscription",
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            group,
            lambda body: _shown_subscription(body.get("subscriptionData")),
        )
        if self._member is None:
            return
        client_id = self._member.instance.client_id
        await self._query_one(
            "known",
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            {"topic": self._topic},
            lambda body: "yes" if self._group in body.get("groupList", ()) else None,
        )
        await self._query_one(
            "asked",
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            {"consumerGroup": self._group, "clientId": client_id},
            self._own_subscription,
        )
        await self._query_one(
            "status",
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            group,
            lambda body: self._queues_of(body.get("consumerTable", {}).get(client_id)),
        )

    async def _query_connections(self) -> None:
        """Query the connections of the group, and the subscription among them."""
        keys = {word: self._key(word) for word in ("members", "kind", "subscription")}
        command = RemotingCommand(
            code=RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ext_fields={"consumerGroup": self._group},
        )

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await self._at_leader(command)
            if answer.code != 0:
                return {}, address
            body = json_of(answer, address)
            ids = sorted(str(each.get("clientId")) for each in body.get("connectionSet", ()))
            kind = " ".join(
                str(body.get(name)) for name in ("consumeType", "messageModel", "consumeFromWhere")
            )
            shown = _shown_subscription(body.get("subscriptionTable", {}).get(self._topic))
            return {
                keys["members"]: " ".join(ids),
                keys["kind"]: kind,
                keys["subscription"]: shown or ABSENT,
            }, address

        await self._record.query(
            list(keys.values()), send, how="connections", broker_group=self._broker_group
        )

    async def _query_one(
        self, word: str, code: RequestCode, fields: Mapping[str, str], text_of: Any
    ) -> None:
        key = self._key(word)
        command = RemotingCommand(code=code, ext_fields=dict(fields))

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await self._at_leader(command)
            text = text_of(json_of(answer, address)) if answer.code == 0 else None
            return {key: text} if text else {}, address

        await self._record.query(
            [key], send, how=code.name.lower(), broker_group=self._broker_group
        )

    async def _at_leader(self, command: RemotingCommand) -> tuple[RemotingCommand, str]:
        return await request_leader(
            self._requests.instance,
            self._broker_group,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=_ANY,
        )

    def _own_subscription(self, body: Mapping[str, Any]) -> str | None:
        """Return what the member itself says that it subscribes to."""
        for each in body.get("subscriptionSet", ()):
            if each.get("topic") == self._topic:
                return f"{self._topic} {each.get('subString')}"
        return None

    def _queues_of(self, offsets: Mapping[str, object] | None) -> str | None:
        """Return the queues that the member has here. Raises MalformedAnswerError."""
        try:
            names = [parse_queue_name(name) for name in offsets or ()]
        except BodyError as error:
            raise MalformedAnswerError(f"status of a member: {error}") from error
        own = sorted(each.queue_id for each in names if each.broker_name == self._broker_group)
        return " ".join(str(queue_id) for queue_id in own) or None


async def _consume(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
    raise AssertionError(f"nobody sends to the topic, and {len(messages)} messages came")


def _subscription(topic: str, expression: str) -> str:
    tags = sorted(tag.strip() for tag in expression.split("||") if tag.strip() != "*")
    return f"{topic} TAG {expression} {'+'.join(tags) or 'all'}"


def _shown_subscription(shown: Mapping[str, Any] | None) -> str | None:
    if not shown:
        return None
    tags = sorted(shown.get("tagsSet") or ())
    return (
        f"{shown.get('topic')} {shown.get('expressionType')} {shown.get('subString')}"
        f" {'+'.join(tags) or 'all'}"
    )
