"""The layout of a RocketMQ cluster: the ways in which it replicates, its names and its ports.

Place in the data path: beside `chaos.cluster.layout`, whose values it makes. `chaos.links` reads
from it who dials whom, `chaos.systems.rocketmq` writes configurations from it.

| mode | replicas | who becomes master | an answer comes |
|---|---|---|---|
| dledger | 3 or more | whom DLedger, a Raft, elects | when a majority has it |
| sync-master | 2 or more: a master, slaves | the master, always | when a slave has it too |
| async-master | 2 or more: a master, slaves | the master, always | when the master has it |
| controller | 2 or more | whom controllers choose of those in sync | when the master has it |
| controller-all | 2 or more | the same | when all that are in sync have it |

With `-flush` behind the name (sync-master-flush) a broker answers once it has it on its disk
(SYNC_FLUSH); without it writes to the disk later (ASYNC_FLUSH). DLedger knows no such choice.

Ports: a broker listens at two below its own too (its "fast" port), and for its slaves one above; a
controller one above the name server that it is in. A place's `raft_address` is where its replicas
dial it: DLedger's, or the HA port.

Pure: names and numbers; ports are drawn by the caller.

Source: RocketMQ's BrokerController, BrokerStartup, ControllerConfig.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from chaos.cluster.layout import BrokerPlace, ClusterLayout, LayoutError, NameServerPlace

__all__ = [
    "HA_PORT_OFFSET",
    "MODES",
    "Mode",
    "controller_address",
    "lay_out_rocketmq",
    "mode_of",
    "ports_beside",
    "with_ha_ports",
]

HOST: Final = "127.0.0.1"
HA_PORT_OFFSET: Final = 1
_FAST_PORT_OFFSET: Final = -2
_CONTROLLER_PORT_OFFSET: Final = 1
_REPLICAS_MAX: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to replicate. `role`: the master's, where one is configured."""

    name: str
    replicas_min: int
    is_dledger: bool = False
    has_controllers: bool = False
    all_in_sync: bool = False
    role: str = "ASYNC_MASTER"
    sync_flush: bool = False


def _modes() -> dict[str, Mode]:
    found = [Mode(name="dledger", replicas_min=3, is_dledger=True)]
    for flush in (False, True):
        end = "-flush" if flush else ""
        for name in ("sync-master", "async-master"):
            role = name.upper().replace("-", "_")
            found.append(Mode(name=name + end, replicas_min=2, role=role, sync_flush=flush))
        found += [
            Mode(
                name=name + end,
                replicas_min=2,
                has_controllers=True,
                all_in_sync=name == "controller-all",
                sync_flush=flush,
            )
            for name in ("controller", "controller-all")
        ]
    return {mode.name: mode for mode in found}


MODES: Final[Mapping[str, Mode]] = _modes()


def mode_of(engine: str) -> Mode | None:
    """Return the mode of an engine's name; None: it is no mode of RocketMQ."""
    return MODES.get(engine)


def lay_out_rocketmq(
    *,
    groups: int,
    replicas: int,
    name_servers: int,
    engine: str,
    ports: Iterable[int],
    broker_settings: Mapping[str, int | bool | str],
) -> ClusterLayout:
    """Lay a cluster out on `ports`, of which each is free, and those beside it.

    Raises LayoutError where a number is out of its range or the engine is no mode.
    """
    mode = mode_of(engine)
    if mode is None:
        raise LayoutError(f"unknown engine {engine!r} of RocketMQ: known are {', '.join(MODES)}")
    if not 1 <= groups <= len(string.ascii_lowercase):
        raise LayoutError(f"groups must be 1..{len(string.ascii_lowercase)}, not {groups}")
    if not mode.replicas_min <= replicas <= _REPLICAS_MAX:
        raise LayoutError(
            f"replicas must be {mode.replicas_min}..{_REPLICAS_MAX} in RocketMQ's mode"
            f" {mode.name}, not {replicas}"
        )
    free = iter(ports)
    servers = tuple(
        NameServerPlace(name=f"namesrv-{number}", address=f"{HOST}:{next(free)}")
        for number in range(name_servers)
    )
    brokers = []
    for number in range(groups * replicas):
        port = next(free)
        replication = next(free) if mode.is_dledger else port + HA_PORT_OFFSET
        brokers.append(
            BrokerPlace(
                group=f"broker-{string.ascii_lowercase[number // replicas]}",
                node=f"n{number % replicas}",
                address=f"{HOST}:{port}",
                raft_address=f"{HOST}:{replication}",
            )
        )
    return ClusterLayout(
        engine=engine,
        name_servers=servers,
        brokers=tuple(brokers),
        broker_settings=dict(broker_settings),
    )


def with_ha_ports(layout: ClusterLayout) -> ClusterLayout:
    """Return a layout whose places were moved with replication where RocketMQ listens for it."""
    mode = mode_of(layout.engine)
    if mode is None or mode.is_dledger:
        return layout
    return dataclasses.replace(
        layout, brokers=tuple(_with_ha_port(place) for place in layout.brokers)
    )


def _with_ha_port(place: BrokerPlace) -> BrokerPlace:
    host, _, port = place.address.rpartition(":")
    return dataclasses.replace(place, raft_address=f"{host}:{int(port) + HA_PORT_OFFSET}")


def ports_beside(port: int) -> tuple[int, ...]:
    """Return the ports that must be free beside one that is handed to `lay_out_rocketmq`."""
    return (port + _FAST_PORT_OFFSET, port + HA_PORT_OFFSET)


def controller_address(place: NameServerPlace) -> str:
    """Return the address of the controller in that name server."""
    host, _, port = place.address.rpartition(":")
    return f"{host}:{int(port) + _CONTROLLER_PORT_OFFSET}"
