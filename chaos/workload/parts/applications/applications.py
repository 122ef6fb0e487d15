"""Clients as applications have them: made with defaults, several in a process, and through what
happens to applications in the course of a day.

Place in the data path: the drills of clients (`app_*`), each with a slot, a topic and groups of its
own. They begin once the load is over and faults are healed, since what they expect to come at once
is not to be expected in a fault; what has to last for long begins with the load.

Invariants: a drill that a client's error ends holds that there was none; one that does not end in
ENDS_S, several times what the longest takes, is ended, and holds that it should have: clients that
never end would leave the whole run without a verdict.

Source: docs/CLIENT.md; rule M12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.links.base import LinksError
from chaos.scenario.part_sections import ApplicationsSection
from chaos.workload.parts.applications.answers import LostAnswers
from chaos.workload.parts.applications.asked_again import AskedAgain
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.applications.crashed import CrashedOwner
from chaos.workload.parts.applications.cut_off import CutOffMember
from chaos.workload.parts.applications.decided import EndedTransactions
from chaos.workload.parts.applications.deleted_groups import DeletedGroups
from chaos.workload.parts.applications.files import OffsetFiles
from chaos.workload.parts.applications.first_sends import FirstSends
from chaos.workload.parts.applications.found import FoundPlaces
from chaos.workload.parts.applications.gone import GoneProducers
from chaos.workload.parts.applications.idle import IdleApplication
from chaos.workload.parts.applications.ids import hold_ids
from chaos.workload.parts.applications.immune import ImmuneHalf
from chaos.workload.parts.applications.keys import KeyLookups
from chaos.workload.parts.applications.levels import LevelProgress
from chaos.workload.parts.applications.locks import LateLocks
from chaos.workload.parts.applications.lost import LostConnections
from chaos.workload.parts.applications.names import NamesOfOthers
from chaos.workload.parts.applications.out_of_time import OutOfTime
from chaos.workload.parts.applications.overtaken import OvertakenGroups
from chaos.workload.parts.applications.polls import PollingMember
from chaos.workload.parts.applications.popped import PoppedOn
from chaos.workload.parts.applications.progress import FailedCommits
from chaos.workload.parts.applications.refusals import RefusedMessages
from chaos.workload.parts.applications.renewals import UnansweredRenewals
from chaos.workload.parts.applications.room import HeldMessages
from chaos.workload.parts.applications.senders import BusySenders
from chaos.workload.parts.applications.sent_back import UnansweredSendsBack
from chaos.workload.parts.applications.sent_on import SentOn
from chaos.workload.parts.applications.servers import UpdatedNameServers
from chaos.workload.parts.applications.several import SeveralGroups
from chaos.workload.parts.applications.slow_listener import SlowListener
from chaos.workload.parts.applications.sought import SoughtPlaces
from chaos.workload.parts.applications.starts import StartedGroups
from chaos.workload.parts.applications.statuses import UnsafeSends
from chaos.workload.parts.applications.stopped import StoppedClients
from chaos.workload.parts.applications.suspended import SuspendedMember
from chaos.workload.parts.applications.switched import SwitchedGroups
from chaos.workload.parts.applications.taken import TakenQueues
from chaos.workload.parts.applications.talks import RecordedTalks
from chaos.workload.parts.applications.traces import FullTraces
from chaos.workload.parts.applications.turns import CheckedInTurn
from chaos.workload.parts.applications.used_again import NamesUsedAgain
from chaos.workload.parts.applications.waits import WaitingCalls
from chaos.workload.parts.applications.woken import HeldRequests
from chaos.workload.parts.common.part import PartKit, PartSpec
from client.errors import ClientError

__all__ = ["SPEC"]

NAME: Final = "applications"
DRILLS: Final = (
    *("ids", "lost", "suspended", "cut", "others", "traces", "gone", "overtaken"),
    *("refusals", "found", "polls", "senders"),
    *("answers", "files", "keys", "names", "progress", "room", "taken"),
    *("servers", "statuses", "waits", "sent-on", "starts", "talks", "popped", "first-sends"),
    *("locks", "sent-back", "deleted-groups", "switched", "idle", "used-again", "turns"),
    *("woken", "out-of-time", "slow-listener", "crashed", "asked-again", "decided", "sought"),
    *("stopped", "renewals", "levels", "several", "immune"),
)
TIMED: Final = frozenset({"servers", "statuses", "waits"})
"""Drills that expect an answer to the tenth of a second, or at the first attempt: on virtual time
alone, since elsewhere a busy machine makes it late."""

ENDS_S: Final = 45.0

Drill = Callable[[Bench], Awaitable[None]]


class ApplicationsPart:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._idle = asyncio.Event()
        self._benches = {
            drill: Bench(kit, kit.slots[f"{NAME}-{drill}"], drill=drill) for drill in DRILLS
        }

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """What its groups consume is not recorded."""
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        benches, is_cut = self._benches, bool(self._kit.section.overtaken)
        try:
            gone = GoneProducers(benches["gone"])
            overtaken = OvertakenGroups(benches["overtaken"])
            async with asyncio.TaskGroup() as tasks:
                # An undecided half would keep retention from all that is behind it.
                name, begin = ("overtaken", overtaken.fill) if is_cut else ("gone", gone.send)
                tasks.create_task(self._have(benches[name], lambda _: begin(stop)))
                await hold_ids(benches["ids"])
            await stop.wait()
            await asyncio.sleep(self._kit.section.calm_s)
            drills: dict[str, Drill] = {
                "lost": lambda bench: LostConnections(bench).run(),
                "suspended": lambda bench: SuspendedMember(bench).run(),
                "cut": self._cut_off,
                "refusals": lambda bench: RefusedMessages(bench).run(),
                "polls": lambda bench: PollingMember(bench).run(),
                "found": lambda bench: FoundPlaces(bench).run(),
                "senders": lambda bench: BusySenders(bench).run(),
                "files": lambda bench: OffsetFiles(bench).run(),
                "keys": lambda bench: KeyLookups(bench).run(),
                "names": lambda bench: NamesOfOthers(bench).run(),
                "progress": lambda bench: FailedCommits(bench).run(),
                "room": lambda bench: HeldMessages(bench).run(),
                "taken": lambda bench: TakenQueues(bench).run(),
                "sent-on": lambda bench: SentOn(bench).run(),
                "starts": lambda bench: StartedGroups(bench).run(),
                "first-sends": lambda bench: FirstSends(bench).run(),
                "locks": lambda bench: LateLocks(bench).run(),
                "switched": lambda bench: SwitchedGroups(bench).run(),
                "idle": lambda bench: IdleApplication(bench).run(),
                "servers": lambda bench: UpdatedNameServers(bench).run(),
                "statuses": lambda bench: UnsafeSends(bench).run(),
                "woken": lambda bench: HeldRequests(bench).run(),
                "out-of-time": lambda bench: OutOfTime(bench).run(),
                "slow-listener": lambda bench: SlowListener(bench).run(),
                "used-again": lambda bench: NamesUsedAgain(bench).run(),
                "crashed": lambda bench: CrashedOwner(bench).run(),
                "sought": lambda bench: SoughtPlaces(bench).run(),
                "asked-again": lambda bench: AskedAgain(bench).run(),
                "stopped": lambda bench: StoppedClients(bench).run(),
                "renewals": lambda bench: UnansweredRenewals(bench).run(),
                "several": lambda bench: SeveralGroups(bench).run(),
                "waits": lambda bench: WaitingCalls(bench).run(),
                "traces": lambda bench: FullTraces(bench).run(),
                "gone": lambda _: gone.come_back(),
                "overtaken": lambda _: overtaken.come_back(),
            }
            if not is_cut:  # what waits, is held by a pop, or is undecided keeps the log
                drills["answers"] = lambda bench: LostAnswers(bench).run()
                drills["sent-back"] = lambda bench: UnansweredSendsBack(bench).run()
                drills["deleted-groups"] = lambda bench: DeletedGroups(bench).run()
                drills["popped"] = lambda bench: PoppedOn(bench).run()
                drills["turns"] = lambda bench: CheckedInTurn(bench).run()
                drills["immune"] = lambda bench: ImmuneHalf(bench).run()
                drills["decided"] = lambda bench: EndedTransactions(bench).run()
                drills["levels"] = lambda bench: LevelProgress(bench).run()
                drills["talks"] = lambda bench: RecordedTalks(bench).run()
            async with asyncio.TaskGroup() as tasks:
                for name, drill in drills.items():
                    if name not in TIMED or self._kit.context.world.links.name == "simulated":
                        tasks.create_task(self._have(benches[name], drill, ends_s=ENDS_S))
        finally:
            self._idle.set()

    async def _cut_off(self, bench: Bench) -> None:
        others = self._benches["others"]
        drill = CutOffMember(bench, others)
        if not drill.is_possible:
            return
        others.begin()
        async with others.admin, others.reader:
            await drill.run()

    async def _have(self, bench: Bench, drill: Drill, *, ends_s: float | None = None) -> None:
        """Carry a drill out; `ends_s`: how long it may take."""
        bench.begin()
        limit_s = None if ends_s is None else ends_s * bench.patience
        try:
            async with asyncio.timeout(limit_s) as limit, bench.admin, bench.reader:
                await drill(bench)
        except LinksError:
            return  # a world whose links can't be cut
        except ClientError as error:
            bench.failed(f"{type(error).__name__}: {error}")
        except TimeoutError:
            if not limit.expired():
                raise
            bench.failed(f"not done in {limit_s:g} s")

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True


def _slots(_: ApplicationsSection) -> Sequence[str]:
    return [f"{NAME}-{drill}" for drill in DRILLS]


SPEC: Final = PartSpec(
    name=NAME,
    summary="clients with default settings that lose connections, are cut off, suspended and gone",
    topics=lambda _: [],
    slots=_slots,
    make=ApplicationsPart,
    judged_by=("M12",),
)
