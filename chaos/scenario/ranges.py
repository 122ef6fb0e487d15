"""The legal range of each number of a scenario, and the legal texts and tables.

Place in the data path: `chaos.scenario.scenario` reads a file into sections and has them checked
here, before any process is started.

Invariant: every number of every section has its range here (a test compares the two), so that no
illegal value reaches the cluster or the workload.

Source: the sections of `chaos.scenario.scenario`; RocketMQ's rules for names of topics.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from broker.config.config import ConfigError, parse_config
from broker.entry.topics import TOPIC_NAME_SIZE_MAX, is_system_topic
from chaos.cluster.layout import (
    ENGINES,
    GROUPS_MAX,
    NAME_SERVERS_MAX,
    REPLICAS_MAX,
    LayoutError,
    broker_config_toml,
    fixed_ports,
    lay_out,
)
from raft.profiles import PROFILES
from remoting.connections.config_values import near_matches

__all__ = [
    "RANGES",
    "RATES",
    "fault_number_problem",
    "group_names",
    "layout_problem",
    "number_problems",
    "text_problems",
    "with_matches",
]

_DAY_S: Final = 86_400
_DAY_MS: Final = 86_400_000
RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "cluster.groups": (1, GROUPS_MAX),
        "cluster.replicas": (1, REPLICAS_MAX),
        "cluster.name_servers": (1, NAME_SERVERS_MAX),
        "cluster.spares": (0, 2),
        "load.seconds": (0.1, _DAY_S),
        "load.heal_seconds_max": (0.1, _DAY_S),
        "load.drain_seconds_max": (0.1, _DAY_S),
        "workload.queues": (1, 64),
        "workload.body_bytes": (0, 1 << 20),
        "workload.sizes_share": (0, 1),
        "workload.plain_clients": (0, 64),
        "workload.plain_processes": (1, 256),
        "workload.send_rate": (0, 100_000),
        "workload.shard_share": (0, 1),
        "workload.shards": (1, 1_000_000),
        "workload.send_timeout_ms": (100, 60_000),
        "workload.send_retries_max": (0, 100),
        "workload.impatient_share": (0, 1),
        "workload.impatient_timeout_ms": (1, 60_000),
        "workload.batch_share": (0, 1),
        "workload.repeat_share": (0, 1),
        "workload.transaction_clients": (0, 64),
        "workload.transaction_processes": (1, 256),
        "workload.transaction_rate": (0, 100_000),
        "workload.commit_share": (0, 1),
        "workload.rollback_share": (0, 1),
        "workload.undecided_share": (0, 1),
        "workload.immune_share": (0, 1),
        "workload.contrary_share": (0, 1),
        "workload.whole_share": (0, 1),
        "workload.transaction_crash_s": (0, _DAY_S),
        "workload.push_clients": (0, 64),
        "workload.push_restart_s": (0, _DAY_S),
        "workload.reconsume_share": (0, 1),
        "workload.consume_ms": (0, 10_000),
        "workload.pull_clients": (0, 64),
        "workload.pull_restart_s": (0, _DAY_S),
        "workload.offset_reads_rate": (0, 10_000),
        "workload.key_queries_rate": (0, 10_000),
        "transactions.timeout_ms": (100, _DAY_MS),
        "transactions.check_interval_ms": (100, _DAY_MS),
        "transactions.check_max": (1, 10_000),
        "dedupe.window_ms": (1, 7 * _DAY_MS),
        "limits.rto_ms": (1, _DAY_MS),
        "limits.gap_ms": (1, _DAY_MS),
        "limits.lag_ms": (1, _DAY_MS),
        "limits.acked_share_min": (0, 1),
        "limits.late_ms": (0, _DAY_MS),
    }
)
RATES: Final = frozenset(key for key in RANGES if key.endswith("_rate"))
_RATE_MIN: Final = 0.001  # one in a quarter of an hour; 0 is none at all
_FAULT_NUMBER_MAX: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+")
_TOPICS_MAX: Final = 16


def number_problems(section: str, values: Mapping[str, object]) -> list[str]:
    """Return which numbers of a section are out of their range; `values` by field."""
    problems: list[str] = []
    for field, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        key = f"{section}.{field}"
        low, high = RANGES[key]
        if not low <= value <= high:  # NaN is in no range
            problems.append(f"{key} must be {low:g}..{high:.15g}, not {value:g}")
        elif key in RATES and 0 < value < _RATE_MIN:
            problems.append(f"{key} must be 0 or at least {_RATE_MIN:g}, not {value:g}")
    return problems


def fault_number_problem(key: str, value: object) -> str | None:
    """Return the problem with a number among a fault's own settings, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not (math.isfinite(value) and 0 <= value <= _FAULT_NUMBER_MAX):
        return f"{key} must be 0..{_FAULT_NUMBER_MAX}, not {value}"
    return None


def text_problems(*, name: str, topics: Sequence[str], engine: str, profile: str) -> list[str]:
    """Return which texts can't be used."""
    problems: list[str] = []
    if not _NAME.fullmatch(name):
        problems.append(f"name: {name!r} is not 1..100 letters, digits, '.', '-' and '_'")
    if not 1 <= len(topics) <= _TOPICS_MAX:
        problems.append(f"workload.topics must name 1..{_TOPICS_MAX} topics")
    if len(set(topics)) != len(topics):
        problems.append("workload.topics names a topic twice")
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or len(topic) > TOPIC_NAME_SIZE_MAX:
            problems.append(f"workload.topics: {topic!r} is no name of a topic")
        elif is_system_topic(topic):
            problems.append(f"workload.topics: {topic!r} is a topic of the system")
    if engine not in ENGINES:
        problems.append(f"cluster.engine: unknown {with_matches(engine, ENGINES)}")
    if profile not in PROFILES:
        problems.append(f"cluster.profile: unknown {with_matches(profile, PROFILES)}")
    return problems


def layout_problem(
    *,
    groups: int,
    replicas: int,
    name_servers: int,
    engine: str,
    raft_settings: Mapping[str, int | str],
    broker_settings: Mapping[str, int | bool | str],
) -> str | None:
    """Return what a broker would reject of its configuration; numbers are legal here."""
    ports = fixed_ports(
        groups=groups,
        replicas=replicas,
        name_servers=name_servers,
        name_server_port=1000,
        base_port=2000,
    )
    try:
        layout = lay_out(
            groups=groups,
            replicas=replicas,
            name_servers=name_servers,
            ports=ports,
            engine=engine,
            raft_settings=raft_settings,
            broker_settings=broker_settings,
        )
        text = broker_config_toml(
            layout, layout.brokers[0], store=Path("store"), secret_file=Path("secret"), dial={}
        )
        parse_config(text)
    except LayoutError as error:
        return f"cluster: {error}"
    except ConfigError as error:
        return f"cluster.raft, cluster.broker: {error}"
    return None


def group_names(count: int) -> list[str]:
    """Return the names of `count` groups."""
    return [f"broker-{letter}" for letter in string.ascii_lowercase[:count]]


def with_matches(word: str, known: Iterable[str]) -> str:
    """Return the word in quotes, with its near matches."""
    return f"{word!r}{near_matches(word, known)}"
