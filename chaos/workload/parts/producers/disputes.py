"""The part `disputes`: clients that take different nodes for a group's leader, at one time.

Place in the data path: whenever two nodes of a broker group say that they lead, one client sends
and commits an offset at the node of the newest term, then another, which has not heard of it, asks
the older ones for the queue's end, the group's offset and the last message until now. Nobody is
asked in between: such a client has an old route, and requests go to one node and no further.

Invariants: what is asked is asked only once the write was acknowledged; a node that refuses or does
not answer has done nothing wrong.

Source: promise G6; Raft 6.4 (ReadIndex); rules A15, S5 and M5.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.scenario.part_sections import DisputesSection
from chaos.workload.actor import Actor
from chaos.workload.messages import MessageMaker, row_of_message, row_of_stored, wall_ms
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec
from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.connection.send_codec import prepare_message, send_result, send_status
from client.errors import ClientError, MalformedAnswerError, OffsetNotFoundError
from client.message import MessageQueue, SendStatus
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SPEC"]

NAME: Final = "disputes"
GROUP: Final = f"{NAME}-readers"
PRODUCERS: Final = f"{NAME}-producers"
TIMEOUT_MS: Final = 400
ROUND_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A member of a broker group, as the history and as clients name it."""

    node: str
    address: str


class _Disputes:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: DisputesSection = kit.section
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return the group whose offsets are committed, which is owed nothing."""
        group = {"kind": "cluster", "at_least_once": False, "ordered": False, "topics": [NAME]}
        return {GROUP: group}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        kit, slot = self._kit, self._kit.slots[NAME]
        client = slot.next_client()
        async with make_tool(kit.context, slot) as tool:
            user = _User(kit, tool.instance, client)
            groups = kit.context.world.layout.groups
            while not await sleep_until_set(stop, self._section.every_ms / 1000):
                for group in groups:
                    while not stop.is_set() and (leaders := await self._leaders(group))[1:]:
                        await user.use(group, leaders)
                        await sleep_until_set(stop, ROUND_S)
        self._idle.set()

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _leaders(self, group: str) -> list[_Node]:
        """Return the nodes that say that they lead, that of the newest term first."""
        system = self._kit.context.world.system
        places = system.layout.groups[group]
        found = await asyncio.gather(*(system.status(place.name) for place in places))
        leading = [
            (status.term, _Node(node=place.node, address=place.address))
            for status, place in zip(found, places, strict=True)
            if status is not None and status.ready
        ]
        return [place for _, place in sorted(leading, key=lambda each: -each[0])]


class _User:
    """The two clients: a process writes at one node, another queries the others."""

    def __init__(self, kit: PartKit, instance: ClientInstance, client: str) -> None:
        context = kit.context
        self._context = context
        self._queues = context.part_queues[NAME]
        self._instance = instance
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._maker = MessageMaker(
            prefix=client, body_bytes=context.scenario.workload.body_bytes, rng=self._rng
        )
        self._offsets = itertools.count(1)
        self._writes, self._commits, self._reads = (
            Actor(context.history, root=f"{client}.{what}", client=client, client_group=group)
            for what, group in (("write", PRODUCERS), ("commit", GROUP), ("read", GROUP))
        )

    async def use(self, group: str, leaders: list[_Node]) -> None:
        newest, *older = leaders
        queue = self._rng.choice([each for each in self._queues if each.broker_name == group])
        was_sent = await self._send(newest, queue)
        was_committed = await self._commit(newest, queue)
        await asyncio.sleep(0.001)  # equal times prove no order
        for place in older:
            if was_sent:
                await self._query(place, queue, "max_offset", RequestCode.GET_MAX_OFFSET, {})
                await self._search(place, queue)
            if was_committed:
                fields = {"consumerGroup": GROUP, "setZeroIfNotFound": "false"}
                code = RequestCode.QUERY_CONSUMER_OFFSET
                await self._query(place, queue, "fetch_offset", code, fields)
        await self._search(newest, queue)

    async def _search(self, place: _Node, queue: MessageQueue) -> None:
        """Search the last message until now."""
        at_ms = wall_ms()
        fields = {"timestamp": str(at_ms), "boundaryType": "UPPER"}
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        await self._query(place, queue, "search", code, fields, at_ms=at_ms)

    async def _send(self, place: _Node, queue: MessageQueue) -> bool:
        """Send a message to a node; return whether it acknowledged it."""
        uniq_key = self._instance.next_uniq_key(wall_ms())
        message = self._maker.make(queue.topic, uniq_key=uniq_key)
        message.born_timestamp_ms = wall_ms()
        prepared = prepare_message(message, group=PRODUCERS, compression=None)
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with self._writes.operation(
            "send",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
            ref=NAME,
        ) as operation:
            try:
                answer = await self._request(place, prepared.command(queue))
                status = send_status(answer.code)
                if status is None:
                    raise error_of(answer.code, answer.remark, place.address)
                result = send_result(
                    answer,
                    status=status,
                    prepared=prepared,
                    queue=queue,
                    attempts=1,
                    address=place.address,
                )
            except ClientError as error:
                operation.failed(error)
                return False
            is_ok = result.status is SendStatus.SEND_OK
            operation.complete(
                "ok" if is_ok else "info",
                messages=[row_of_stored(message, result)],
                status=result.status.value,
                node=place.node,
            )
        return is_ok

    async def _commit(self, place: _Node, queue: MessageQueue) -> bool:
        """Commit a new offset at a node; return whether it acknowledged it."""
        offset = next(self._offsets)
        fields = _of_queue(queue) | {"consumerGroup": GROUP, "commitOffset": str(offset)}
        command = RemotingCommand(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        with self._commits.operation(
            "commit_offset",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
            node=place.node,
        ) as operation:
            try:
                answer = await self._request(place, command)
                if answer.code != 0:
                    raise error_of(answer.code, answer.remark, place.address)
            except ClientError as error:
                operation.failed(error)
                return False
            operation.complete("ok")
        return True

    async def _query(
        self,
        place: _Node,
        queue: MessageQueue,
        f: str,
        code: RequestCode,
        fields: Mapping[str, str],
        *,
        at_ms: int | None = None,
    ) -> None:
        """Send a node a query that an offset answers; `at_ms`: the time of a search."""
        command = RemotingCommand(code=code, ext_fields={**_of_queue(queue), **fields})
        with self._reads.operation(
            f,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            node=place.node,
            ref=None if at_ms is None else "last",
            from_ms=at_ms,
        ) as operation:
            try:
                answer = await self._request(place, command)
                if answer.code != 0:
                    raise error_of(answer.code, answer.remark, place.address)
                offset = _offset(answer)
            except OffsetNotFoundError:
                operation.complete("ok")
                return
            except ClientError as error:
                operation.failed(error)
                return
            operation.complete("ok", offset=offset)

    async def _request(self, place: _Node, command: RemotingCommand) -> RemotingCommand:
        try:
            return await self._instance.rpc.request(place.address, command, TIMEOUT_MS)
        except RemotingError as error:
            raise error_of_remoting(error, place.address) from error


def _of_queue(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


def _offset(answer: RemotingCommand) -> int:
    """Return the offset of an answer's header. Raises MalformedAnswerError."""
    text = answer.ext_fields.get("offset", "")
    try:
        return int(text)
    except ValueError as error:
        raise MalformedAnswerError(f"offset is {text[:40]!r}, no number") from error


SPEC: Final = PartSpec(
    name=NAME,
    summary="clients with old routes ask a leader that was deposed, while the new one takes writes",
    topics=lambda section: (NAME,),
    slots=lambda section: (NAME,),
    make=_Disputes,
    judged_by=("A15", "S5", "M5"),
)
