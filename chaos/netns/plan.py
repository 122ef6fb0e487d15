"""The plan of a run's network: who has which address, and what the packets of a link look like.

Place in the data path: `chaos.netns.network` makes what is planned here, `chaos.links.netns` turns
links into flows. Pure.

    10.88.0.N/24       process N, in a namespace of its own
    10.88.0.254/24     the laboratory's own requests, in the namespace `laboratory`
    10.88.S.254/24     client slot S, in the same namespace
    10.88.S.N/24       process N as slot S dials it

All are on one switch. The laboratory is one process with the clients of all slots: what a client
dials decides which slot its packets come from, since the kernel takes the source address from the
network of the address that is dialled.

Invariants: packets of different links differ in their addresses; no link has the address of the
laboratory's own requests, which no rule can name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.netns.rules import Flow

__all__ = [
    "DELAY_DEVICE",
    "INSIDE",
    "LABORATORY_PORT",
    "NetworkPlan",
    "PlanError",
    "at_namespace_addresses",
]

INSIDE: Final = "eth0"  # a namespace's end of its veth pair
SWITCH: Final = "switch"
LABORATORY_PORT: Final = "laboratory"
DELAY_DEVICE: Final = "delay"
PLACES_MAX: Final = 253
SLOTS_MAX: Final = 255
_LABORATORY: Final = 254
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - of a namespace that nobody else reaches


class PlanError(ValueError):
    """The places have no room in the plan, or one is unknown; the text says which."""


def at_namespace_addresses(layout: ClusterLayout) -> ClusterLayout:
    """Return the layout with an address of its own for every process, as `NetworkPlan` has them.

    Processes listen on all their addresses: each slot dials another one.
    """
    numbers = {name: number for number, name in enumerate(_names(layout), start=1)}
    return dataclasses.replace(
        layout,
        listen_host=_EVERY_ADDRESS,
        name_servers=tuple(
            dataclasses.replace(server, address=f"{_address(0, numbers[server.name])}:9876")
            for server in layout.name_servers
        ),
        brokers=tuple(_moved(place, numbers[place.name]) for place in layout.brokers),
        spares=tuple(_moved(place, numbers[place.name]) for place in layout.spares),
    )


class NetworkPlan:
    """The network of one cluster. `places`: its processes, in the order of their addresses."""

    def __init__(self, places: Sequence[str], slots: Sequence[str]) -> None:
        """Plan it. Raises PlanError."""
        if len(places) > PLACES_MAX or len(slots) > SLOTS_MAX:
            raise PlanError(
                f"{len(places)} processes and {len(slots)} client slots: there is room for"
                f" {PLACES_MAX} and {SLOTS_MAX}"
            )
        self.places: Final = tuple(places)
        self._places: Final = {name: number for number, name in enumerate(places, start=1)}
        self._slots: Final = {name: number for number, name in enumerate(slots, start=1)}

    @classmethod
    def of(cls, layout: ClusterLayout, slots: Sequence[str]) -> NetworkPlan:
        """Plan the network of a laid-out cluster and its client slots. Raises PlanError."""
        return cls(_names(layout), slots)

    @property
    def ports(self) -> list[str]:
        """Return the switch's ports, the laboratory's last."""
        return [*(self.port(name) for name in self.places), LABORATORY_PORT]

    def port(self, name: str) -> str:
        """Return the switch port of a process or a slot."""
        return LABORATORY_PORT if name in self._slots else f"port{self._place(name)}"

    def dialled(self, dialer: str, address: str) -> str:
        """Return what `dialer` dials for the address, host:port, that a process listens on."""
        host, _, port = address.rpartition(":")
        return f"{_address(self._slots.get(dialer, 0), int(host.rpartition('.')[2]))}:{port}"

    def flow(self, who: str, whom: str) -> Flow:
        """Return the packets that `who` sends to `whom`. Raises PlanError."""
        if who in self._slots:
            if whom in self._slots:
                raise PlanError(f"{who} and {whom} are client slots: there is no link between them")
            net = self._slots[who]
            ends = _address(net, _LABORATORY), _address(net, self._place(whom))
        else:
            net = self._slots.get(whom, 0)
            target = _LABORATORY if net else self._place(whom)
            ends = _address(net, self._place(who)), _address(net, target)
        return Flow(port=self.port(who), source=ends[0], target=ends[1])

    def switch_commands(self, paths: Sequence[str]) -> list[str]:
        """Return the ip(8) commands that make the switch; `paths`: of the ports' namespaces."""
        lines = ["link set lo up", f"link add {SWITCH} type bridge", f"link set {SWITCH} up"]
        for port, path in zip(self.ports, paths, strict=True):
            lines += [
                f"link add {port} type veth peer name {INSIDE} netns {path}",
                f"link set {port} master {SWITCH} up",
            ]
        return lines

    def delay_commands(self) -> list[str]:
        """Return the ip(8) commands for the delay line's device.

        What comes out of it is forwarded like all else. Nothing goes into it but what a rule hands
        to it: the switch neither learns an address there nor floods it.
        """
        return [
            f"link set {DELAY_DEVICE} master {SWITCH} up",
            f"link set {DELAY_DEVICE} type bridge_slave learning off flood off mcast_flood off"
            " bcast_flood off",
        ]

    def place_commands(self, name: str) -> list[str]:
        """Return the ip(8) commands for the namespace of a process."""
        return _inside(self._place(name), len(self._slots))

    def laboratory_commands(self) -> list[str]:
        return _inside(_LABORATORY, len(self._slots))

    def _place(self, name: str) -> int:
        try:
            return self._places[name]
        except KeyError as error:
            raise PlanError(f"{name} is no place of this network") from error


def _names(layout: ClusterLayout) -> list[str]:
    brokers = [place.name for place in (*layout.brokers, *layout.spares)]
    return [*brokers, *(server.name for server in layout.name_servers)]


def _moved(place: BrokerPlace, number: int) -> BrokerPlace:
    host = _address(0, number)
    return dataclasses.replace(place, address=f"{host}:10911", raft_address=f"{host}:10915")


def _address(net: int, host: int) -> str:
    return f"10.88.{net}.{host}"


def _inside(host: int, slots: int) -> list[str]:
    nets = range(slots + 1)
    return [
        "link set lo up",
        f"link set {INSIDE} up",
        *(f"addr add {_address(net, host)}/24 dev {INSIDE}" for net in nets),
    ]
