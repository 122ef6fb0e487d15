"""Configuration of a Raft node: its name, its voters, its times and its limits.

Place in the data path: created by the shell (from the broker's TOML file) or by the simulator, read
by `raft.core.core` and its neighbours; nothing else enters the core from outside but events.

The defaults are for a LAN with a fast disk: a killed leader, whose connections break, is replaced
within about a hundred milliseconds, a silent one within one election timeout.

Source: Raft 5.6 (broadcast time << election timeout), dissertation 6.2 and 9.6.
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.membership import VOTERS_COUNT_MAX
from raft.messages import NodeId

__all__ = ["VOTERS_COUNT_MAX", "RaftConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Validated at construction; raises ValueError naming the field that is wrong."""

    node_id: NodeId
    """Name of this node, one of `voters` unless the node was removed from its group."""

    voters: tuple[NodeId, ...]
    """The group's voters where nothing else names them: neither a CONFIG entry of the log, nor the
    `configuration` that the core was given; 1 to VOTERS_COUNT_MAX names."""

    heartbeat_ms: int = 75
    """Time between a leader's heartbeats to each peer; at most a third of the election timeout."""

    election_timeout_ms_min: int = 300
    """Least silence of a leader before a follower campaigns; as long, it also refuses votes."""

    election_timeout_ms_max: int = 600
    """Most silence before a follower campaigns; a leader that no majority answers for as long
    steps down."""

    campaign_delay_ms_min: int = 10
    """Least delay before campaigning where the connection to the leader broke."""

    campaign_delay_ms_max: int = 60
    """Most such delay; the spread keeps two followers from splitting the votes."""

    commit_notice_delay_ms: int = 5
    """How long a new commit index waits for an AppendEntries with entries to carry it before it
    is sent to followers in an empty one; 0 sends it at once. Under load it thus costs no
    message."""

    entry_size_bytes_max: int = 8 * 1024 * 1024
    """Largest payload of one entry."""

    append_size_bytes_max: int = 1024 * 1024
    """Bound of the payload in one AppendEntries, which always takes one entry."""

    append_count_max: int = 1024
    """Most entries in one AppendEntries."""

    inflight_count_max: int = 128
    """Most unanswered AppendEntries with entries per follower."""

    inflight_size_bytes_max: int = 8 * 1024 * 1024
    """Most payload bytes in them; the last message may exceed it."""

    catch_up_size_bytes_max: int = 512 * 1024
    """Most payload bytes in flight to a follower that lacks committed entries: no client waits for
    those, and writing them as fast as its disk can would hold up the fsyncs that sends wait for."""

    log_cache_size_bytes_max: int = 16 * 1024 * 1024
    """How much of the newest entries stays in memory, so that sending reads no disk."""

    read_requests_count_max: int = 16_384
    """ReadIndex requests waiting for confirmation; one more is answered None at once."""

    install_chunk_size_bytes: int = 256 * 1024
    """Bytes of a snapshot in one InstallSnapshot."""

    install_retry_ms: int = 1000
    """Time after which an unanswered InstallSnapshot is repeated with a heartbeat."""

    promotion_lag_max: int = 1000
    """Entries that a learner may lack of the leader's log and still be promoted, and that the
    preferred leader may lack and still be handed leadership."""

    preferred_leader: NodeId | None = None
    """Node to which any other leader hands leadership, once it follows steadily and has room."""

    preferred_after_ms: int = 5000
    """How long it must have followed steadily; after a failed attempt, how long until the next."""

    def __post_init__(self) -> None:
        if not self.node_id:
            raise ValueError("node_id is empty")
        if not 1 <= len(self.voters) <= VOTERS_COUNT_MAX:
            raise ValueError(f"voters: {len(self.voters)} names, not 1 to {VOTERS_COUNT_MAX}")
        if len(set(self.voters)) != len(self.voters) or not all(self.voters):
            raise ValueError(f"voters: a name is empty or stands twice in {list(self.voters)}")
        if self.heartbeat_ms < 1:
            raise ValueError(f"heartbeat_ms: {self.heartbeat_ms} is below 1")
        if self.election_timeout_ms_min < 3 * self.heartbeat_ms:
            raise ValueError(
                f"election_timeout_ms_min: {self.election_timeout_ms_min} is below three times "
                f"heartbeat_ms ({self.heartbeat_ms})"
            )
        _check_range(
            "election_timeout_ms", self.election_timeout_ms_min, self.election_timeout_ms_max
        )
        _check_range("campaign_delay_ms", self.campaign_delay_ms_min, self.campaign_delay_ms_max)
        if self.campaign_delay_ms_min < 0:
            raise ValueError(f"campaign_delay_ms_min: {self.campaign_delay_ms_min} is negative")
        if self.commit_notice_delay_ms < 0:
            raise ValueError(f"commit_notice_delay_ms: {self.commit_notice_delay_ms} is negative")
        for name in (
            "entry_size_bytes_max",
            "append_size_bytes_max",
            "append_count_max",
            "inflight_count_max",
            "inflight_size_bytes_max",
            "catch_up_size_bytes_max",
            "log_cache_size_bytes_max",
            "read_requests_count_max",
            "install_chunk_size_bytes",
            "install_retry_ms",
            "promotion_lag_max",
            "preferred_after_ms",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")


def _check_range(name: str, minimum: int, maximum: int) -> None:
    if minimum > maximum:
        raise ValueError(f"{name}_min: {minimum} is above {name}_max ({maximum})")
