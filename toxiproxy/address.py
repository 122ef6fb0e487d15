"""Listen addresses as Toxiproxy takes and shows them.

`parse_listen` splits and checks the text, `resolve` gives the address that a listener of that text
would have (port 0 still 0), `bind` opens the listening socket. An empty host, `0.0.0.0` and `::`
all mean every interface and are shown as `[::]`, as Go shows its wildcard; the laboratory itself
always names a loopback address. Error texts are Go's, since clients and tests compare them.

Invariant: what `format_address` writes, `parse_listen` reads back as the same host and port.
"""

import asyncio
import errno
import ipaddress
import socket
from typing import NewType

__all__ = [
    "BACKLOG",
    "Address",
    "AddressError",
    "bind",
    "format_address",
    "parse_listen",
    "resolve",
]

Address = NewType("Address", tuple[str, int])

BACKLOG = 1024
_WILDCARDS = frozenset({"", "::", "0.0.0.0"})  # noqa: S104 - recognised here, chosen by the caller


class AddressError(Exception):
    """A listen address that can't be used; the text is what Go's resolver or bind says."""


def parse_listen(text: str) -> Address:
    """Return host and port of a listen text; raises AddressError when it is none."""
    if not text:
        return Address(("", 0))
    host, port_text = _split(text)
    try:
        port = int(port_text) if port_text else 0
    except ValueError:
        try:
            port = socket.getservbyname(port_text, "tcp")
        except OSError:
            raise AddressError(f"lookup tcp/{port_text}: unknown port") from None
    if not 0 <= port <= 65535:
        raise AddressError(f"address {port_text}: invalid port")
    return Address((host, port))


def format_address(address: Address) -> str:
    """Return the text form, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(text: str) -> Address:
    """Return the numeric address that `text` stands for; raises AddressError."""
    host, port = parse_listen(text)
    if host in _WILDCARDS:
        return Address(("::", port))
    try:
        return Address((str(ipaddress.ip_address(host)), port))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise AddressError(f"lookup {host}: no such host") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return Address((str(found[0][4][0]), port))


def bind(address: Address) -> tuple[socket.socket, Address]:
    """Listen on a resolved address; return the socket and its address. Raises AddressError."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = _listen(family, host, port)
    except OSError as error:
        if host == "::" and error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            return bind(Address(("0.0.0.0", port)))  # noqa: S104 - the wildcard was asked for
        reason = (error.strerror or str(error)).lower()
        raise AddressError(f"listen tcp {_shown(address)}: bind: {reason}") from None
    name = listener.getsockname()
    return listener, Address((str(name[0]), int(name[1])))


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _shown(address: Address) -> str:
    """Return the address as shown in bind errors, where Go leaves the wildcard host out."""
    host, port = address
    return f":{port}" if host == "::" else format_address(address)


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed:
            raise AddressError(f"address {text}: missing ']' in address")
        if not rest.startswith(":"):
            raise AddressError(f"address {text}: missing port in address")
        return host, rest[1:]
    host, colon, port = text.rpartition(":")
    if not colon:
        raise AddressError(f"address {text}: missing port in address")
    if ":" in host:
        raise AddressError(f"address {text}: too many colons in address")
    return host, port
