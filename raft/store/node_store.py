"""All files of one node's store (docs/FORMATS.md section 1), opened together.

Place in the data path: `raft.node.node` opens it, on a thread, before the first message, and closes
it last.

Invariants: one process at a time (the lock is taken before anything is read); what was read is
durable before anything depends on it, the names of the files and the store's own included; hard
state before log (`raft.log.hard_state`); each opening is a new incarnation; a store has an identity
from its first opening on, and is admitted (`born`) at once only where it was used before there were
identities, else when `bear` is called.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from raft.log.disk import OsDisk, make_durable_directory
from raft.log.hard_state import HardStateFile
from raft.log.segment_files import NO_ROOM
from raft.log.segment_log import SegmentLog
from raft.messages import HardState, Index, NodeId
from raft.snapshots.snapshot import SnapshotFiles
from raft.storage import Disk
from raft.store.checkpoint import Checkpoint, WrongStoreError, read_checkpoint, write_checkpoint
from raft.store.identity import IdentityFile, StoreIdentity
from raft.store.store_lock import StoreLock
from raft.store.trace import RaftTrace, last_incarnation

__all__ = ["NodeStore", "StoreSettings"]

_STORE_ID_SIZE = 16

_log = logging.getLogger(__name__)


class StoreSettings(Protocol):
    """Part of the node's configuration (`raft.node.node_config.NodeConfig`) for its store."""

    @property
    def store(self) -> Path: ...
    @property
    def group(self) -> str: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def segment_size_bytes_max(self) -> int: ...
    @property
    def log_cached_size_bytes(self) -> int: ...
    @property
    def trace(self) -> bool:
        """Whether the node writes its Raft trace beside its log."""
        ...


class NodeStore:
    """The store of one node, opened at construction.

    Raises OSError (StoreLockedError, WrongStoreError among them) and CorruptLogError, with nothing
    left open.
    """

    def __init__(self, config: StoreSettings, disk: Disk | None) -> None:
        """`disk` replaces the directory; it has no other user."""
        self._config = config
        self._took_s: dict[str, float] = {}
        self._checkpointing = threading.Lock()  # one temporary file serves all
        with contextlib.ExitStack() as files:
            if disk is None:
                make_durable_directory(config.store)
                with self._timed("lock"):
                    files.callback(StoreLock(config.store).release)
                disk = OsDisk(config.store)
            self._disk = disk
            files.callback(disk.close_syncs)
            self._open(files)
            self._files = files.pop_all()
        _log.info(
            "store opened: %s",
            ", ".join(f"{name} {took_s:.3f} s" for name, took_s in self._took_s.items()),
        )

    def _open(self, files: contextlib.ExitStack) -> None:
        config = self._config
        with self._timed("marks"):
            self.checkpoint = read_checkpoint(
                self._disk, store=config.store, group=config.group, node=config.node_id
            )
            self._identity_file = IdentityFile(self._disk)
            known = self._identity_file.load()
            self.hard_state_file = HardStateFile(self._disk)
            # It was written before the store had an identity, and no store votes before admission.
            self.hard_state_file.load(was_written=known is not None and known.born)
        with self._timed("segments"):
            self._open_log(files)
        with self._timed("snapshots"):
            self.snapshots = SnapshotFiles(self._disk)
        self.identity = known or self._first_identity()
        if (self.identity.group, self.identity.node) != (config.group, config.node_id):
            raise WrongStoreError(
                f"{config.store}: the store belongs to {self.identity.group}/{self.identity.node},"
                f" not to {config.group}/{config.node_id}"
            )
        _log.info(
            "store %s, incarnation %d, %s stop, term %d",
            self.identity.store_id,
            self.checkpoint.incarnation + 1,
            "after a clean" if self.checkpoint.clean else "without a clean",
            self.hard_state.current_term,
        )
        self._begin_incarnation(files)

    def _open_log(self, files: contextlib.ExitStack) -> None:
        self.log = self._make_log()
        files.callback(self.log.close)
        found = self.log.recovery
        _log.info(
            "the log holds entries %d..%d, %d bytes; %d torn bytes dropped%s",
            self.log.first_index,
            self.log.last_index,
            found.bytes,
            found.torn_bytes,
            f" ({found.torn_reason})" if found.torn_reason else "",
        )

    def _make_log(self) -> SegmentLog:
        """Open and recover the log; overridden by the simulator for a smaller one."""
        return SegmentLog(
            self._disk,
            "commitlog",
            segment_size_bytes_max=self._config.segment_size_bytes_max,
            cached_size_bytes=self._config.log_cached_size_bytes,
            hard_state=self.hard_state_file,
        )

    def _first_identity(self) -> StoreIdentity:
        """Make the identity of a store without one: new, or older than identities and in use."""
        was_used = self.hard_state.current_term > 0 or self.log.last_index > 0
        identity = StoreIdentity(
            group=self._config.group,
            node=self._config.node_id,
            store_id=secrets.token_hex(_STORE_ID_SIZE),
            born=was_used,
        )
        self._identity_file.save(identity)
        return identity

    @property
    def hard_state(self) -> HardState:
        """The durable hard state."""
        return self.hard_state_file.state

    def bear(self, roster: bytes) -> None:
        """Record durably that the store is admitted with this configuration. Raises OSError."""
        assert not self.identity.born, "a store is born once"
        identity = StoreIdentity(
            group=self.identity.group,
            node=self.identity.node,
            store_id=self.identity.store_id,
            born=True,
            roster=roster,
        )
        self._identity_file.save(identity)
        self.identity = identity

    def _begin_incarnation(self, files: contextlib.ExitStack) -> None:
        trace_directory = self._config.store / "trace"
        last = max(self.checkpoint.incarnation, last_incarnation(trace_directory))
        self.incarnation = last + 1
        self.trace: RaftTrace | None = None
        if self._config.trace:
            self.trace = RaftTrace(trace_directory, self.incarnation)
            files.callback(self.trace.close)

    def write_checkpoint(self, commit_index: Index, applied_index: Index, *, clean: bool) -> None:
        """Write the checkpoint; `commit_index` must be durable here. May run on a thread, also on
        one that outlives a clean stop: what that writes after the stop's checkpoint is ignored.

        On a full disk the previous one remains: it is a hint, and true. Raises OSError otherwise.
        """
        checkpoint = Checkpoint(
            group=self._config.group,
            node=self._config.node_id,
            incarnation=self.incarnation,
            commit_index=commit_index,
            applied_index=applied_index,
            clean=clean,
        )
        with self._checkpointing:
            if self.checkpoint.clean and self.checkpoint.incarnation == self.incarnation:
                return
            try:
                write_checkpoint(self._disk, checkpoint)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                _log.warning("no checkpoint: %s", error)
                return
            self.checkpoint = checkpoint

    def open_syncs(self) -> None:
        """Let the log begin fsyncs on the running event loop, where the disk can; else a thread is
        needed for each. Call it on the loop that `close` is called on."""
        try:
            self._disk.open_syncs("hard_state")
        except OSError as error:
            _log.info("a thread fsyncs the log: %s", error)
            return
        self.log.begins_syncs = True
        _log.info("the kernel fsyncs the log beside the event loop")

    def end_cleanly(
        self,
        persist_rest: Callable[[], None],
        write_snapshot: Callable[[], None],
        *,
        commit_index: Index,
        applied_index: Index,
    ) -> None:
        """Make everything appended durable at a clean stop, take a snapshot, and only then write
        the clean checkpoint. May run on a thread; raises OSError, and what the callbacks raise."""
        persist_rest()
        write_snapshot()
        self.write_checkpoint(commit_index, applied_index, clean=True)

    def close(self) -> None:
        self._files.close()

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._took_s[name] = time.monotonic() - begin
