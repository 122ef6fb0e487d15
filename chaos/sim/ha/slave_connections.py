"""What connections of slaves a master really has: those of the network, not those that it counts.

Place in the data path: `ha_machine` polls it when its broker proposes, and again when that is
answered; `log_book` judges by it whether slaves were available.

The network knows both ends of a connection. A slave surely counts where both are open and it says
itself that it follows; it may count as long as the master's end is open, however dead the other one
is, and a moment longer: the process hears of the loss in a later turn of its loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.sim.machine.current_process import ProcessLoop
from chaos.sim.machine.tcp import SimTcp
from chaos.sim.machine.tcp_transport import SimTransport
from raft.messages import NodeId

__all__ = ["Connected", "SlaveConnections"]

_HEARD_WITHIN_US: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The slaves of a master at one moment. `possible_count`: at most so many count as available;
    `sure`: the master's ends of the connections of those that have to."""

    possible_count: int
    sure: tuple[SimTransport, ...]


class SlaveConnections:
    """Connections of slaves to whoever listens on `port`. `follows` tells whether a node says that
    it follows its master; `now_us`: true time."""

    def __init__(
        self,
        tcp: SimTcp,
        port: int,
        *,
        follows: Callable[[NodeId], bool],
        now_us: Callable[[], int],
    ) -> None:
        self._tcp = tcp
        self._port = port
        self._follows = follows
        self._now_us = now_us
        self._loop: ProcessLoop | None = None  # of the process that the rest is about
        self._missed_us: dict[str, int | None] = {}  # by slave; None: it is connected

    def poll(self, loop: ProcessLoop) -> Connected:
        """Return what the process of `loop` has at this moment."""
        now_us = self._now_us()
        ends = self._tcp.accepted(loop, self._port)
        if loop is not self._loop:
            self._loop, self._missed_us = loop, {}
        for slave, missed_us in self._missed_us.items():
            if missed_us is None:
                self._missed_us[slave] = now_us  # or at any time since the last poll
        self._missed_us.update((end.peer_host, None) for end in ends)
        possible = [
            slave
            for slave, missed_us in self._missed_us.items()
            if missed_us is None or now_us - missed_us < _HEARD_WITHIN_US
        ]
        sure = tuple(end for end in ends if self._is_sure(end))
        return Connected(possible_count=len(possible), sure=sure)

    def followers(self, loop: ProcessLoop) -> list[NodeId]:
        """Return the slaves that follow the process of `loop` over connections open at both
        ends."""
        ends = self._tcp.accepted(loop, self._port)
        return sorted({NodeId(end.peer_host) for end in ends if self._is_sure(end)})

    def stayed_count(self, connected: Connected) -> int:
        """Return how many of the slaves that had to count then still have to."""
        return len({end.peer_host for end in connected.sure if self._is_sure(end)})

    def _is_sure(self, end: SimTransport) -> bool:
        other = end.peer
        return (
            other is not None
            and not any(each.lost or each.is_closing() for each in (end, other))
            and not other.loop.dead
            and self._follows(NodeId(end.peer_host))
        )
