"""Configuration of a name server.

Place in the data path: read once at start, by `namesrv.server` and the command line.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from namesrv.registration import RouteLimits
from namesrv.settings import Settings, SettingsError
from remoting.connections.config_values import near_matches, typed
from remoting.connections.security_config import SECURITY_KEYS, SecurityConfig, SecurityConfigError
from remoting.errors import RecordError
from remoting.records.message_id import split_host

__all__ = ["NameServerConfig", "NameServerConfigError", "load_config"]


_OWN_KEYS: Final[dict[str, type]] = {
    "listen": str,
    "kv_config_path": Path,
    "connections_max": int,
    "connections_reserved": int,
    "kv_entries_max": int,
}


class NameServerConfigError(ValueError):
    """The configuration can't be used; names the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Configuration of one name server. Raises ValueError or RecordError on an invalid value."""

    listen: str = "127.0.0.1:9876"
    """Address to serve on, "host:port"; port 0 picks a free one."""
    connections_max: int = 16_384
    """Connections of brokers and clients together; every client has one."""
    connections_reserved: int = 64
    """More of them, for brokers and operators alone."""
    kv_entries_max: int = 10_000
    """Key-value configuration entries over all namespaces."""
    kv_config_path: Path | None = None
    """File in which they survive a restart; None: memory only."""
    settings: Settings = field(default_factory=Settings)
    """Initial values of the settings that can be changed at run time."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    limits: RouteLimits = field(default_factory=RouteLimits)
    """Bounds of the route table, and the silence after which a broker is dropped."""

    def __post_init__(self) -> None:
        split_host(self.listen)
        if self.connections_max < 1 or self.kv_entries_max < 0 or self.connections_reserved < 0:
            raise ValueError("connections_max, connections_reserved or kv_entries_max: too small")

    @property
    def host(self) -> str:
        return split_host(self.listen)[0]

    @property
    def port(self) -> int:
        return split_host(self.listen)[1]


def load_config(path: Path) -> NameServerConfig:
    """Load a TOML file: `_OWN_KEYS` of NameServerConfig, RocketMQ's names of `Settings`, TLS.

    Raises NameServerConfigError, and OSError where the file can't be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NameServerConfigError(f"not TOML: {error}") from error
    own: dict[str, Any] = {
        key: typed(key, values.pop(key), kind, NameServerConfigError)
        for key, kind in _OWN_KEYS.items()
        if key in values
    }
    security = {key: values.pop(key) for key in SECURITY_KEYS & values.keys()}
    settings = Settings()
    for key in values:
        if key not in settings.shown():
            known = [*settings.shown(), *SECURITY_KEYS, *_OWN_KEYS]
            raise NameServerConfigError(
                f"{key}: there is no such setting{near_matches(key, known)}"
            )
    try:
        return NameServerConfig(
            **own,
            settings=settings.updated({key: str(value) for key, value in values.items()}),
            security=SecurityConfig.of(security),
        )
    except RecordError as error:
        raise NameServerConfigError(f"listen: {error}") from error
    except (SettingsError, SecurityConfigError, ValueError) as error:
        raise NameServerConfigError(str(error)) from error
