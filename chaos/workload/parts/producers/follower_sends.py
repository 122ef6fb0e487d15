"""Sends of clients that know no hints, to whichever replica: one that follows asks its leader.

Place in the data path: the part `sends` has a process of these at each of its clients, into its own
topic; each is one request to one address, as by a client of RocketMQ whose route is old, and the
answer is taken at its word: what is refused definitely is not stored (A19), what is acknowledged is
(A1, A5), and all else may be either.

Invariants: a request is sent once, and never repeated: no later attempt hides what became of it.

Source: `broker.request.forwarding`; RocketMQ MQClientAPIImpl (a client takes a group's leader from
the route alone).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.messages import MessageMaker, row_of_message, wall_ms
from chaos.workload.pace import Pace
from chaos.workload.parts.producers.awaited_values import AwaitedValues
from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.connection.send_codec import prepare_message
from client.errors import ClientError
from client.message import Message, MessageQueue
from remoting.errors import RemotingError
from remoting.protocol.command import LANGUAGE_JAVA

__all__ = ["FollowerSends"]

TIMEOUT_MS: Final = 3_000  # as RocketMQ's clients wait for a send
IN_FLIGHT_MAX: Final = 16
RATE: Final = 4.0  # per second


class FollowerSends:
    """One client's sends to any replica. `awaited` learns what was acknowledged."""

    def __init__(
        self,
        context: WorkContext,
        instance: ClientInstance,
        awaited: AwaitedValues,
        *,
        client: str,
        group: str,
        queues: Sequence[MessageQueue],
        rng: random.Random,
    ) -> None:
        self._context = context
        self._instance = instance
        self._awaited = awaited
        self._client = client
        self._group = group
        self._queues = queues
        self._rng = rng
        body_bytes = context.scenario.workload.body_bytes
        self._maker = MessageMaker(prefix=f"{client}.follower", body_bytes=body_bytes, rng=rng)
        self._idle: list[Actor] = []
        self._made = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop`."""
        pace = Pace(RATE, self._rng)
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as tasks:
            while await pace.wait(stop):
                await room.acquire()
                tasks.create_task(self._as_process(room))

    async def _as_process(self, room: asyncio.Semaphore) -> None:
        actor = self._idle.pop() if self._idle else self._next_actor()
        await self._send(actor)
        self._idle.append(actor)
        room.release()

    def _next_actor(self) -> Actor:
        self._made += 1
        return Actor(
            self._context.history,
            root=f"{self._client}.follower-{self._made}",
            client=self._client,
            client_group=self._group,
        )

    async def _send(self, actor: Actor) -> None:
        queue = self._rng.choice(self._queues)
        places = self._context.world.layout.groups[queue.broker_name]
        address = self._rng.choice(places).address
        uniq_key = self._instance.next_uniq_key(wall_ms())
        message = self._maker.make(queue.topic, uniq_key=uniq_key)
        message.born_timestamp_ms = wall_ms()
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with actor.operation(
            "send",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
        ) as operation:
            try:
                offset = await self._request(message, queue, address)
            except ClientError as error:
                operation.failed(error)
                return
            stored = row_of_message(
                message, broker_group=queue.broker_name, queue=queue.queue_id, offset=offset
            )
            operation.complete("ok", messages=[stored], status="SEND_OK")
        self._awaited.expect(row.value, asyncio.get_running_loop().time())

    async def _request(self, message: Message, queue: MessageQueue, address: str) -> int:
        """Send a message once to a replica; return its offset. Raises ClientError."""
        prepared = prepare_message(message, group=self._group, compression=None)
        command = prepared.command(queue)
        command.language = LANGUAGE_JAVA
        try:
            answer = await self._instance.rpc.request(address, command, TIMEOUT_MS)
        except RemotingError as error:
            raise error_of_remoting(error, address) from error
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        return int(answer.ext_fields["queueOffset"])
