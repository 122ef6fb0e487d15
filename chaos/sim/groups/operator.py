"""The operator of a simulated group: replaces a broker with a wiped disk, and watches damaged ones.

Place in the data path: `nemesis` damages and wipes through it, `cluster` queries what is still
unrepaired. It changes members as an operator does, step by step, at the apparent leader, and goes
on after the faults have ended: a wiped broker is of no use until it was removed and added. So is a
damaged one that lacks what all others have dropped by retention since: there is no good copy to
wait for, and it reports that.

Invariant: at most one broker is wiped or damaged at a time, so that a good copy of every committed
entry is left among the others.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.models.trace_rules import TraceRules
from chaos.sim.machine.disk import SimDisk
from chaos.sim.machine.scheduler import Scheduler
from raft.membership import (
    AddLearner,
    Member,
    Membership,
    MembershipChange,
    PromoteLearner,
    RemoveMember,
)
from raft.replicated_log import ChangeRefusedError, LogFullError, NotLeaderError, Phase

__all__ = ["GroupOperator", "found_store"]

_LOG = "commitlog/"
_VOTERS_COUNT_MIN = 3
_POLLS_IN_VAIN_MAX = 10


def found_store(store: Path) -> Path:
    """Return the directory for the files that lay beside the log on a disk taken for lost."""
    return store.with_name(f"{store.name}-old")


class GroupOperator:
    def __init__(
        self,
        brokers: list[BrokerMachine],
        rules: TraceRules,
        scheduler: Scheduler,
        counts: dict[str, int],
        *,
        interval_us: int,
        find_disk: Callable[[BrokerMachine, SimDisk], None],
    ) -> None:
        """Build the operator; `find_disk` gets a lost disk once its member is replaced."""
        self._brokers = brokers
        self._rules = rules
        self._scheduler = scheduler
        self._counts = counts
        self._interval_us = interval_us
        self._find_disk = find_disk
        self._lost_disk: SimDisk | None = None
        self._task: asyncio.Task[Any] | None = None  # kept until the next one
        self.wiped: BrokerMachine | None = None
        self.spoilt: BrokerMachine | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a repair is under way, so that nothing more may be damaged."""
        return self.wiped is not None or self._still_spoilt()

    def is_repairing(self, node: BrokerMachine) -> bool:
        return self.is_busy and node in {self.wiped, self.spoilt}

    def _still_spoilt(self) -> bool:
        if self.spoilt is not None and self.spoilt.is_sound:
            self._counts["damages_repaired"] += 1
            self.spoilt = None
        return self.spoilt is not None

    # --- damage --------------------------------------------------------------------------------

    def spoil(self, node: BrokerMachine, rng: random.Random) -> str | None:
        """Damage a file of a closed segment of a dead node; return None if there is none."""
        assert not node.alive
        disk = node.disk
        segments = [path for path in disk.paths() if path.startswith(_LOG) and path[-1].isdigit()]
        if len(segments) < 2:
            return None
        path = rng.choice(segments[:-1])
        data = bytearray(disk.content(path))
        if not data:
            return None
        at = int(rng.random() * len(data))
        kind = rng.choice(("flip", "zeros", "short", "lost"))
        match kind:
            case "flip":
                data[at] ^= 1 << rng.randrange(8)
            case "zeros":
                data[at : at + 512] = bytes(len(data[at : at + 512]))
            case "short":
                del data[at:]
            case _:
                disk.lose(path)
        if kind != "lost":
            if bytes(data) == disk.content(path):
                return None  # there were zeros before
            disk.spoil(path, bytes(data))
        self.spoilt = node
        self._later(partial(self._watch, node, 0))
        self._counts["files_spoilt"] += 1
        return f"{node.name} {path} {kind} at {at}"

    def _watch(self, node: BrokerMachine, polls: int) -> None:
        """Replace the node if no peer has its damaged entries, once it had time to find out."""
        if self.spoilt is not node or not self._still_spoilt():
            return
        polls = polls + 1 if self._waits_in_vain(node) else 0
        if polls > _POLLS_IN_VAIN_MAX and self._membership() is not None:
            node.crash(power=False, survival=node.draw_survival())
            self._later(partial(self._restart, node))
            if self.wipe(node):
                self.spoilt = None
                return
        self._later(partial(self._watch, node, polls))

    def _waits_in_vain(self, node: BrokerMachine) -> bool:
        status = node.status
        if status is None or status.phase not in {Phase.REPAIRING, Phase.SERVING}:
            return False
        wanted = node.damages
        if status.phase is Phase.SERVING:  # only what it has to apply next is missing
            next_index = status.applied_index + 1
            wanted = tuple(one for one in wanted if one.first_index <= next_index <= one.last_index)
        if not wanted:
            return False
        others = [one.status for one in self._brokers if one is not node]
        return all(one is not None and one.first_index > wanted[0].first_index for one in others)

    @staticmethod
    def _restart(node: BrokerMachine) -> None:
        if not node.alive:
            node.start()

    # --- a lost disk ---------------------------------------------------------------------------

    def wipe(self, node: BrokerMachine) -> bool:
        """Wipe the disk of a dead voter; return False if the group is too small for it."""
        assert not node.alive
        membership = self._membership()
        if membership is None or len(membership.voters) < _VOTERS_COUNT_MIN:
            return False
        self._lost_disk = node.disk
        shutil.rmtree(found_store(node.config.store), ignore_errors=True)
        if node.config.store.is_dir():
            node.config.store.rename(found_store(node.config.store))
        node.new_disk()
        self._rules.forget(node.name)
        self.wiped = node
        self._counts["disks_wiped"] += 1
        self._later(partial(self._replace, node))
        return True

    def _replace(self, node: BrokerMachine) -> None:
        """Check the progress of the replacement, and request the next step."""
        if self.wiped is not node:
            return
        membership, status = self._membership(), node.status
        store_id = "" if status is None else status.store_id
        if membership is not None and store_id:
            member = membership.member(node.name)
            if member is None:
                address = node.config.peers[node.name]
                fresh = Member(node_id=node.name, address=address, store_id=store_id)
                self._request_change(AddLearner(member=fresh))
            elif member.store_id != store_id:
                self._request_change(RemoveMember(node_id=node.name))
            elif member in membership.learners:
                self._rules.admit(node.name)
                self._request_change(PromoteLearner(node_id=node.name))
            else:
                self.wiped = None
                self._counts["wiped_members_replaced"] += 1
                disk, self._lost_disk = self._lost_disk, None
                if disk is not None:
                    self._find_disk(node, disk)
                return
        self._later(partial(self._replace, node))

    # --- requests ------------------------------------------------------------------------------

    def _leader(self) -> BrokerMachine | None:
        leaders = [node for node in self._brokers if node.leads and not node.paused]
        return max(leaders, key=lambda node: node.term) if leaders else None

    def _membership(self) -> Membership | None:
        leader = self._leader()
        if leader is None or leader.broker is None:
            return None
        return leader.broker.log.membership()

    def _request_change(self, change: MembershipChange) -> None:
        leader = self._leader()
        if leader is not None and leader.process is not None:
            process = leader.process
            process.run(lambda: self._begin(process.loop.create_task, self._change(leader, change)))

    def _begin(
        self,
        create_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[Any]],
        work: Coroutine[Any, Any, None],
    ) -> None:
        self._task = create_task(work)

    async def _change(self, leader: BrokerMachine, change: MembershipChange) -> None:
        assert leader.broker is not None
        try:
            await leader.broker.log.change_membership(change)
        except (ChangeRefusedError, LogFullError, NotLeaderError):
            self._counts["changes_refused"] += 1

    def _later(self, action: Callable[[], None]) -> None:
        self._scheduler.after(self._interval_us, action)
