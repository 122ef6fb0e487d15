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
from typing import Final

from broker.config.config import ConfigError, parse_config
from broker.entry.topics import TOPIC_NAME_SIZE_MAX, is_system_topic
from chaos.cluster.engines import ENGINES
from chaos.cluster.layout import (
    LayoutError,
    broker_config_toml,
    fixed_ports,
    lay_out,
)
from raft.profiles import PROFILES
from remoting.connections.config_values import near_matches

__all__ = [
    "fault_number_problem",
    "group_names",
    "layout_problem",
    "text_problems",
    "with_matches",
]

_FAULT_NUMBER_MAX: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+")
_TOPICS_MAX: Final = 16


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
