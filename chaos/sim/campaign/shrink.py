"""Cut a failing seed's schedule to the fewest faults that still break the same rule.

Place in the data path: `campaign` passes a schedule that failed and gets a shorter one; the result
is printed, and written to a file for a regression test.

First whole parts of the list are removed, halves, then quarters, then single faults, as long as the
rule still breaks; then, one by one, the permanent faults (lost messages, clocks that differ). The
result is minimal: no single fault can be removed. Removing a fault may shift what happens after it,
so a shorter list may fail at another time or on another node; it counts if the rule is the same.

Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (TSE '02).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chaos.sim.seed.schedule import Fault, Schedule

__all__ = ["RUNS_MAX", "shrink"]

RUNS_MAX = 400


class _Budget:
    def __init__(self, fails: Callable[[Schedule], bool], runs_max: int) -> None:
        self._fails = fails
        self._left = runs_max

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def fails(self, schedule: Schedule) -> bool:
        """Return whether the schedule fails; False also once the budget is used up."""
        if self.is_spent:
            return False
        self._left -= 1
        return self._fails(schedule)


def shrink(
    schedule: Schedule,
    fails: Callable[[Schedule], bool],
    *,
    calmable: Sequence[str] = (),
    runs_max: int = RUNS_MAX,
) -> Schedule:
    """Shrink `schedule`, which fails.

    `fails` runs a schedule and returns whether it breaks the rule in question.
    """
    budget = _Budget(fails, runs_max)
    shorter = _fewer_faults(schedule, budget)
    for name in calmable:
        if name not in shorter.calmed:
            calmer = replace(shorter, calmed=(*shorter.calmed, name))
            if budget.fails(calmer):
                shorter = calmer
    return _fewer_faults(shorter, budget)


def _fewer_faults(schedule: Schedule, budget: _Budget) -> Schedule:
    """Return a schedule from which no single fault can be removed, as far as the budget reached."""
    if schedule.faults and budget.fails(schedule.with_faults(())):
        return schedule.with_faults(())
    size = max(1, len(schedule.faults) // 2)
    while schedule.faults:
        smaller = _without_one_part(schedule, size, budget)
        if smaller is not None:
            schedule = smaller
            size = min(size, max(1, len(schedule.faults) // 2))
        elif size == 1 or budget.is_spent:
            break
        else:
            size = max(1, size // 2)
    return schedule


def _without_one_part(schedule: Schedule, size: int, budget: _Budget) -> Schedule | None:
    faults: tuple[Fault, ...] = schedule.faults
    # From the end: the last faults are the least likely to have led to the failure.
    for start in range((len(faults) - 1) // size * size, -1, -size):
        rest = schedule.with_faults(faults[:start] + faults[start + size :])
        if budget.fails(rest):
            return rest
    return None
