"""Queries where a group that has no offset yet begins in a topic that was just made.

Place in the data path: QUERY_CONSUMER_OFFSET at a group's leader, as a consumer that starts asks
it; the part `deletions`, whose topics are made again and again.

Invariants: a group is asked for once, so it has no offset; the queue's beginning is read when the
topic has been made and once more behind the question, so that nothing of it is gone: it is young,
and every new group begins there.

Source: the run format (set, get; M14); RocketMQ ConsumerManageProcessor.queryConsumerOffset.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.context import WorkContext
from chaos.workload.offset_reader import read_min_offset
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import NOW, NotSureError, SettingsRecord
from client.consume.pull_consumer import PullConsumer
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["StartPositions"]

TIMEOUT_MS: Final = 2_000
_FOUND: Final = frozenset({0, ResponseCode.QUERY_NOT_FOUND.value})


class StartPositions:
    """Queries the queues of one topic. `tool`: a client that belongs to no group."""

    def __init__(
        self,
        context: WorkContext,
        tool: PullConsumer,
        queues: Sequence[MessageQueue],
        *,
        root: str,
        client: str,
        rng: random.Random,
    ) -> None:
        self._record = SettingsRecord(
            context, root=f"{root}.start", client=client, client_group=tool.group
        )
        self._tool = tool
        self._queues = queues
        self._rng = rng
        self._groups = 0
        self._beginnings: dict[MessageQueue, int] = {}

    async def topic_made(self) -> None:
        """Note where the queues begin, now that the topic has been made."""
        self.forget()
        for queue in self._queues:
            beginning = await read_min_offset(self._tool, queue)
            if beginning is not None:
                self._beginnings[queue] = beginning

    def forget(self) -> None:
        """The topic is deleted now: query nothing until it is made again."""
        self._beginnings.clear()

    async def query(self) -> None:
        """Query one queue, as a new group; call it before the topic's deletion is requested."""
        if not self._beginnings:
            return
        queue = self._rng.choice(list(self._beginnings))
        beginning = self._beginnings[queue]
        group = f"{queue.topic}-new-{self._groups}"
        self._groups += 1
        key = f"start {group} {queue.queue_id} {queue.broker_name}"

        async def known() -> str:
            return queue.broker_name

        await self._record.change(
            {key: str(beginning)}, known, how="topic made", broker_group=queue.broker_name
        )
        await self._record.query(
            [key],
            lambda: self._start(key, group, queue),
            how="query of a new group",
            broker_group=queue.broker_name,
            when=NOW,
        )

    async def _start(
        self, key: str, group: str, queue: MessageQueue
    ) -> tuple[Mapping[str, str], str]:
        """Return the answer. Raises ClientError, NotSureError."""
        fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
        }
        command = RemotingCommand(code=RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        answer, address = await request_leader(
            self._tool.instance,
            queue.broker_name,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=_FOUND,
        )
        if await read_min_offset(self._tool, queue) != self._beginnings[queue]:
            raise NotSureError("the queue does not begin any more where it began")
        offset = answer.ext_fields.get("offset") if answer.code == 0 else None
        return {} if offset is None else {key: offset}, address
