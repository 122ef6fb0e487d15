"""The faults of a master and its slaves: those of whole groups, lost and damaged disks, and
another master.

Place in the data path: as `chaos.sim.groups.nemesis`, whose faults it inherits; "the leader" is the
master, as long as it lives.

A master that comes back without its disk begins a log of its own, which has nothing in common with
its slaves': they keep theirs and don't follow, until a person makes one of them the master, as
`ledgermq cluster master` does (docs/decisions/0028-master-and-slaves.md).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Any

from chaos.sim.groups.nemesis import GroupNemesis
from chaos.sim.ha.ha_machine import HaMachine
from chaos.sim.ha.log_book import LogBook
from chaos.sim.ha.programs import HaDesk
from chaos.sim.machine.disk import DiskFault, Survival

__all__ = ["HaNemesis", "make_longest_master"]

_REST_US = 25_000_000  # a slave cuts its log after two heartbeats of 5 s without anything new
_ANSWERED_WITHIN_US = 150_000  # so long before an fsync at the interval, with luck
_SYNC_FAILS = DiskFault(operation="sync", error=errno.EIO)
_STARTS_WITHIN_US = 20_000_000
_POLL_US = 20_000
_STARVED_US_MAX = 18_000_000  # a slave that is silent for 20 s is gone
_STARTED_FOR_US = 400_000  # less than it takes to write much over what the start has believed


def make_longest_master(nodes: Sequence[HaMachine], book: LogBook) -> HaMachine | None:
    """Restart all nodes that run with another master, the one with the longest log; return it, or
    None where no other has a log. Stores that have nothing in common with it are removed."""
    others = [node for node in nodes if node.name != book.master and book.length(node.name)]
    if not others:
        return None
    master = max(others, key=lambda node: book.length(node.name))
    running = [node for node in nodes if node.alive]
    for node in running:
        node.crash(power=False, survival=Survival.ALL)
    book.on_made_master(master.name)
    for node in nodes:
        node.set_master(master.name)
        if book.share_nothing(node.name, master.name):
            node.wipe()
    for node in running:
        node.start()
    return master


class HaNemesis(GroupNemesis):
    def __init__(
        self,
        *,
        book: LogBook,
        may_wipe: bool,
        retained_size: int,
        desk: HaDesk,
        machines: Sequence[HaMachine],
        **others: Any,
    ) -> None:
        """`may_wipe`: a new slave finds the whole log at its master; `retained_size`: bytes of it
        that retention leaves, 0: all; `desk`: of the clients; `machines`: all nodes."""
        super().__init__(**others)
        self._book = book
        self._may_wipe = may_wipe
        self._retained_size = retained_size
        self._desk = desk
        self._machines = machines

    def _wipe_slave(self) -> str | None:
        """Lose a slave's disk; it comes back with an empty one."""
        slaves = [one for one in self._machines if one.alive and one.name != self._book.master]
        if not slaves or not self._may_wipe:
            return None
        self._counts["slaves_wiped"] += 1
        return self._wipe(self._rng.choice(slaves))

    def _wipe_master(self) -> str | None:
        """Lose the master's disk; it comes back with an empty one, and begins another log."""
        masters = [one for one in self._machines if one.alive and one.name == self._book.master]
        if not masters or not self._may_wipe:
            return None
        self._counts["masters_wiped"] += 1
        return self._wipe(masters[0])

    def _wipe(self, node: HaMachine) -> str:
        node.crash(power=True, survival=node.draw_survival())
        node.wipe()
        self.on_death(node)
        return node.name

    def _change_master(self) -> str | None:
        """Make the slave with the longest log the master."""
        master = make_longest_master(self._machines, self._book)
        return None if master is None else master.name

    def _lose_tail_at_rest(self) -> str | None:
        """Let the clients rest, and then the master lose what it has not fsynced: a slave that has
        it is ahead, and nothing is written over it meanwhile."""
        if self._desk.is_resting:
            return None
        self._desk.is_resting = True
        self._heal_after(_REST_US, partial(setattr, self._desk, "is_resting", False))
        self._scheduler.after(_ANSWERED_WITHIN_US, self._lose_tail)
        return self._book.master

    def _lose_tail(self) -> None:
        for node in self._machines:
            if self.running and node.alive and node.name == self._book.master:
                node.crash(power=True, survival=Survival.NONE)
                self.on_death(node)

    def _starve_slave(self) -> str | None:
        """Stop a slave that follows for so long that the log outgrows what retention leaves of it,
        and for less than the silence that ends its connection."""
        slaves = [one for one in self._machines if one.is_linked and not one.paused]
        if not slaves:
            return None
        slave = self._rng.choice(slaves)
        slave.pause()
        after_us = int(_STARVED_US_MAX * self._rng.random())
        self._heal_after(after_us, partial(self._feed, slave, slave.incarnation))
        return slave.name

    def _feed(self, slave: HaMachine, incarnation: int) -> None:
        end = max(one.received_position for one in self._machines if one.alive or one is slave)
        lag = end - slave.received_position
        self._counts["slaves_starved"] += lag > self._retained_size > 0
        self._resume(slave, incarnation)

    def _living(self) -> HaMachine | None:
        alive = [node for node in self._machines if node.alive]
        return self._rng.choice(alive) if alive else None

    def _rot_at_rest(self) -> str | None:
        """Kill a node, and damage a byte of its log's last file, below the durable mark: its next
        start has to refuse it. The byte is put right then."""
        node = self._living()
        if node is None:
            return None
        node.crash(power=False, survival=node.draw_survival())
        rotten = node.rot(self._rng)
        self.on_death(node)
        return f"{node.name} {rotten}"

    def _fail_sync_and_power(self) -> str | None:
        """Let an fsync of a node fail, which ends it, and the power soon after its next start: what
        the fsync was to write is in the page cache alone until then."""
        node = self._living()
        if node is None:
            return None
        node.disk.fault, node.disk.fault_after = _SYNC_FAILS, 0
        until_us = self._scheduler.now_us + _STARTS_WITHIN_US
        self._scheduler.after(
            _POLL_US, partial(self._fail_power_of, node, node.incarnation, until_us)
        )
        return node.name

    def _fail_power_of(self, node: HaMachine, incarnation: int, until_us: int) -> None:
        """Let the power of the node fail once a later life of it has opened its log."""
        if not self.running or self._scheduler.now_us > until_us:
            return
        if not (node.alive and node.incarnation > incarnation and node.end):
            again = partial(self._fail_power_of, node, incarnation, until_us)
            self._scheduler.after(_POLL_US, again)
            return
        self._scheduler.after(
            int(self._rng.random() * _STARTED_FOR_US),
            partial(self._fail_power_now, node, node.incarnation),
        )

    def _fail_power_now(self, node: HaMachine, incarnation: int) -> None:
        if self.running and node.alive and node.incarnation == incarnation:
            self._counts["power_failures_behind_failed_syncs"] += 1
            node.crash(power=True, survival=Survival.NONE)
            self.on_death(node)
