"""Choice of the engine that replicates this broker's log.

Place in the data path: the one spot where the broker learns what its ReplicatedLog is: Raft,
PySyncObj, or a master with its slaves.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import secrets
from typing import Any

from broker.config.config import BrokerConfig, ConfigError
from broker.index.entry_reader import EntryReader
from raft.config import RaftConfig
from raft.messages import NodeId
from raft.node.node import RaftNode
from raft.node.node_config import NodeConfig
from raft.profiles import PROFILES
from raft.replicated_log import ReplicatedLog, RestorableStateMachine, StateMachine
from raft.stalls import Stalls
from raft.turn import Turn

__all__ = ["entry_reader", "open_log"]

_SECRET_SIZE_MAX = 4_096


def open_log(
    config: BrokerConfig,
    machine: RestorableStateMachine,
    stalls: Stalls | None = None,
    turn: Turn | None = None,
) -> ReplicatedLog:
    """Return the log that `config` names, not started; its work is done at the ends of `turn`.

    Raises ConfigError if the settings contradict each other or the secret is invalid.
    """
    try:
        if config.engine == "pysyncobj":
            return _pysyncobj(config, machine)
        if config.is_master_slave:
            return _master_slave(config, machine)
        assert config.engine == "raft", "checked by BrokerConfig"
        raft = RaftConfig(
            node_id=NodeId(config.node),
            voters=tuple(NodeId(name) for name in sorted(config.peers)),
            **{**dataclasses.asdict(PROFILES[config.profile]), **_times(config)},
        )
        return RaftNode(
            NodeConfig(
                group=config.group,
                raft=raft,
                peers={NodeId(name): address for name, address in config.peers.items()},
                listen=config.raft_listen,
                store=config.store,
                secret=_secret(config),
                dial=config.dial,
                trace=config.trace,
                fsync_by=config.fsync_by,
                segment_size_bytes_max=config.segment_size_bytes_max,
                log_cached_size_bytes=config.log_cached_size_bytes,
                snapshot_interval_size_bytes=config.snapshot_interval,
            ),
            machine,
            stalls=stalls,
            turn=turn,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def entry_reader(config: BrokerConfig, log: ReplicatedLog) -> EntryReader | None:
    """Return how the entries of `log` are read one by one; None: as those of the Raft log."""
    if not config.is_master_slave:
        return None
    from broker.process.ha_entries import HaEntryReader  # noqa: PLC0415

    return HaEntryReader(log)


def _master_slave(config: BrokerConfig, machine: RestorableStateMachine) -> ReplicatedLog:
    """Return the log of a master or slave. Raises ValueError where a setting is out of range."""
    # Imported here: a broker on Raft needs nothing of it.
    from broker.ha.config import HaConfig  # noqa: PLC0415
    from broker.ha.engine import HaLog  # noqa: PLC0415

    return HaLog(
        HaConfig(
            group=config.group,
            node_id=NodeId(config.node),
            peers={NodeId(name): address for name, address in config.peers.items()},
            master=NodeId(config.master_node),
            store=config.store,
            waits_for_slaves=config.engine == "sync",
            waits_for_disk=config.flush == "sync",
            sync_flush_timeout_ms=config.sync_flush_timeout_ms,
            slave_timeout_ms=config.slave_timeout_ms,
            in_sync_replicas=config.in_sync_replicas,
            listen=config.raft_listen,
            dial=config.dial,
            segment_size_bytes_max=config.segment_size_bytes_max,
            snapshot_interval_size_bytes=config.snapshot_interval,
            trace=config.trace,
            fsync_by=config.fsync_by,
        ),
        machine,
    )


def _pysyncobj(config: BrokerConfig, machine: StateMachine) -> ReplicatedLog:
    """Return a log of PySyncObj. Raises ValueError if an address is not loopback, or a time is out
    of range."""
    # Imported here: a broker on Raft needs nothing of it.
    from raft.pysyncobj.config import PySyncObjConfig  # noqa: PLC0415
    from raft.pysyncobj.log import PySyncObjLog  # noqa: PLC0415

    password = None
    if config.pysyncobj_password:
        if importlib.util.find_spec("cryptography") is None:
            raise ValueError("pysyncobj_password: needs the package cryptography")
        password = _secret(config).decode()
    return PySyncObjLog(
        PySyncObjConfig(
            group=config.group,
            node_id=NodeId(config.node),
            peers={NodeId(name): address for name, address in config.peers.items()},
            listen=config.raft_listen,
            store=config.store,
            dial=config.dial,
            flush=config.pysyncobj_flush,
            batch=config.pysyncobj_batch,
            password=password,
            trace=config.trace,
            segment_size_bytes_max=config.segment_size_bytes_max,
            **_times(config),
        ),
        machine,
    )


def _times(config: BrokerConfig) -> dict[str, Any]:
    """Return the times of [raft] that were given one by one."""
    names = ("heartbeat_ms", "election_timeout_ms_min", "election_timeout_ms_max")
    return {name: getattr(config, name) for name in names if getattr(config, name) is not None}


def _secret(config: BrokerConfig) -> bytes:
    """Return the group's secret; random for a group of one node, which no other may join."""
    if config.secret_file is None:
        return secrets.token_bytes(32)
    try:
        secret = config.secret_file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"secret_file: {error}") from error
    if len(secret) > _SECRET_SIZE_MAX:
        raise ConfigError(f"secret_file: {len(secret)} bytes, more than {_SECRET_SIZE_MAX}")
    return secret
