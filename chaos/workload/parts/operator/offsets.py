"""The offsets of the part `operator`: committed, copied and reset for groups without members.

Place in the data path: UPDATE_CONSUMER_OFFSET, CLONE_GROUP_OFFSET and INVOKE_BROKER_TO_RESET_OFFSET
at a group's leader; all requests that show what a group has committed: QUERY_CONSUMER_OFFSET,
GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS and GET_ALL_CONSUMER_OFFSET. Beside them the figures of
a busy topic's queues are queried (`chaos.workload.parts.operator.queue_figures`).

Invariants: answers are linearizable, so they are compared whatever faults there are; a group that
was reset is asked and given up, since its commits have no effect until a member has followed; after
a change of unknown outcome all groups are given up, and others take their places.

Source: RocketMQ CloneGroupOffsetCommand, ResetOffsetByTimeCommand, ConsumerProgressSubCommand.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from chaos.recording.history import Outcome
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import NOW, SettingsRecord
from chaos.workload.parts.operator.queue_figures import QueueFigures
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.errors import MalformedAnswerError
from client.message import MessageQueue
from remoting.errors import BodyError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["OffsetKeeper"]

TIMEOUT_MS: Final = 3_000
_GROUPS: Final = 3
_CHANGES: Final = 4
_OFFSET_MAX: Final = 1_000
_FOUND: Final = frozenset({0, ResponseCode.QUERY_NOT_FOUND.value})
_WORK: Final = ("commit", "commit", "commit", "clone", "clone", "reset")
_Offsets = dict[int, int]


class OffsetKeeper:
    """Changes the offsets of some groups in one topic at one broker group, and queries them."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        name: str,
        queues: Sequence[MessageQueue],
        rng: random.Random,
    ) -> None:
        self._requests = requests
        self._record = record
        self._name = name
        self._topic = queues[0].topic
        self._broker_group = queues[0].broker_name
        self._queue_ids = [queue.queue_id for queue in queues]
        self._rng = rng
        self._numbers = 0
        self._offsets: dict[str, _Offsets] = {}
        self._figures = QueueFigures(
            context, requests, broker_group=self._broker_group, client=name, rng=rng
        )
        self._begin()

    def groups(self) -> list[str]:
        return list(self._offsets)

    async def step(self) -> None:
        """Change offsets and query them, some times, and query where queues end."""
        for _ in range(_CHANGES):
            await self._change_one()
        await self._figures.query(self.groups()[0])

    async def _change_one(self) -> None:
        """Change the offsets of a group, and query them."""
        group = self._rng.choice(self.groups())
        await self._query(self._rng.choice(self.groups()))  # what was told long ago holds on
        what = self._rng.choice(_WORK)
        if what == "commit":
            outcome = await self._commit(group)
        elif what == "clone":
            source = self._rng.choice([each for each in self._offsets if each != group])
            outcome = await self._clone(source, group)
        else:
            outcome = await self._reset(group)
        if outcome == "info":
            self._begin()
            return
        await self._query(group)
        if what == "reset":
            del self._offsets[group]
            self._add_group()

    # Changes -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._offsets.clear()
        for _ in range(_GROUPS):
            self._add_group()

    def _add_group(self) -> None:
        self._offsets[f"{self._name}-{self._numbers}"] = {}
        self._numbers += 1

    def _key(self, group: str, queue_id: int) -> str:
        return f"offset {group} {self._topic} {queue_id} {self._broker_group}"

    async def _change(
        self, group: str, after: Mapping[int, int], command: RemotingCommand, how: str
    ) -> Outcome:
        values = {self._key(group, queue_id): str(offset) for queue_id, offset in after.items()}

        async def send() -> str:
            _, address = await request_leader(
                self._requests.instance,
                self._broker_group,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
            )
            return address

        outcome = await self._record.change(values, send, how=how, broker_group=self._broker_group)
        if outcome == "ok":
            self._offsets[group] |= after
        return outcome

    async def _commit(self, group: str) -> Outcome:
        queue_id, offset = self._rng.choice(self._queue_ids), self._rng.randint(0, _OFFSET_MAX)
        fields = {
            "consumerGroup": group,
            "topic": self._topic,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        command = RemotingCommand(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        return await self._change(group, {queue_id: offset}, command, "commit")

    async def _clone(self, source: str, group: str) -> Outcome:
        """Copy the offsets of a group to another that may have its own."""
        if not self._offsets[source]:
            return "fail"
        fields = {"srcGroup": source, "destGroup": group}
        if self._rng.random() < 0.7:
            fields["topic"] = self._topic
        if self._rng.random() < 0.5:
            fields["offline"] = "true"
        command = RemotingCommand(code=RequestCode.CLONE_GROUP_OFFSET, ext_fields=fields)
        return await self._change(group, self._offsets[source], command, "clone")

    async def _reset(self, group: str) -> Outcome:
        """Reset a group that has offsets to the beginning of one queue, or of all."""
        if not self._offsets[group]:
            return "fail"
        one = self._rng.choice(self._queue_ids) if self._rng.random() < 0.5 else None
        fields = {"topic": self._topic, "group": group, "isForce": "true", "timestamp": "0"}
        if one is not None:
            fields |= {"queueId": str(one), "offset": "0"}
        after = dict.fromkeys(self._queue_ids if one is None else [one], 0)
        command = RemotingCommand(code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
        return await self._change(group, after, command, "reset")

    # Questions ---------------------------------------------------------------------------------

    async def _query(self, group: str) -> None:
        queue_id = self._rng.choice(self._queue_ids)
        await self._query_offset(group, queue_id)
        # Of a queue without an offset the tables say 0.
        known = list(self._offsets[group])
        if known:
            await self._rng.choice((self._query_stats, self._query_broker_stats, self._query_all))(
                group, known
            )

    async def _query_offset(self, group: str, queue_id: int) -> None:
        key = self._key(group, queue_id)
        fields = {
            "consumerGroup": group,
            "topic": self._topic,
            "queueId": str(queue_id),
            "setZeroIfNotFound": "false",
        }
        command = RemotingCommand(code=RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await self._at_leader(command)
            offset = answer.ext_fields.get("offset") if answer.code == 0 else None
            return {} if offset is None else {key: offset}, address

        await self._record.query(
            [key], send, how="query", broker_group=self._broker_group, when=NOW
        )

    async def _query_stats(self, group: str, known: Sequence[int]) -> None:
        fields = {"consumerGroup": group}
        if self._rng.random() < 0.5:
            fields["topic"] = self._topic
        command = RemotingCommand(code=RequestCode.GET_CONSUME_STATS, ext_fields=fields)
        await self._query_table(
            group, known, command, "progress", lambda body: body.get("offsetTable", {})
        )

    async def _query_broker_stats(self, group: str, known: Sequence[int]) -> None:
        command = RemotingCommand(
            code=RequestCode.GET_BROKER_CONSUME_STATS, ext_fields={"isOrder": "false"}
        )
        await self._query_table(
            group, known, command, "progress of all", lambda body: _rows_of(body, group)
        )

    async def _query_all(self, group: str, known: Sequence[int]) -> None:
        command = RemotingCommand(code=RequestCode.GET_ALL_CONSUMER_OFFSET)

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await self._at_leader(command)
            table = json_of(answer, address).get("offsetTable", {})
            offsets = table.get(f"{self._topic}@{group}", {})
            return {self._key(group, int(each)): str(offsets[each]) for each in offsets}, address

        keys = [self._key(group, queue_id) for queue_id in known]
        await self._record.query(
            keys, send, how="all offsets", broker_group=self._broker_group, when=NOW
        )

    async def _query_table(
        self, group: str, known: Sequence[int], command: RemotingCommand, how: str, rows_of: Any
    ) -> None:
        """Query what a group has committed."""

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await self._at_leader(command)
            rows = dict(self._named(rows_of(json_of(answer, address)), address))
            values = {self._key(group, each): str(rows[each]["consumerOffset"]) for each in rows}
            return values, address

        keys = [self._key(group, queue_id) for queue_id in known]
        await self._record.query(keys, send, how=how, broker_group=self._broker_group, when=NOW)

    async def _at_leader(self, command: RemotingCommand) -> tuple[RemotingCommand, str]:
        return await request_leader(
            self._requests.instance,
            self._broker_group,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=_FOUND,
        )

    def _named(
        self, rows: Mapping[str, Mapping[str, int]], address: str
    ) -> Iterable[tuple[int, Mapping[str, int]]]:
        """Return the rows of the topic by queue. Raises MalformedAnswerError."""
        try:
            names = {key: parse_queue_name(key) for key in rows}
        except BodyError as error:
            raise MalformedAnswerError(f"progress at {address}: {error}") from error
        return [
            (name.queue_id, rows[key]) for key, name in names.items() if name.topic == self._topic
        ]


def _rows_of(body: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return the rows of a group in GET_BROKER_CONSUME_STATS's answer."""
    rows: dict[str, Any] = {}
    for listed in body.get("consumeStatsList", ()):
        for table in listed.get(group, ()):
            rows |= table.get("offsetTable", {})
    return rows
