"""Listings of connected producers and consumers, and of which group consumes which topic.

Place in the data path: none; requested by `mqadmin`. Each process lists its own connections:
clients keep one to every node, but a producer that only knows the leader is listed there alone.
Source: RocketMQ AdminBrokerProcessor, ConsumerManager, ProducerManager.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.request.clients import Client
from broker.request.desk import Desk
from broker.request.known_groups import groups_of_topic, topics_of_group
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    TopicRequestHeader,
)

__all__ = ["ClientListingProcessor"]


class ClientListingProcessor:
    """Requests about connections of this process and subscriptions of groups."""

    def __init__(self, replica: Replica, desk: Desk) -> None:
        self._replica = replica
        self._desk = desk

    def consumers(self, header: GetConsumerConnectionListRequestHeader, request: Request) -> None:
        """Answer GET_CONSUMER_CONNECTION_LIST. Raises RefusedError where nobody is connected."""
        group = header.consumer_group
        description = self._desk.clients.describe(group)
        if description is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        _reply(request, description)

    def producers(self, header: GetProducerConnectionListRequestHeader, request: Request) -> None:
        """Answer GET_PRODUCER_CONNECTION_LIST. Raises RefusedError where nobody is connected."""
        group = header.producer_group
        members = self._desk.clients.producers().get(group)
        if not members:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        _reply(request, {"connectionSet": [client.described() for client in members.values()]})

    def all_producers(self, request: Request) -> None:
        """Answer GET_ALL_PRODUCER_INFO."""
        table = {
            group: [self._producer_info(client) for client in members.values()]
            for group, members in self._desk.clients.producers().items()
        }
        _reply(request, {"data": table})

    def groups_of_topic(self, header: TopicRequestHeader, request: Request) -> None:
        """Answer QUERY_TOPIC_CONSUME_BY_WHO."""
        _reply(request, {"groupList": groups_of_topic(self._replica, self._desk, header.topic)})

    def topics_of_group(self, header: QueryTopicsByConsumerRequestHeader, request: Request) -> None:
        """Answer QUERY_TOPICS_BY_CONSUMER."""
        topics = topics_of_group(self._replica, header.group)
        _reply(request, {"topicList": topics, "brokerAddr": self._replica.config.advertised})

    def subscription(
        self, header: QuerySubscriptionByConsumerRequestHeader, request: Request
    ) -> None:
        """Answer QUERY_SUBSCRIPTION_BY_CONSUMER; without subscriptionData where there is none."""
        group, topic = header.group, header.topic
        known = self._desk.clients.subscriptions(group).get(topic)
        body: dict[str, Any] = {"group": group, "topic": topic}
        if known is not None:
            body["subscriptionData"] = known.described()
        _reply(request, body)

    def _producer_info(self, client: Client) -> dict[str, Any]:
        replica = self._replica
        silent_ms = replica.monotonic_ms() - client.last_seen_ms
        return {
            "clientId": client.client_id,
            "remoteIP": f"/{client.connection.peer}",  # as Java writes a socket's address
            "language": client.language,
            "version": client.version,
            "lastUpdateTimestamp": replica.clock_ms() - silent_ms,
        }


def _reply(request: Request, body: dict[str, Any]) -> None:
    request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))
