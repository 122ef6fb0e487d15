"""Which worker of `pytest -n` runs which test modules, and in which order.

Modules that use the one Spark session of the tests (`tests/verify/conftest.py`) go to one worker: a
second JVM costs half a minute before it answers anything, and one that has planned a rule before
plans it sooner. Every other module is a unit of its own. Modules that take longest begin first, so
that no worker is left with one of them at the end.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

__all__ = ["Scheduler", "longest_first"]

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
    "tests/verify/test_spark_cluster.py",
    "tests/sim/test_campaign.py",
    "tests/chaos/test_planted_in_parts.py",
    "tests/chaos/test_workload_parts.py",
    "tests/integration/test_nodes_by_hand.py",
    "tests/raft/test_crash_points.py",
    "tests/sim/test_schedules.py",
    "tests/verify/test_shared_session.py",
    "tests/verify/test_spark_home.py",
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
