"""Everything that one node keeps in its store (docs/FORMATS.md section 1), opened together.

Place in the data path: `raft.node` opens it, on a thread, before the first message, and closes it
last.

Invariants: one process at a time (the lock is taken before anything is read); a log whose durable
part is newer than the hard state is refused, for a vote may have been lost with it; each opening is
a new incarnation.
"""

from __future__ import annotations

import contextlib
import logging
import time

from raft.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from raft.damage import DamagedLogError
from raft.disk import OsDisk
from raft.hard_state import HardStateFile
from raft.log_format import CorruptLogError
from raft.messages import Index
from raft.node_config import NodeConfig
from raft.segment_log import SegmentLog
from raft.storage import Disk
from raft.store_lock import StoreLock
from raft.trace import RaftTrace, last_incarnation

__all__ = ["NodeStore"]

_log = logging.getLogger(__name__)


class NodeStore:
    """Opened at construction.

    Raises OSError (StoreLockedError, WrongStoreError among them) and CorruptLogError, with
    nothing left open.
    """

    def __init__(self, config: NodeConfig, disk: Disk | None) -> None:
        self._config = config
        self._disk: Disk = disk or OsDisk(config.store)
        self._checkpoint_path = config.store / "checkpoint"
        with contextlib.ExitStack() as files:
            self._open(files)
            self._files = files.pop_all()

    def _open(self, files: contextlib.ExitStack) -> None:
        config = self._config
        config.store.mkdir(parents=True, exist_ok=True)
        files.callback(StoreLock(config.store).release)
        self.checkpoint = read_checkpoint(
            self._checkpoint_path, group=config.group, node=config.node_id
        )
        self.hard_state_file = HardStateFile(self._disk)
        self.hard_state = self.hard_state_file.load()
        begin = time.monotonic()
        self.log = SegmentLog(
            self._disk, "commitlog", segment_size_bytes_max=config.segment_size_bytes_max
        )
        files.callback(self.log.close)
        found = self.log.recovery
        _log.info(
            "recovered %d entries, %d bytes in %.3f s; %d torn bytes dropped%s",
            found.entries,
            found.bytes,
            time.monotonic() - begin,
            found.torn_bytes,
            f" ({found.torn_reason})" if found.torn_reason else "",
        )
        if self.log.damages:
            raise DamagedLogError(self.log.damages[0])
        self._check_hard_state(found.durable_position)
        trace_directory = config.store / "trace"
        last = max(self.checkpoint.incarnation, last_incarnation(trace_directory))
        self.incarnation = last + 1
        self.trace: RaftTrace | None = None
        if config.trace:
            self.trace = RaftTrace(trace_directory, self.incarnation)
            files.callback(self.trace.close)

    def _check_hard_state(self, durable_position: int) -> None:
        """A hard state is durable before the entries of its term are.

        What a crash of the machine left of the log beyond its durable mark proves nothing: those
        entries were written, and may have been kept without the hard state of their Ready, which
        nobody had been told of. The core enters their term again.
        """
        log = self.log
        index = log.last_index
        while index >= log.first_index and log.position(index) >= durable_position:
            index -= 1
        if log.term(index) > self.hard_state.current_term:
            raise CorruptLogError(
                "hard_state",
                0,
                f"term {self.hard_state.current_term}, but the log has an entry of term "
                f"{log.term(index)}, durable",
            )

    def write_checkpoint(self, commit_index: Index, applied_index: Index, *, clean: bool) -> None:
        """`commit_index` must be durable here. May run on a thread; raises OSError."""
        self.checkpoint = Checkpoint(
            group=self._config.group,
            node=self._config.node_id,
            incarnation=self.incarnation,
            commit_index=commit_index,
            applied_index=applied_index,
            clean=clean,
        )
        write_checkpoint(self._checkpoint_path, self.checkpoint)

    def close(self) -> None:
        self._files.close()
