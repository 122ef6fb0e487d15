"""The replicated log of the engines `async` and `sync`: a master that is configured, not elected.

Place in the data path: implements `raft.replicated_log` over `broker.ha.commit_log`. The master
appends a proposal at once, applies it in the same turn of the loop, and answers it by its mode:
when it is appended, when it was fsynced (`waits_for_disk`), when enough slaves have it
(`waits_for_slaves`).

Invariants:
- entries are applied in the order of the log, each once per incarnation, and once it was appended:
  what is applied may be lost with this node's disk, or with its page cache;
- `propose` that was answered FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE is
  stored here and goes on to the slaves;
- entries without records (topics, offsets, groups) never wait for slaves, as in RocketMQ, which
  copies these now and then;
- a failed write or fsync stops the node.

Source: RocketMQ CommitLog.asyncPutMessage, DefaultMessageStore.ReputMessageService.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.entry.payload import PAYLOAD_HEADER
from broker.ha.acknowledgements import Acknowledgements
from broker.ha.commit_log import Standing
from broker.ha.config import HaConfig
from broker.ha.flusher import Flusher
from broker.ha.framing import SLOT_AHEAD, TERM, Framed
from broker.ha.master_link import MasterLink
from broker.ha.replay import committed, replay
from broker.ha.slaves import Slaves
from broker.ha.state_keeper import StateKeeper
from broker.ha.store import HaStore
from broker.ha.trace_events import TraceEvents
from raft.events import ChangeRefusal, ChangeRefused, Role
from raft.fail_stop import FailStop, fails_with, stops_node
from raft.log.segment_files import NO_ROOM
from raft.membership import (
    Member,
    Membership,
    MembershipChange,
    encode_membership,
    make_membership,
)
from raft.messages import Index, LogBase, NodeId
from raft.replicated_log import (
    ChangeRefusedError,
    CommittedEntry,
    LogFullError,
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    ProposalStatus,
    RestorableStateMachine,
    RetentionBounds,
    Slot,
    StateDivergedError,
)

__all__ = ["HaLog"]

_EMPTY: Final = LogBase(index=0, term=TERM, position=0, chain=0)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Appended:
    """A proposal that was appended and is not applied yet."""

    entry: CommittedEntry
    after: LogBase
    has_records: bool
    future: asyncio.Future[ProposalResult]


class HaLog:
    """The log of a master or a slave as the broker uses it. Implements `ReplicatedLog`."""

    def __init__(self, config: HaConfig, state_machine: RestorableStateMachine) -> None:
        self._config = config
        self._state_machine = state_machine
        self._store: HaStore | None = None
        self._applied = _EMPTY
        self._appended: list[_Appended] = []
        self._acknowledgements = Acknowledgements(
            sync_flush_timeout_ms=config.sync_flush_timeout_ms,
            slave_timeout_ms=config.slave_timeout_ms,
        )
        self._expiry: asyncio.TimerHandle | None = None
        self._expires_ms = 0  # when `_expiry` is due
        self._slaves: Slaves | None = None  # of a master
        self._link: MasterLink | None = None  # of a slave
        self._is_linked = False
        self._serving = False
        self._writable = True
        self._trace = TraceEvents(None, is_master=config.is_master)
        self._background: asyncio.Task[None] | None = None
        self.fail_stop = FailStop(self.fail)
        self.stopped = True

    # --- start and stop ------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, restore the newest snapshot, apply what is behind it. Raises OSError
        (StoreLockedError, WrongStoreError) and CorruptLogError."""
        config = self._config
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[BaseException] = self._loop.create_future()
        store = await asyncio.to_thread(HaStore, config)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(store.close)
            self._trace = TraceEvents(store.trace, is_master=config.is_master)
            self._keeper = StateKeeper(
                store.log,
                store.snapshots,
                self._state_machine,
                interval_size_bytes=config.snapshot_interval_size_bytes,
                membership=encode_membership(self.membership()),
                on_written=self._trace.state_written,
            )
            self._applied = await replay(store.log, self._keeper, self._state_machine)
            if config.fsync_by == "kernel":
                store.open_syncs()
            self._trace.started(self._applied, sorted(config.peers))
            self._flusher = Flusher(store.log, self._on_durable, self.fail)
            if config.is_master:
                self._slaves = Slaves(config, store.log, self._on_reported, self.fail)
                if config.listen:
                    await self._slaves.start()
            else:
                self._link = MasterLink(
                    config,
                    store.log,
                    on_received=self._on_received,
                    on_connected=self._on_connected,
                    before_cut=self._flusher.pause,
                )
            on_failure.pop_all()
        self._store = store
        self.stopped = False
        self._serving = config.is_master  # a slave, once it knows whether its master is there
        self._background = asyncio.create_task(self._run_background(), name="ha-log")
        self._background.add_done_callback(fails_with(self.fail))
        self._notify_status()

    async def stop(self) -> None:
        """Leave cleanly: sync everything appended, write a snapshot and the checkpoint. Safe to
        call after a failure, and twice."""
        was_running = not self.stopped
        if was_running:
            self._turn()
        was_running = not self.stopped  # unless that has failed
        self.stopped = True
        self._shut()
        store, self._store = self._store, None
        if store is None or self._background is None:
            return
        self._background.cancel()
        await asyncio.wait([self._background])
        if self._slaves is not None:
            await self._slaves.stop()
        await self._flusher.stop()
        try:
            if was_running:
                await asyncio.to_thread(self._end_cleanly, store)
        finally:
            store.close()

    def _end_cleanly(self, store: HaStore) -> None:
        store.log.sync()
        self._keeper.write_last(self._applied)
        store.write_checkpoint(self._applied.index, clean=True)

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """Stop this node for good, because of `error`; `wait_failed` returns it."""
        if self.stopped:
            return
        _log.error("the node stops: %s: %s", type(error).__name__, error, exc_info=error)
        if isinstance(error, StateDivergedError):
            self._trace.truncated(self._opened.log.end.index + 1)
        self.stopped = True
        self._shut()
        if self._background is not None:
            self._background.cancel()
        if not self._failed.done():
            self._failed.set_result(error)

    def _shut(self) -> None:
        self._serving = False
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        appended, self._appended = self._appended, []
        for each in appended:
            _answer(each, ProposalStatus.STOPPED)
        self._acknowledgements.stop()

    async def _run_background(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush_regularly())
            group.create_task(self._keeper.run(self._flusher.made_durable))
            if self._link is not None:
                group.create_task(self._link.run())

    async def _flush_regularly(self) -> None:
        """Fsync at intervals, and try again where the disk had no room for the log's next file."""
        while True:
            await asyncio.sleep(self._config.flush_interval_ms / 1000)
            self._flusher.want()
            if not self._writable:
                self._try_to_reserve()

    def _try_to_reserve(self) -> None:
        try:
            self._opened.log.reserve()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return
        self._writable = True

    # --- calls of the broker -------------------------------------------------------------------

    @property
    def _opened(self) -> HaStore:
        assert self._store is not None, "started"
        return self._store

    def status(self) -> LogStatus:
        config = self._config
        leads = config.is_master and self._serving
        has_room = self._link is None or self._link.has_room
        begin, end = _EMPTY, _EMPTY
        if self._store is not None:
            begin, end = self._store.log.begin, self._store.log.end
        return LogStatus(
            role=Role.LEADER if config.is_master else Role.FOLLOWER,
            term=TERM,
            leader_id=config.master if leads or self._is_linked else None,
            ready=leads,
            first_index=begin.index + 1,
            last_index=end.index,
            commit_index=end.index,
            applied_index=self._applied.index,
            voters=tuple(sorted(config.peers)),
            learners=(),
            begin_position=begin.position,
            writable=self._writable and has_room,
            phase=Phase.SERVING if self._serving else Phase.RECOVERING,
        )

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """See `ReplicatedLog.propose`."""
        self._require_master()
        log = self._opened.log
        future: asyncio.Future[ProposalResult] = self._loop.create_future()
        slot = self._slot()
        payload = fill(slot)
        if len(payload) > self._config.payload_size_max:
            raise ValueError(
                f"payload of {len(payload)} bytes, at most {self._config.payload_size_max} are"
                " allowed"
            )
        try:
            if not log.fits(len(payload)):
                log.roll()
                slot = self._slot()
                payload = fill(slot)
            standing = log.append(payload)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._writable = False
                raise LogFullError from error
            # What of the entry has reached the disk is not known.
            self.fail(error)
            future.set_result(
                ProposalResult(status=ProposalStatus.STOPPED, index=slot.index, term=TERM)
            )
            return future
        (*_, table_size) = PAYLOAD_HEADER.unpack_from(payload)
        has_records = PAYLOAD_HEADER.size + table_size < len(payload)
        if not self._appended:
            self._loop.call_soon(self._turn)
        self._appended.append(_Appended(committed(standing), standing.after, has_records, future))
        return future

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        """See `ReplicatedLog.confirm`: entries are applied here before their answers are due."""
        if not (self._serving and self._config.is_master):
            on_done(ProposalStatus.STOPPED)
            return
        self._turn()
        self._await_acknowledgement(self._applied.position, on_done, has_records=True)
        self._on_reported()  # slaves may have all of it already, and then report nothing more
        self._request_acknowledgements()

    def propose_then(
        self, fill: Callable[[Slot], bytes], on_done: Callable[[ProposalResult], None]
    ) -> None:
        """See `ReplicatedLog.propose_then`."""
        self.propose(fill).add_done_callback(lambda done: on_done(done.result()))

    def _require_master(self) -> None:
        """Raises NotLeaderError elsewhere, and before this node serves."""
        if not (self._serving and self._config.is_master):
            raise NotLeaderError(self.status().leader_id)

    def _slot(self) -> Slot:
        end = self._opened.log.end
        return Slot(index=end.index + 1, term=TERM, position=end.position + SLOT_AHEAD)

    async def read_index(self) -> Index:
        """Return the index up to which this node has applied its log.

        See `ReplicatedLog.read_index`; here nothing proves that no other master exists. A slave
        whose master is away answers, too, so that consumers go on; one that has not received its
        master's log yet refuses, since it may have nothing.
        """
        if self._is_linked or not self._serving:
            self._require_master()
        self._turn()
        return self._applied.index

    def read(self, position: int, size: int) -> bytes:
        if self._store is None:
            raise LookupError("the log is not open")
        return self._store.log.read(position, size)

    def entry_at(self, position: int) -> Framed:
        """Return the entry, or the BLANK, that begins at `position`. Raises LookupError,
        CorruptLogError, OSError."""
        if self._store is None:
            raise LookupError("the log is not open")
        return self._store.log.entry_at(position)

    async def transfer_leadership(self, target: NodeId) -> None:
        """Refuse: a master is configured. Raises NotLeaderError, ValueError."""
        self._require_master()
        raise ValueError(f"{self._config.group} keeps its master: {target} can't take over")

    def membership(self) -> Membership:
        peers = self._config.peers
        return make_membership(Member(node_id=name, address=peers[name]) for name in peers)

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """Refuse: the members are configured. Raises NotLeaderError, ChangeRefusedError."""
        self._require_master()
        raise ChangeRefusedError(
            ChangeRefused(
                reason=ChangeRefusal.IMPOSSIBLE, detail="master and slaves are configured"
            )
        )

    def retention_bounds(self) -> RetentionBounds:
        if self._store is None:
            return RetentionBounds(begin_position=0, end_position=0, follower_position=None)
        log = self._store.log
        return RetentionBounds(
            begin_position=log.begin.position,
            end_position=log.end.position,
            follower_position=None if self._slaves is None else self._slaves.slowest_position,
        )

    async def retain_from(self, position: int) -> int:
        """See `ReplicatedLog.retain_from`. The state is captured at the next turn where snapshots
        hold something back. The loop has as long for itself after each file as its removal took."""
        log = self._opened.log
        if self._keeper.safe_position < position:
            self._keeper.want()
        begin = log.begin.position
        while not self.stopped:
            began_s = self._loop.time()
            with self.fail_stop:
                before = begin
                begin = log.drop_before(min(position, self._keeper.safe_position), 1)
                if begin == before:
                    break
                self._state_machine.trim(begin)
            await asyncio.sleep(self._loop.time() - began_s)
        return begin

    # --- turns ---------------------------------------------------------------------------------

    @stops_node
    def _turn(self) -> None:
        """Apply what was appended in this turn of the loop, and answer or let wait."""
        appended, self._appended = self._appended, []
        if not appended:
            return
        entries = [each.entry for each in appended]
        self._trace.applied(entries)  # before what wakes by them is answered
        self._state_machine.apply(entries)
        self._applied = appended[-1].after
        assert self._slaves is not None, "a master"
        self._slaves.appended()
        for each in appended:
            self._await_acknowledgement(
                each.after.position, partial(_answer, each), has_records=each.has_records
            )
        self._request_acknowledgements()
        self._keeper.applied(self._applied)

    def _await_acknowledgement(
        self, end: int, answer: Callable[[ProposalStatus], None], *, has_records: bool
    ) -> None:
        """Call `answer` once the log up to `end` is as safe as this mode's answers say."""
        config = self._config
        waits_for_slaves = config.waits_for_slaves and config.in_sync_replicas > 1
        self._acknowledgements.add(
            end,
            answer,
            now_ms=_monotonic_ms(),
            for_disk=config.waits_for_disk,
            for_slaves=waits_for_slaves and has_records,
            slaves_available=self._slaves_available(),
        )

    def _request_acknowledgements(self) -> None:
        if self._config.waits_for_disk:
            self._flusher.want()
        self._schedule_expiry()

    def _slaves_available(self) -> bool:
        """Return whether enough slaves are near."""
        assert self._slaves is not None, "a master"
        return self._slaves.near_count() >= self._config.in_sync_replicas - 1

    @stops_node
    def _on_reported(self) -> None:
        """A slave has come further."""
        count = self._config.in_sync_replicas - 1
        if self._slaves is not None and count:
            self._acknowledgements.replicated(self._slaves.replicated_position(count))

    @stops_node
    def _on_received(self, standings: list[Standing]) -> None:
        """Apply what has come whole from the master."""
        entries = [committed(standing) for standing in standings]
        self._trace.applied(entries)
        self._state_machine.apply(entries)
        self._applied = standings[-1].after
        self._keeper.applied(self._applied)
        if self._config.waits_for_disk:
            self._flusher.want()

    @stops_node
    def _on_connected(self, is_linked: bool) -> None:
        if not self.stopped and (is_linked != self._is_linked or not self._serving):
            self._is_linked, self._serving = is_linked, True
            self._notify_status()

    @stops_node
    def _on_durable(self, position: int) -> None:
        self._acknowledgements.durable(position)

    def _schedule_expiry(self) -> None:
        """Wake at the next deadline. It may be earlier than the one waited for: an entry waits for
        slaves for seconds, and a later one for its fsync for some milliseconds."""
        deadline_ms = self._acknowledgements.next_deadline_ms
        if deadline_ms is None or (self._expiry is not None and self._expires_ms <= deadline_ms):
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_ms = deadline_ms
        delay_ms = max(1, deadline_ms - _monotonic_ms())
        self._expiry = self._loop.call_later(delay_ms / 1000, self._expire)

    @stops_node
    def _expire(self) -> None:
        self._expiry = None
        self._acknowledgements.expire(_monotonic_ms())
        self._schedule_expiry()

    def _notify_status(self) -> None:
        self._state_machine.on_role_change(self.status())


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _answer(appended: _Appended, status: ProposalStatus) -> None:
    if not appended.future.done():
        index = appended.entry.index
        appended.future.set_result(ProposalResult(status=status, index=index, term=TERM))
