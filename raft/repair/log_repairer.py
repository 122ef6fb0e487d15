"""Finds damage of the log before a reader does, and repairs it from peers; asyncio.

Place in the data path: `raft.node.node` runs it beside the transport in every phase after the
store's admission, and passes it the peers' requests and replies. A node whose damage was found at
its start takes part only once `repaired` was called, or once `in_vain` reported that no peer has
good copies and it can do without.

Invariants: entries sent were verified, and those that may be stale are not called committed; damage
is never cut off, unless a peer's committed entries prove that what stood there never was committed,
and never while there is a core: its leader proves it then, by what it sends. Closed segments are
verified again and again within a rate, on a thread.

Source: raft/repair/repair_plan.py, raft/log/log_repair.py, raft/log/scrub.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator

from raft.log.damage import Damage, DamagedLogError, NeverCommittedError, RepairMismatchError
from raft.log.log_format import CorruptLogError
from raft.log.segment_log import SegmentLog
from raft.messages import (
    Entry,
    FetchEntries,
    FetchEntriesReply,
    Index,
    LogBase,
    NodeId,
    PeerMessage,
)
from raft.repair.reminders import Reminders
from raft.repair.repair_plan import RepairPlan, Wanted

__all__ = ["LogRepairer"]

_ENTRIES_SIZE_BYTES_MAX = 1 << 20
_SCRUB_STEP_SIZE_BYTES = 256 << 10
_TICK_S = 0.05
_IDLE_TICK_S = 0.25  # of a log without known damage: most of a quiet node's wakeups otherwise

_log = logging.getLogger(__name__)


class LogRepairer:
    """Repairer of one node. `commit_index` returns what is known to be committed here; `send`
    flushes by itself; `end_at` cuts the log behind a place, unless there is a core."""

    def __init__(
        self,
        node_id: NodeId,
        log: SegmentLog,
        *,
        scrub_rate_bytes_per_s: int,
        scrub_interval_s: float,
        now_ms: Callable[[], int],
        peers: Callable[[], Collection[NodeId]],
        commit_index: Callable[[], Index],
        send: Callable[[PeerMessage], None],
        end_at: Callable[[LogBase], None],
        repaired: Callable[[], None],
        in_vain: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._scrub_rate_bytes_per_s = scrub_rate_bytes_per_s
        self._scrub_interval_s = scrub_interval_s
        self._now_ms = now_ms
        self._peers = peers
        self._commit_index = commit_index
        self._send = send
        self._end_at = end_at
        self._repaired = repaired
        self._in_vain = in_vain
        self._repair = RepairPlan(node_id)
        self._known: tuple[Damage, ...] = ()
        self._free = asyncio.Event()  # no thread reads the log
        self._free.set()
        self._reminders = Reminders()

    async def run(self) -> None:
        """Repair and scrub until cancelled. Raises OSError, and CorruptLogError where a peer's
        committed entries contradict this node's."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repair_loop())
            if self._scrub_rate_bytes_per_s:
                group.create_task(self._scrub())

    @contextlib.contextmanager
    def leaving_alone(self) -> Iterator[None]:
        """Suspend reads and repairs within the block: a thread reads the log."""
        self._free.clear()
        self._repair.withdraw()
        try:
            yield
        finally:
            self._free.set()

    # --- requests of peers ---------------------------------------------------------------------

    def on_fetch(self, request: FetchEntries) -> None:
        """Send the requested entries that are good here. Raises OSError."""
        if self._free.is_set():  # else the requester tries another peer, or repeats
            self._send(self._answer(request))

    def _answer(self, request: FetchEntries) -> FetchEntriesReply:
        first = request.first_index
        entries = self._good_entries(first, request.last_index)
        return FetchEntriesReply(
            sender=self._node_id,
            receiver=request.sender,
            request_id=request.request_id,
            entries=entries,
            chain_before=self._log.chain(first - 1) if entries else 0,
            missing=not entries,
            commit_index=self._proven_index(first),
        )

    def _proven_index(self, first: Index) -> Index:
        """Return up to where entries from `first` on are committed as they stand here: those before
        a damage may be stale, and prove nothing of what the group has."""
        damage = next((one for one in self._log.damages if one.last_index >= first), None)
        commit_index = self._commit_index()
        return commit_index if damage is None else min(commit_index, damage.suspect_index - 1)

    def _good_entries(self, first: Index, last: Index) -> tuple[Entry, ...]:
        """Return entries from `first` on, up to the next damaged one; none where that is the first.

        Unconfirmed ones are included: the requester checks them, and otherwise two damaged nodes
        could not repair each other.
        """
        log = self._log
        last = min(last, log.last_index)
        if not log.first_index <= first <= last:
            return ()
        while True:
            damage = next((one for one in log.damages if one.last_index >= first), None)
            if damage is not None:
                last = min(last, damage.first_index - 1)
            if last < first:
                return ()
            known = log.damages
            try:
                return log.copies(first, last + 1, _ENTRIES_SIZE_BYTES_MAX)
            except DamagedLogError as error:
                if log.damages == known:
                    _log.warning("%d..%d can't be handed out: %s", first, last, error)
                    return ()

    # --- repairs of this node ------------------------------------------------------------------

    def on_reply(self, reply: FetchEntriesReply) -> None:
        """Process a peer's entries. Raises OSError and CorruptLogError."""
        request = self._repair.answered(reply) if self._free.is_set() else None
        if request is None:
            return
        try:
            self._judge(request.first_index, reply)
        except RepairMismatchError as error:
            _log.warning("what %s sent is not what stood here: %s", reply.sender, error)
            self._repair.refuse()
        except NeverCommittedError as found:
            self._repair.refuse()
            self._drop_uncommitted(found, reply)
        except ValueError:  # a truncation, or a reset, was faster
            self._repair.taken()
        else:
            self._repair.taken()
        self._check_damages()

    def _judge(self, first: Index, reply: FetchEntriesReply) -> None:
        if not self._repair.is_proof:
            self._log.repair(
                first,
                reply.entries,
                chain_before=reply.chain_before,
                committed_index=reply.commit_index,
            )
        elif first <= reply.commit_index:
            self._log.compare(reply.entries[0], reply.chain_before)

    def _drop_uncommitted(self, found: NeverCommittedError, reply: FetchEntriesReply) -> None:
        if found.index <= self._commit_index():
            raise CorruptLogError(
                "commitlog",
                self._log.end_position,
                f"entry {found.index} is committed here and at {reply.sender}, and differs",
            )
        _log.warning("what %s has committed contradicts this log: %s", reply.sender, found)
        self._end_at(found.cut)

    async def _repair_loop(self) -> None:
        while True:
            self._check_damages()
            await asyncio.sleep(_TICK_S if self._known else _IDLE_TICK_S)

    def _check_damages(self) -> None:
        """Log new damage, report its end, and request what is missing."""
        if not self._free.is_set():
            return  # no reply would be taken: the peer of a request sent now would count as silent
        damages = self._log.damages
        if damages != self._known:
            for damage in damages:
                if damage not in self._known:
                    _log.error("the log is damaged: %s", damage)
            self._reminders.retain([damage.last_index for damage in damages])
            if self._known and not damages:
                _log.info("the log is whole again")
                self._known = ()
                self._repaired()
                return
            self._known = damages
        if not damages:
            return
        wanted = [
            Wanted(first_index=self._log.wanted_index(damage), last_index=damage.last_index)
            for damage in damages
        ]
        request = self._repair.next(wanted, self._peers(), self._now_ms())
        if request is not None:
            self._send(request)
        elif self._repair.in_vain is not None:
            self._log.forget_repairs()
            self._report_in_vain(self._repair.in_vain, self._repair.answered_in_vain)
            self._in_vain()

    def _report_in_vain(self, lost: Wanted, answered: frozenset[NodeId]) -> None:
        """Log at once when other peers answer, else ever more rarely: this may last for days."""
        if self._reminders.due(lost.last_index, (lost.first_index, answered), self._now_ms()):
            _log.error(
                "no peer that answers (%s) has a good copy of entries %d..%d: the rest is kept, "
                "and asking goes on",
                ", ".join(sorted(answered)) or "none",
                lost.first_index,
                lost.last_index,
            )

    async def _scrub(self) -> None:
        while True:
            scrub = self._log.scrub()
            done = False
            while not done:
                step = await asyncio.to_thread(scrub.step, _SCRUB_STEP_SIZE_BYTES)
                await self._free.wait()
                if step.damages:
                    self._log.note_damages(step.damages)
                done = step.done
                await asyncio.sleep(step.size_bytes / self._scrub_rate_bytes_per_s)
            await asyncio.sleep(self._scrub_interval_s)
