"""The lock of a simulated log, which one thread can take although a sync beside the loop holds it.

Place in the data path: the shells of simulated nodes put it into their `SegmentLog`. A real thread
waits at the lock until the kernel has carried the sync out and the loop has taken note of it. In a
simulator there is one thread, so both happen when the lock is wanted; the loop gets its report
later, as it would then.
"""

from __future__ import annotations

import threading

from raft.log.segment_log import SegmentLog

__all__ = ["SyncLock"]


class SyncLock:
    """Stands in for the `threading.Lock` of `log`."""

    def __init__(self, log: SegmentLog) -> None:
        self._log = log
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        if blocking and self._log._syncing is not None:
            self._log._conclude(self._log._disk.wait_for_syncs())
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
