"""Which worker of `pytest -n` runs which test modules, and in which order.

Modules that use the one Spark session of the tests (`tests/verify/conftest.py`) go to one worker: a
second JVM costs half a minute before it answers anything, and one that has planned a rule before
plans it sooner. Every other module is a unit of its own. Modules that take longest begin first, so
that no worker is left with one of them at the end. Two workers compute, as many as the machine has
cores; a third has the modules that wait for brokers and for the clock, and ends when there is none
left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["Scheduler", "longest_first", "next_unit"]

_OF_SPARK: Final = frozenset(
    {
        "tests/verify/test_engines.py",
        "tests/verify/test_hadoop_files.py",
        "tests/verify/test_held_tables.py",
        "tests/verify/test_promises.py",
        "tests/verify/test_rule_files.py",
        "tests/verify/test_side_by_side.py",
        "tests/verify/test_vocabulary.py",
    }
)
# Measured, 40 s and more.
_LONGEST: Final = (
    "tests/verify/test_outside.py",
    "tests/sim/test_masters.py",
    "tests/sim/test_campaign.py",
    "tests/chaos/test_planted_in_parts.py",
    "tests/chaos/test_workload_parts.py",
    "tests/integration/test_nodes_by_hand.py",
    "tests/raft/test_crash_points.py",
    "tests/sim/test_schedules.py",
    "tests/integration/test_interrupted.py",
    "tests/raft/test_node.py",
    "tests/chaos/test_cluster.py",
    "tests/broker/test_small_requests.py",
    "tests/integration/test_recovery.py",
    "tests/chaos/campaign/test_simulated_campaign.py",
    "tests/integration/test_readme.py",
    "tests/mutants/test_mutants.py",
    "tests/integration/test_start_refusals.py",
)
_COMPUTING: Final = 2
# Measured: most of their time is another process's, or the clock's.
_WAITING: Final = ("tests/chaos/", "tests/client/", "tests/integration/")


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by how long their modules take; the order within a module stays."""
    ranks = {module: rank for rank, module in enumerate(_LONGEST)}

    def rank(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        return -1 if module in _OF_SPARK else ranks.get(module, len(ranks))

    items.sort(key=rank)


class Scheduler(LoadFileScheduling):
    """Modules are units of work, those of Spark's session are one together."""

    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        return "the Spark session" if module in _OF_SPARK else module

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit = next_unit(self.workqueue, self._rank(node))
        if unit is not None:
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and next_unit(self.workqueue, self._rank(node)) is None:
            if not node.shutting_down:
                node.shutdown()
            return
        super()._reschedule(node)

    def _rank(self, node: WorkerController) -> int:
        """Count the workers before this one. One that crashed is replaced under a new number, so
        numbers themselves would leave nobody to compute."""
        return sorted(self.nodes, key=_number).index(node)


def next_unit(units: Iterable[str], worker: int) -> str | None:
    """Return the unit that a worker, counted from 0, begins next; None: it has done its part.

    The first two take what waits only where nothing else is left.
    """
    rest = list(units)
    waiting = next((unit for unit in rest if unit.startswith(_WAITING)), None)
    if worker >= _COMPUTING:
        return waiting
    return next((unit for unit in rest if not unit.startswith(_WAITING)), waiting)


def _number(node: WorkerController) -> int:
    return int(node.gateway.id.removeprefix("gw"))
