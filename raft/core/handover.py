"""Leadership transfer: the target, its deadline, and unrequested transfer to the preferred leader.

Place in the data path: `raft.core.leader_role` queries it at each tick and reply while it leads,
and sends the TimeoutNow.

While a target is set no proposal is accepted, so that the target's log can reach the end of the
leader's; if it does not take over within an election timeout, the leader goes on leading.

Source: Ongaro's dissertation 3.10. The preferred leader is an addition (docs/DIVERGENCE.md).
"""

from __future__ import annotations

from raft.config import RaftConfig
from raft.core.progress import Progress, ProgressState
from raft.ids import Index, NodeId

__all__ = ["Handover"]


class Handover:
    """Transfer state of one leadership."""

    __slots__ = ("_config", "_not_before_ms", "deadline_ms", "target")

    def __init__(self, config: RaftConfig, now_ms: int) -> None:
        self._config = config
        self._not_before_ms = now_ms  # no unrequested transfer before
        self.target: NodeId | None = None
        self.deadline_ms = 0  # meaningful while there is a target

    def begin(self, target: NodeId, now_ms: int) -> None:
        self.target = target
        self.deadline_ms = now_ms + self._config.election_timeout_ms_max

    def give_up(self, now_ms: int) -> None:
        self.target = None
        self._not_before_ms = now_ms + self._config.preferred_after_ms

    def is_due_to(self, peer: Progress, *, last_index: Index, now_ms: int) -> bool:
        """Return whether to hand leadership to `peer`, the preferred leader, now."""
        config = self._config
        return (
            self.target is None
            and now_ms >= self._not_before_ms
            and peer.state is ProgressState.REPLICATE
            and peer.writable
            and now_ms - peer.contact_ms < config.election_timeout_ms_min
            and now_ms - peer.steady_since_ms >= config.preferred_after_ms
            and peer.match_index + config.promotion_lag_max >= last_index
        )
