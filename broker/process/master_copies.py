"""What a slave of a RocketMQ master copies beside the log: topics, groups, offsets, delay progress.

Place in the data path: beside it. A RocketMQ master's log holds messages alone, so its slave asks
for the rest every ten seconds, each table for itself, as RocketMQ's slave does. Unused where the
master is one of ours, whose log holds all of it.

Invariants: only this node's state changes, and only while its master is reachable; what is copied
may be newer or older than the messages beside it; a table that can't be read changes nothing.

Source: RocketMQ SlaveSynchronize.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from broker.entry.payload import Command, GroupCommand, OffsetCommand, Payload, TopicCommand
from broker.request.replica import Replica
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.fastjson import parse

__all__ = ["MasterCopies"]

_INTERVAL_S: Final = 10.0
_TIMEOUT_MS: Final = 3_000

_log = logging.getLogger(__name__)


class MasterCopies:
    """Copies of one slave; `on_topics` is called when topics were copied."""

    def __init__(
        self, replica: Replica, remoting: RemotingClient, on_topics: Callable[[], None]
    ) -> None:
        self._replica = replica
        self._remoting = remoting
        self._on_topics = on_topics

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await self._copy()
            await asyncio.sleep(_INTERVAL_S)

    async def _copy(self) -> None:
        code = RequestCode
        for request_code, commands_of in (
            (code.GET_ALL_TOPIC_CONFIG, _topics),
            (code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _groups),
            (code.GET_ALL_CONSUMER_OFFSET, _offsets),
        ):
            table = await self._table(request_code)
            if table is not None:
                self._apply(request_code, table, commands_of)
        await self._copy_delays()

    async def _copy_delays(self) -> None:
        table = await self._table(RequestCode.GET_ALL_DELAY_OFFSET)
        try:
            offsets = {} if table is None else table.get("offsetTable", {})
            delays = {int(level) - 1: int(offset) for level, offset in offsets.items()}
        except (ValueError, TypeError, AttributeError) as error:
            _log.warning("the master's delay progress can't be read: %r", error)
            return
        self._replica.state.delay_offsets.update(delays)

    async def _table(self, code: RequestCode) -> Mapping[str, Any] | None:
        """Return a table of the master; None where it can't be had now."""
        config = self._replica.config
        address = config.brokers[config.master_node]
        command = RemotingCommand(code=code)
        why: object = "it is no table"
        try:
            answer = await self._remoting.request(address, command, _TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                table = parse(answer.body)
                if isinstance(table, dict):
                    return table
            else:
                why = f"{answer.code} {answer.remark}"
        except RemotingError as error:
            why = error
        _log.warning("%s of the master at %s is not copied: %s", code.name, address, why)
        return None

    def _apply(
        self,
        code: RequestCode,
        table: Mapping[str, Any],
        commands_of: Callable[[Mapping[str, Any]], Iterator[Command]],
    ) -> None:
        replica = self._replica
        try:
            commands = list(commands_of(table))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            _log.warning("%s of the master can't be read: %r", code.name, error)
            return
        state = replica.state
        known = set(state.topics)
        copied = Payload(state.store_timestamp_ms, [], commands)
        state.apply(copied, replica.log.retention_bounds().end_position)
        if set(state.topics) != known:
            self._on_topics()


def _topics(table: Mapping[str, Any]) -> Iterator[Command]:
    for name, topic in table["topicConfigTable"].items():
        yield TopicCommand(
            name=name,
            read_queue_count=int(topic["readQueueNums"]),
            write_queue_count=int(topic["writeQueueNums"]),
            perm=int(topic["perm"]),
            filter_type=str(topic.get("topicFilterType", "SINGLE_TAG")),
            sys_flag=int(topic.get("topicSysFlag", 0)),
            order=bool(topic.get("order", False)),
            attributes=dict(topic.get("attributes") or {}),
        )


def _groups(table: Mapping[str, Any]) -> Iterator[Command]:
    for name, config in table["subscriptionGroupTable"].items():
        yield GroupCommand(name=name, config=dict(config))


def _offsets(table: Mapping[str, Any]) -> Iterator[Command]:
    for key, queues in table["offsetTable"].items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items():
            yield OffsetCommand(group, topic, int(queue_id), int(offset))
