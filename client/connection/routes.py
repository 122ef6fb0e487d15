"""The routes that one client knows, and the leader of each broker group.

Place in the data path: producers and consumers request a topic's queues and the node to send to;
requests report back which node answered, failed, or was named as leader.

Invariants:
- A known route stays until a newer one comes: a name server that is down, or that has just lost
  sight of the brokers, takes nobody's queues away.
- A group that no known route has named for a whole poll interval, and that nobody has sent to in
  that time, was taken out of service: it is forgotten, and gets no heartbeats.
- At most one lookup per topic is in progress at a time, and failing requests cause at most one
  lookup per topic in `refresh_interval_ms_min`.
- Name servers are tried in turn: the one that answered last first, the next where it fails.

Source: RocketMQ MQClientInstance (route poll 30 s, TBW102 as the default topic).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from client.connection.answers import error_of
from client.connection.leaders import GroupLeader
from client.connection.route_view import TopicRoute, decode_topic_route
from client.connection.send_codec import DEFAULT_TOPIC
from client.errors import (
    BrokerRefusedError,
    MalformedAnswerError,
    NameServerError,
    NoRouteError,
)
from client.namespace import NO_NAMESPACE, Namespace
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RouteSettings", "RouteTable"]

_TOPICS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """Settings of route polling. A lookup gives each name server at most `lookup_timeout_ms`."""

    poll_interval_ms: int = 30_000
    refresh_interval_ms_min: int = 100
    lookup_timeout_ms: int = 500

    def __post_init__(self) -> None:
        for name in ("poll_interval_ms", "refresh_interval_ms_min", "lookup_timeout_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


@dataclass(slots=True)
class _Lookup:
    """Lookup of one topic; it is in progress for as long as it has callers."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    caller_count: int = 0


class RouteTable:
    """Routes by topic and leaders by broker group.

    `on_leader(broker_name, address)` is called at each change of the node that a group's requests
    go to. `first` is the name server to start with (spread it over clients).
    """

    def __init__(
        self,
        rpc: RemotingClient,
        name_servers: Sequence[str],
        *,
        settings: RouteSettings,
        first: int = 0,
        on_leader: Callable[[str, str], None] | None = None,
        on_route: Callable[[TopicRoute], None] | None = None,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        if not name_servers:
            raise ValueError("a client needs at least one name server")
        self._rpc = rpc
        self._name_servers = tuple(name_servers)
        self._settings = settings
        self._current = first % len(self._name_servers)
        self._on_leader = on_leader
        self._on_route = on_route
        self._namespace = namespace
        self._routes: dict[str, TopicRoute] = {}
        self._leaders: dict[str, GroupLeader] = {}
        self._of_cluster: set[str] = set()  # groups that `learn_group` brought
        self._unnamed: set[str] = set()  # groups of no route at the last poll, not used since
        self._lookups: dict[str, _Lookup] = {}  # in progress
        self._looked_up: dict[str, float] = {}
        self._wanted: set[str] = set()
        self._wake = asyncio.Event()

    # Known routes and nodes.

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the last known route, without a lookup."""
        return self._routes.get(topic)

    def leader(self, broker_name: str) -> GroupLeader | None:
        """Return the leader of a group that is used; None where the group is not known."""
        self._unnamed.discard(broker_name)
        return self._leaders.get(broker_name)

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._name_servers

    def nodes(self) -> list[str]:
        """Return the table addresses of all nodes of all known groups: those of the routes, and
        leaders that another node has named and no route has yet."""
        return [
            address
            for leader in self._leaders.values()
            for address in dict.fromkeys((*leader.nodes, leader.address))
            if address is not None
        ]

    def broker_name_of(self, address: str) -> str | None:
        """Return the group that has a node at table address `address`; None where none has."""
        for leader in self._leaders.values():
            if address in leader.nodes or address == leader.address:
                return leader.broker_name
        return None

    # Reports of requests.

    def learn_group(self, broker_name: str, addresses: Mapping[int, str]) -> None:
        """Update a group's nodes as a name server reports the cluster: broker id -> table address.

        The group is not forgotten, whatever routes name.
        """
        self._of_cluster.add(broker_name)
        self._learn(broker_name, addresses)

    def confirm(self, broker_name: str, address: str) -> None:
        """Record that `address` answered as the group's leader."""
        self._report(broker_name, lambda leader: leader.confirm(address))

    def hint(self, broker_name: str, address: str) -> None:
        """Record that a node of the group named `address` as the leader."""
        self._report(broker_name, lambda leader: leader.hint(address))

    def fail(self, broker_name: str, address: str) -> None:
        """Record that `address` did not answer or does not lead; another node is tried next."""
        self._report(broker_name, lambda leader: leader.fail(address))

    def follow_route(self, broker_name: str) -> None:
        """Record that the group's nodes answer though they do not lead, as RocketMQ's do."""
        self._report(broker_name, lambda leader: leader.follow_route())

    def refuse(self, broker_name: str, address: str) -> None:
        """Record that `address` refused as busy; another is tried next unless it is the master."""
        self._report(broker_name, lambda leader: leader.refuse(address))

    def want_refresh(self, topic: str) -> None:
        """Schedule a background lookup of the topic; many calls cost one lookup."""
        self._wanted.add(topic)
        self._wake.set()

    # Lookups.

    async def route(self, topic: str, *, timeout_ms: float, or_default: bool = False) -> TopicRoute:
        """Return the topic's route, looked up where it is not known yet.

        With `or_default`, the default topic's route stands in for an unknown topic's. Raises
        NoRouteError and NameServerError.
        """
        known = self._routes.get(topic)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                try:
                    return await self.refresh(topic)
                except NoRouteError:
                    if not or_default:
                        raise
                    return (await self._default_route()).as_default_for(topic)
        except TimeoutError as error:
            raise NameServerError(
                f"no name server of {self._name_servers} told the route of {topic}"
                f" within {timeout_ms} ms"
            ) from error

    async def refresh(self, topic: str) -> TopicRoute:
        """Look the topic up now; concurrent calls share the lookup.

        Raises NoRouteError where the name servers don't know the topic (a route known before is
        kept), NameServerError where none of them answers.
        """
        if topic not in self._routes and len(self._routes) >= _TOPICS_MAX:
            raise NoRouteError(f"topic {topic}: {_TOPICS_MAX} topics are in use already")
        requested = asyncio.get_running_loop().time()
        lookup = self._lookups.setdefault(topic, _Lookup())
        lookup.caller_count += 1
        try:
            async with lookup.lock:
                known = self._routes.get(topic)
                # Another call's lookup ended while this one waited: share its result.
                if known is not None and self._looked_up.get(topic, -1.0) >= requested:
                    return known
                route = await self._look_up(topic)
                self._looked_up[topic] = asyncio.get_running_loop().time()
                self._install(route)
                return route
        finally:
            lookup.caller_count -= 1
            if not lookup.caller_count:
                del self._lookups[topic]

    async def run(self) -> None:
        """Poll the known topics, and look up those that `want_refresh` named, until cancelled."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        next_poll = loop.time() + settings.poll_interval_ms / 1000
        while True:
            is_poll = False
            try:
                async with asyncio.timeout_at(next_poll):
                    await self._wake.wait()
            except TimeoutError:
                is_poll = True
                self._wanted.update(self._routes)
                next_poll = loop.time() + settings.poll_interval_ms / 1000
            self._wake.clear()
            wanted, self._wanted = self._wanted, set()
            for topic in sorted(wanted):
                await self._refresh_quietly(topic)
            if is_poll:
                self._forget_gone_groups()
            await asyncio.sleep(settings.refresh_interval_ms_min / 1000)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except (NameServerError, NoRouteError):
            # The known route stays in use; a request that needs the route meets the error itself,
            # and the next failing request or poll looks it up again.
            return

    async def _default_route(self) -> TopicRoute:
        return self._routes.get(DEFAULT_TOPIC) or await self.refresh(DEFAULT_TOPIC)

    async def _look_up(self, topic: str) -> TopicRoute:
        failures: list[str] = []
        for _ in self._name_servers:
            address = self._next_name_server()
            try:
                route = await self._query(address, topic)
            except (RemotingError, NameServerError) as error:
                failures.append(f"{address}: {error}")
            else:
                self._stay_with(address)
                return route
        raise NameServerError(f"route of topic {topic}: " + "; ".join(failures))

    async def _query(self, address: str, topic: str) -> TopicRoute:
        answer = await self._rpc.request(
            address,
            RemotingCommand(
                code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
                ext_fields={
                    "topic": self._namespace.wrap(topic),
                    "acceptStandardJsonOnly": "true",
                },
            ),
            self._settings.lookup_timeout_ms,
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._stay_with(address)
            raise NoRouteError(f"name server {address} has no route of topic {topic}")
        if answer.code != ResponseCode.SUCCESS:
            raise NameServerError(str(error_of(answer.code, answer.remark, address)))
        try:
            return decode_topic_route(topic, answer.body)
        except MalformedAnswerError as error:  # No broker was involved, so no outcome is in doubt.
            raise NameServerError(f"name server {address}: {error}") from error

    def _next_name_server(self) -> str:
        # Moved on before the answer arrives, so that a lookup whose caller gives up on it also
        # leaves the unresponsive name server behind.
        address = self._name_servers[self._current]
        self._current = (self._current + 1) % len(self._name_servers)
        return address

    def _stay_with(self, address: str) -> None:
        self._current = self._name_servers.index(address)

    def _install(self, route: TopicRoute) -> None:
        self._routes[route.topic] = route
        for broker_name, addresses in route.groups.items():
            self._learn(broker_name, addresses)
        if self._on_route is not None:
            self._on_route(route)

    def _learn(self, broker_name: str, addresses: Mapping[int, str]) -> None:
        self._leaders.setdefault(broker_name, GroupLeader(broker_name))
        self._report(broker_name, lambda leader: leader.update(addresses))

    def _report(self, broker_name: str, report: Callable[[GroupLeader], None]) -> None:
        leader = self._leaders.get(broker_name)
        if leader is None:  # forgotten while the request was under way
            return
        self._unnamed.discard(broker_name)
        before = leader.address
        report(leader)
        if leader.address != before:
            self._leader_changed(leader)

    def _forget_gone_groups(self) -> None:
        named = {name for route in self._routes.values() for name in route.groups}
        unnamed = self._leaders.keys() - named - self._of_cluster
        for broker_name in unnamed & self._unnamed:
            del self._leaders[broker_name]
        self._unnamed = unnamed & self._leaders.keys()

    def _leader_changed(self, leader: GroupLeader) -> None:
        if self._on_leader is not None and leader.address is not None:
            self._on_leader(leader.broker_name, leader.address)

    async def name_server_request(self, make: Callable[[], RemotingCommand]) -> RemotingCommand:
        """Send a request to the name servers in turn until one answers with success.

        It must be one that any of them can answer, and that may be repeated. RocketMQ's client
        raises at the first refusal. Raises the first one's BrokerRefusedError where none answers
        with success, NameServerError where none answers at all.
        """
        failures: list[str] = []
        refusal: BrokerRefusedError | None = None
        for _ in self._name_servers:
            address = self._next_name_server()
            try:
                answer = await self._rpc.request(address, make(), self._settings.lookup_timeout_ms)
            except RemotingError as error:
                failures.append(f"{address}: {error}")
                continue
            if answer.code == ResponseCode.SUCCESS:
                self._stay_with(address)
                return answer
            refusal = refusal or error_of(answer.code, answer.remark, address)
        if refusal is not None:
            raise refusal
        raise NameServerError("no name server answers: " + "; ".join(failures))
