"""Which clients are connected: producers and consumers by group.

Soft state of one broker process, fed by heartbeats, never replicated. Place in the data path: the
rebalance of a consumer group asks it for the members; check-backs ask it for a live producer.

Invariants: a client is in a group from its heartbeat until it unregisters, its connection closes,
or it is silent for `client_silence_ms_max`; a consumer group hears (request 40) of every change of
its members. Sources: RocketMQ ConsumerManager, ProducerManager, ClientHousekeepingService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from broker.filter.message_filter import TAG, MessageFilter
from remoting.codes import RequestCode
from remoting.command import FLAG_ONEWAY, PROTOCOL_VERSION, RemotingCommand
from remoting.connection import Connection
from remoting.message import tags_code

__all__ = ["Client", "Clients", "ClientsFullError", "Subscription"]


class ClientsFullError(Exception):
    """More clients or groups than this broker keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a group wants of a topic. `filter` None: the expression is none."""

    topic: str
    expression: str
    version: int
    filter: MessageFilter | None
    kind: str = TAG  # RocketMQ's expression type

    def described(self) -> dict[str, object]:
        """RocketMQ's SubscriptionData."""
        tags = [tag.strip() for tag in self.expression.split("||")] if self.kind == TAG else []
        tags = [tag for tag in tags if tag and tag != "*"]
        return {
            "topic": self.topic,
            "subString": self.expression,
            "tagsSet": tags,
            "codeSet": [tags_code(tag) for tag in tags],
            "subVersion": self.version,
            "expressionType": self.kind,
            "classFilterMode": False,
        }


@dataclass(slots=True, kw_only=True)
class Client:
    client_id: str
    connection: Connection
    last_seen_ms: int
    language: str = "JAVA"
    version: int = PROTOCOL_VERSION

    def described(self) -> dict[str, object]:
        """RocketMQ's Connection."""
        return {
            "clientId": self.client_id,
            "clientAddr": self.connection.peer,
            "language": self.language,
            "version": self.version,
        }


@dataclass(slots=True)
class ConsumerGroup:
    members: dict[str, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    message_model: str = "CLUSTERING"
    consume_type: str = "CONSUME_PASSIVELY"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class Clients:
    def __init__(
        self, *, clients_max: int, client_silence_ms_max: int, groups_max: int = 10_000
    ) -> None:
        self._clients_max = clients_max
        self._groups_max = groups_max
        self._silence_ms_max = client_silence_ms_max
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[str, Client]] = {}
        self._turn: dict[str, int] = {}

    # Heartbeats --------------------------------------------------------------------------------

    def producer_seen(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        now_ms: int,
        *,
        language: str = "JAVA",
        version: int = PROTOCOL_VERSION,
    ) -> None:
        """Raises ClientsFullError."""
        if group not in self._producers and len(self._producers) >= self._groups_max:
            raise ClientsFullError(f"{self._groups_max} producer groups are known already")
        members = self._producers.setdefault(group, {})
        self._seen(members, client_id, connection, now_ms)
        members[client_id].language, members[client_id].version = language, version

    def consumer_seen(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        *,
        message_model: str,
        subscriptions: Iterable[Subscription],
        now_ms: int,
        consume_type: str = "CONSUME_PASSIVELY",
        consume_from_where: str = "CONSUME_FROM_LAST_OFFSET",
        language: str = "JAVA",
        version: int = PROTOCOL_VERSION,
    ) -> None:
        """Notifies the group if a member is new or a subscription changed. ClientsFullError."""
        if group not in self._consumers and len(self._consumers) >= self._groups_max:
            raise ClientsFullError(f"{self._groups_max} consumer groups are known already")
        state = self._consumers.setdefault(group, ConsumerGroup())
        state.message_model = message_model
        state.consume_type, state.consume_from_where = consume_type, consume_from_where
        changed = self._seen(state.members, client_id, connection, now_ms)
        member = state.members[client_id]
        member.language, member.version = language, version
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        for topic, subscription in wanted.items():
            known = state.subscriptions.get(topic)
            if known is None or known.version < subscription.version:
                changed = (
                    changed
                    or known is None
                    or (known.kind, known.expression)
                    != (subscription.kind, subscription.expression)
                )
                state.subscriptions[topic] = subscription
        for topic in sorted(state.subscriptions.keys() - wanted.keys()):
            del state.subscriptions[topic]
            changed = True
        if changed:
            self._notify(group)

    def _seen(
        self, members: dict[str, Client], client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        client = members.get(client_id)
        if client is None:
            if len(members) >= self._clients_max:
                raise ClientsFullError(f"the group has {len(members)} clients already")
            members[client_id] = Client(
                client_id=client_id, connection=connection, last_seen_ms=now_ms
            )
            return True
        changed = client.connection is not connection
        client.connection = connection
        client.last_seen_ms = now_ms
        return changed

    # Leaving -----------------------------------------------------------------------------------

    def unregister(self, client_id: str, producer_group: str, consumer_group: str) -> None:
        self._producers.get(producer_group, {}).pop(client_id, None)
        group = self._consumers.get(consumer_group)
        if group is not None and group.members.pop(client_id, None) is not None:
            self._left(consumer_group, group)
        self._drop_empty_producers()

    def connection_closed(self, connection: Connection) -> None:
        """Drop every client of this connection and tell their groups."""
        self._drop(lambda client: client.connection is connection)

    def expire(self, now_ms: int) -> None:
        """Drop clients that were silent for too long."""
        self._drop(lambda client: client.last_seen_ms < now_ms - self._silence_ms_max)

    def _drop(self, is_gone: Callable[[Client], bool]) -> None:
        for members in self._producers.values():
            for client_id in [i for i, client in members.items() if is_gone(client)]:
                del members[client_id]
        self._drop_empty_producers()
        for name, group in list(self._consumers.items()):
            gone = [i for i, client in group.members.items() if is_gone(client)]
            for client_id in gone:
                del group.members[client_id]
            if gone:
                self._left(name, group)

    def _drop_empty_producers(self) -> None:
        for name in [name for name, members in self._producers.items() if not members]:
            del self._producers[name]
            self._turn.pop(name, None)

    def _left(self, name: str, group: ConsumerGroup) -> None:
        if group.members:
            self._notify(name)
        else:
            del self._consumers[name]

    def _notify(self, group: str) -> None:
        if self._consumers[group].message_model == "BROADCASTING":
            return
        for client in self._consumers[group].members.values():
            if not client.connection.closed:
                client.connection.send(
                    RemotingCommand(
                        code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                        flag=FLAG_ONEWAY,
                        ext_fields={"consumerGroup": group},
                    )
                )

    # Questions ---------------------------------------------------------------------------------

    def consumer_ids(self, group: str) -> list[str]:
        """The members' client ids; empty where the group is unknown."""
        state = self._consumers.get(group)
        return [] if state is None else sorted(state.members)

    def consumers(self, group: str) -> Mapping[str, Client]:
        """The members by client id; empty where the group is unknown."""
        state = self._consumers.get(group)
        return {} if state is None else state.members

    def consumer_groups(self) -> list[str]:
        return list(self._consumers)

    def consumer_groups_of(self, topic: str) -> list[str]:
        """Groups of which somebody is connected and subscribes the topic."""
        return [name for name, state in self._consumers.items() if topic in state.subscriptions]

    def producers(self) -> Mapping[str, Mapping[str, Client]]:
        """By group and client id."""
        return self._producers

    def describe(self, group: str) -> dict[str, object] | None:
        """RocketMQ's ConsumerConnection; None where nobody of the group is connected."""
        state = self._consumers.get(group)
        if state is None:
            return None
        return {
            "connectionSet": [client.described() for client in state.members.values()],
            "subscriptionTable": {
                topic: subscription.described()
                for topic, subscription in state.subscriptions.items()
            },
            "consumeType": state.consume_type,
            "messageModel": state.message_model,
            "consumeFromWhere": state.consume_from_where,
        }

    def is_broadcasting(self, group: str) -> bool:
        state = self._consumers.get(group)
        return state is not None and state.message_model == "BROADCASTING"

    def subscriptions(self, group: str) -> Mapping[str, Subscription]:
        state = self._consumers.get(group)
        return {} if state is None else state.subscriptions

    def producer_named(self, client_id: str) -> Connection | None:
        """The live connection of a producer, whatever its group."""
        for members in self._producers.values():
            client = members.get(client_id)
            if client is not None and not client.connection.closed:
                return client.connection
        return None

    def producer(self, group: str) -> Connection | None:
        """A live connection of the group's producers, in turn."""
        members = [
            client
            for client in self._producers.get(group, {}).values()
            if not client.connection.closed
        ]
        if not members:
            return None
        turn = self._turn[group] = (self._turn.get(group, -1) + 1) % len(members)
        return members[turn].connection
