"""Configuration of the programs of a simulated group.

Place in the data path: `cluster` gets one BrokerConfig per broker here, and the program that a name
server's machine runs. Files that do not go through `raft.storage.Disk` lie below a directory in
memory, one per seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from broker.config.config import BrokerConfig
from broker.state.state import StateLimits
from chaos.sim.seed.group_options import GroupOptions
from namesrv.config import NameServerConfig
from namesrv.server import NameServer

__all__ = ["GROUP", "NameServerProgram", "broker_config", "memory_directory"]

GROUP: Final = "broker-a"
_SHARED: Final = "nodes of a simulated group hold this in common"
_REGISTRATION_INTERVAL_MS: Final = 5_000
_KERNEL_RATE: Final = 0.7  # share of brokers whose machine can fsync without a thread


def broker_config(
    options: GroupOptions,
    root: Path,
    node: str,
    hosts: Mapping[str, str],
    name_servers: Sequence[str],
) -> BrokerConfig:
    """Return the configuration of one broker; `hosts` has the address of every node."""
    secret = root / "secret"
    if not secret.exists():
        secret.write_text(_SHARED)
    return BrokerConfig(
        group=GROUP,
        node=node,
        listen=f"{hosts[node]}:10911",
        raft_listen=f"{hosts[node]}:10915",
        store=root / node,
        name_servers=tuple(name_servers),
        secret_file=secret,
        trace=True,
        peers={name: f"{ip}:10915" for name, ip in hosts.items()},
        brokers={name: f"{ip}:10911" for name, ip in hosts.items()},
        heartbeat_ms=options.heartbeat_ms,
        election_timeout_ms_min=options.election_timeout_ms_min,
        election_timeout_ms_max=options.election_timeout_ms_max,
        fsync_by=_fsync_by(options, node),
        segment_size_bytes_max=options.segment_size_bytes_max,
        log_size_bytes_max=options.log_size_bytes_max,
        message_index_enable=False,  # not in the data path, and its files are not simulated
        transaction_timeout_ms=options.transaction_timeout_ms,
        transaction_check_interval_ms=options.transaction_check_interval_ms,
        transaction_check_max=options.transaction_check_max,
        registration_interval_ms=_REGISTRATION_INTERVAL_MS,
        limits=StateLimits(
            dedupe_window_ms=options.dedupe_window_ms,
            dedupe_keys_max=options.dedupe_keys_max,
            dedupe_evicted_keys_max=options.dedupe_evicted_keys_max,
        ),
    )


def _fsync_by(options: GroupOptions, node: str) -> str:
    rng = random.Random(f"fsync/{options.seed}/{node}")
    return "kernel" if rng.random() < _KERNEL_RATE else "thread"


class NameServerProgram:
    """A name server that listens on `address`, until it is cancelled. `kv_config`: a file, in which
    its key-value configuration survives its end."""

    def __init__(self, address: str, kv_config: Path | None = None) -> None:
        self._config = NameServerConfig(listen=address, kv_config_path=kv_config)
        self.server: NameServer | None = None

    async def run(self) -> None:
        self.server = server = NameServer(self._config)
        await server.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await server.stop()


def memory_directory() -> str | None:
    """Return a directory in memory; None: the usual place of temporary files."""
    directory = Path("/dev/shm")  # noqa: S108  # only a directory of its own is used there
    return str(directory) if directory.is_dir() else None
