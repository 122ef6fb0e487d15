"""A small administrator: topics, cluster, routes, and how a replica stands.

Place in the data path: tools and tests; whatever an application needs before it sends.

Source: RocketMQ DefaultMQAdminExt (request codes 17, 105, 106); code 60001 is ledgermq's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import msgspec

from client.answers import error_of, error_of_remoting
from client.broker_call import call_group
from client.errors import ClientError, MalformedAnswerError, NoRouteError
from client.instance import ClientInstance, InstanceSettings
from client.retry import RetryPolicy
from client.route_view import TopicRoute
from remoting import fastjson
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.headers import CreateTopicRequestHeader
from remoting.route import PERM_READ, PERM_WRITE, ClusterInfo

__all__ = ["Admin", "AdminSettings", "ReplicaStatus"]

_DEFAULT_TOPIC: Final = "TBW102"
_ROUTE_POLL_MS: Final = 50


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica of a group stands. `ready`: it leads and serves. Indexes as in Raft."""

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
class AdminSettings:
    timeout_ms: int = 5_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)


class Admin:
    """Use as an async context manager, or `start`/`stop`. All requests raise ClientError."""

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

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def cluster_info(self) -> ClusterInfo:
        """All broker groups and their nodes, as a name server knows them."""
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
        """The topic's route, asked for now. Raises NoRouteError where there is none."""
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

        Returns when a name server's route shows all of its queues. Raises NoRouteError where that
        does not come about in time.
        """
        info = await self.cluster_info()
        names = tuple(broker_names) or tuple(sorted(info.broker_addr_table))
        if not names:
            raise NoRouteError("no broker is registered")
        fields = CreateTopicRequestHeader(
            topic=self.instance.namespace.wrap(topic),
            default_topic=_DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        ).to_ext_fields()
        for name in names:
            await call_group(
                self.instance,
                name,
                lambda: RemotingCommand(
                    code=RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields
                ),
                topic=topic,
                timeout_ms=self.settings.timeout_ms,
                policy=self.settings.retry,
            )
        await self._await_route(topic, names, queues)

    async def replica_status(self, address: str, timeout_ms: int | None = None) -> ReplicaStatus:
        """How the broker at table address `address` stands; no promise goes with it."""
        try:
            answer = await self.instance.rpc.request(
                address,
                RemotingCommand(code=RequestCode.LEDGERMQ_STATUS),
                timeout_ms or self.settings.timeout_ms,
            )
        except RemotingError as error:
            raise error_of_remoting(error, address) from error
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        try:
            return msgspec.json.decode(answer.body, type=ReplicaStatus)
        except msgspec.DecodeError as error:
            raise MalformedAnswerError(f"status of {address}: {error}") from error

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
                        if all(counts[name] == queues for name in names):
                            return
                    await asyncio.sleep(_ROUTE_POLL_MS / 1000)
        except TimeoutError as error:
            raise NoRouteError(f"topic {topic} is created, but not routed yet: {last}") from error
