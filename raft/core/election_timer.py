"""When a node campaigns, and how long it refuses other candidates after contact with its leader.

Place in the data path: `raft.core.core` restarts it, notifies it of the leader's messages, and
reads the next deadline from it while the node is not a leader.

Invariants: a deadline moves back only on contact with the leader, or when a campaign or a vote
starts a new wait; the lease ends before the earliest deadline that the same message set.

Source: Raft 5.2, 5.6; dissertation 6.2 and 9.6 (a leader in contact is not disturbed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import RaftConfig

if TYPE_CHECKING:
    from random import Random

__all__ = ["ElectionTimer"]


class ElectionTimer:
    """Deadline and lease of one node. `rng` spreads the timeouts, so that votes are rarely
    split."""

    __slots__ = (
        "_config",
        "_contact_ms",
        "_rng",
        "_timeout_ms",
        "deadline_ms",
        "is_replaying",
        "is_without_room",
    )

    def __init__(self, config: RaftConfig, rng: Random, now_ms: int) -> None:
        self._config = config
        self._rng = rng
        self._contact_ms = now_ms
        self.deadline_ms = now_ms
        # In either state others campaign first: this node could lead, but not serve.
        self.is_without_room = False
        self.is_replaying = False
        self.restart(now_ms)

    @property
    def is_patient(self) -> bool:
        return self.is_without_room or self.is_replaying

    def restart(self, now_ms: int) -> None:
        """Draw a new timeout and wait that long."""
        self._timeout_ms = self._rng.randint(
            self._config.election_timeout_ms_min, self._config.election_timeout_ms_max
        )
        self._wait(now_ms)

    def heard_leader(self, now_ms: int) -> None:
        self._contact_ms = now_ms
        self._wait(now_ms)

    def lost_leader(self, now_ms: int) -> None:
        """Campaign soon, after a random delay, for the connection to the leader broke."""
        if self.is_patient:
            return
        delay_ms = self._rng.randint(
            self._config.campaign_delay_ms_min, self._config.campaign_delay_ms_max
        )
        self.deadline_ms = min(self.deadline_ms, now_ms + delay_ms)

    def holds_lease(self, now_ms: int) -> bool:
        """Return whether contact with the leader is so recent that no other candidate gets a
        vote."""
        return now_ms < self._contact_ms + self._config.election_timeout_ms_min

    def _wait(self, now_ms: int) -> None:
        extra_ms = self._config.election_timeout_ms_max if self.is_patient else 0
        self.deadline_ms = now_ms + self._timeout_ms + extra_ms
