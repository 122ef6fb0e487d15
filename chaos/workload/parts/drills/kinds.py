"""The kinds of drills: who makes them, how many there are, and how often they have a turn.

Place in the data path: tables of `drills`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from chaos.workload.context import Slot
from chaos.workload.parts.common.drill import Drill
from chaos.workload.parts.drills.backs import BackDrill
from chaos.workload.parts.drills.batch_acks import BatchAckDrill
from chaos.workload.parts.drills.clones import CloneDrill
from chaos.workload.parts.drills.copies import CopyDrill
from chaos.workload.parts.drills.deadlines import DeadlineDrill
from chaos.workload.parts.drills.deletions import DeletionDrill
from chaos.workload.parts.drills.halves import HalfDrill
from chaos.workload.parts.drills.listings import ListingDrill
from chaos.workload.parts.drills.offsets import OffsetDrill
from chaos.workload.parts.drills.onward import OnwardDrill
from chaos.workload.parts.drills.owners import LockDrill
from chaos.workload.parts.drills.popped_resets import PoppedResetDrill
from chaos.workload.parts.drills.pops import PopDrill
from chaos.workload.parts.drills.progress import ProgressDrill
from chaos.workload.parts.drills.properties import PropertyDrill
from chaos.workload.parts.drills.queues import (
    PullDrill,
    QueryDrill,
    Recallable,
    RecallDrill,
    RepeatDrill,
)
from chaos.workload.parts.drills.refusals import RefusalDrill
from chaos.workload.parts.drills.sends import SendDrill
from chaos.workload.parts.drills.settings import SettingsDrill
from chaos.workload.parts.drills.sizes import SizeDrill
from chaos.workload.parts.drills.slips import SlipDrill
from chaos.workload.parts.drills.statuses import StatusDrill
from chaos.workload.parts.drills.stretches import StretchDrill
from chaos.workload.parts.drills.subscriptions import HeldSubscriptionDrill, SubscriptionDrill
from chaos.workload.parts.drills.topics import TopicDrill
from chaos.workload.parts.drills.woken_pulls import WokenPullDrill

__all__ = [
    "BESIDE",
    "CLIENTS",
    "DELETE",
    "DELETING",
    "MADE_MAX",
    "OFTEN",
    "RETAINED_MAX",
    "RETAINED_OF",
    "TIMED",
    "DrillKind",
    "runner_kinds",
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
    "drills-sizes": (SizeDrill, 4),
    "drills-onward": (OnwardDrill, 16),
    "drills-slips": (SlipDrill, 6),
    "drills-woken-pulls": (WokenPullDrill, 8),
    "drills-popped-resets": (PoppedResetDrill, 8),
}
"""Kinds that have tasks and topics of their own, until the run is drained, since they wait for what
is due, or send much: and how many of them there are at most."""

CLIENTS: Final[Mapping[str, tuple[Callable[..., DrillKind], int]]] = {
    "drills-batch-acks": (BatchAckDrill, 40),
    "drills-statuses": (StatusDrill, 40),
}
"""Those that work the same way, and by clients of their own, which dial from `slot`."""

TIMED: Final = frozenset({"drills-deadlines"})
"""Those whose times are so short that a busy machine would miss them: on virtual time alone."""

DELETING: Final = "drills-deletions"
DELETE: Final[Callable[[Drill, str], DrillKind]] = DeletionDrill
"""A kind that deletes topics, and so has to be done before queues are drained."""


def runner_kinds(
    slot: Slot,
    name_servers: Sequence[str],
    *,
    window_ms: int,
    lease_ms: int,
    waiting: list[Recallable],
) -> Mapping[str, Callable[[Drill, str], DrillKind]]:
    """Return those of which a runner makes some in turns, by their names. `waiting`: of the
    runner, messages that can be recalled."""
    return {
        "pop": lambda drill, group: PopDrill(drill, group, is_order=False),
        "pop in order": lambda drill, group: PopDrill(drill, group, is_order=True),
        "pull": PullDrill,
        "offset": OffsetDrill,
        "query": lambda drill, _: QueryDrill(drill),
        "repeat": lambda drill, _: RepeatDrill(drill, window_ms=window_ms),
        "recall": lambda drill, _: RecallDrill(drill, waiting),
        "lock": lambda drill, group: LockDrill(drill, group, lease_ms=lease_ms),
        "refusals": RefusalDrill,
        "back": BackDrill,
        "subscription": SubscriptionDrill,
        "held subscription": HeldSubscriptionDrill,
        "stretch": lambda drill, group: StretchDrill(
            drill, group, slot=slot, name_servers=name_servers
        ),
        "progress": ProgressDrill,
        "send": SendDrill,
        "properties": PropertyDrill,
        "half": HalfDrill,
        "copy": CopyDrill,
        "clone": CloneDrill,
    }
