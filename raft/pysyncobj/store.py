"""The store of a node on PySyncObj beside PySyncObj's own files, opened together.

Place in the data path: `raft.pysyncobj.log` opens it, on a thread, before the engine starts.

    lock, checkpoint, commitlog/, trace/    as with the default engine (docs/FORMATS.md section 1)
    pysyncobj/journal, journal.meta         PySyncObj's log, term and vote, in its own formats

Invariants: one process at a time; a store of the default engine is refused; the segments hold what
PySyncObj delivered last, whatever it had delivered before a restart.
"""

from __future__ import annotations

import contextlib
import logging

from raft.log.damage import DamagedLogError
from raft.log.disk import OsDisk
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, Index
from raft.pysyncobj.config import PySyncObjConfig
from raft.store.checkpoint import Checkpoint, WrongStoreError, read_checkpoint, write_checkpoint
from raft.store.store_lock import StoreLock
from raft.store.trace import RaftTrace, last_incarnation

__all__ = ["PySyncObjStore"]

_log = logging.getLogger(__name__)


class PySyncObjStore:
    """The store of one node, opened at construction. Raises OSError (StoreLockedError,
    WrongStoreError among them) and CorruptLogError, with nothing left open."""

    def __init__(self, config: PySyncObjConfig) -> None:
        self._config = config
        self._disk = OsDisk(config.store)
        with contextlib.ExitStack() as files:
            self._open(files)
            self._files = files.pop_all()

    def _open(self, files: contextlib.ExitStack) -> None:
        config = self._config
        if (config.store / "hard_state").exists():
            raise WrongStoreError(f"{config.store} was written by the engine raft")
        config.engine_config().directory.mkdir(parents=True, exist_ok=True)
        files.callback(StoreLock(config.store).release)
        self.checkpoint = read_checkpoint(
            self._disk, store=config.store, group=config.group, node=config.node_id
        )
        self.log = SegmentLog(
            self._disk,
            "commitlog",
            segment_size_bytes_max=config.segment_size_bytes_max,
        )
        files.callback(self.log.close)
        if self.log.damages:
            raise DamagedLogError(self.log.damages[0])
        trace_directory = config.store / "trace"
        last = max(self.checkpoint.incarnation, last_incarnation(trace_directory))
        self._incarnation = last + 1
        self.trace: RaftTrace | None = None
        if config.trace:
            self.trace = RaftTrace(trace_directory, self._incarnation)
            files.callback(self.trace.close)
        self.write_checkpoint(0, clean=False)

    def write_entry(self, entry: Entry, chain: int) -> None:
        """Write a committed entry, unless it stands there from before the restart."""
        log = self.log
        if entry.index <= log.last_index:
            if log.chain(entry.index) == chain:
                return
            _log.error(
                "PySyncObj tells another log than before from entry %d on; %d entries are dropped",
                entry.index,
                log.last_index - entry.index + 1,
            )
            log.truncate_from(entry.index)
        log.append([entry])

    def write_checkpoint(self, index: Index, *, clean: bool) -> None:
        """Write the checkpoint; `index` is committed, applied and durable. May run on a thread."""
        self.checkpoint = Checkpoint(
            group=self._config.group,
            node=self._config.node_id,
            incarnation=self._incarnation,
            commit_index=index,
            applied_index=index,
            clean=clean,
        )
        write_checkpoint(self._disk, self.checkpoint)

    def close(self) -> None:
        self._files.close()
