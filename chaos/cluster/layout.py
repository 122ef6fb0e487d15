"""The layout of a cluster: names, addresses, files and configurations, from a few numbers.

Place in the data path: `chaos.cluster.cluster` (a person's local cluster) and
`chaos.systems.ledgermq` (the laboratory) both lay their clusters out with it, so that
`ledgermq cluster status` works on a run directory of the laboratory while it runs. It touches no
file and binds no port.

Invariants: node names are unique within their group, process names over the whole cluster, ports
over the whole cluster; every voter of a group stands in the `[peers]` of every node of it.

Source: the command line of the architecture; RocketMQ's names (DefaultCluster, broker-a, n0).
"""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.cluster.engines import ENGINES, MASTER_SLAVE_ENGINES, engine_and_flush
from raft.profiles import PROFILES

__all__ = [
    "CLUSTER_NAME",
    "BrokerPlace",
    "ClusterLayout",
    "LayoutError",
    "NameServerPlace",
    "PortPlan",
    "broker_config_toml",
    "fixed_ports",
    "lay_out",
    "layout_from_json",
    "layout_to_json",
    "name_server_config_toml",
    "with_spares",
]

CLUSTER_NAME = "DefaultCluster"
GROUPS_MAX = len(string.ascii_lowercase)
REPLICAS_MAX = 7
NAME_SERVERS_MAX = 9
BROKER_PORT_STEP = 10  # broker k listens at base + 10 k
RAFT_PORT_OFFSET = 5  # and its Raft at 5 above that
HOST = "127.0.0.1"
# The disk of a cluster laid out here has other users too: the share that is used says nothing about
# the cluster, and what is tested must not depend on it. Only the floor in bytes counts.
_SHARED_DISK: dict[str, int | bool | str] = {
    "disk_max_used_space_ratio": 101,
    "disk_space_clean_forcibly_ratio": 101,
    "disk_space_warning_level_ratio": 101,
}


# Settings of how a port is reached: clients go to name servers and brokers alike.
_OF_BOTH = frozenset(
    {"tls_mode", "tls_cert_file", "tls_key_file", "tls_ca_file", "tls_client_auth"}
)


class LayoutError(ValueError):
    """The numbers given make no cluster; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """One port per name server; per broker its remoting port and its Raft port."""

    name_servers: tuple[int, ...]
    brokers: tuple[tuple[int, int], ...]

    @property
    def all_ports(self) -> tuple[int, ...]:
        return self.name_servers + tuple(port for pair in self.brokers for port in pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerPlace:
    """A name server. `name` is that of its process, pid file and output file."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """A broker node: `group` is RocketMQ's brokerName, `node` the voter's name in the group."""

    group: str
    node: str
    address: str
    raft_address: str

    @property
    def name(self) -> str:
        """Name of the process: unique in the cluster, fit for a file name."""
        return f"{self.group}-{self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    cluster: str = CLUSTER_NAME
    engine: str = "raft"
    name_servers: tuple[NameServerPlace, ...] = ()
    brokers: tuple[BrokerPlace, ...] = ()
    raft_settings: Mapping[str, int | str] = field(default_factory=dict)
    broker_settings: Mapping[str, int | bool | str] = field(default_factory=dict)
    listen_host: str = ""  # that processes listen on, where it is not that of their address
    members_changed: bool = False  # since it was laid out: the numbers no longer give its members
    spares: tuple[BrokerPlace, ...] = ()  # places without a node, for members that are added
    # By group, the node that was made its master by hand; others have their first node by name.
    masters: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, tuple[BrokerPlace, ...]]:
        """Voters by group, in order."""
        names = dict.fromkeys(place.group for place in self.brokers)
        return {name: tuple(p for p in self.brokers if p.group == name) for name in names}

    @property
    def has_masters(self) -> bool:
        """Whether each group has a configured master, and elects nobody."""
        return self.engine in MASTER_SLAVE_ENGINES

    @property
    def flush(self) -> str | None:
        """The setting `flush` of an engine that has it."""
        return str(self.broker_settings.get("flush", "async")) if self.has_masters else None

    def master_of(self, group: str) -> BrokerPlace:
        """Return the configured master of a group, where groups have one."""
        places = {place.node: place for place in self.groups[group]}
        return places[self.masters.get(group) or min(places)]

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        return tuple(place.address for place in self.name_servers)

    def broker(self, name: str) -> BrokerPlace:
        """Return the broker, or the spare place. Raises KeyError where none has that name."""
        for place in (*self.brokers, *self.spares):
            if place.name == name:
                return place
        raise KeyError(name)

    def store_directory(self, root: Path, place: BrokerPlace) -> Path:
        return root / "nodes" / place.group / place.node


def fixed_ports(
    *, groups: int, replicas: int, name_servers: int, name_server_port: int, base_port: int
) -> PortPlan:
    """Return the ports that follow from the two given ones. Raises LayoutError above 65535."""
    plan = PortPlan(
        name_servers=tuple(name_server_port + i for i in range(name_servers)),
        brokers=tuple(
            (base_port + BROKER_PORT_STEP * k, base_port + BROKER_PORT_STEP * k + RAFT_PORT_OFFSET)
            for k in range(groups * replicas)
        ),
    )
    ports = plan.all_ports
    bad = [port for port in ports if not 0 < port < 65536]
    if bad:
        raise LayoutError(f"port {bad[0]} is outside 1..65535")
    twice = sorted({port for port in ports if ports.count(port) > 1})
    if twice:
        raise LayoutError(f"port {twice[0]} would be used twice: choose ports further apart")
    return plan


def lay_out(
    *,
    groups: int,
    replicas: int,
    name_servers: int,
    ports: PortPlan,
    engine: str = "raft",
    raft_settings: Mapping[str, int | str] | None = None,
    broker_settings: Mapping[str, int | bool | str] | None = None,
) -> ClusterLayout:
    """Lay a cluster out. `engine`: a name of `chaos.cluster.engines`.

    Raises LayoutError where a number is out of its range or the engine is unknown.
    """
    _check_range("groups", groups, GROUPS_MAX)
    _check_range("replicas", replicas, REPLICAS_MAX)
    _check_range("name servers", name_servers, NAME_SERVERS_MAX)
    if engine not in ENGINES:
        raise LayoutError(f"unknown engine {engine!r}: known are {', '.join(ENGINES)}")
    replicates, flush = engine_and_flush(engine)
    settings = {**_SHARED_DISK, **(broker_settings or {})}
    if flush is None and "flush" in settings:
        raise LayoutError(f"flush is a setting of {' and '.join(MASTER_SLAVE_ENGINES)} alone")
    if flush is not None:
        given = settings.setdefault("flush", flush)
        if engine != replicates and given != flush:
            raise LayoutError(f"the engine {engine} flushes {flush}, not {given}")
    profile = (raft_settings or {}).get("profile", "lan")
    if profile not in PROFILES:
        raise LayoutError(f"unknown profile {profile!r}: known are {', '.join(PROFILES)}")
    assert len(ports.name_servers) == name_servers
    assert len(ports.brokers) == groups * replicas
    return ClusterLayout(
        engine=replicates,
        name_servers=tuple(
            NameServerPlace(name=f"namesrv-{i}", address=f"{HOST}:{port}")
            for i, port in enumerate(ports.name_servers)
        ),
        brokers=tuple(
            BrokerPlace(
                group=f"broker-{string.ascii_lowercase[k // replicas]}",
                node=f"n{k % replicas}",
                address=f"{HOST}:{remoting}",
                raft_address=f"{HOST}:{raft}",
            )
            for k, (remoting, raft) in enumerate(ports.brokers)
        ),
        raft_settings=dict(raft_settings or {}),
        broker_settings=settings,
    )


def with_spares(layout: ClusterLayout, ports: Sequence[tuple[int, int]]) -> ClusterLayout:
    """Return the layout with spare places, dealt to the groups in turn; `ports` as in PortPlan."""
    groups = list(layout.groups)
    counts = {group: len(places) for group, places in layout.groups.items()}
    spares = []
    for number, (remoting, raft) in enumerate(ports):
        group = groups[number % len(groups)]
        spares.append(
            BrokerPlace(
                group=group,
                node=f"n{counts[group]}",
                address=f"{HOST}:{remoting}",
                raft_address=f"{HOST}:{raft}",
            )
        )
        counts[group] += 1
    return dataclasses.replace(layout, spares=tuple(spares))


def broker_config_toml(
    layout: ClusterLayout,
    place: BrokerPlace,
    *,
    store: Path,
    secret_file: Path,
    dial: Mapping[str, str],
    trace: bool = True,
) -> str:
    """Return the configuration file of one broker, as `broker.config.config` reads it."""
    voters = layout.groups[place.group]
    lines = [
        f"group = {_toml(place.group)}",
        f"node = {_toml(place.node)}",
        f"cluster = {_toml(layout.cluster)}",
        f"listen = {_toml(_listen(layout, place.address))}",
        f"advertised = {_toml(place.address)}",
        f"raft_listen = {_toml(place.raft_address)}",
        f"store = {_toml(str(store))}",
        f"name_servers = {_toml(layout.name_server_addresses)}",
        f"secret_file = {_toml(str(secret_file))}",
        f"trace = {_toml(trace)}",
        f"engine = {_toml(layout.engine)}",
    ]
    peers = {voter.node: voter.raft_address for voter in voters}
    settings = dict(layout.broker_settings)
    if place.group in layout.masters:
        settings["master"] = layout.masters[place.group]
    tables: list[tuple[str, Mapping[str, str | int | bool]]] = [
        ("peers", peers),
        ("brokers", {voter.node: voter.address for voter in voters}),
        ("dial", dial),
        ("raft", layout.raft_settings),
        ("broker", settings),
    ]
    for name, table in tables:
        if table:
            lines += ["", f"[{name}]"]
            lines += [f"{_toml(key)} = {_toml(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def name_server_config_toml(
    layout: ClusterLayout, place: NameServerPlace, *, kv_config: Path
) -> str:
    """Return the configuration file of one name server, with the brokers' TLS settings."""
    values: dict[str, str | int | bool] = {
        "listen": _listen(layout, place.address),
        "kv_config_path": str(kv_config),
        **{key: layout.broker_settings[key] for key in _OF_BOTH & layout.broker_settings.keys()},
    }
    return "".join(f"{key} = {_toml(value)}\n" for key, value in sorted(values.items()))


def layout_to_json(layout: ClusterLayout) -> str:
    """Return the text of `cluster.json`, from which `status` and `down` find what `up` started."""
    return json.dumps(
        {
            "format": 1,
            "cluster": layout.cluster,
            "engine": layout.engine,
            "name_servers": [
                {"name": place.name, "address": place.address} for place in layout.name_servers
            ],
            "brokers": [
                {
                    "group": place.group,
                    "node": place.node,
                    "address": place.address,
                    "raft_address": place.raft_address,
                }
                for place in layout.brokers
            ],
            "raft": dict(layout.raft_settings),
            "broker": dict(layout.broker_settings),
            "listen_host": layout.listen_host,
            "members_changed": layout.members_changed,
            "masters": dict(layout.masters),
            "spares": [
                {
                    "group": place.group,
                    "node": place.node,
                    "address": place.address,
                    "raft_address": place.raft_address,
                }
                for place in layout.spares
            ],
        },
        indent=2,
    )


def layout_from_json(text: str) -> ClusterLayout:
    """Read a layout. Raises LayoutError where the text is not what `layout_to_json` wrote."""
    try:
        data = json.loads(text)
        if data["format"] != 1:
            raise LayoutError(f"cluster.json has format {data['format']!r}, expected 1")
        return ClusterLayout(
            cluster=data["cluster"],
            engine=data["engine"],
            name_servers=tuple(
                NameServerPlace(name=item["name"], address=item["address"])
                for item in data["name_servers"]
            ),
            brokers=tuple(
                BrokerPlace(
                    group=item["group"],
                    node=item["node"],
                    address=item["address"],
                    raft_address=item["raft_address"],
                )
                for item in data["brokers"]
            ),
            raft_settings=data["raft"],
            broker_settings=data["broker"],
            listen_host=data.get("listen_host", ""),
            members_changed=data.get("members_changed", False),
            masters=data.get("masters", {}),
            spares=tuple(
                BrokerPlace(
                    group=item["group"],
                    node=item["node"],
                    address=item["address"],
                    raft_address=item["raft_address"],
                )
                for item in data.get("spares", [])
            ),
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise LayoutError(f"cluster.json is not readable: {error!r}") from error


def _check_range(what: str, value: int, value_max: int) -> None:
    if not 1 <= value <= value_max:
        raise LayoutError(f"{what} must be 1..{value_max}, not {value}")


def _listen(layout: ClusterLayout, address: str) -> str:
    """Return what the process of that address listens on."""
    if not layout.listen_host:
        return address
    return f"{layout.listen_host}:{address.rpartition(':')[2]}"


def _toml(value: str | int | bool | Sequence[str]) -> str:
    """Return one TOML value; JSON's text is TOML's for these types, non-ASCII left as it is."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
