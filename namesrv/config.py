"""Configuration of a name server.

Place in the data path: read once at start, by `namesrv.server` and the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from namesrv.route_table import RouteLimits
from remoting.message_id import split_host

__all__ = ["NameServerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Raises ValueError or RecordError where a value makes no sense."""

    listen: str = "127.0.0.1:9876"
    """Address to serve on, "host:port"; port 0 picks a free one."""
    scan_interval_ms: int = 5_000
    """How often silent brokers are looked for."""
    connections_max: int = 4_096
    """Connections of brokers and clients together."""
    kv_entries_max: int = 10_000
    """Key-value configuration entries over all namespaces."""
    limits: RouteLimits = field(default_factory=RouteLimits)
    """Bounds of the route table, and the silence after which a broker is dropped."""

    def __post_init__(self) -> None:
        split_host(self.listen)
        if self.scan_interval_ms < 1 or self.connections_max < 1 or self.kv_entries_max < 0:
            raise ValueError("scan_interval_ms, connections_max and kv_entries_max: too small")

    @property
    def host(self) -> str:
        return split_host(self.listen)[0]

    @property
    def port(self) -> int:
        return split_host(self.listen)[1]
