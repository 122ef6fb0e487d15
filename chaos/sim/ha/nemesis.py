"""The faults of a master and its slaves: those of whole groups, and a slave that loses its disk.

Place in the data path: as `chaos.sim.groups.nemesis`, whose faults it inherits; "the leader" is the
master, as long as it lives.
"""

from __future__ import annotations

from typing import Any

from chaos.sim.groups.nemesis import GroupNemesis
from chaos.sim.ha.ha_machine import HaMachine
from chaos.sim.ha.log_book import LogBook

__all__ = ["HaNemesis"]


class HaNemesis(GroupNemesis):
    def __init__(self, *, book: LogBook, may_wipe: bool, **others: Any) -> None:
        """`may_wipe`: a new slave finds the whole log at its master."""
        super().__init__(**others)
        self._book = book
        self._may_wipe = may_wipe

    def _wipe_slave(self) -> str | None:
        """Lose a slave's disk; it comes back with an empty one."""
        slaves = [node for node in self._nodes if node.alive and node.name != self._book.master]
        if not slaves or not self._may_wipe:
            return None
        node = self._rng.choice(slaves)
        node.crash(power=True, survival=node.draw_survival())
        assert isinstance(node, HaMachine)
        node.wipe()
        self.on_death(node)
        self._counts["slaves_wiped"] += 1
        return node.name
