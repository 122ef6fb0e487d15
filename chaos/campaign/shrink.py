"""The search for the smallest scenario that still fails: fewer faults, less work, a shorter load.

Place in the data path: `chaos.campaign.minimise` gives it a scenario that failed and a way to try
another; `chaos.campaign.reductions` says what can be taken away. Pure: what tries is an argument.

First whole parts of the list of faults are taken away, halves, then quarters, then single ones, as
long as it still fails; then, one after the other, parts of the work; and all of that again until a
round has taken nothing. Taking a fault away may shift what happens after it; it counts if the same
check fails.

A run of real processes fails by luck: a candidate is tried several times and accepted if it failed
at least half as often as the whole scenario did, so that what is left is no rarer by more than that
a step. It is given up as soon as it can't get there any more; one that is accepted has been tried
every time, and its share is the probability of that step.

Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (TSE '02);
`chaos.sim.campaign.shrink`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from chaos.campaign.reductions import reductions
from chaos.scenario.scenario import Scenario
from chaos.scenario.scenario_text import scenario_text

__all__ = ["Search", "Step", "Tally", "shrink"]

Attempt = Callable[[str, Scenario], Awaitable[bool]]
"""Runs a scenario once; returns whether the same check failed. The text: what is taken away."""

_WHOLE: Final = "the whole scenario"
_NAMES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a scenario failed, of how many runs."""

    failed: int
    ran: int


@dataclass(frozen=True, slots=True)
class Step:
    """One candidate: what was taken away, how often it failed, and whether it was accepted."""

    what: str
    tally: Tally
    accepted: bool


@dataclass(slots=True)
class Search:
    """The state of a search, and its result. `smallest` is None if the whole never failed again."""

    smallest: Scenario | None
    tally: Tally
    steps: list[Step]
    attempts: int
    is_complete: bool
    """Nothing more can be taken away; False where the attempts ran out before."""


async def shrink(
    scenario: Scenario,
    attempt: Attempt,
    *,
    repeats: int,
    attempts_max: int,
    on_accepted: Callable[[Scenario], None],
) -> Search:
    """Shrink a scenario that failed once. `attempts_max` bounds the runs, all repeats counted.

    `on_accepted` is called with the whole one, if it fails again, and with each smaller one. With
    fewer attempts than `repeats` each candidate is run so often, or nothing could be told of any.
    """
    search = _Shrinking(attempt, min(repeats, attempts_max), attempts_max, on_accepted)
    return await search.run(scenario)


class _SpentError(Exception):
    """The attempts are used up."""


class _Shrinking:
    def __init__(
        self,
        attempt: Attempt,
        repeats: int,
        attempts_max: int,
        on_accepted: Callable[[Scenario], None],
    ) -> None:
        self._attempt = attempt
        self._on_accepted = on_accepted
        self._repeats = repeats
        self._attempts_left = attempts_max
        self._attempts_max = attempts_max
        self._need = 0
        self._refused: set[str] = set()
        self._steps: list[Step] = []

    async def run(self, scenario: Scenario) -> Search:
        self._smallest, self._tally = scenario, Tally(0, 0)
        complete = False
        try:
            self._tally = await self._tried(_WHOLE, scenario)
            self._steps.append(Step(_WHOLE, self._tally, self._tally.failed > 0))
            if self._tally.failed:
                self._on_accepted(scenario)
                self._need = max(1, math.ceil(self._tally.failed / 2))
                while await self._round():
                    pass
                complete = True
        except _SpentError:
            pass
        return Search(
            smallest=self._smallest if self._need else None,
            tally=self._tally,
            steps=self._steps,
            attempts=self._attempts_max - self._attempts_left,
            is_complete=complete,
        )

    async def _round(self) -> bool:
        """Try to take everything away once; return whether anything went."""
        has_shrunk = await self._fewer_faults()
        for reduction in reductions():
            for what, candidate in reduction(self._smallest):
                if await self._accepts(what, candidate):
                    has_shrunk = True
                    break
        return has_shrunk

    async def _fewer_faults(self) -> bool:
        has_shrunk = False
        size = len(self._smallest.faults)
        while size >= 1 and self._smallest.faults:
            for what, candidate in _without_a_part(self._smallest, size):
                if await self._accepts(what, candidate):
                    has_shrunk = True
                    size = min(size, len(self._smallest.faults))
                    break
            else:
                size = size // 2
        return has_shrunk

    async def _accepts(self, what: str, candidate: Scenario) -> bool:
        key = scenario_text(candidate)
        if key in self._refused:
            return False
        tally = await self._tried(what, candidate)
        accepted = tally.failed >= self._need
        self._steps.append(Step(what, tally, accepted))
        if accepted:
            self._smallest, self._tally = candidate, tally
            self._on_accepted(candidate)
        else:
            self._refused.add(key)
        return accepted

    async def _tried(self, what: str, candidate: Scenario) -> Tally:
        """Run a candidate as often as it takes to know. Raises _SpentError."""
        failed = 0
        for ran in range(1, self._repeats + 1):
            if not self._attempts_left:
                raise _SpentError
            self._attempts_left -= 1
            failed += await self._attempt(what, candidate)
            if failed + self._repeats - ran < self._need:
                return Tally(failed, ran)
        return Tally(failed, self._repeats)


def _without_a_part(scenario: Scenario, size: int) -> Iterator[tuple[str, Scenario]]:
    faults = scenario.faults
    # From the end: the last faults are the least likely to have led to the failure.
    for start in range((len(faults) - 1) // size * size, -1, -size):
        gone = faults[start : start + size]
        names = ", ".join(f"{fault.name} at {fault.at_s:g} s" for fault in gone[:_NAMES_MAX])
        more = f" and {len(gone) - _NAMES_MAX} more" if len(gone) > _NAMES_MAX else ""
        left = faults[:start] + faults[start + size :]
        yield f"without {names}{more}", replace(scenario, faults=left)
