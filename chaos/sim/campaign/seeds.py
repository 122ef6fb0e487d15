"""What a seed runs: bare cores or a whole group, of how many nodes, with which faults.

Place in the data path: `campaign` and `shrink` make every run here. Of each four seeds three drive
bare cores, whose shell can be more hostile than any real one and whose steps are cheap, and one
drives a whole group; bare cores alternate 3 and 5 nodes, of the groups one in four has 5. A master
with its slaves (`ha`) runs where it is asked for.
"""

from __future__ import annotations

from typing import Protocol

from chaos.sim.cores.cluster import SimCluster
from chaos.sim.cores.core_fixture import Parts
from chaos.sim.groups.cluster import GroupCluster
from chaos.sim.ha.cluster import HaCluster
from chaos.sim.machine.trace import Trace
from chaos.sim.seed.core_options import CALMABLE, draw_options
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.group_options import GROUP_CALMABLE, draw_group_options
from chaos.sim.seed.ha_options import HA_CALMABLE, draw_ha_options
from chaos.sim.seed.schedule import Schedule

__all__ = ["KINDS", "Run", "calmable_of", "kind_of_seed", "make_run", "node_count_of_seed"]

KINDS = ("core", "group", "ha")
_GROUP_EVERY = 4


class Run(Protocol):
    """One seed, not run yet."""

    schedule: Schedule
    coverage: Coverage
    trace: Trace

    def run(self) -> None:
        """Run the seed. Raises Violation."""

    def describe(self) -> list[str]:
        """Return the options of the seed, `name=value` each."""


def kind_of_seed(seed: int, kind: str | None = None) -> str:
    """Return the kind of the seed, which `kind` overrides unless it is None."""
    if kind is not None:
        return kind
    return "group" if seed % _GROUP_EVERY == _GROUP_EVERY - 1 else "core"


def node_count_of_seed(seed: int, kind: str, nodes: int | None) -> int:
    """Return how many nodes the seed has, 3 or 5, a master and its slaves 2 or 3; `nodes` overrides
    it unless it is None."""
    if nodes is not None:
        return nodes
    if kind == "ha":
        return 2 if seed % 2 == 0 else 3
    if kind == "core":
        return 3 if seed % 2 == 0 else 5
    return 5 if seed // _GROUP_EVERY % _GROUP_EVERY == 0 else 3


def calmable_of(kind: str) -> tuple[str, ...]:
    """Return the options that shrinking may switch off."""
    return {"core": CALMABLE, "group": GROUP_CALMABLE, "ha": HA_CALMABLE}[kind]


def make_run(
    seed: int,
    nodes: int | None = None,
    *,
    kind: str | None = None,
    parts: Parts | None = None,
    schedule: Schedule | None = None,
    traced: bool = False,
) -> Run:
    """Make the run of a seed; the same arguments give the same run.

    `schedule` replaces the seed's own faults.
    """
    kind = kind_of_seed(seed, kind)
    node_count = node_count_of_seed(seed, kind, nodes)
    if kind == "core":
        options = draw_options(seed, node_count)
        return SimCluster(options, parts=parts, schedule=schedule, traced=traced)
    if kind == "ha":
        return HaCluster(draw_ha_options(seed, node_count), schedule=schedule, traced=traced)
    return GroupCluster(
        draw_group_options(seed, node_count), parts=parts, schedule=schedule, traced=traced
    )
