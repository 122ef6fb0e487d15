"""One client: its connections, routes, heartbeats and background tasks.

Place in the data path: every producer and consumer owns one instance; instances in one process
share nothing, so that each can be disconnected, crashed and observed on its own.

Invariants:
- Heartbeats go to every node of every known group: at start, every `heartbeat_interval_ms`, and at
  once where a route or a leader is new, so that a new leader knows the client before it needs it
  (to check a transaction's outcome, to notify of a change in the group). RocketMQ's Java producer
  sends them to the masters only and learns of a new master at the next route poll.
- A node that refuses them is logged once for each reason, and gets the next ones a second later,
  then more seldom: its reason (a name, an account) does not pass by itself.
- After `stop` or `abort` no task and no connection is left.

Source: RocketMQ MQClientInstance; clientId is `ip@pid#nanos`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from client.connection.answers import error_of
from client.connection.heartbeat import ConsumerGroup, heartbeat_body
from client.connection.route_view import TopicRoute
from client.connection.routes import RouteSettings, RouteTable
from client.connection.task_scope import TaskScope
from client.errors import ClientClosedError, ClientError
from client.namespace import Namespace
from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import LANGUAGE_JAVA, RemotingCommand, SerializeType
from remoting.records.message import UniqueIdGenerator

__all__ = ["ClientInstance", "InstanceSettings", "name_server_list"]

RequestListener: TypeAlias = Callable[[Connection, RemotingCommand], None]

_log = logging.getLogger(__name__)

_HEARTBEAT_TIMEOUT_MS: Final = 1_000
_HEARTBEAT_RETRY_MS: Final = 1_000
_REFUSED_RETRY_MS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A node's last answer to a heartbeat; the next one is sent at `until_ms`, not before."""

    text: str
    wait_ms: int
    until_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """Settings of one client, or of several. `seed` fixes their jitter, and which name server and
    queue are the first ones; it does not fix UNIQ_KEYs, by which brokers tell messages apart.

    `ip` is part of the client id and of UNIQ_KEYs. `signer` is the account whose signature every
    request carries (RocketMQ's ACL). `tls` is the context for connections to brokers and name
    servers, see `remoting.connections.tls.client_context`; None: plain text. `namespace` is
    prefixed to every topic and group on the wire, and removed from what is received.
    `serialize_type` is the encoding of the headers of requests (RocketMQ's
    rocketmq.serialize.type); brokers answer each in its own.
    """

    routes: RouteSettings = field(default_factory=RouteSettings)
    heartbeat_interval_ms: int = 30_000
    ip: str = "127.0.0.1"
    seed: int | None = None
    signer: Signer | None = None
    tls: ssl.SSLContext | None = None
    namespace: str = ""
    serialize_type: SerializeType = SerializeType.JSON

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms < 1:
            raise ValueError(
                f"heartbeat_interval_ms must be positive, not {self.heartbeat_interval_ms}"
            )


def name_server_list(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Split into `host:port` addresses; a string may hold several, separated by `;`."""
    parts = name_servers.split(";") if isinstance(name_servers, str) else name_servers
    return tuple(part.strip() for part in parts if part.strip())


class ClientInstance:
    """The connections and tasks of one producer or consumer, which adds its groups first."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        dial: Mapping[str, str] | None = None,
        settings: InstanceSettings | None = None,
        on_leader: Callable[[str, str], None] | None = None,
    ) -> None:
        self.settings = settings or InstanceSettings()
        self.random = random.Random(self.settings.seed)
        self.client_id = f"{self.settings.ip}@{os.getpid()}#{time.monotonic_ns()}"
        self.namespace = Namespace(self.settings.namespace)
        signer = self.settings.signer
        self.rpc = RemotingClient(
            dial,
            on_request=self._on_request,
            on_close=self._on_close,
            tls=self.settings.tls,
            sign=None if signer is None else signer.sign,
            serialize_type=self.settings.serialize_type,
        )
        self.routes = RouteTable(
            self.rpc,
            name_server_list(name_servers),
            settings=self.settings.routes,
            first=self.random.randrange(1 << 16),
            on_leader=self._on_leader,
            on_route=self._on_route,
            namespace=self.namespace,
        )
        self.scope = TaskScope()
        self._ids = UniqueIdGenerator(
            ip=self.settings.ip, pid=os.getpid(), instance=secrets.randbits(32)
        )
        self._name_servers = name_server_list(name_servers)
        self._listener_on_leader = on_leader
        self._producer_groups: list[str] = []
        self._consumer_groups: list[ConsumerGroup] = []
        self._listeners: dict[int, RequestListener] = {}
        self._greeted: set[str] = set()
        self._greeting: set[str] = set()
        self._wanted_of_all = 0  # how often new heartbeats were wanted; the same for single nodes
        self._wanted: dict[str, int] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._wake_heartbeat = asyncio.Event()
        self._started = False
        self._closed = False

    # Before start.

    def add_producer_group(self, name: str) -> None:
        """Raises ValueError where brokers refuse the name."""
        self._producer_groups.append(self.namespace.group(name))

    def set_consumer_groups(self, groups: Sequence[ConsumerGroup]) -> None:
        """Replace the consumer groups in heartbeats, and wake the heartbeats for all nodes at once.

        Names are those of the wire, that is wrapped in the namespace already.
        """
        self._consumer_groups = list(groups)
        self._wanted_of_all += 1
        self._greeted.clear()
        self._refusals.clear()
        self._wake_heartbeat.set()

    def listen(self, code: int, listener: RequestListener) -> None:
        """Call `listener` for each request with `code` that a broker sends; it must not block."""
        self._listeners[code] = listener

    # Start and stop.

    async def start(self) -> None:
        """Start the background work; nodes get heartbeats once a route names them.

        A start that is cancelled leaves nothing behind. Raises ClientError at a second one.
        """
        self.check_unstarted()
        self._started = True
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.stop)
            await self.scope.start()
            self.scope.spawn(self.routes.run(), "client-routes")
            self.scope.spawn(self._send_heartbeats(), "client-heartbeats")
            undo.pop_all()

    async def stop(self) -> None:
        """Unregister the groups at the nodes that are connected, then close everything.

        A stop that is cancelled closes everything as well. Raises what a background loop failed
        with, as an exception group.
        """
        if self._closed:
            return
        self._closed = True
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self.rpc.close)
            closing.push_async_callback(self.scope.stop)
            await self._unregister()

    async def abort(self) -> None:
        """Stop as a killed process would: nothing more is sent, connections are dropped."""
        self._closed = True
        for address in sorted({*self._name_servers, *self.routes.nodes(), *self._greeted}):
            connection = self.rpc.connection(address)
            if connection is not None:
                connection.abort("the client crashes")
        # Concurrently, so that no connection is opened anew while the tasks end.
        results = await asyncio.gather(self.scope.stop(), self.rpc.close(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def closed(self) -> bool:
        return self._closed

    def check_unstarted(self) -> None:
        """Raise ClientError where the client was started or stopped before."""
        if self._started or self._closed:
            raise ClientError("a client starts once")

    def check_running(self) -> None:
        """Raise ClientClosedError where the client is not started, or is stopped."""
        if self._closed or not self.scope.running:
            raise ClientClosedError("the client is not running")

    # Small services.

    def now_ms(self) -> float:
        """Return the loop's clock in milliseconds, for deadlines."""
        return asyncio.get_running_loop().time() * 1000

    def next_uniq_key(self, wall_ms: int) -> str:
        return self._ids.next_id(wall_ms)

    def address_of(self, connection: Connection) -> str | None:
        """Return the table address of one of this client's connections; None if unknown."""
        for address in self.routes.nodes():
            if self.rpc.connection(address) is connection:
                return address
        return None

    def greet_soon(self, address: str) -> None:
        """Wake the background loop to send a heartbeat to one node at once."""
        self._wanted[address] = self._wanted.get(address, 0) + 1
        self._greeted.discard(address)
        self._wake_heartbeat.set()

    async def greet_all(self, *, within_ms: float) -> None:
        """Send a heartbeat to every known node that lacks one, as far as they answer in time."""
        missing = [node for node in self.routes.nodes() if self._may_greet(node)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await asyncio.gather(*(self._greet_quietly(node) for node in missing))

    async def greet(self, address: str) -> None:
        """Send a heartbeat to one node now and await its answer. Raises RemotingError."""
        wanted = self._wanted_from(address)
        command = RemotingCommand(code=RequestCode.HEART_BEAT, body=self._heartbeat_body())
        answer = await self.rpc.request(address, command, _HEARTBEAT_TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS:
            self._refusals.pop(address, None)
            if self._wanted_from(address) == wanted:
                self._greeted.add(address)
            else:  # what it said is out of date, and the loop passed by while it was under way
                self._wake_heartbeat.set()
        else:
            self._refused(address, answer)
        if answer.language == LANGUAGE_JAVA:  # RocketMQ itself
            broker_name = self.routes.broker_name_of(address)
            if broker_name is not None:
                self.routes.follow_route(broker_name)

    # Internals.

    def _heartbeat_body(self) -> bytes:
        return heartbeat_body(
            client_id=self.client_id,
            producer_groups=self._producer_groups,
            consumer_groups=self._consumer_groups,
            namespace=self.namespace,
        )

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        listener = self._listeners.get(command.code)
        if listener is not None and not self._closed:
            listener(connection, command)
        elif not command.is_oneway:
            connection.send(
                command.response(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"this client takes no request {command.code}",
                )
            )

    def _on_close(self, _: Connection) -> None:
        # A broker forgets a client when its connection ends: wake the loop to send a heartbeat at
        # once.
        self._wake_heartbeat.set()

    def _on_leader(self, broker_name: str, address: str) -> None:
        self.greet_soon(address)
        if self._listener_on_leader is not None:
            self._listener_on_leader(broker_name, address)

    def _on_route(self, route: TopicRoute) -> None:
        if any(
            address not in self._greeted
            for addresses in route.groups.values()
            for address in addresses.values()
        ):
            self._wake_heartbeat.set()

    async def _send_heartbeats(self) -> None:
        """Send heartbeats to every node each interval, and to new or unresponsive nodes sooner."""
        loop = asyncio.get_running_loop()
        interval = self.settings.heartbeat_interval_ms / 1000
        next_round = loop.time() + interval
        while True:
            missing = [node for node in self.routes.nodes() if node not in self._greeted]
            soon = min(next_round, loop.time() + _HEARTBEAT_RETRY_MS / 1000)
            try:
                async with asyncio.timeout_at(soon if missing else next_round):
                    await self._wake_heartbeat.wait()
            except TimeoutError:
                if loop.time() >= next_round:
                    self._greeted.clear()
                    next_round = loop.time() + interval
            self._wake_heartbeat.clear()
            self._forget_lost_connections()
            self._forget_gone_nodes()
            for node in self.routes.nodes():
                if self._may_greet(node) and node not in self._greeting:
                    self._greeting.add(node)
                    self.scope.spawn(self._greet_quietly(node), f"client-greet-{node}")

    def _wanted_from(self, address: str) -> tuple[int, int]:
        """Return what changes when only a later heartbeat will do for this node."""
        return self._wanted_of_all, self._wanted.get(address, 0)

    def _may_greet(self, address: str) -> bool:
        refusal = self._refusals.get(address)
        is_refused = refusal is not None and self.now_ms() < refusal.until_ms
        return address not in self._greeted and not is_refused

    def _refused(self, address: str, answer: RemotingCommand) -> None:
        before = self._refusals.get(address)
        text = str(error_of(answer.code, answer.remark, address))
        wait_ms = _HEARTBEAT_RETRY_MS
        if before is not None and before.text == text:
            wait_ms = min(2 * before.wait_ms, _REFUSED_RETRY_MS_MAX)
        else:
            _log.warning("a heartbeat is refused; no messages, no checks come from there: %s", text)
        self._refusals[address] = _Refusal(text, wait_ms, self.now_ms() + wait_ms)

    def _forget_lost_connections(self) -> None:
        self._greeted = {node for node in self._greeted if self.rpc.connection(node) is not None}

    def _forget_gone_nodes(self) -> None:
        nodes = self.routes.nodes()
        for of_nodes in (self._wanted, self._refusals):
            for address in of_nodes.keys() - set(nodes):
                del of_nodes[address]

    async def _greet_quietly(self, address: str) -> None:
        try:
            await self.greet(address)
        except RemotingError:
            # The loop tries again in a second; nothing depends on a single heartbeat.
            return
        finally:
            self._greeting.discard(address)

    async def _unregister(self) -> None:
        if not self._producer_groups and not self._consumer_groups:
            return
        nodes = [node for node in sorted(self._greeted) if self.rpc.connection(node) is not None]
        fields = [
            *({"producerGroup": name} for name in self._producer_groups),
            *({"consumerGroup": group.name} for group in self._consumer_groups),
        ]
        await asyncio.gather(
            *(self._unregister_quietly(node, field) for node in nodes for field in fields)
        )

    async def _unregister_quietly(self, address: str, field: dict[str, str]) -> None:
        command = RemotingCommand(
            code=RequestCode.UNREGISTER_CLIENT,
            ext_fields={"clientID": self.client_id, **field},
        )
        try:
            await self.rpc.request(address, command, _HEARTBEAT_TIMEOUT_MS)
        except RemotingError:
            # The broker also forgets the client when its connection closes or its heartbeats
            # expire.
            return
