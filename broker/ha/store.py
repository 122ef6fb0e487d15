"""The store of a master or slave, opened as a whole (docs/FORMATS.md section 19).

Place in the data path: `broker.ha.engine` opens it, on a thread, before anything else.

Invariants: one process at a time; a store of another engine, group or node is refused; all but the
lock goes through the disk.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from broker.ha.commit_log import CommitLog
from broker.ha.config import HaConfig
from raft.log.disk import OsDisk, make_durable_directory
from raft.messages import Index
from raft.snapshots.snapshot import SnapshotFiles
from raft.storage import Disk
from raft.store.checkpoint import Checkpoint, WrongStoreError, read_checkpoint, write_checkpoint
from raft.store.store_lock import StoreLock
from raft.store.trace import RaftTrace, last_incarnation

__all__ = ["HaStore"]

_OTHER_ENGINES: Final = frozenset({"hard_state", "pysyncobj"})
"""What their stores have at the top."""

_log = logging.getLogger(__name__)


class HaStore:
    """The files of one node's store, opened at construction.

    The constructor raises OSError (StoreLockedError, WrongStoreError among them) and
    CorruptLogError; it leaves nothing open then.
    """

    def __init__(self, config: HaConfig, disk: Disk | None = None) -> None:
        """Open the store in `disk`, or in the directory of `config`."""
        self._config = config
        self.disk = OsDisk(config.store) if disk is None else disk
        with contextlib.ExitStack() as files:
            self._open(files)
            self._files = files.pop_all()

    def _open(self, files: contextlib.ExitStack) -> None:
        config = self._config
        make_durable_directory(config.store)
        files.callback(StoreLock(config.store).release)
        files.callback(self.disk.close_syncs)
        if not _OTHER_ENGINES.isdisjoint(self.disk.list("")):
            raise WrongStoreError(f"{config.store} was written by another engine")
        found = read_checkpoint(
            self.disk, store=config.store, group=config.group, node=config.node_id
        )
        trace_directory = config.store / "trace"
        self._incarnation = max(found.incarnation, last_incarnation(trace_directory)) + 1
        self.trace: RaftTrace | None = None
        if config.trace:
            self.trace = RaftTrace(trace_directory, self._incarnation)
            files.callback(self.trace.close)
        self.disk.make_directory("ha")
        self.disk.sync_directory("")
        self.log = CommitLog(self.disk, "ha/commitlog", file_size=config.segment_size_bytes_max)
        files.callback(self.log.close)
        self.snapshots = SnapshotFiles(self.disk, "ha/snapshots")
        _log.info(
            "the log holds entries %d..%d, bytes %d..%d, %s stop; %d torn bytes dropped",
            self.log.begin.index + 1,
            self.log.end.index,
            self.log.begin.position,
            self.log.end.position,
            "after a clean" if found.clean else "without a clean",
            self.log.torn_size,
        )
        self.write_checkpoint(0, clean=False)

    def open_syncs(self) -> None:
        """Let the kernel carry fsyncs out, where it can; call it on the loop."""
        try:
            self.disk.open_syncs("checkpoint")
        except OSError as error:
            _log.info("a thread fsyncs the log: %s", error)

    def write_checkpoint(self, index: Index, *, clean: bool) -> None:
        """Write the checkpoint; `index` is applied and durable. Raises OSError."""
        write_checkpoint(
            self.disk,
            Checkpoint(
                group=self._config.group,
                node=self._config.node_id,
                incarnation=self._incarnation,
                commit_index=index,
                applied_index=index,
                clean=clean,
            ),
        )

    def close(self) -> None:
        self._files.close()
