"""Makes and deletes one topic at the leaders and at name servers, as mqadmin does, and records it.

Place in the data path: the parts `deletions` and `routes`.

Invariants: one operation per broker group or name server, so that a part of a deletion that failed
says where; a change is repeated as a new operation until it was acknowledged.

Source: RocketMQ's DeleteTopicSubCommand: the brokers first, then every name server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.recording.history import QueueRow
from chaos.workload.actor import Actor, error_text, outcome_of
from chaos.workload.context import WorkContext
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.leader_requests import (
    create_topic_command,
    delete_topic_command,
    request_leader,
)
from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.errors import ClientError
from remoting.errors import RemotingError

__all__ = ["PERM_READ_WRITE", "TOOLS", "TopicAdmin", "queue_rows"]

PERM_READ_WRITE: Final = 6
TOOLS: Final = "topic-tools"
TIMEOUT_MS: Final = 4_000
REPEAT_PAUSE_S: Final = 0.2


def queue_rows(broker_group: str, topic: str, count: int) -> list[QueueRow]:
    return [
        QueueRow(broker_group=broker_group, topic=topic, queue=number) for number in range(count)
    ]


class TopicAdmin:
    """Creates, changes and deletes one topic, and records each request as an operation.

    A change is sent to the leader of every broker group, one after the other, and repeated as a new
    operation until it is acknowledged. `instance` is the tool's client, `client` its name in the
    history, `root` the name from which those of its processes are made.
    """

    def __init__(
        self, context: WorkContext, instance: ClientInstance, *, topic: str, root: str, client: str
    ) -> None:
        self.topic = topic
        self.is_sure = True  # that no deletion of unknown outcome may still be carried out
        self._context = context
        self._instance = instance
        self._actor = Actor(context.history, root=root, client=client, client_group=TOOLS)
        self._queues = context.scenario.workload.queues
        self._groups: Sequence[str] = list(context.world.layout.groups)

    async def create(self, ended: asyncio.Event, perm: int = PERM_READ_WRITE) -> bool:
        """Create the topic at every group, or change its permission to `perm`.

        Return True once all leaders have acknowledged it; False where `ended` was set before that,
        with some groups changed and others not.
        """
        for group in self._groups:
            while not await self._create_at(group, perm):
                if await sleep_until_set(ended, REPEAT_PAUSE_S):
                    return False
        return True

    async def delete(self, ended: asyncio.Event) -> bool:
        """Delete the topic at every group, then its route at every name server.

        Return True once all have acknowledged it; False as `create` does.
        """
        for group in self._groups:
            while not await self._delete_at(group):
                if await sleep_until_set(ended, REPEAT_PAUSE_S):
                    return False
        for server in self._context.world.layout.name_servers:
            while not await self._delete_route(server.name, server.address):
                if await sleep_until_set(ended, REPEAT_PAUSE_S):
                    return False
        return True

    async def _create_at(self, group: str, perm: int) -> bool:
        with self._actor.operation(
            "create_topic",
            broker_group=group,
            topic=self.topic,
            assigned=queue_rows(group, self.topic, self._queues),
            status=str(perm),
        ) as operation:
            try:
                _, address = await request_leader(
                    self._instance,
                    group,
                    lambda: create_topic_command(self.topic, queues=self._queues, perm=perm),
                    timeout_ms=TIMEOUT_MS,
                )
            except ClientError as error:
                operation.failed(error)
                return False
            operation.complete("ok", node=self._context.node(address))
        return True

    async def _delete_at(self, group: str) -> bool:
        with self._actor.operation(
            "delete_topic", broker_group=group, topic=self.topic
        ) as operation:
            try:
                _, address = await request_leader(
                    self._instance,
                    group,
                    lambda: delete_topic_command(self.topic),
                    timeout_ms=TIMEOUT_MS,
                )
            except ClientError as error:
                self.is_sure &= error.definite
                operation.failed(error)
                return False
            operation.complete("ok", node=self._context.node(address))
        return True

    async def _delete_route(self, name: str, address: str) -> bool:
        command = delete_topic_command(self.topic, at_name_server=True)
        with self._actor.operation("delete_topic", topic=self.topic, node=name) as operation:
            try:
                answer = await self._instance.rpc.request(address, command, TIMEOUT_MS)
            except RemotingError as failure:
                operation.failed(error_of_remoting(failure, address))
                return False
            if answer.code != 0:
                error = error_of(answer.code, answer.remark, address)
                operation.complete(outcome_of(error), error=error_text(error))
                return False
            operation.complete("ok")
        return True
