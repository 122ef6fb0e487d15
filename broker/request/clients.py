"""Connected clients: producers and consumers by group.

Soft state of one broker process, fed by heartbeats, never replicated. Place in the data path: the
rebalance of a consumer group queries the members; check-backs query a live producer.

Invariants: a client is in a group from its heartbeat until it unregisters over its connection, that
closes, or it is silent for `client_silence_ms_max`; a consumer group is notified (request 40) of
every change of its members, once per connection; clients, groups and the memory of subscriptions
are bounded, all together too; the close of a connection costs time for its own clients only.
Sources: RocketMQ ConsumerManager, ProducerManager, ClientHousekeepingService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.queues.message_filter import TAG, MessageFilter
from remoting.connections.connection import Connection
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, PROTOCOL_VERSION, RemotingCommand
from remoting.records.message import tags_code

__all__ = ["Client", "Clients", "ClientsFullError", "Subscription"]


_SUBSCRIPTIONS_SIZE_MAX: Final = 256 << 20  # estimated, in bytes


class ClientsFullError(Exception):
    """Error of more clients or groups than this broker accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Subscription of a group to a topic; `filter` is None if the expression is illegal."""

    topic: str
    expression: str
    version: int
    filter: MessageFilter | None
    kind: str = TAG  # RocketMQ's expression type

    @property
    def size(self) -> int:
        """Return about how many bytes it takes, the compiled filter included."""
        return 512 + len(self.topic) + 16 * len(self.expression)

    def described(self) -> dict[str, object]:
        """Return RocketMQ's SubscriptionData."""
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
    last_seen_ms: int  # by this process's clock, which never jumps
    language: str = "JAVA"
    version: int = PROTOCOL_VERSION
    account: str | None = None  # under which it was authorised, where access control is on

    def described(self) -> dict[str, object]:
        """Return RocketMQ's Connection."""
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
    notifies: bool = True  # members are notified of changes among them

    @property
    def size(self) -> int:
        """Return the size of its subscriptions."""
        return sum(subscription.size for subscription in self.subscriptions.values())


class _Place(NamedTuple):
    """Place of a client among the groups."""

    consumes: bool
    group: str
    client_id: str


class Clients:
    """Connected clients; `clients_max` is per group, `members_max` for all of them together."""

    def __init__(
        self,
        *,
        clients_max: int,
        client_silence_ms_max: int,
        groups_max: int = 10_000,
        members_max: int = 100_000,
    ) -> None:
        self._clients_max = clients_max
        self._groups_max = groups_max
        self._members_max = members_max
        self._places: dict[Connection, dict[_Place, None]] = {}
        self._members_count = 0
        self._subscriptions_size = 0
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
        account: str | None = None,
    ) -> None:
        """Note a producer's heartbeat. Raises ClientsFullError."""
        if group not in self._producers and len(self._producers) >= self._groups_max:
            raise ClientsFullError(f"{self._groups_max} producer groups are known already")
        members = self._producers.get(group, {})
        self._check_room(members, client_id)
        self._producers[group] = members
        self._seen(members, _Place(False, group, client_id), connection, now_ms)
        member = members[client_id]
        member.language, member.version, member.account = language, version, account

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
        notifies: bool = True,
    ) -> None:
        """Note a consumer's heartbeat; notify the group if a member is new or a subscription
        changed. Raises ClientsFullError."""
        if group not in self._consumers and len(self._consumers) >= self._groups_max:
            raise ClientsFullError(f"{self._groups_max} consumer groups are known already")
        state = self._consumers.get(group) or ConsumerGroup()
        self._check_room(state.members, client_id)
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        size_before = state.size
        size = self._subscriptions_size + sum(new.size for new in wanted.values()) - size_before
        if size > _SUBSCRIPTIONS_SIZE_MAX:
            raise ClientsFullError(f"subscriptions would take {size} bytes")
        self._consumers[group] = state
        state.message_model, state.notifies = message_model, notifies
        state.consume_type, state.consume_from_where = consume_type, consume_from_where
        changed = self._seen(state.members, _Place(True, group, client_id), connection, now_ms)
        member = state.members[client_id]
        member.language, member.version = language, version
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
        self._subscriptions_size += state.size - size_before
        if changed:
            self._notify(group)

    def _check_room(self, members: Mapping[str, Client], client_id: str) -> None:
        if client_id in members:
            return
        if len(members) >= self._clients_max:
            raise ClientsFullError(f"the group has {len(members)} clients already")
        if self._members_count >= self._members_max:
            raise ClientsFullError(f"{self._members_count} clients are known already")

    def _seen(
        self, members: dict[str, Client], place: _Place, connection: Connection, now_ms: int
    ) -> bool:
        """Note a client; True if it is new or its connection is. Caller's duty: `_check_room`."""
        client = members.get(place.client_id)
        if client is not None:
            client.last_seen_ms = now_ms
            if client.connection is connection:
                return False
            self._leave_place(client.connection, place)
            client.connection = connection
        else:
            members[place.client_id] = Client(
                client_id=place.client_id, connection=connection, last_seen_ms=now_ms
            )
            self._members_count += 1
        self._places.setdefault(connection, {})[place] = None
        return True

    def _leave_place(self, connection: Connection, place: _Place) -> None:
        places = self._places[connection]
        del places[place]
        if not places:
            del self._places[connection]

    # Leaving -----------------------------------------------------------------------------------

    def unregister(
        self, client_id: str, producer_group: str, consumer_group: str, connection: Connection
    ) -> None:
        """Remove a client from the groups, unless it is another connection's by now."""
        places = self._places.get(connection, {})
        wanted = (
            _Place(False, producer_group, client_id),
            _Place(True, consumer_group, client_id),
        )
        self._drop([place for place in wanted if place in places])

    def connection_closed(self, connection: Connection) -> None:
        """Drop every client of this connection and notify their groups."""
        self._drop(list(self._places.get(connection, ())))

    def expire(self, now_ms: int) -> None:
        """Drop clients that were silent for too long, and notify their groups."""
        oldest_ms = now_ms - self._silence_ms_max
        self._drop(
            [
                place
                for places in self._places.values()
                for place in places
                if self._client_at(place).last_seen_ms < oldest_ms
            ]
        )

    def _client_at(self, place: _Place) -> Client:
        if place.consumes:
            return self._consumers[place.group].members[place.client_id]
        return self._producers[place.group][place.client_id]

    def _drop(self, places: Iterable[_Place]) -> None:
        left: dict[str, None] = {}  # consumer groups that have lost members
        for place in places:
            self._leave_place(self._client_at(place).connection, place)
            self._members_count -= 1
            if place.consumes:
                del self._consumers[place.group].members[place.client_id]
                left[place.group] = None
                continue
            members = self._producers[place.group]
            del members[place.client_id]
            if not members:
                del self._producers[place.group]
                self._turn.pop(place.group, None)
        for name in left:
            if self._consumers[name].members:
                self._notify(name)
            else:
                self._subscriptions_size -= self._consumers.pop(name).size

    def _notify(self, group: str) -> None:
        """Notify a group of a change, once per connection, however many clients one carries."""
        state = self._consumers[group]
        if state.message_model == "BROADCASTING" or not state.notifies:
            return
        for connection in dict.fromkeys(client.connection for client in state.members.values()):
            if not connection.closed:
                connection.send(
                    RemotingCommand(
                        code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                        flag=FLAG_ONEWAY,
                        ext_fields={"consumerGroup": group},
                    )
                )

    # Questions ---------------------------------------------------------------------------------

    def consumer_ids(self, group: str) -> list[str]:
        """Return the members' client ids; none if the group is unknown."""
        state = self._consumers.get(group)
        return [] if state is None else sorted(state.members)

    def consumers(self, group: str) -> Mapping[str, Client]:
        """Return the members by client id; none if the group is unknown."""
        state = self._consumers.get(group)
        return {} if state is None else state.members

    def consumer_groups(self) -> list[str]:
        return list(self._consumers)

    def consumer_groups_of(self, topic: str) -> list[str]:
        """Return the groups with a connected member that subscribes to the topic."""
        return [name for name, state in self._consumers.items() if topic in state.subscriptions]

    def producers(self) -> Mapping[str, Mapping[str, Client]]:
        """Return the producers by group and client id."""
        return self._producers

    def describe(self, group: str) -> dict[str, object] | None:
        """Return RocketMQ's ConsumerConnection, or None if no member is connected."""
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
        """Return the subscriptions of a consumer group by topic; empty where it has no member."""
        state = self._consumers.get(group)
        return {} if state is None else state.subscriptions

    def producer_named(self, client_id: str) -> Connection | None:
        """Return the live connection of a producer of any group, or None."""
        for members in self._producers.values():
            client = members.get(client_id)
            if client is not None and not client.connection.closed:
                return client.connection
        return None

    def producer(
        self, group: str, may_hear: Callable[[str | None, str], bool] = lambda account, peer: True
    ) -> Connection | None:
        """Return a live connection of the group's producers, in turn, among those whose account and
        address are permitted; None if there is none."""
        members = [
            client
            for client in self._producers.get(group, {}).values()
            if not client.connection.closed and may_hear(client.account, client.connection.peer)
        ]
        if not members:
            return None
        turn = self._turn[group] = (self._turn.get(group, -1) + 1) % len(members)
        return members[turn].connection
