"""Broker registrations at a name server, the answers to them, and the table's bounds. Pure values.

Place in the data path: `namesrv.server` makes them of requests, `namesrv.route_table` stores them.

Source: RocketMQ RouteInfoManager and the headers of its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remoting.protocol.route import DataVersion, TopicConfig

__all__ = [
    "Leader",
    "MinIdChange",
    "Registration",
    "RegistrationRefusedError",
    "RemovedBroker",
    "RouteLimits",
    "RoutePolicy",
]


class RegistrationRefusedError(Exception):
    """The registration was definitely refused; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """Bounds of the table."""

    groups_max: int = 1_024
    """Broker groups."""
    brokers_max: int = 64
    """Members of one group."""
    topics_max: int = 100_000
    """Topics over all groups."""
    name_size_max: int = 255
    """Characters of a cluster, group, address or topic."""
    broker_timeout_ms: int = 120_000
    """Silence after which a broker is dropped, unless it registered a timeout of its own."""

    def __post_init__(self) -> None:
        for name in ("groups_max", "brokers_max", "topics_max", "name_size_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.broker_timeout_ms < 1:
            raise ValueError("broker_timeout_ms must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePolicy:
    """Rules that can change while the table is in use. All are off by default."""

    delete_missing_topics: bool = False
    """Whether a changed registration of id 0 drops the group's queues of topics not in it."""
    acting_master: bool = False
    """Whether routes show the lowest id of a group that allows it as id 0 while it has none."""
    notify_min_id: bool = False
    """Whether changes of a group's lowest id are recorded for `take_min_id_changes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinIdChange:
    """A change of a group's lowest id, and whom to notify (NOTIFY_MIN_BROKER_ID_CHANGE)."""

    broker_name: str
    min_id: int
    min_addr: str
    offline_addr: str | None
    ha_addr: str | None
    receivers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A broker's registration. `heartbeat_timeout_ms` None: the table's own timeout."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion
    topics: Sequence[TopicConfig]
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The holder of id 0 in a group."""

    broker_addr: str
    ha_server_addr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedBroker:
    """A member that was dropped from the table."""

    broker_name: str
    broker_id: int
    broker_addr: str
