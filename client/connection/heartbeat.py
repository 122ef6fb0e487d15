"""The body of a heartbeat: what a client reports to brokers about its groups.

Place in the data path: `client.connection.instance` sends it to every known node; brokers send
transaction checks and group change notifications over the connection on which it came.

Source: RocketMQ HeartbeatData, SubscriptionData.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from client.errors import UnencodableRequestError
from client.namespace import NO_NAMESPACE, Namespace
from remoting.records.message import java_string_hash

__all__ = [
    "ConsumeFrom",
    "ConsumerGroup",
    "ExpressionType",
    "MessageModel",
    "Subscription",
    "heartbeat_body",
    "subscription_data",
]

ALL_TAGS = "*"


class MessageModel(enum.Enum):
    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFrom(enum.Enum):
    """Place where a group starts in a queue for which no offset is stored."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ExpressionType(enum.Enum):
    """The language of a subscription's expression."""

    TAG = "TAG"
    SQL92 = "SQL92"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Subscription of a consumer to a topic. `version` is Unix ms.

    By TAG: `*`, or tags joined by `||`. By SQL92: an expression over the messages' properties,
    which brokers evaluate. Raises UnencodableRequestError where the expression is not UTF-8.
    """

    topic: str
    expression: str = ALL_TAGS
    kind: ExpressionType = ExpressionType.TAG
    version: int

    def __post_init__(self) -> None:
        try:
            self.expression.encode()  # in a heartbeat the error would end the client
        except UnicodeEncodeError as error:
            raise UnencodableRequestError(
                f"expression {self.expression!a} holds text that is not UTF-8"
            ) from error

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags named; empty for all messages, and for an expression that is not by TAG."""
        if self.kind is not ExpressionType.TAG:
            return ()
        if self.expression.strip() in {"", ALL_TAGS}:
            return ()
        return tuple(tag for part in self.expression.split("||") if (tag := part.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A consumer group that this client is a member of."""

    name: str
    push: bool
    message_model: MessageModel
    consume_from: ConsumeFrom
    subscriptions: Sequence[Subscription]


def heartbeat_body(
    *,
    client_id: str,
    producer_groups: Sequence[str],
    consumer_groups: Sequence[ConsumerGroup],
    namespace: Namespace = NO_NAMESPACE,
) -> bytes:
    """Encode HeartbeatData as JSON. Groups are wrapped already; topics are wrapped here."""
    return msgspec.json.encode(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producer_groups],
            "consumerDataSet": [_consumer_data(group, namespace) for group in consumer_groups],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
    )


def _consumer_data(group: ConsumerGroup, namespace: Namespace) -> dict[str, object]:
    return {
        "groupName": group.name,
        "consumeType": "CONSUME_PASSIVELY" if group.push else "CONSUME_ACTIVELY",
        "messageModel": group.message_model.value,
        "consumeFromWhere": group.consume_from.value,
        "unitMode": False,
        "subscriptionDataSet": [
            subscription_data(item, namespace.wrap(item.topic)) for item in group.subscriptions
        ],
    }


def subscription_data(subscription: Subscription, topic: str) -> dict[str, object]:
    """Return SubscriptionData; `topic` is the name that brokers know."""
    tags = subscription.tags
    return {
        "topic": topic,
        "subString": subscription.expression,
        "tagsSet": list(tags),
        "codeSet": [java_string_hash(tag) for tag in tags],
        "subVersion": subscription.version,
        "expressionType": subscription.kind.value,
        "classFilterMode": False,
    }
