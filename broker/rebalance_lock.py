"""Which client may consume a queue in order: locks by group and queue, held for a while.

Soft state of the leader, never replicated, as in RocketMQ: clients renew every 20 s what they
hold, and consume in order only while they are sure of it (30 s), which is shorter than the time
after which the lock goes to another (60 s). Pure: time is an argument.

Invariants: at most one client holds a group's queue; the number of locks is bounded.
Source: RocketMQ RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Queue", "RebalanceLocks"]

_LOCK_EXPIRES_MS: Final = 60_000
Queue: TypeAlias = tuple[str, int]  # topic, queue id


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class RebalanceLocks:
    def __init__(self, *, locks_max: int = 100_000) -> None:
        self._locks_max = locks_max
        self._locks: dict[tuple[str, str, int], _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Those of `queues` that the client holds from now on."""
        held: list[Queue] = []
        for topic, queue_id in queues:
            key = (group, topic, queue_id)
            lock = self._locks.get(key)
            if lock is None and len(self._locks) >= self._locks_max:
                self._drop_expired(now_ms)
                if len(self._locks) >= self._locks_max:
                    continue
            if lock is None or lock.client_id == client_id or _is_expired(lock, now_ms):
                self._locks[key] = _Lock(client_id, now_ms)
                held.append((topic, queue_id))
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Give up what the client holds; what others hold stays."""
        for topic, queue_id in queues:
            lock = self._locks.get((group, topic, queue_id))
            if lock is not None and lock.client_id == client_id:
                del self._locks[group, topic, queue_id]

    def clear(self) -> None:
        """Leadership ended: whoever leads now gives the locks."""
        self._locks.clear()

    def _drop_expired(self, now_ms: int) -> None:
        self._locks = {
            key: lock for key, lock in self._locks.items() if not _is_expired(lock, now_ms)
        }


def _is_expired(lock: _Lock, now_ms: int) -> bool:
    return now_ms - lock.renewed_ms > _LOCK_EXPIRES_MS
