"""The figures of queues that operators act upon: where they end, and when their first message came.

Place in the data path: GET_TOPIC_STATS_INFO, GET_CONSUME_STATS and QUERY_CONSUME_TIME_SPAN at a
group's leader, for the first of the workload's own topics, while others send to it; the part
`operator`.

Invariants: an end is recorded as `max_offset`, the time of a first message as `search`, so that the
rules about those judge what statistics say; all queues of an answer are operations of their own,
begun before it is queried.

Source: the run format (max_offset, search; A15, M5); RocketMQ ConsumeStats, TopicStatsTable.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from typing import Any, Final

from chaos.recording.history import Column
from chaos.workload.actor import Actor, error_text
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.errors import ClientError
from remoting.errors import BodyError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["QueueFigures"]

TIMEOUT_MS: Final = 3_000
_Figures = Mapping[int, int | None]


class QueueFigures:
    """Queries figures of one topic's queues at one broker group. `client`: as of an `Actor`."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        *,
        broker_group: str,
        client: str,
        rng: random.Random,
    ) -> None:
        first = context.queues[0].topic if context.queues else ""
        self._queues = [
            queue
            for queue in context.queues
            if queue.topic == first and queue.broker_name == broker_group
        ]
        self._topic = first
        self._requests = requests
        self._broker_group = broker_group
        self._rng = rng
        self._actors = [
            Actor(
                context.history,
                root=f"{client}.figures.{broker_group}.{queue.queue_id}",
                client=client,
                client_group="operator-tools",
            )
            for queue in self._queues
        ]

    async def query(self, group: str) -> None:
        """Query figures of some kind; `group` is one whose progress may be queried."""
        if not self._queues:
            return
        topic = {"topic": self._topic}
        match self._rng.randrange(3):
            case 0:
                await self._query_ends(RequestCode.GET_TOPIC_STATS_INFO, topic, "maxOffset")
            case 1:  # the lag of a group is counted from the ends that this shows
                fields = {**topic, "consumerGroup": group}
                await self._query_ends(RequestCode.GET_CONSUME_STATS, fields, "brokerOffset")
            case _:
                await self._query_beginnings({**topic, "group": group})

    async def _query_ends(self, code: RequestCode, fields: Mapping[str, str], column: str) -> None:
        def ends(body: Mapping[str, Any]) -> _Figures:
            table = body.get("offsetTable", {})
            return {parse_queue_name(key).queue_id: row.get(column) for key, row in table.items()}

        await self._query(code, fields, ends, f="max_offset", column="offset")

    async def _query_beginnings(self, fields: Mapping[str, str]) -> None:
        def beginnings(body: Mapping[str, Any]) -> _Figures:
            return {
                span.get("messageQueue", {}).get("queueId"): span.get("minTimeStamp")
                for span in body.get("consumeTimeSpanSet", ())
            }

        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        await self._query(code, fields, beginnings, f="search", column="from_ms", ref="earliest")

    async def _query(
        self,
        code: RequestCode,
        fields: Mapping[str, str],
        figures_of: Any,
        *,
        f: str,
        column: str,
        **columns: Column,
    ) -> None:
        command = RemotingCommand(code=code, ext_fields=dict(fields))
        with contextlib.ExitStack() as stack:
            operations = [
                stack.enter_context(
                    actor.operation(
                        f,
                        broker_group=queue.broker_name,
                        topic=queue.topic,
                        queue=queue.queue_id,
                        **columns,
                    )
                )
                for actor, queue in zip(self._actors, self._queues, strict=True)
            ]
            try:
                answer, address = await request_leader(
                    self._requests.instance,
                    self._broker_group,
                    lambda: command,
                    timeout_ms=TIMEOUT_MS,
                )
                figures = figures_of(json_of(answer, address))
            except (ClientError, BodyError) as error:
                for operation in operations:
                    operation.complete("info", error=error_text(error))
                return
            for operation, queue in zip(operations, self._queues, strict=True):
                figure = figures.get(queue.queue_id)
                if figure is None:
                    operation.complete("info", error="the answer has no such queue")
                else:
                    operation.complete("ok", **{column: figure})
