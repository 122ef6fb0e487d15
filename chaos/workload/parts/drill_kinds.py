"""How many drills of a kind there are, and how often they have a turn.

Place in the data path: constants of `drills`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from chaos.workload.parts.drill import Drill
from chaos.workload.parts.drill_deadlines import DeadlineDrill
from chaos.workload.parts.drill_deletions import DeletionDrill
from chaos.workload.parts.drill_listings import ListingDrill
from chaos.workload.parts.drill_settings import SettingsDrill
from chaos.workload.parts.drill_topics import TopicDrill

__all__ = [
    "BESIDE",
    "DELETE",
    "DELETING",
    "MADE_MAX",
    "OFTEN",
    "RETAINED_MAX",
    "RETAINED_OF",
    "TIMED",
    "DrillKind",
]

RETAINED_MAX: Final = 12  # drills of a kind that go on in later rounds
RETAINED_OF: Final = {"stretch": 1, "progress": 4, "clone": 4}  # of kinds that cost much
MADE_MAX: Final = {
    "back": 40,
    "send": 40,
    "properties": 40,
    "subscription": 40,
    "held subscription": 20,
    "stretch": 3,
    "progress": 20,
    "clone": 20,
}  # kinds with topics of their own
OFTEN: Final = ("pop", "pop in order", "pop in order")  # kinds that have further turns


class DrillKind(Protocol):
    """A drill of one kind. `drill`: by what it sends its requests."""

    drill: Drill

    async def run(self) -> None:
        """Send the next requests. Raises Unsure, EndedError."""


BESIDE: Final[Mapping[str, tuple[Callable[[Drill, str], DrillKind], int]]] = {
    "drills-settings": (SettingsDrill, 40),
    "drills-topics": (TopicDrill, 40),
    "drills-deadlines": (DeadlineDrill, 40),
    "drills-listings": (ListingDrill, 4),
}
"""Kinds that have tasks and topics of their own, until the run is drained, since they wait for what
is due, or send much: and how many of them there are at most."""

TIMED: Final = frozenset({"drills-deadlines"})
"""Those whose times are so short that a busy machine would miss them: on virtual time alone."""

DELETING: Final = "drills-deletions"
DELETE: Final[Callable[[Drill, str], DrillKind]] = DeletionDrill
"""A kind that deletes topics, and so has to be done before queues are drained."""
