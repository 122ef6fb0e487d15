"""How often a lasting fact is logged again: at once, then ever more rarely; pure, no clock.

Place in the data path: none; `raft.repair.log_repairer` queries it before it logs what no peer can
repair, and `raft.node.core_shell` before it logs that it can't apply an entry.

Invariant: a changed fact is due at once, an unchanged one at intervals that double up to a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

__all__ = ["Reminders"]

_INTERVAL_MS_MIN = 2_000
_INTERVAL_MS_MAX = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logged:
    fact: Hashable
    again_ms: int
    interval_ms: int


class Reminders:
    """Facts logged so far, by subject. Times never fall."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, _Logged] = {}

    def due(self, subject: Hashable, fact: Hashable, now_ms: int) -> bool:
        """Return whether to log now that `fact` holds of `subject`; True counts as logged."""
        logged = self._logged.get(subject)
        if logged is None or logged.fact != fact:
            interval_ms = _INTERVAL_MS_MIN
        elif now_ms < logged.again_ms:
            return False
        else:
            interval_ms = min(2 * logged.interval_ms, _INTERVAL_MS_MAX)
        self._logged[subject] = _Logged(
            fact=fact, again_ms=now_ms + interval_ms, interval_ms=interval_ms
        )
        return True

    def retain(self, subjects: Collection[Hashable]) -> None:
        """Forget all other subjects, which have ended: they are news if they come again."""
        for subject in self._logged.keys() - set(subjects):
            del self._logged[subject]
