"""What a part of the workload is: topics, slots, groups, clients, and when it is done.

Place in the data path: `chaos.experiment.load` makes the parts that a scenario lists and runs them
beside the plain senders and readers; `chaos.workload.parts.catalogue` lists them all.

A part goes through the experiment as every client does: it works until `stop` is set, completes
what it has begun, reads on until `drained` is set, and then ends. Between the two it is waited for:
`is_settled` says that nothing more will be stored by its doing (its timers have fallen due, its
retries have run out), so that the final drain can begin.

Invariants: no part reads or writes the topics of another; an outcome that is not known is `info`;
the history of a part is judged by the rules that its row names, and by those of all sends and
reads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chaos.workload.context import Slot, WorkContext

__all__ = ["PartKit", "PartSpec", "WorkloadPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKit:
    """What a part is made with. `context.part_queues[name]` are the queues of its topics.

    `section`: its section of the scenario. `slots`: by name, those that its row asks for. `rng`:
    the part's own.
    """

    context: WorkContext
    section: Any
    slots: Mapping[str, Slot]
    rng: random.Random


class WorkloadPart(Protocol):
    """One part at work."""

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return the manifest's consumer_groups of this part, each with its `topics`."""

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Work until `stop`, read on until `drained`, then end all clients."""

    async def idle(self) -> None:
        """Wait until every operation of a sender that was begun before `stop` has completed."""

    def is_settled(self) -> bool:
        """Return whether nothing more will be stored by this part's doing."""

    def has_read(self) -> bool:
        """Return whether its readers have read all that they are to read before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """A row of the catalogue. `name` is the key of the section in [workload.NAME].

    `topics`, `slots`: the names that a section asks for; each begins with `name`. `judged_by`: ids
    of the rules that fail where this part finds the system wrong. `manifest`: keys of run.json by
    which its rules know what to ask for.
    """

    name: str
    summary: str
    topics: Callable[[Any], Sequence[str]]
    slots: Callable[[Any], Sequence[str]]
    make: Callable[[PartKit], WorkloadPart]
    judged_by: tuple[str, ...]
    manifest: Callable[[Any], Mapping[str, object]] = lambda section: {}
