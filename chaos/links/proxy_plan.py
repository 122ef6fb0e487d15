"""The proxies that carry each link: the pure part of links through proxies.

Place in the data path: `chaos.links.proxies` makes one Toxiproxy proxy per row of this table, hands
each dialer its table address -> proxy map, and turns cuts and delays into toxics on streams.

Invariants: one proxy per (dialer, target, protocol), used by that dialer alone; no route names a
proxy, since every process registers and publishes its own address and dials through its own map.
The bytes of the link (who, whom) are the upstream of the proxies that `who` dials `whom` through
and the downstream of those that `whom` dials `who` through, and nothing else.

Source: docs/DESIGN.md section 7 (links).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.rocketmq_layout import Mode, controller_address, mode_of
from chaos.links.base import Link

__all__ = ["LinkProxy", "Protocol", "Stream", "in_use", "plan_proxies", "streams_of"]


class Protocol(enum.Enum):
    """The protocol spoken over a proxy, which decides how it is probed."""

    RAFT = "raft"
    PYSYNCOBJ = "pysyncobj"
    BROKER = "broker"
    NAME_SERVER = "name_server"
    DLEDGER = "dledger"
    ROCKETMQ_HA = "rocketmq_ha"


class Stream(enum.Enum):
    """A direction of a connection, in Toxiproxy's words."""

    UPSTREAM = "upstream"  # from the dialer to its target
    DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProxy:
    """One proxy. `address` is the table address of the target, to which the proxy forwards."""

    name: str
    dialer: str
    target: str
    protocol: Protocol
    address: str


def plan_proxies(
    layout: ClusterLayout, client_slots: Sequence[str], *, direct: bool = False
) -> list[LinkProxy]:
    """Return every proxy of a cluster: between brokers, to name servers, from clients to all.

    `direct`: nothing stands in between, so that what no configuration leads through a proxy, such
    as the links of RocketMQ's replicas in Controller mode, is there too.
    """
    places = (*layout.brokers, *layout.spares)
    mode = mode_of(layout.engine)
    if mode is None:
        replication = _between_peers(places, _protocol_of(layout))
    else:
        replication = _of_rocketmq(layout, mode)
        if direct:
            replication += _between_brokers(layout.brokers)
    dialers = [*(place.name for place in places), *client_slots]
    name_servers = [
        _proxy(dialer, server.name, Protocol.NAME_SERVER, server.address)
        for dialer in dialers
        for server in layout.name_servers
    ]
    brokers = [
        _proxy(slot, place.name, Protocol.BROKER, place.address)
        for slot in client_slots
        for place in places
    ]
    return replication + name_servers + brokers


def in_use(proxies: Iterable[LinkProxy], layout: ClusterLayout) -> list[LinkProxy]:
    """Return the proxies through which somebody may be reached now.

    Where masters are configured, only they are dialled by other replicas; any node may be made one.
    """
    if not layout.has_masters:
        return list(proxies)
    masters = {layout.master_of(group).name for group in layout.groups}
    return [p for p in proxies if p.protocol is not Protocol.ROCKETMQ_HA or p.target in masters]


def _protocol_of(layout: ClusterLayout) -> Protocol:
    if layout.has_masters:
        return Protocol.ROCKETMQ_HA
    return Protocol.PYSYNCOBJ if layout.engine == "pysyncobj" else Protocol.RAFT


def _between_peers(places: Sequence[BrokerPlace], protocol: Protocol) -> list[LinkProxy]:
    return [
        _proxy(place.name, peer.name, protocol, peer.raft_address)
        for place in places
        for peer in places
        if peer.group == place.group and peer.node != place.node
    ]


def _between_brokers(places: Sequence[BrokerPlace]) -> list[LinkProxy]:
    """Return who copies topics and offsets from whom: of a group everybody from everybody else."""
    return [
        _proxy(place.name, peer.name, Protocol.BROKER, peer.address)
        for place in places
        for peer in places
        if peer.group == place.group and peer.node != place.node
    ]


def _of_rocketmq(layout: ClusterLayout, mode: Mode) -> list[LinkProxy]:
    """Return the proxies of replication and of controllers.

    In Controller mode replicas dial the address that the master has registered, which nothing in
    their configuration changes: no proxy carries that.
    """
    if mode.is_dledger:
        return _between_peers(layout.brokers, Protocol.DLEDGER)
    if mode.has_controllers:
        dialers = [server.name for server in layout.name_servers]
        dialers += [place.name for place in layout.brokers]
        return [
            _proxy(dialer, server.name, Protocol.DLEDGER, controller_address(server))
            for dialer in dialers
            for server in layout.name_servers
            if dialer != server.name
        ]
    masters: dict[str, BrokerPlace] = {group: found[0] for group, found in layout.groups.items()}
    return [
        _proxy(place.name, master.name, Protocol.ROCKETMQ_HA, master.raft_address)
        for place in layout.brokers
        if (master := masters[place.group]) != place
    ]


def streams_of(
    links: Iterable[Link], proxies: Iterable[LinkProxy]
) -> list[tuple[LinkProxy, Stream]]:
    """Return the streams that carry the bytes of these links, each once."""
    by_pair: dict[tuple[str, str], list[LinkProxy]] = {}
    for proxy in proxies:
        by_pair.setdefault((proxy.dialer, proxy.target), []).append(proxy)
    streams: dict[tuple[str, Stream], tuple[LinkProxy, Stream]] = {}
    for link in links:
        for proxy in by_pair.get((link.who, link.whom), []):
            streams[proxy.name, Stream.UPSTREAM] = (proxy, Stream.UPSTREAM)
        for proxy in by_pair.get((link.whom, link.who), []):
            streams[proxy.name, Stream.DOWNSTREAM] = (proxy, Stream.DOWNSTREAM)
    return list(streams.values())


def _proxy(dialer: str, target: str, protocol: Protocol, address: str) -> LinkProxy:
    return LinkProxy(
        name=f"{dialer}.{target}.{protocol.value}",
        dialer=dialer,
        target=target,
        protocol=protocol,
        address=address,
    )
