"""Configuration of one node's process: names, addresses, secret, store and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raft.config import RaftConfig
from raft.log.log_format import HEADER_SIZE
from raft.messages import NodeId
from raft.peers.handshake import SECRET_SIZE_MIN
from raft.peers.transport import parse_address

__all__ = ["FSYNC_BY", "NodeConfig"]

FSYNC_BY = ("kernel", "thread")

_SEGMENT_SIZE_END = 1 << 31  # offsets in a segment have 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Validated at construction; raises ValueError naming the field that is wrong."""

    group: str
    """Name of the replication group; nodes of another group are refused."""

    raft: RaftConfig
    """Own name, voters, times and limits of the core."""

    peers: Mapping[NodeId, str]
    """Table address, HOST:PORT, of every initial voter, and of this node, at which the others dial
    it. The addresses of later members are in the configuration."""

    listen: str
    """HOST:PORT for the peers' connections; port 0 lets the system choose."""

    store: Path
    """Directory of this node's files; created where it is missing."""

    secret: bytes = field(repr=False)
    """Shared by the group, at least SECRET_SIZE_MIN bytes."""

    dial: Mapping[str, str] = field(default_factory=dict)
    """Maps a table address to the address really dialled, where a proxy stands between."""

    trace: bool = False
    """Whether to write the Raft trace."""

    segment_size_bytes_max: int = 64 << 20
    """Size of a log segment; a larger entry gets one of its own."""

    log_cached_size_bytes: int = 128 << 20
    """How much of the log's end stays in the kernel's page cache; 0: as the kernel likes."""

    proposals_count_max: int = 4096
    """Open proposals; one more is refused with ValueError."""

    reads_count_max: int = 65_536
    """Open read_index calls; one more is refused with NotLeaderError."""

    fsync_by: str = "kernel"
    """What carries the log's fsyncs out, of `FSYNC_BY`. The kernel by asynchronous I/O where
    machine and file system can, else a thread."""

    snapshot_interval_size_bytes: int = 1 << 30
    """Least growth of the log between two snapshots of the state, which are taken where a segment
    ends. A start after a kill replays about as much."""

    install_rate_bytes_per_s: int = 64 << 20
    """Rate at which snapshots are sent to all followers together; 0: unlimited."""

    install_size_bytes_max: int = 8 << 30
    """Largest snapshot that is accepted from a leader."""

    scrub_rate_bytes_per_s: int = 8 << 20
    """Rate at which closed segments are verified again in the background; 0: not at all."""

    scrub_interval_ms: int = 3_600_000
    """Pause between the end of one scrub and the next."""

    checkpoint_interval_ms: int = 1_000
    """Time between two checkpoints."""

    transfer_timeout_ms: int = 300
    """How long a stopping leader waits for another one to take over."""

    def __post_init__(self) -> None:
        if not self.group:
            raise ValueError("group is empty")
        if set(self.peers) != {*self.raft.voters, self.raft.node_id}:
            raise ValueError(
                f"peers: {sorted(self.peers)} are not the voters {sorted(self.raft.voters)} and "
                f"this node {self.raft.node_id}"
            )
        if len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(f"secret: {len(self.secret)} bytes, at least {SECRET_SIZE_MIN} needed")
        for address in (self.listen, *self.peers.values(), *self.dial.values()):
            parse_address(address)
        if not HEADER_SIZE <= self.segment_size_bytes_max < _SEGMENT_SIZE_END:
            raise ValueError(
                f"segment_size_bytes_max: {self.segment_size_bytes_max} is not within "
                f"{HEADER_SIZE}..{_SEGMENT_SIZE_END - 1}"
            )
        if self.fsync_by not in FSYNC_BY:
            raise ValueError(f"fsync_by: {self.fsync_by!r} is not one of {', '.join(FSYNC_BY)}")
        if self.log_cached_size_bytes < 0:
            raise ValueError(f"log_cached_size_bytes: {self.log_cached_size_bytes} is below 0")
        for name in ("proposals_count_max", "reads_count_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        for name in (
            "snapshot_interval_size_bytes",
            "install_rate_bytes_per_s",
            "scrub_rate_bytes_per_s",
            "scrub_interval_ms",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if self.install_size_bytes_max < 1:
            raise ValueError(f"install_size_bytes_max: {self.install_size_bytes_max} is below 1")
        if self.checkpoint_interval_ms < 1 or self.transfer_timeout_ms < 0:
            raise ValueError("checkpoint_interval_ms below 1 or transfer_timeout_ms negative")

    @property
    def node_id(self) -> NodeId:
        return self.raft.node_id
