"""Access control and encryption as the settings have them.

Place in the data path: `broker.process.server` makes both at a start.

Invariant: a setting that can't be used is a ConfigError that names it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from broker.access.access_control import AccessControl
from broker.access.accounts import AclFileError
from broker.config.config import BrokerConfig, ConfigError
from broker.state.user_table import UserTable
from remoting.connections.greeting import Greeting
from remoting.connections.security_config import SecurityConfigError

__all__ = ["access_control_of", "encryption_of"]


def access_control_of(
    config: BrokerConfig, monotonic_ms: Callable[[], int], users: Callable[[], UserTable]
) -> AccessControl | None:
    """Return access control, or None if it is off. Raises ConfigError and OSError."""
    if not config.acl_enable:
        return None
    try:
        return AccessControl(
            config.acl_file,
            monotonic_ms,
            users=users,
            cluster=config.cluster,
            inner_access_key=config.acl_inner_access_key,
        )
    except AclFileError as error:
        raise ConfigError(f"acl_file: {config.acl_file}: {error}") from error


def encryption_of(config: BrokerConfig) -> tuple[Greeting, ssl.SSLContext | None]:
    """Return the settings of accepted and of dialled connections. Raises ConfigError."""
    try:
        return config.security.greeting(), config.security.dial_context()
    except SecurityConfigError as error:
        raise ConfigError(str(error)) from error
