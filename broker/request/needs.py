"""What a request needs of whoever asks: a signature, an administrator, permissions. Pure.

Place in the data path: each row of the request table names one (`broker.request.row`), and
`broker.access.access_control` compares it with what the account may. A group is named by its retry
topic, as in the accounts.

Beyond RocketMQ: whatever changes topics, groups, offsets of others, members or configuration is an
administrator's; lite pulls, POP, offsets and locks need what a pull needs; replies, recalls and
ends of transactions that name a topic need what a send needs; a send to a retry topic is judged by
the group in the topic's name, not by the group that the sender names.

Source: RocketMQ PlainAccessResource.parse, Permission.ADMIN_CODE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from broker.entry.permission import Permission
from broker.entry.policies import Action, ResourceKind
from broker.entry.topics import RETRY_PREFIX
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import pop_retry_topic, retry_topic

__all__ = [
    "ACKS",
    "ADMINISTRATOR",
    "ASSIGNMENT",
    "FREE",
    "HELD",
    "LOCKS",
    "READ",
    "SIGNATURE",
    "SUBSCRIPTIONS",
    "MalformedRequestError",
    "Need",
    "Needs",
    "administer",
    "consume",
    "publish",
]

Needs: TypeAlias = dict[str, Permission]
_Rule: TypeAlias = Callable[[RemotingCommand, Needs], None]

_SUB: Final = Permission.SUB
_PUB: Final = Permission.PUB


class MalformedRequestError(ValueError):
    """The request's body does not say what it is about."""


class _SubscriptionData(msgspec.Struct):
    topic: str = ""


class _ConsumerData(msgspec.Struct):
    groupName: str = ""
    subscriptionDataSet: list[_SubscriptionData] | None = None


class _Heartbeat(msgspec.Struct):
    consumerDataSet: list[_ConsumerData] | None = None


class _Locks(msgspec.Struct):
    consumerGroup: str = ""


class _Ack(msgspec.Struct):
    c: str | None = None
    t: str | None = None
    consumerGroup: str | None = None
    topic: str | None = None


class _Acks(msgspec.Struct):
    acks: list[_Ack] | None = None


class _Assignment(msgspec.Struct):
    topic: str = ""
    consumerGroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Permissions that one request needs.

    `rule` adds the permissions on topics and groups that a command names. `admin`: an account of
    4.x has to be an administrator; a user of 5.x needs `action` on the topic that the command
    names, or, without it, to update the cluster. `stored`: what the request is about stands in a
    stored message, so its handler asks again (`Request.require`). `free`: no account at all.
    """

    rule: _Rule | None = None
    admin: bool = False
    action: Action | None = None
    stored: bool = False
    free: bool = False

    def of(self, command: RemotingCommand) -> Needs:
        """Return the permissions that `command` needs. Raises MalformedRequestError."""
        needs: Needs = {}
        if self.rule is None:
            return needs
        try:
            self.rule(command, needs)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedRequestError(f"the body can't be read: {error}") from error
        return needs

    def administration(
        self, command: RemotingCommand, cluster: str
    ) -> tuple[ResourceKind, str, Action]:
        """Return the need of a user of 5.x where an account of 4.x has to be an administrator."""
        topic = command.ext_fields.get("topic")
        if topic and self.action is not None:
            return ResourceKind.TOPIC, topic, self.action
        return ResourceKind.CLUSTER, cluster, Action.UPDATE


def _need(needs: Needs, resource: str | None, permission: Permission) -> None:
    if resource:
        needs[resource] = needs.get(resource, Permission.NONE) | permission


def _need_group(needs: Needs, group: str | None) -> None:
    if group:
        _need(needs, group if group.startswith(RETRY_PREFIX) else retry_topic(group), _SUB)


def publish(field: str, *, stored: bool = False) -> Need:
    """Return the need of a request that sends to the topic in `field`."""

    def rule(command: RemotingCommand, needs: Needs) -> None:
        topic = command.ext_fields.get(field)
        is_retry = topic is not None and topic.startswith(RETRY_PREFIX)
        _need(needs, topic, _SUB if is_retry else _PUB)

    return Need(rule=rule, stored=stored)


def consume(topic: str | None = None, group: str | None = None, *, stored: bool = False) -> Need:
    """Return the need of a request that reads as a group; `topic` and `group` name its fields."""

    def rule(command: RemotingCommand, needs: Needs) -> None:
        if topic is not None:
            _need(needs, command.ext_fields.get(topic), _SUB)
        if group is not None:
            _need_group(needs, command.ext_fields.get(group))

    return Need(rule=rule, stored=stored)


def administer(action: Action) -> Need:
    """Return the need of an administrator's request that does `action` to a topic."""
    return Need(admin=True, action=action)


def _held(command: RemotingCommand, needs: Needs) -> None:
    """Add the need to read what a group has popped, perhaps from its own retries of a topic."""
    group = command.ext_fields.get("consumerGroup")
    topic = command.ext_fields.get("topic", "").removeprefix(pop_retry_topic("", group or ""))
    _need(needs, topic, _SUB)
    _need_group(needs, group)


def _heartbeat(command: RemotingCommand, needs: Needs) -> None:
    heartbeat = msgspec.json.decode(command.body, type=_Heartbeat)
    for consumer in heartbeat.consumerDataSet or ():
        _need_group(needs, consumer.groupName)
        for subscription in consumer.subscriptionDataSet or ():
            _need(needs, subscription.topic, _SUB)


def _locks(command: RemotingCommand, needs: Needs) -> None:
    _need_group(needs, msgspec.json.decode(command.body, type=_Locks).consumerGroup)


def _acks(command: RemotingCommand, needs: Needs) -> None:
    for ack in msgspec.json.decode(command.body, type=_Acks).acks or ():
        for topic in (ack.t, ack.topic):  # both, whichever the processor obeys
            _need(needs, topic, _SUB)
        for group in (ack.c, ack.consumerGroup):
            _need_group(needs, group)


def _assignment(command: RemotingCommand, needs: Needs) -> None:
    wanted = msgspec.json.decode(command.body, type=_Assignment)
    _need(needs, wanted.topic, _SUB)
    _need_group(needs, wanted.consumerGroup)


FREE: Final = Need(free=True)
"""No account: a group has to know its time whether or not its brokers have been given one."""
SIGNATURE: Final = Need()
"""A valid signature and nothing more: the answer tells nothing of a message's content."""
ADMINISTRATOR: Final = Need(admin=True)
READ: Final = consume("topic", "consumerGroup")
HELD: Final = Need(rule=_held)
SUBSCRIPTIONS: Final = Need(rule=_heartbeat)
LOCKS: Final = Need(rule=_locks)
ACKS: Final = Need(rule=_acks)
ASSIGNMENT: Final = Need(rule=_assignment)
