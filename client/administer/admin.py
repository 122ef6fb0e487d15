"""The administrator client: topics, groups, consumer offsets and progress, cluster and routes.

Place in the data path: used by tools and tests, for whatever an application needs before it sends.
A request that concerns all broker groups goes to the leader of each, one after the other; the first
failure ends the call, and what was done at earlier groups stays done.

Source: RocketMQ DefaultMQAdminExt (request codes 12, 17, 33, 105, 106, 200, 207, 208, 215, 216,
222, 323); codes from 60001 on are ledgermq's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from client.administer.halves import HalfPage, ShownHalf, half_of, page_of
from client.administer.message_place import place_of
from client.connection.answers import error_of, error_of_remoting
from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance, InstanceSettings
from client.connection.lifecycle import Lifecycle
from client.connection.request_fields import request_fields
from client.connection.retry import RetryPolicy
from client.connection.route_view import TopicRoute
from client.delivery import delivered_message
from client.errors import ClientError, MalformedAnswerError, NoRouteError
from client.message import DeliveredMessage, MessageQueue
from remoting.errors import BodyError, RecordError, RemotingError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    CreateTopicRequestHeader,
    ListHalvesRequestHeader,
    ResetOffsetRequestHeader,
)
from remoting.protocol.queue_table import parse_queue_name
from remoting.protocol.route import PERM_READ, PERM_WRITE, ClusterInfo
from remoting.records.message import decode_records

__all__ = ["Admin", "AdminSettings", "QueueProgress", "ReplicaStatus"]

_DEFAULT_TOPIC: Final = "TBW102"
_ROUTE_POLL_MS: Final = 50
_V = TypeVar("_V")


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one replica of a group. `ready`: it leads and serves. Indexes as in Raft."""

    group: str
    node: str
    pid: int
    address: str
    role: str
    term: int
    leader: str | None
    ready: bool
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    voters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """A consumer group's progress in one queue. Offsets are the next to be written and consumed."""

    broker_offset: int
    consumer_offset: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset


class _Offsets(msgspec.Struct):
    brokerOffset: int
    consumerOffset: int


class _Table(msgspec.Struct, Generic[_V]):
    offsetTable: dict[str, _V] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    timeout_ms: int = 5_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)


class Admin(Lifecycle):
    """The administrator client; use as an async context manager. Requests raise ClientError."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        settings: AdminSettings | None = None,
    ) -> None:
        self.settings = settings or AdminSettings()
        self.instance = ClientInstance(name_servers, dial=dial, settings=self.settings.instance)

    async def start(self) -> None:
        await self.instance.start()

    async def stop(self) -> None:
        await self.instance.stop()

    async def cluster_info(self) -> ClusterInfo:
        """Return all broker groups and their nodes, as a name server knows them."""
        answer = await self.instance.routes.name_server_request(
            lambda: RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        )
        try:
            info = fastjson.decode(answer.body, ClusterInfo)
        except BodyError as error:
            raise MalformedAnswerError(f"cluster info: {error}") from error
        for name, broker in info.broker_addr_table.items():
            self.instance.routes.learn_group(name, broker.broker_addrs)
        return info

    async def topic_route(self, topic: str) -> TopicRoute:
        """Fetch the topic's route from a name server now. Raises NoRouteError where it has none."""
        return await self.instance.routes.refresh(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 4,
        perm: int = PERM_READ | PERM_WRITE,
        broker_names: Sequence[str] = (),
    ) -> None:
        """Create or change `topic` at the leaders of `broker_names` (none given: of all groups).

        Returns when a name server's route shows all of its queues. Raises NoRouteError where the
        route does not show them in time.
        """
        names = tuple(broker_names) or await self._broker_names()
        header = CreateTopicRequestHeader(
            topic=self.instance.namespace.wrap(topic),
            default_topic=_DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        )
        fields = request_fields(header)
        await self._query_leaders(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, names=names)
        # Queues that may neither be read nor written are in no client's view of a route.
        await self._await_route(topic, names, queues if perm & (PERM_READ | PERM_WRITE) else 0)

    async def delete_topic(self, topic: str) -> None:
        """Delete `topic` at all broker groups, then its route at every name server."""
        fields = {"topic": self.instance.namespace.wrap(topic)}
        await self._query_leaders(RequestCode.DELETE_TOPIC_IN_BROKER, fields)
        for address in self.instance.routes.name_servers:
            await self._query_one(
                address,
                RemotingCommand(code=RequestCode.DELETE_TOPIC_IN_NAMESRV, ext_fields=dict(fields)),
            )

    async def create_group(
        self, group: str, *, retry_times_max: int = 16, retry_queues: int = 1
    ) -> None:
        """Create or change a consumer group at all broker groups.

        A message that failed more than `retry_times_max` times goes to `%DLQ%group`; with
        `retry_queues` 0 no message is ever retried.
        """
        config = {
            "groupName": self.instance.namespace.wrap(group),
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": retry_queues,
            "retryMaxTimes": retry_times_max,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        body = msgspec.json.encode(config)
        await self._query_leaders(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body)

    async def delete_group(self, group: str, *, clean_offsets: bool = False) -> None:
        """Delete a consumer group at all broker groups; with `clean_offsets` its offsets, too."""
        fields = {
            "groupName": self.instance.namespace.wrap(group),
            "cleanOffset": "true" if clean_offsets else "false",
        }
        await self._query_leaders(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    async def consumer_progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """Return the progress of `group` by queue, in `topic` or in all topics that it consumes."""
        namespace = self.instance.namespace
        fields = {"consumerGroup": namespace.wrap(group)}
        if topic is not None:
            fields["topic"] = namespace.wrap(topic)
        progress = {}
        for answer in await self._query_leaders(RequestCode.GET_CONSUME_STATS, fields):
            for queue, offsets in self._by_queue(answer, _Table[_Offsets]).items():
                progress[queue] = QueueProgress(
                    broker_offset=offsets.brokerOffset, consumer_offset=offsets.consumerOffset
                )
        return progress

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        is_force: bool = True,
        broker_names: Sequence[str] = (),
    ) -> dict[MessageQueue, int]:
        """Reset `group` to the messages stored at Unix time `timestamp_ms`; -1: to the end.

        Without `is_force` the group never goes forward: a queue in which it is before that place
        stays where it is. `broker_names`: at these broker groups only. Returns the new offsets by
        queue. The brokers notify members that are online.
        """
        namespace = self.instance.namespace
        fields = {
            "group": namespace.wrap(group),
            "topic": namespace.wrap(topic),
            "timestamp": str(timestamp_ms),
            "isForce": "true" if is_force else "false",
        }
        offsets: dict[MessageQueue, int] = {}
        names = sorted(broker_names) or sorted((await self.topic_route(topic)).groups)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        for answer in await self._query_leaders(code, fields, names=names):
            offsets |= self._by_queue(answer, _Table[int])
        return offsets

    async def reset_queue(
        self, group: str, queue: MessageQueue, *, offset: int = -1, timestamp_ms: int = -1
    ) -> int:
        """Reset `group` in one queue: to `offset`, or where that is -1 to the first message stored
        at Unix time `timestamp_ms`; -1: to the end. Returns the new offset."""
        header = ResetOffsetRequestHeader(
            topic=self.instance.namespace.wrap(queue.topic),
            group=self.instance.namespace.wrap(group),
            timestamp_ms=timestamp_ms,
            queue_id=queue.queue_id,
            offset=offset,
        )
        (answer,) = await self._query_leaders(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            request_fields(header),
            names=[queue.broker_name],
        )
        offsets = self._by_queue(answer, _Table[int])
        if queue not in offsets:
            raise MalformedAnswerError(f"the answer does not name {queue}")
        return offsets[queue]

    async def view_message(self, offset_msg_id: str) -> DeliveredMessage:
        """Fetch the message that has this id at a broker (`SendResult.offset_msg_id`).

        Raises MessageRefusedError where the id is malformed.
        """
        address, position = place_of(offset_msg_id)
        answer = await self._query_one(
            address,
            RemotingCommand(
                code=RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(position)}
            ),
        )
        if self.instance.routes.broker_name_of(address) is None:
            # A name server may know a node that no route has named so far.
            await self.cluster_info()
        name = self.instance.routes.broker_name_of(address) or ""
        found = self._messages(answer, name)
        if len(found) != 1:
            raise MalformedAnswerError(f"{address} answered with {len(found)} messages")
        return found[0]

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
        unique: bool = False,
    ) -> list[DeliveredMessage]:
        """Return messages of `topic` with `key`, by the brokers' index; with `unique`, by UNIQ_KEY.

        Times are Unix ms of storing. Where more than `count_max` match, it is the newest ones. The
        result is sorted oldest first, and empty where none matches.
        """
        fields = {
            "topic": self.instance.namespace.wrap(topic),
            "key": key,
            "maxNum": str(count_max),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
        }
        if unique:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        names = sorted((await self.topic_route(topic)).groups)  # that of a closed topic, too
        answers = await self._query_leaders(
            RequestCode.QUERY_MESSAGE,
            fields,
            names=names,
            accept=frozenset({0, ResponseCode.QUERY_NOT_FOUND.value}),
        )
        found = [
            message
            for name, answer in zip(names, answers, strict=True)
            if answer.code == 0
            for message in self._messages(answer, name)
            # A RocketMQ broker compares only the hashes of keys, so other keys may come back.
            if key in ({message.uniq_key} if unique else message.keys)
        ]
        found.sort(key=lambda message: message.store_timestamp_ms)
        # Each broker answers its newest `count_max`; of all of them, too, the newest are returned.
        return found[max(0, len(found) - count_max) :]

    async def list_halves(
        self,
        broker_name: str,
        *,
        state: str = "undecided",
        offset: int = 0,
        count_max: int = 32,
        topic: str | None = None,
        group: str | None = None,
    ) -> HalfPage:
        """Return a page of the undecided (or discarded) halves of a broker group, from `offset` on:
        of `topic` and of the producer group `group`, where these are given."""
        wrap = self.instance.namespace.wrap
        header = ListHalvesRequestHeader(
            state=state,
            offset=offset,
            count_max=count_max,
            topic=None if topic is None else wrap(topic),
            producer_group=None if group is None else wrap(group),
        )
        code = RequestCode.LEDGERMQ_LIST_HALVES
        (answer,) = await self._query_leaders(code, request_fields(header), names=[broker_name])
        return page_of(answer)

    async def show_half(self, message_id: str, broker_name: str | None = None) -> ShownHalf:
        """Return the half with this id and its state; `discard_half` says when to name a broker."""
        return half_of(
            await self._about_half(RequestCode.LEDGERMQ_SHOW_HALF, message_id, broker_name)
        )

    async def discard_half(self, message_id: str, broker_name: str | None = None) -> str | None:
        """Discard an undecided half; return the id of its copy, which `resume_half` takes.

        None: it was discarded already. The id names a node; `broker_name` is needed where no name
        server knows that node any more. Raises ContraryDecisionError where it is committed, rolled
        back or resumed.
        """
        answer = await self._about_half(RequestCode.LEDGERMQ_DISCARD_HALF, message_id, broker_name)
        return answer.ext_fields.get("msgId")

    async def resume_half(self, message_id: str, broker_name: str | None = None) -> None:
        """Make a discarded half undecided again, so that its producers are asked anew; once."""
        await self._about_half(RequestCode.RESUME_CHECK_HALF_MESSAGE, message_id, broker_name)

    async def replica_status(self, address: str, timeout_ms: int | None = None) -> ReplicaStatus:
        """Return the status of the broker at table address `address`; it may be outdated."""
        try:
            answer = await self.instance.rpc.request(
                address,
                RemotingCommand(code=RequestCode.LEDGERMQ_STATUS),
                self.settings.timeout_ms if timeout_ms is None else timeout_ms,
            )
        except RemotingError as error:
            raise error_of_remoting(error, address) from error
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        try:
            return msgspec.json.decode(answer.body, type=ReplicaStatus)
        except msgspec.DecodeError as error:
            raise MalformedAnswerError(f"status of {address}: {error}") from error

    # Internals.

    async def _about_half(
        self, code: RequestCode, message_id: str, broker_name: str | None
    ) -> RemotingCommand:
        address, _ = place_of(message_id)
        routes = self.instance.routes
        name = broker_name or routes.broker_name_of(address)
        if name is None:
            await self.cluster_info()
            name = routes.broker_name_of(address)
        if name is None:
            raise NoRouteError(f"no broker group has the node {address} that the id names")
        (answer,) = await self._query_leaders(code, {"msgId": message_id}, names=[name])
        return answer

    async def _broker_names(self) -> tuple[str, ...]:
        names = tuple(sorted((await self.cluster_info()).broker_addr_table))
        if not names:
            raise NoRouteError("no broker is registered")
        return names

    async def _query_leaders(
        self,
        code: RequestCode,
        fields: Mapping[str, str],
        *,
        names: Sequence[str] | None = None,
        body: bytes = b"",
        accept: Container[int] = frozenset({0}),
    ) -> list[RemotingCommand]:
        """Return the answers of the leaders of `names` (None: of all groups), in that order."""
        answers = []
        for name in await self._broker_names() if names is None else names:
            answer, _ = await call_group(
                self.instance,
                name,
                lambda: RemotingCommand(code=code, ext_fields=dict(fields), body=body),
                topic=_DEFAULT_TOPIC,
                timeout_ms=self.settings.timeout_ms,
                policy=self.settings.retry,
                accept=accept,
            )
            answers.append(answer)
        return answers

    async def _query_one(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Send one request to one node or name server and return its answer."""
        try:
            answer = await self.instance.rpc.request(address, command, self.settings.timeout_ms)
        except RemotingError as error:
            raise error_of_remoting(error, address) from error
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        return answer

    def _messages(self, answer: RemotingCommand, broker_name: str) -> list[DeliveredMessage]:
        """Decode the messages in an answer's body. Raises MalformedAnswerError."""
        namespace = self.instance.namespace
        try:
            return [
                delivered_message(
                    record,
                    MessageQueue(namespace.unwrap(record.topic), broker_name, record.queue_id),
                    namespace,
                )
                for record in decode_records(answer.body)
            ]
        except RecordError as error:
            raise MalformedAnswerError(f"records of {broker_name}: {error}") from error

    def _by_queue(self, answer: RemotingCommand, kind: type[_Table[_V]]) -> dict[MessageQueue, _V]:
        """Decode the `offsetTable` of an answer's body. Raises MalformedAnswerError."""
        unwrap = self.instance.namespace.unwrap
        table = {}
        try:
            for key, value in fastjson.decode(answer.body, kind).offsetTable.items():
                name = parse_queue_name(key)
                queue = MessageQueue(unwrap(name.topic), name.broker_name, name.queue_id)
                table[queue] = value
        except BodyError as error:
            raise MalformedAnswerError(f"table by queues: {error}") from error
        return table

    async def _await_route(self, topic: str, names: Sequence[str], queues: int) -> None:
        last: ClientError | None = None
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1000):
                while True:
                    try:
                        route = await self.topic_route(topic)
                    except ClientError as error:
                        last = error
                    else:
                        there = {*route.read_queues, *route.write_queues}
                        counts = Counter(queue.broker_name for queue in there)
                        if all(name in route.groups and counts[name] == queues for name in names):
                            return
                    await asyncio.sleep(_ROUTE_POLL_MS / 1000)
        except TimeoutError as error:
            raise NoRouteError(f"topic {topic} is created, but not routed yet: {last}") from error
