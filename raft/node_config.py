"""What one node's process must be told: names, addresses, secret, store and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raft.config import RaftConfig
from raft.handshake import SECRET_SIZE_MIN
from raft.messages import NodeId
from raft.transport import parse_address

__all__ = ["NodeConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Validated at construction; raises ValueError naming the field that is wrong."""

    group: str
    """Name of the replication group; nodes of another group are refused."""

    raft: RaftConfig
    """Own name, voters, times and limits of the core."""

    peers: Mapping[NodeId, str]
    """Table address, HOST:PORT, of every voter, this node's included (where it is not used)."""

    listen: str
    """HOST:PORT for the peers' connections; port 0 lets the system choose."""

    store: Path
    """Directory of this node's files; made where it is missing."""

    secret: bytes = field(repr=False)
    """Shared by the group, at least SECRET_SIZE_MIN bytes."""

    dial: Mapping[str, str] = field(default_factory=dict)
    """Table address to the address really dialled, where a proxy stands between."""

    trace: bool = False
    """Whether to write the Raft trace."""

    segment_size_bytes_max: int = 64 << 20
    """Size of a log segment; a larger entry gets one of its own."""

    proposals_count_max: int = 4096
    """Open proposals; one more is refused with ValueError."""

    reads_count_max: int = 65_536
    """Open read_index calls; one more is refused with NotLeaderError."""

    checkpoint_interval_ms: int = 1_000
    """Between two checkpoints."""

    transfer_timeout_ms: int = 300
    """How long a leader that stops waits for another one to take over."""

    def __post_init__(self) -> None:
        if not self.group:
            raise ValueError("group is empty")
        if set(self.peers) != set(self.raft.voters):
            raise ValueError(
                f"peers: {sorted(self.peers)} are not the voters {sorted(self.raft.voters)}"
            )
        if len(self.secret) < SECRET_SIZE_MIN:
            raise ValueError(f"secret: {len(self.secret)} bytes, at least {SECRET_SIZE_MIN} needed")
        for address in (self.listen, *self.peers.values(), *self.dial.values()):
            parse_address(address)
        for name in ("segment_size_bytes_max", "proposals_count_max", "reads_count_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        if self.checkpoint_interval_ms < 1 or self.transfer_timeout_ms < 0:
            raise ValueError("checkpoint_interval_ms below 1 or transfer_timeout_ms negative")

    @property
    def node_id(self) -> NodeId:
        return self.raft.node_id
