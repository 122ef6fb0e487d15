"""The store of a simulated node: the product's own, on a simulated disk, with small segments.

Place in the data path: `SimNode` opens one per incarnation: `NodeStore` unchanged but for the sizes
of its log, and its commit indexes are checked by the invariants.
"""

from __future__ import annotations

import random
from pathlib import Path

from chaos.sim.cores.core_fixture import Parts
from chaos.sim.cores.invariants import Invariants
from chaos.sim.machine.disk import SimDisk
from chaos.sim.seed.core_options import SimOptions
from raft.config import RaftConfig
from raft.log.hard_state import HardStateFile
from raft.log.segment_log import SegmentLog
from raft.messages import Index, NodeId
from raft.node.node_config import NodeConfig
from raft.store.identity import IdentityFile, StoreIdentity
from raft.store.node_store import NodeStore

__all__ = ["SimStore", "make_disk", "node_config", "store_of_disk"]

_GROUP = "sim"
_ADDRESS = "127.0.0.1:1"  # nobody dials it


def node_config(raft: RaftConfig, options: SimOptions) -> NodeConfig:
    return NodeConfig(
        group=_GROUP,
        raft=raft,
        peers=dict.fromkeys((*raft.voters, raft.node_id), _ADDRESS),
        listen=_ADDRESS,
        store=Path("/nowhere") / raft.node_id,
        secret=bytes(32),
        segment_size_bytes_max=options.segment_size_bytes_max,
    )


def store_of_disk(name: NodeId, disk_number: int) -> str:
    """Return the identity of the store on a node's n-th disk."""
    return f"{int(name[1:]):016x}{disk_number:016x}"


def make_disk(options: SimOptions, name: NodeId, disk_number: int) -> SimDisk:
    """Make a disk that durably holds its store's identity, so that the node may take part."""
    key = f"disk/{options.seed}/{options.node_count}/{name}/{disk_number}"
    disk = SimDisk(
        random.Random(key),
        short_write_rate=options.short_write_rate,
        garbage_rate=options.garbage_rate,
    )
    HardStateFile(disk).load()
    store_id = store_of_disk(name, disk_number)
    IdentityFile(disk).save(
        StoreIdentity(group=_GROUP, node=name, store_id=store_id, born=True, roster=b"")
    )
    return disk


class SimStore(NodeStore):
    """`NodeStore` with small segments; raises what it does, and CrashNow."""

    def __init__(
        self,
        config: NodeConfig,
        disk: SimDisk,
        *,
        options: SimOptions,
        parts: Parts,
        invariants: Invariants,
    ) -> None:
        self._options = options
        self._parts = parts
        self._invariants = invariants
        super().__init__(config, disk)

    def _make_log(self) -> SegmentLog:
        options = self._options
        return self._parts.log(
            self._disk,
            "commitlog",
            segment_size_bytes_max=options.segment_size_bytes_max,
            preallocation_size_bytes=options.preallocation_size_bytes,
            tail_size_bytes_max=options.log_cache_size_bytes_max,
            hard_state=self.hard_state_file,
        )

    def write_checkpoint(self, commit_index: Index, applied_index: Index, *, clean: bool) -> None:
        self._invariants.on_checkpoint(self._config.node_id, commit_index)
        super().write_checkpoint(commit_index, applied_index, clean=clean)
