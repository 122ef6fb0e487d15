"""Configuration of a node on PySyncObj."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raft.messages import NodeId
from raft.pysyncobj.engine import EngineConfig, require_loopback

__all__ = ["PySyncObjConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PySyncObjConfig:
    """Validated at construction; raises ValueError naming what is wrong."""

    group: str
    """Name of the replication group."""

    node_id: NodeId
    """Name of this node, one of `peers`."""

    peers: Mapping[NodeId, str]
    """Table address, HOST:PORT, of every node of the group, this one's too."""

    listen: str
    """HOST:PORT for the peers' connections; a loopback address."""

    store: Path
    """Directory of this node's files; created where it is missing."""

    dial: Mapping[str, str] = field(default_factory=dict)
    """Maps a table address to the address really dialled, where a proxy stands between."""

    heartbeat_ms: int = 50
    """Time between heartbeats, and between batches (appendEntriesPeriod, by default 100 ms)."""

    election_timeout_ms_min: int = 400
    """Least silence of a leader before an election (raftMinTimeout); both as by default."""

    election_timeout_ms_max: int = 1_400
    """Most silence before an election (raftMaxTimeout), and before a leader without answers of a
    majority steps down (leaderFallbackTimeout, by default 30 s)."""

    flush: bool = True
    """Whether journal and vote are fsynced before a message that depends on them leaves."""

    batch: bool = True
    """Whether commands leave once per heartbeat (appendEntriesUseBatch, its own default). Without
    it they leave at once, several under way, which is when PySyncObj drops entries that it had
    acknowledged: each answer makes a leader send again what is under way, and a follower cuts its
    log before it appends an entry that it has already."""

    password: str | None = field(default=None, repr=False)
    """Encrypts and proves messages where given; needs the package `cryptography`."""

    trace: bool = False
    """Whether to write what can be observed of roles, votes and applied entries."""

    segment_size_bytes_max: int = 64 << 20
    """Size of a log segment."""

    entry_size_bytes_max: int = 8 << 20
    """Largest payload of one entry."""

    journal_size_bytes_max: int = 1 << 30
    """No proposals are accepted beyond; PySyncObj keeps its whole journal in memory, and counts its
    bytes in 32 bits."""

    proposals_count_max: int = 4096
    """Open proposals; one more is refused with ValueError."""

    checkpoint_interval_ms: int = 1_000
    """Time between two checkpoints."""

    transfer_timeout_ms: int = 1_000
    """How long a stopping leader waits for another one to take over."""

    def __post_init__(self) -> None:
        if self.node_id not in self.peers:
            raise ValueError(f"peers: do not name this node, {self.node_id!r}")
        require_loopback(self.listen, *self.peers.values(), *self.dial.values())
        if self.election_timeout_ms_min <= 3 * self.heartbeat_ms:
            raise ValueError(
                f"election_timeout_ms_min: {self.election_timeout_ms_min} is not above three"
                f" times heartbeat_ms ({self.heartbeat_ms}), as PySyncObj wants it"
            )
        if self.election_timeout_ms_max <= self.election_timeout_ms_min:
            raise ValueError("election_timeout_ms_max: is not above election_timeout_ms_min")

    def engine_config(self) -> EngineConfig:
        return EngineConfig(
            node_id=self.node_id,
            peers=self.peers,
            dial=self.dial,
            listen=self.listen,
            directory=self.store / "pysyncobj",
            heartbeat_ms=self.heartbeat_ms,
            election_timeout_ms_min=self.election_timeout_ms_min,
            election_timeout_ms_max=self.election_timeout_ms_max,
            flush=self.flush,
            batch=self.batch,
            password=self.password,
        )
