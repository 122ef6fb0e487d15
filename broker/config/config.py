"""A broker's configuration, read from one TOML file at the edge and validated here.

Place in the data path: none; every other module gets what it needs from it as values. An unknown
key, a wrong type or an impossible value is a ConfigError that names the key.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.config.retention import RetentionPolicy, hours_of_day
from broker.leader.proposer import ProposerLimits
from broker.state.state import StateLimits
from raft.profiles import PROFILES
from remoting.connections.config_values import (
    near_matches,
    number,
    range_problems,
    section,
    section_values,
    typed,
)
from remoting.connections.security_config import SecurityConfig, SecurityConfigError
from remoting.records.message_id import may_be_host

__all__ = ["ENGINES", "BrokerConfig", "ConfigError", "load_config", "parse_config"]

ENGINES = ("raft", "pysyncobj", "async", "sync")
_MASTER_SLAVE: Final = frozenset({"async", "sync"})
FLUSHES: Final = ("async", "sync")
MESSAGE_SIZE_MAX = 6 << 20
"""Records of a batch, their properties and keys fit one entry of the log, which has 8 MiB."""


class ConfigError(ValueError):
    """Error in the configuration; the text names the key and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Configuration of one broker process: milliseconds, bytes, addresses as "ip:port"."""

    group: str  # RocketMQ brokerName; one Raft group
    node: str  # this replica's name in `peers`
    cluster: str = "DefaultCluster"
    listen: str = "127.0.0.1:10911"  # remoting
    advertised: str = ""  # address that clients connect to; default: `listen`
    raft_listen: str = "127.0.0.1:10915"
    store: Path = Path("store")
    name_servers: tuple[str, ...] = ()
    secret_file: Path | None = None  # the group's shared secret; none: generated groups of one
    trace: bool = False
    engine: str = "raft"
    peers: Mapping[str, str] = field(default_factory=dict)  # node -> raft address, self included
    brokers: Mapping[str, str] = field(default_factory=dict)  # node -> remoting address: hints
    dial: Mapping[str, str] = field(default_factory=dict)  # address -> address really dialled
    region: str = "DefaultRegion"

    profile: str = "lan"  # times of the Raft group; times given here override it
    heartbeat_ms: int | None = number(None, 1)
    election_timeout_ms_min: int | None = number(None, 1)
    election_timeout_ms_max: int | None = number(None, 1)
    segment_size_bytes_max: int = number(64 << 20, 1)
    fsync_by: str = "kernel"  # of the log: the kernel where it can, else a thread; or "thread"
    log_cached_size_bytes: int = 128 << 20  # left in the page cache; 0: as the kernel likes
    snapshot_interval_size_bytes: int = number(1 << 30, 1)  # of log between two snapshots
    pysyncobj_flush: bool = True  # fsync journal and vote, which PySyncObj by itself does not
    pysyncobj_batch: bool = True  # commands leave once per heartbeat, as by its own default
    pysyncobj_password: bool = False  # the secret encrypts; needs the package cryptography

    # The engines async and sync: a configured master and its slaves, RocketMQ's names and defaults
    # but for in_sync_replicas, where 1 is RocketMQ's: sync would wait for nobody.
    master: str = ""  # node that is the master; "": the first of `peers` by name
    master_is_foreign: bool = False  # Apache RocketMQ's: topics and offsets are copied by requests
    flush: str = "async"  # answers come at once and an fsync every 500 ms; sync: they wait for it
    sync_flush_timeout_ms: int = number(5_000, 1)
    slave_timeout_ms: int = number(3_000, 1)
    in_sync_replicas: int = number(2, 1)  # the master counts too
    slave_read_enable: bool = False  # consumers that are far behind pull from a slave

    message_size_max: int = number(4 << 20, 1, MESSAGE_SIZE_MAX)
    store_reply_message_enable: bool = True  # replies are stored as well as pushed
    trace_topic_enable: bool = False  # the leader creates RMQ_SYS_TRACE_TOPIC
    broker_permission: int = 6  # what clients may do here: 4 pull and pop, 2 send
    use_server_side_reset_offset: bool = True  # pulls are answered with offset resets
    auto_create_topic: bool = True
    reject_transactions: bool = False
    transaction_timeout_ms: int = number(6_000, 1)
    transaction_check_interval_ms: int = number(30_000, 1)
    transaction_check_max: int = number(15, 1)
    transaction_retention_ms: int = 72 * 3_600_000
    registration_interval_ms: int = number(30_000, 1)
    connections_max: int = number(4_096, 1)  # to clients; at most half of the files it may open
    connections_reserved: int = 64  # beyond: for operators and members alone
    client_silence_ms_max: int = number(120_000, 1)
    clients_per_group_max: int = 10_000
    held_pulls_max: int = 100_000
    lock_lease_ms: int = number(60_000, 1)  # of ordered queues; their clients believe in half of it
    pull_count_max: int = 1_024
    pull_size_max: int = 8 << 20
    enable_property_filter: bool = True  # SQL92 expressions in subscriptions
    # Percent of the machine's memory that the log's end takes there: new groups of younger queues
    # begin at 0, and with slave_read_enable slower consumers are sent to a slave.
    access_message_in_memory_max_ratio: int = number(40, 0, 100)
    in_memory_size_bytes_max: int = 0  # in bytes instead; 0: by the ratio
    acl_enable: bool = False
    acl_file: Path = Path("plain_acl.yml")  # RocketMQ's; read again when it changes
    acl_inner_access_key: str = ""  # the account that this broker's own requests are signed with
    # Room and retention: RocketMQ's names; ratios are percent of the disk, above 100 means never.
    disk_free_size_min: int = 16 << 20  # less than this, and no message of a client is stored
    disk_space_warning_level_ratio: int = 90  # more than this, and none either
    disk_max_used_space_ratio: int = 75  # more than this, and expired messages are deleted at once
    disk_space_clean_forcibly_ratio: int = 85  # more than this, and the oldest goes
    clean_file_forcibly_enable: bool = True
    file_reserved_time_hours: int = number(72, 1)
    delete_when: str = "04"  # hours of the day at which expired messages are deleted
    log_size_bytes_max: int = 0  # more than this, and the oldest goes; 0: not bounded
    timer_wheel_enable: bool = True
    timer_max_delay_sec: int = number(3 * 86_400, 1)
    recall_message_enable: bool = True
    # The index by key, RocketMQ's names; an index file takes 40 + 4 slots + 20 units, sparse.
    message_index_enable: bool = True
    max_hash_slot_num: int = number(5_000_000, 1, (1 << 31) - 1)
    max_index_num: int = number(20_000_000, 2, (1 << 31) - 1)
    limits: StateLimits = field(default_factory=StateLimits)
    proposer: ProposerLimits = field(default_factory=ProposerLimits)
    security: SecurityConfig = field(default_factory=SecurityConfig)  # TLS, PROXY preambles

    def __post_init__(self) -> None:
        if not self.advertised:
            object.__setattr__(self, "advertised", self.listen)
        if not self.group or not self.node:
            raise ConfigError("group and node must not be empty")
        if self.node not in self.peers:
            raise ConfigError(f"peers: does not name this node, {self.node!r}")
        if len(self.peers) > 1 and self.secret_file is None and not self.is_master_slave:
            raise ConfigError("secret_file: a group of several nodes needs a shared secret")
        if self.profile not in PROFILES:
            known = ", ".join(map(repr, PROFILES))
            raise ConfigError(f"profile: {self.profile!r} is not one of {known}")
        if self.engine not in ENGINES:
            known = ", ".join(map(repr, ENGINES))
            raise ConfigError(f"engine: {self.engine!r} is not one of {known}")
        if self.flush not in FLUSHES:
            known = ", ".join(map(repr, FLUSHES))
            raise ConfigError(f"flush: {self.flush!r} is not one of {known}")
        if self.master and self.master not in self.peers:
            raise ConfigError(f"master: {self.master!r} is not one of the peers")
        if self.master_is_foreign and (
            not self.is_master_slave
            or self.node == self.master_node
            or self.master_node not in self.brokers
        ):
            raise ConfigError(
                "master_is_foreign: needs the engine async or sync, another node as master, and its"
                " address in `brokers`"
            )
        for key in ("listen", "advertised", "raft_listen"):
            split_address(key, getattr(self, key))
        for name, address in [*self.peers.items(), *self.brokers.items(), *self.dial.items()]:
            split_address(name, address)
        for address in self.name_servers:
            split_address("name_servers", address)
        try:
            hours_of_day(self.delete_when)
        except ValueError as error:
            raise ConfigError(f"delete_when: {error}") from error
        problems = range_problems("", self)
        for limits in (self.limits, self.proposer):
            for key in sorted(_fields_of(type(limits)) - _MAY_BE_ZERO):
                if getattr(limits, key) < 1:
                    problems.append(f"{key} must be at least 1, not {getattr(limits, key)}")
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def is_master_slave(self) -> bool:
        """Whether the engine has a configured master and slaves, and elects nobody."""
        return self.engine in _MASTER_SLAVE

    @property
    def master_node(self) -> str:
        """Return the node that is the master of such an engine."""
        return self.master or min(self.peers)

    @property
    def broker_id(self) -> int:
        """Return the id of this node in routes on such an engine: 0 is the master, slaves have 1
        and up, by their names. Where a leader is elected it changes with the leader; 0 here."""
        if not self.is_master_slave or self.node == self.master_node:
            return 0
        return 1 + sorted(set(self.peers) - {self.master_node}).index(self.node)

    @property
    def in_memory_size(self) -> int:
        """Return how much of the log's end counts as in memory."""
        pages: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        by_ratio = pages * self.access_message_in_memory_max_ratio // 100
        return self.in_memory_size_bytes_max or by_ratio

    @property
    def snapshot_interval(self) -> int:
        """Return how many bytes of log are between two snapshots. Retention keeps the log from the
        older of two snapshots on, so a bound on the log's size needs more of them."""
        if not self.log_size_bytes_max:
            return self.snapshot_interval_size_bytes
        return max(1, min(self.snapshot_interval_size_bytes, self.log_size_bytes_max // 4))

    @property
    def retention(self) -> RetentionPolicy:
        return RetentionPolicy(
            file_reserved_time_hours=self.file_reserved_time_hours,
            delete_hours=hours_of_day(self.delete_when),
            disk_max_used_space_ratio=self.disk_max_used_space_ratio,
            disk_space_clean_forcibly_ratio=self.disk_space_clean_forcibly_ratio,
            clean_file_forcibly_enable=self.clean_file_forcibly_enable,
            log_size_bytes_max=self.log_size_bytes_max,
            segment_size_bytes_max=self.segment_size_bytes_max,
        )


_MAY_BE_ZERO = frozenset({"dedupe_evicted_keys_max"})
_SECTIONS = ("raft", "broker")
_PARTS: Final[Mapping[str, type[Any]]] = {
    "limits": StateLimits,
    "proposer": ProposerLimits,
    "security": SecurityConfig,
}


def split_address(key: str, address: str) -> tuple[str, int]:
    """Return ("ip", port) of an address. Raises ConfigError that names the key."""
    host, separator, port = address.rpartition(":")
    is_port = port.isdecimal() and int(port) <= 0xFFFF
    if not separator or not is_port or not host or not may_be_host(host):
        raise ConfigError(f"{key}: {address!r} is not host:port")
    return host.strip("[]"), int(port)


def load_config(path: Path) -> BrokerConfig:
    """Return the configuration in a file. Raises ConfigError for an error in it, and OSError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from error
    return parse_config(text)


def parse_config(text: str) -> BrokerConfig:
    """Return the configuration in a file's text. Raises ConfigError for any error in it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from error
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in _SECTIONS:
            values.update(typed(key, value, dict, ConfigError))
        else:
            values[key] = value
    return _config_of(values)


def _config_of(values: dict[str, Any]) -> BrokerConfig:
    """Make the configuration of all tables' keys together; some of them are of parts of it."""
    owners = {key: part for part, kind in _PARTS.items() for key in _fields_of(kind)}
    own = _fields_of(BrokerConfig) - _PARTS.keys()
    tables: dict[str, dict[str, object]] = {part: {} for part in ("", *_PARTS)}
    for key, value in values.items():
        if key not in own and key not in owners:
            known = {*own, *owners, *_SECTIONS}
            raise ConfigError(f"{key}: there is no such setting{near_matches(key, known)}")
        if isinstance(value, int) and value < 0:
            raise ConfigError(f"{key} must be at least 0, not {value}")
        tables[owners.get(key, "")][key] = value
    arguments = section_values(BrokerConfig, "", tables[""], ConfigError)
    for part, kind in _PARTS.items():
        try:
            arguments[part] = section(kind, "", tables[part], ConfigError)
        except SecurityConfigError as error:
            raise ConfigError(str(error)) from error
    return BrokerConfig(**arguments)


def _fields_of(kind: type[Any]) -> set[str]:
    return {field_.name for field_ in dataclasses.fields(kind)}
