"""What is told of a bug that is planted into running processes.

Place in the data path: the modules beside this one, one per area, list their mutants; `catalogue`
joins them, `planting` arms processes with them, `campaigns.mutants.planted_experiments` runs them.

Invariant: the patched lines ask `planted("<name>")`, in code that is reached where the bug acts and
nowhere else, so that a run tells whether it came that far at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from campaigns.mutants.source_patch import SourcePatch

__all__ = ["PROCESSES", "LiveMutant", "Process"]

Process = Literal["broker", "namesrv", "laboratory"]
PROCESSES: Final[tuple[Process, ...]] = ("broker", "namesrv", "laboratory")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMutant:
    """`laboratory` is the process of `ledgermq chaos run`, in which all clients live."""

    name: str
    breaks: str
    """What no longer holds, in a sentence."""
    expected: tuple[str, ...]
    """The rules that should see it: one of them must fail, or be unknown where `verdict` says so."""
    broker: tuple[SourcePatch, ...] = ()
    namesrv: tuple[SourcePatch, ...] = ()
    laboratory: tuple[SourcePatch, ...] = ()
    verdict: Literal["fail", "unknown"] = "fail"
    has_limits: bool = True
    """Whether the run has limits for availability, which A14 and A16 judge."""
    has_transactions: bool = True
    """Whether transactions are among the run's work."""
    seeds: int = 1
    """How many runs, with seeds from 1 on, `make planted` makes of it."""
    survives: str = ""
    """Why no rule can be expected to see it; empty where one must."""

    def patches(self, process: Process) -> tuple[SourcePatch, ...]:
        match process:
            case "broker":
                return self.broker
            case "namesrv":
                return self.namesrv
            case "laboratory":
                return self.laboratory

    def all_patches(self) -> Iterator[SourcePatch]:
        for process in PROCESSES:
            yield from self.patches(process)
