"""Configuration of a node of the engines `async` and `sync`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.ha.framing import BLANK_SIZE_MIN, HEAD_OVERHEAD
from raft.messages import NodeId

__all__ = ["HaConfig"]

_FILE_SIZE_MIN: Final = 1 << 12  # small ones are for tries: no entry is larger than its file
_FILE_SIZE_MAX: Final = 1 << 30  # RocketMQ's mappedFileSizeCommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """Settings of one node. Times are in ms. The constructor raises ValueError that names what is
    wrong."""

    group: str
    """Name of the replication group."""

    node_id: NodeId
    """Name of this node, one of `peers`."""

    peers: Mapping[NodeId, str]
    """HA address, HOST:PORT, of every node of the group, this one's too."""

    master: NodeId
    """The node that is the group's master, for as long as this configuration stands."""

    store: Path
    """Directory of this node's files; created where it is missing."""

    waits_for_slaves: bool = False
    """Whether an entry with messages is answered only once `in_sync_replicas` nodes have it."""

    waits_for_disk: bool = False
    """Whether an entry is answered only after its fsync (RocketMQ's SYNC_FLUSH)."""

    flush_interval_ms: int = 500
    """Time between two fsyncs where nobody waits for them (flushIntervalCommitLog)."""

    sync_flush_timeout_ms: int = 5_000
    """How long an answer waits for its fsync."""

    slave_timeout_ms: int = 3_000
    """How long an answer waits for slaves."""

    in_sync_replicas: int = 2
    """Nodes that must have an entry, the master among them, where it waits for slaves."""

    gap_size_max: int = 256 << 20
    """A slave that is further behind counts as not available (haMaxGapNotInSync)."""

    heartbeat_ms: int = 5_000
    """Longest time without a report or a push (haSendHeartbeatInterval)."""

    silence_ms_max: int = 20_000
    """After so much silence a connection is closed (haHousekeepingInterval)."""

    reconnect_ms: int = 1_000
    """Time between two attempts of a slave to reach its master."""

    listen: str = ""
    """HOST:PORT that the master listens on for its slaves; "": it has none."""

    dial: Mapping[str, str] = field(default_factory=dict)
    """Maps an HA address to the address really dialled, where a proxy stands between."""

    segment_size_bytes_max: int = 64 << 20
    """Size of each file of the log; a slave's must be its master's."""

    entry_size_bytes_max: int = 8 << 20
    """Largest payload of one entry."""

    snapshot_interval_size_bytes: int = 1 << 30
    """Bytes of log between two snapshots of the state."""

    trace: bool = False
    """Write what a verifier reads into store/trace/."""

    fsync_by: str = "kernel"
    """Who carries fsyncs out: the kernel where it can, or a thread."""

    def __post_init__(self) -> None:
        if self.node_id not in self.peers:
            raise ValueError(f"peers: do not name this node, {self.node_id!r}")
        if self.master not in self.peers:
            raise ValueError(f"master: {self.master!r} is not one of the peers")
        if self.in_sync_replicas < 1:
            raise ValueError(f"in_sync_replicas: {self.in_sync_replicas} is below 1")
        if not _FILE_SIZE_MIN <= self.segment_size_bytes_max <= _FILE_SIZE_MAX:
            raise ValueError(
                f"segment_size_bytes_max: {self.segment_size_bytes_max} is not within"
                f" {_FILE_SIZE_MIN}..{_FILE_SIZE_MAX}"
            )
        if self.fsync_by not in ("kernel", "thread"):
            raise ValueError(f"fsync_by: {self.fsync_by!r} is not one of kernel, thread")

    @property
    def is_master(self) -> bool:
        return self.node_id == self.master

    @property
    def payload_size_max(self) -> int:
        return min(
            self.entry_size_bytes_max,
            self.segment_size_bytes_max - HEAD_OVERHEAD - BLANK_SIZE_MIN,
        )
