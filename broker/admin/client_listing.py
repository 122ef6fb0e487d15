"""Who is connected, and who consumes what: producers, consumers, groups and topics.

Place in the data path: questions of `mqadmin`. Connections are this process's own; clients keep one
to every node, but those of producers that only know the leader stand there alone.
Source: RocketMQ AdminBrokerProcessor, ConsumerManager, ProducerManager.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.request.clients import Client
from broker.request.context import BrokerContext
from broker.request.known_groups import groups_of_topic, topics_of_group
from broker.request.request import RefusedError, Request
from remoting.protocol.codes import ResponseCode

__all__ = ["ConnectionProcessor"]


class ConnectionProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def consumers(self, request: Request) -> None:
        """GET_CONSUMER_CONNECTION_LIST."""
        group = request.text("consumerGroup")
        description = self._context.clients.describe(group)
        if description is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        _reply(request, description)

    def producers(self, request: Request) -> None:
        """GET_PRODUCER_CONNECTION_LIST."""
        group = request.text("producerGroup")
        members = self._context.clients.producers().get(group)
        if not members:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        _reply(request, {"connectionSet": [client.described() for client in members.values()]})

    def all_producers(self, request: Request) -> None:
        """GET_ALL_PRODUCER_INFO."""
        table = {
            group: [_producer_info(client) for client in members.values()]
            for group, members in self._context.clients.producers().items()
        }
        _reply(request, {"data": table})

    def groups_of_topic(self, request: Request) -> None:
        """QUERY_TOPIC_CONSUME_BY_WHO."""
        _reply(request, {"groupList": groups_of_topic(self._context, request.text("topic"))})

    def topics_of_group(self, request: Request) -> None:
        """QUERY_TOPICS_BY_CONSUMER."""
        topics = topics_of_group(self._context, request.text("group"))
        _reply(request, {"topicList": topics, "brokerAddr": self._context.config.advertised})

    def subscription(self, request: Request) -> None:
        """QUERY_SUBSCRIPTION_BY_CONSUMER."""
        group, topic = request.text("group"), request.text("topic")
        known = self._context.clients.subscriptions(group).get(topic)
        body: dict[str, Any] = {"group": group, "topic": topic}
        if known is not None:
            body["subscriptionData"] = known.described()
        _reply(request, body)


def _producer_info(client: Client) -> dict[str, Any]:
    return {
        "clientId": client.client_id,
        "remoteIP": f"/{client.connection.peer}",  # as Java writes a socket's address
        "language": client.language,
        "version": client.version,
        "lastUpdateTimestamp": client.last_seen_ms,
    }


def _reply(request: Request, body: dict[str, Any]) -> None:
    request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))
