"""The network of one run: a namespace for each process, one for the laboratory, one for the switch.

Place in the data path: `chaos.links.netns` makes it before any process starts and changes its rules
for each fault; processes are started by `argv`, inside their namespace.

Invariants: nothing of it is connected with the host's network; the thread that called `enter` is
the laboratory's, whose sockets from then on are in the laboratory's namespace; everything ends with
this process, or with `close`.

Source: docs/DESIGN.md section 7 (worlds).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.netns.delay_line import DelayLine, open_tap
from chaos.netns.departures import Delay
from chaos.netns.namespaces import Namespace
from chaos.netns.nf_tables import NETLINK_NETFILTER, installed, replaced, send
from chaos.netns.plan import DELAY_DEVICE, NetworkPlan
from chaos.netns.rules import Action, Flow, PacketRule

__all__ = ["Network"]


class Network:
    """The network namespaces of one run, from `make` to `close`. For one thread alone."""

    def __init__(self, plan: NetworkPlan, *, delays: bool, rng: random.Random) -> None:
        """`delays`: with a delay line, which takes a TAP device."""
        self.plan: Final = plan
        self._delays = delays
        self._rng = rng
        self._places: dict[str, Namespace] = {}
        self._laboratory: Namespace | None = None
        self._switch: Namespace | None = None
        self._filter: socket.socket | None = None
        self._line: DelayLine | None = None
        self._line_index = 0

    def make(self) -> None:
        """Create namespaces, links, the packet filter and, with `delays`, the delay line.

        Raises NamespaceError, PacketFilterError or OSError, with some of it made: then `close` it.
        """
        plan = self.plan
        for name in plan.places:
            self._places[name] = Namespace()
        laboratory = self._laboratory = Namespace()
        switch = self._switch = Namespace()
        inside = [*self._places.values(), laboratory]
        switch.ip(plan.switch_commands([each.path for each in inside]))
        for name, namespace in self._places.items():
            namespace.ip(plan.place_commands(name))
        laboratory.ip(plan.laboratory_commands())
        self._filter = switch.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        send(self._filter, installed(plan.ports))
        if self._delays:
            self._line = DelayLine(switch.call(lambda: open_tap(DELAY_DEVICE)), self._rng)
            switch.ip(plan.delay_commands())
            self._line_index = switch.call(lambda: socket.if_nametoindex(DELAY_DEVICE))

    def enter(self) -> None:
        """Let the calling thread be the laboratory's, with its running loop."""
        assert self._laboratory is not None, "it is made"
        self._laboratory.enter()
        if self._line is not None:
            self._line.start()

    def close(self) -> None:
        """Bring the thread back to the host's network, and close every namespace and socket.

        End the processes in them first. Safe to call twice, and after a `make` that failed.
        """
        if self._line is not None:
            self._line.close()
        if self._filter is not None:
            self._filter.close()
        if self._laboratory is not None:
            self._laboratory.leave()
        for namespace in (*self._places.values(), self._laboratory, self._switch):
            if namespace is not None:
                namespace.close()
        self._places.clear()
        self._laboratory = self._switch = self._filter = self._line = None

    def apply(self, rules: Sequence[PacketRule], delays: Mapping[Flow, Delay]) -> None:
        """Put these rules and delays in place of all others, at once.

        Raises PacketFilterError, OSError.
        """
        assert self._filter is not None, "it is made"
        assert self._line is not None or not delays, "there is a delay line"
        if self._line is not None:  # first: a frame without a delay goes on at once
            ends = {(flow.source, flow.target): delay for flow, delay in delays.items()}
            self._line.departures.set(ends)
        delayed = [PacketRule(flow=flow, action=Action.DELAY) for flow in delays]
        send(self._filter, replaced([*rules, *delayed], delay_index=self._line_index))

    def argv(self, name: str, argv: list[str]) -> list[str]:
        """Return the command line that becomes `argv` in the namespace of that process."""
        return self._places[name].argv(argv)

    def tcp_socket(self, dialer: str) -> socket.socket:
        """Return a socket that dials as `dialer`, a process or a slot.

        Raises NamespaceError, OSError.
        """
        return self._namespace(dialer).socket(socket.AF_INET, socket.SOCK_STREAM)

    def icmp_socket(self, dialer: str) -> socket.socket:
        """Return a raw socket for ICMP, as `tcp_socket`."""
        return self._namespace(dialer).socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)

    def _namespace(self, dialer: str) -> Namespace:
        namespace = self._places.get(dialer, self._laboratory)
        assert namespace is not None, "it is made"
        return namespace
