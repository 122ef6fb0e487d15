"""A node of a replication group: its life, from an opened store to a clean stop; asyncio.

Place in the data path: the broker proposes and applies through `raft.replicated_log`, which this
class implements; peers' messages come and go through `raft.peers.transport`. The core's decisions
are carried out by `raft.node.core_shell`, in the order that is stated there.

A node passes through phases. RECOVERING: the store is opened and the newest snapshot restored, on a
thread. UNBORN: the store is empty, and store gossip finds out whether it may take part
(`raft.bootstrap.store_gossip`). REPAIRING: durable entries are damaged, good copies are fetched
(`raft.repair.log_repairer`). SERVING: there is a core. Before that the node neither votes nor
acknowledges anything, but sends peers the entries that it has. Damage that is found while SERVING
is repaired meanwhile.

Invariants:
- a failed write or fsync, a broken invariant and an exception of the state machine all stop the
  node: nothing is sent after it, and `wait_failed` returns it;
- the commit index that a checkpoint holds is durable on this node.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import time
from collections.abc import Callable

from raft.bootstrap.store_gossip import (
    initial_configuration,
)
from raft.fail_stop import FailStop, fails_with, stops_node
from raft.log.damage import DamagedLogError
from raft.membership import Configuration, Membership, MembershipChange
from raft.messages import (
    FetchEntries,
    FetchEntriesReply,
    Index,
    InstallSnapshot,
    Introduce,
    LogBase,
    NodeId,
    PeerMessage,
)
from raft.node.core_shell import CoreShell
from raft.node.introductions import Introductions
from raft.node.log_compaction import LogCompaction
from raft.node.node_config import NodeConfig
from raft.node.node_status import status_before_serving
from raft.node.open_proposals import resolve
from raft.node.state_install import StateInstall, event_of
from raft.peers.handshake import Credentials
from raft.peers.transport import TcpTransport, Transport
from raft.repair.log_repairer import LogRepairer
from raft.replicated_log import (
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    ProposalStatus,
    RestorableStateMachine,
    RetentionBounds,
    Slot,
)
from raft.snapshots.install import Received
from raft.snapshots.install_stream import InstallStream
from raft.snapshots.snapshot_keeper import SnapshotKeeper, WrittenState
from raft.stalls import Stalls
from raft.storage import Disk
from raft.store.checkpoint import hint
from raft.store.node_store import NodeStore
from raft.store.restore import RestoredState, do_without, restore_newest
from raft.turn import Turn

__all__ = ["RaftNode"]

_ROOM_INTERVAL_S = 1.0
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})

_log = logging.getLogger(__name__)


class RaftNode:
    """A node. Implements `ReplicatedLog`. `disk` and `transport` are replaced in tests only."""

    def __init__(
        self,
        config: NodeConfig,
        state_machine: RestorableStateMachine,
        *,
        clock: Callable[[], float] = time.monotonic,
        disk: Disk | None = None,
        transport: Transport | None = None,
        stalls: Stalls | None = None,
        turn: Turn | None = None,
    ) -> None:
        """`turn`: that of the process, so that what the node does and what the broker does is done
        at the same end of a turn."""
        self.fail_stop = FailStop(self.fail)
        self._turn = turn or Turn(self.fail_stop)
        self._config = config
        self._stalls = stalls
        self._state_machine = state_machine
        self._clock = clock
        self._disk = disk
        self._transport: Transport = transport or TcpTransport(
            Credentials(
                group=config.group,
                node_id=config.node_id,
                secret=config.secret,
                address=config.peers[config.node_id],
            ),
            listen=config.listen,
            peers={peer: a for peer, a in config.peers.items() if peer != config.node_id},
            dial=config.dial,
            turn=self._turn,
        )
        self._background: asyncio.Task[None] | None = None
        self._shell: CoreShell | None = None  # from SERVING on
        self._phase = Phase.RECOVERING
        self._restored: RestoredState | None = None
        self._was_repaired = asyncio.Event()
        self._repair_in_vain = False
        self.stopped = True  # until started, and after a stop or a failure

    # --- start and stop ------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, listen, join the group.

        Raises OSError (also StoreLockedError, WrongStoreError, and an address in use),
        CorruptLogError, and ValueError where a snapshot holds no state; the node is as before then.
        """
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[BaseException] = self._loop.create_future()
        # On a thread: recovery of a long log takes seconds.
        self._store = store = await asyncio.to_thread(NodeStore, self._config, self._disk)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(store.close)
            await self._restore()
            self._assemble(store)
            await self._transport.start(
                self._on_message, self._on_unreachable, store_id=store.identity.store_id
            )
            on_failure.pop_all()
        self.stopped = False
        self._begin_phase()
        self._introduce()
        # The one task without a group: it outlives this call, `stop` and `fail` end it.
        self._background = asyncio.create_task(self._run_background(), name="raft-node")
        self._background.add_done_callback(fails_with(self.fail))

    async def _restore(self) -> None:
        """Restore the newest snapshot's state, unless that needs something damaged."""
        store = self._store
        store.write_checkpoint(store.checkpoint.commit_index, 0, clean=False)
        if store.log.damages and not (
            self._repair_in_vain and await asyncio.to_thread(do_without, store.log, store.snapshots)
        ):
            return
        try:
            self._restored = await asyncio.to_thread(
                restore_newest,
                store.log,
                store.snapshots,
                self._state_machine,
                commit_index=store.checkpoint.commit_index,
            )
        except DamagedLogError as error:
            _log.error("the log is damaged: %s", error)

    def _assemble(self, store: NodeStore) -> None:
        config = self._config
        self._introductions = Introductions(config, store, self._transport, self._begin_phase)
        self._snapshots = SnapshotKeeper(
            store.log,
            store.snapshots,
            self._state_machine,
            interval_size_bytes=config.snapshot_interval_size_bytes,
            configuration_at=self._configuration_at,
            on_written=self._on_state_written,
            stalls=self._stalls,
        )
        self._compaction = LogCompaction(
            store.log,
            self._snapshots,
            self._state_machine,
            fail_stop=self.fail_stop,
            is_running=lambda: not self.stopped,
            election_timeout_ms=config.raft.election_timeout_ms_max,
        )
        self._install = StateInstall(self._state_machine, self._snapshots)
        self._installs = InstallStream(
            config.node_id,
            store.snapshots,
            lambda: store.log.base,
            chunk_size_bytes=config.raft.install_chunk_size_bytes,
            rate_bytes_per_s=config.install_rate_bytes_per_s,
            size_bytes_max=config.install_size_bytes_max,
            now_ms=self._now_ms,
            send=self._send_now,
            accept=self._install.prepare,
            stored=self._on_chunk_stored,
        )
        self._repairer = LogRepairer(
            config.node_id,
            store.log,
            scrub_rate_bytes_per_s=config.scrub_rate_bytes_per_s,
            scrub_interval_s=config.scrub_interval_ms / 1000,
            now_ms=self._now_ms,
            peers=self._peers,
            commit_index=self._commit_index,
            send=self._send_now,
            end_at=self._end_at,
            repaired=self._was_repaired.set,
            in_vain=self._on_in_vain,
        )

    async def stop(self) -> None:
        """Leave cleanly: hand leadership over, make everything appended durable, take a snapshot,
        write the checkpoint.

        Safe to call after a failure, and twice.
        """
        if not self.stopped and self._shell is not None:
            await self._shell.transfer.to_best()
        was_running = not self.stopped
        self.stopped = True
        self._shut()
        if self._background is None:
            return
        self._background.cancel()
        await asyncio.wait([self._background])
        if self._shell is not None:
            await self._shell.end_rounds()
        self._background = None
        try:
            if was_running and self._shell is not None:
                # A failure here still reports that what was written may not be safe.
                self._shell.trace.flush()
                applied_index = self._shell.applier.applied_index
                await asyncio.to_thread(
                    self._store.end_cleanly,
                    self._shell.group_commit.persist_rest,
                    functools.partial(self._snapshots.write_last, applied_index),
                    commit_index=self._shell.core.commit_index,
                    applied_index=applied_index,
                )
                self._shell.trace.flush()
        finally:
            self._store.close()

    def _on_state_written(self, state: WrittenState) -> None:
        """Trace a written snapshot; called on the loop, or while a stop waits for the last one."""
        if self._shell is not None:
            self._shell.trace.state_written(self._shell.core.current_term, state)

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """Stop for good: nothing is sent, appended or applied any more."""
        if self.stopped:
            return
        # A failing disk is for an operator to repair; anything else is a bug and gets a traceback.
        trace = None if isinstance(error, OSError) and error.errno in _DISK_ERRORS else error
        _log.error("the node stops: %s: %s", type(error).__name__, error, exc_info=trace)
        self.stopped = True
        self._shut()
        if self._background is not None:
            self._background.cancel()
        if not self._failed.done():
            self._failed.set_result(error)

    def _shut(self) -> None:
        if self._shell is not None:
            self._shell.shut()

    # --- phases --------------------------------------------------------------------------------

    def _begin_phase(self) -> None:
        self._introductions.bear_alone()
        if not self._store.identity.born:
            self._phase = Phase.UNBORN
            _log.info("the store is new: waiting to hear from %s", ", ".join(self._config.peers))
        elif self._restored is None:
            self._phase = Phase.REPAIRING
        else:
            self._serve(self._restored)

    async def _serve_when_repaired(self) -> None:
        """Restore and serve once the log is repaired. Raises as `start` does."""
        while True:
            await self._was_repaired.wait()
            self._was_repaired.clear()
            if self._phase is Phase.REPAIRING:
                with self._repairer.leaving_alone():
                    await self._restore()
                # This restore covers earlier notifications, also where it was in vain.
                self._was_repaired.clear()
                self._begin_phase()

    def _serve(self, restored: RestoredState) -> None:
        """Create the core and take part in the group from now on."""
        store = self._store
        configuration = restored.configuration
        if configuration is None and store.identity.roster:
            configuration = initial_configuration(store.identity.roster)
        self._snapshots.begin_with(restored.snapshots)
        if self._config.fsync_by == "kernel":
            store.open_syncs()
        self._shell = CoreShell(
            self._config,
            store,
            restored,
            self._state_machine,
            self._transport,
            configuration=configuration,
            clock=self._clock,
            fail=self.fail,
            on_configuration=self._on_configuration,
            on_segment_end=self._snapshots.segment_ended,
            on_install=self._install.restore,
            on_chunk_wanted=self._installs.want,
            on_chunk=self._installs.receive,
            turn=self._turn,
            stalls=self._stalls,
        )
        self._phase = Phase.SERVING
        self._shell.begin()

    @stops_node
    def _introduce(self) -> None:
        interval_ms = self._introductions.introduce(self._phase, self._configuration())
        self._loop.call_later(interval_ms / 1000, self._introduce)

    # --- background ----------------------------------------------------------------------------

    async def _run_background(self) -> None:
        """Run connections, checkpoints and snapshots until the node stops."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._transport.run())
                group.create_task(self._checkpoint_regularly())
                group.create_task(self._snapshots.run())
                group.create_task(self._installs.run())
                group.create_task(self._poll_room())
                group.create_task(self._repairer.run())
                group.create_task(self._serve_when_repaired())
        finally:
            # Also after a failure: the broken connections notify the peers.
            await self._transport.stop()

    async def _checkpoint_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            shell = self._shell
            if shell is None:
                continue
            core = shell.core
            commit_index = hint(commit_index=core.commit_index, durable_index=core.durable_index)
            if self._store.checkpoint.commit_index != commit_index:
                await asyncio.to_thread(
                    self._store.write_checkpoint,
                    commit_index,
                    shell.applier.applied_index,
                    clean=False,
                )

    async def _poll_room(self) -> None:
        while True:
            await asyncio.sleep(_ROOM_INTERVAL_S)
            if self._shell is not None:
                self._shell.poll_room()

    # --- calls of the broker -------------------------------------------------------------------

    def status(self) -> LogStatus:
        if self._shell is not None:
            return self._shell.status.now()
        return status_before_serving(self._store, self._phase, self._commit_index())

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """See `ReplicatedLog.propose`. ValueError also where too many proposals are open."""
        outcome: asyncio.Future[ProposalResult] = self._loop.create_future()
        self.propose_then(fill, functools.partial(resolve, outcome))
        return outcome

    def propose_then(
        self, fill: Callable[[Slot], bytes], on_done: Callable[[ProposalResult], None]
    ) -> None:
        """See `ReplicatedLog.propose_then`. ValueError also where too many proposals are open."""
        self._serving().propose(fill, on_done)

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        """See `ReplicatedLog.confirm`."""
        on_done(ProposalStatus.COMMITTED)

    async def read_index(self) -> Index:
        """See `ReplicatedLog.read_index`. NotLeaderError also where too many reads are open."""
        return await self._serving().read_index()

    def membership(self) -> Membership:
        """See `ReplicatedLog.membership`; empty before this node takes part."""
        return Membership() if self._shell is None else self._shell.core.configuration.membership

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """See `ReplicatedLog.change_membership`."""
        return await self._serving().change_membership(change)

    async def transfer_leadership(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        await self._serving().transfer_leadership(target)

    def read(self, position: int, size: int) -> bytes:
        """See `ReplicatedLog.read`."""
        return self._store.log.read(position, size)

    def retention_bounds(self) -> RetentionBounds:
        """See `ReplicatedLog.retention_bounds`."""
        return self._compaction.bounds(self._shell)

    async def retain_from(self, position: int) -> int:
        """See `ReplicatedLog.retain_from`."""
        return await self._compaction.retain_from(position)

    def _serving(self) -> CoreShell:
        if self._shell is None:
            raise NotLeaderError(None)
        return self._shell

    # --- entries from the loop -----------------------------------------------------------------

    @stops_node
    def _on_message(self, message: PeerMessage) -> None:
        match message:
            case Introduce():
                self._introductions.hear(message, self._configuration())
            case FetchEntries():
                self._repairer.on_fetch(message)
            case FetchEntriesReply():
                self._repairer.on_reply(message)
            case _:
                if self._shell is not None:
                    self._shell.on_message(message)

    @stops_node
    def _on_unreachable(self, peer: NodeId) -> None:
        if self._shell is not None:
            self._shell.on_unreachable(peer)

    # --- callbacks of the repairer -------------------------------------------------------------

    def _peers(self) -> frozenset[NodeId]:
        """Return the peers that may have good copies."""
        if self._shell is not None:
            return self._shell.core.peer_ids
        return self._introductions.peers()

    def _commit_index(self) -> Index:
        if self._shell is not None:
            return self._shell.core.commit_index
        return min(self._store.checkpoint.commit_index, self._store.log.last_index)

    def _on_in_vain(self) -> None:
        self._repair_in_vain = True
        self._was_repaired.set()

    def _end_at(self, cut: LogBase) -> None:
        """Cut the log where there is no core; else only the core truncates, led by its leader."""
        if self._phase is Phase.REPAIRING:
            self._store.log.end_at(cut)

    # --- callbacks of the core's shell ---------------------------------------------------------

    def _on_configuration(self, configuration: Configuration) -> None:
        self._transport.set_members(configuration.membership.members)

    def _configuration(self) -> Configuration | None:
        return None if self._shell is None else self._shell.core.configuration

    def _configuration_at(self, index: Index) -> Configuration:
        assert self._shell is not None, "what is applied is applied by a core's node"
        return self._shell.core.configuration_at(index)

    def _send_now(self, message: PeerMessage) -> None:
        if not self.stopped:
            self._transport.send(message)
            self._transport.flush()

    @stops_node
    def _on_chunk_stored(self, chunk: InstallSnapshot, received: Received) -> None:
        assert self._shell is not None
        self._shell.step_entry(event_of(chunk, received, self._shell.now_ms()))
        if received.whole:
            self._install.forget()

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
