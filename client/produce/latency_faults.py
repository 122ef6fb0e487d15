"""Broker groups that a producer avoids for a while, because they were slow or failed; pure.

Place in the data path: with `ProducerSettings.latency_faults` a producer records how long each
attempt took, and prefers queues of groups that are not isolated. Where all are, it uses any.

Source: RocketMQ MQFaultStrategy, LatencyFaultToleranceImpl (5.3: its table of latencies and times).
"""

from __future__ import annotations

from typing import Final

__all__ = ["FAILURE_MS", "LatencyFaults"]

FAILURE_MS: Final = 10_000
"""The latency that a failed attempt counts as."""

_ISOLATION_MS: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
_GROUPS_MAX: Final = 10_000


class LatencyFaults:
    """The groups isolated now. Times are ms of any one clock."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, broker_name: str, took_ms: float, now_ms: float) -> None:
        """Record the latency of an attempt at `broker_name`, in place of the one before."""
        for latency_ms, isolation_ms in _ISOLATION_MS:
            if took_ms >= latency_ms:
                if len(self._until) < _GROUPS_MAX or broker_name in self._until:
                    self._until[broker_name] = now_ms + isolation_ms
                return
        self._until.pop(broker_name, None)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        return self._until.get(broker_name, now_ms) <= now_ms
