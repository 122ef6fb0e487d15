"""Jumps of wall clocks by an hour while nothing else is wrong, so that they alone explain a
finding.

Place in the data path: `cluster` runs this once all nodes are back, in some of the seeds. Clients
go on; `true_time` judges what is late from then on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.machine import Site
from chaos.sim.groups.models.true_time import TrueTime
from chaos.sim.groups.wall_clocks import HOUR_MS, WallClocks
from chaos.sim.machine.violation import Violation
from raft.replicated_log import Phase
from remoting.connections.connection import Connection

__all__ = ["JumpsWhenCalm", "is_whole"]

_WRONG_US = 2_500_000  # before it leads, and after
_UNDER_WAY_MAX = 20  # entries


def is_whole(brokers: Sequence[BrokerMachine]) -> bool:
    """Return whether all brokers serve and have applied all but a few committed entries."""
    statuses = [machine.status for machine in brokers]
    known = [status for status in statuses if status is not None]
    if len(known) < len(statuses):
        return False
    newest = max(status.commit_index for status in known)
    return any(status.ready for status in known) and all(
        status.phase is Phase.SERVING and newest - status.applied_index < _UNDER_WAY_MAX
        for status in known
    )


class JumpsWhenCalm:
    """Lets each broker's clock jump an hour and back, and makes it leader after each jump."""

    def __init__(
        self,
        brokers: Sequence[BrokerMachine],
        wall_clocks: WallClocks,
        true_time: TrueTime,
        site: Site,
    ) -> None:
        self._brokers = brokers
        self._wall_clocks = wall_clocks
        self._true_time = true_time
        self._site = site

    def run(self, run_for: Callable[[int], object], rng: random.Random) -> None:
        """Run all jumps; `run_for` advances time by microseconds. Raises Violation."""
        self._true_time.begin_calm()
        sign = rng.choice((1, -1))
        for machine in self._brokers:
            for jump_ms in (sign * HOUR_MS, 0):
                before = self._known_clients()
                self._site.trace.add("sim", f"{machine.name}'s clock is {jump_ms} ms off")
                if jump_ms:
                    self._wall_clocks.jump(machine, jump_ms)
                else:
                    self._wall_clocks.set_right(machine)
                run_for(_WRONG_US)
                lost = before - self._known_clients()
                if not all(connection.closed for connection in lost):
                    raise Violation("time", "brokers have forgotten clients that are connected")
                leader = next((one for one in self._brokers if one.leads), None)
                if leader is not None and leader is not machine:
                    leader.transfer(machine.name)
                run_for(_WRONG_US)
                self._site.coverage.counts["clock_jumps_when_calm"] += 1

    def _known_clients(self) -> set[Connection]:
        """Return the connections that brokers hold for members of groups."""
        desks = [one.broker.desk for one in self._brokers if one.broker is not None]
        return {connection for desk in desks for connection in desk.clients._places}
