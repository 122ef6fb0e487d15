"""Resolution of the broker's host name to the address that records and message ids contain.

Place in the data path: `broker.process.server` resolves once at the start. Clients still get the
name (`advertised`), which they resolve by themselves; a record has room for a numeric address only.

Invariant: the result is numeric; a numeric address causes no lookup.

Source: RocketMQ's record format (STOREHOSTADDRESS).
"""

from __future__ import annotations

import ipaddress
import socket

from broker.config.config import ConfigError, split_address

__all__ = ["numeric_address"]


def numeric_address(advertised: str) -> str:
    """Return "ip:port" of `advertised`; blocks while a name is looked up, IPv4 is preferred.

    Raises ConfigError if the name has no address.
    """
    host, port = split_address("advertised", advertised)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = _looked_up(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _looked_up(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"advertised: no address of {name!r} is known: {reason}") from error
    addresses = [str(address[0]).partition("%")[0] for *_, address in found]
    return min(addresses, key=lambda address: ":" in address)
