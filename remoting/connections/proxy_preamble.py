"""The PROXY preamble, versions 1 and 2: the client behind a load balancer. Pure.

Place in the data path: `remoting.connections.greeting` feeds it a connection's first bytes, before
TLS or the first frame.

Version 1 is a line of at most 107 bytes, `PROXY TCP4 source destination source-port
destination-port` (or TCP6), or `PROXY UNKNOWN ...`, that ends with CR LF. Version 2:

| offset | size | field |
|---|---|---|
| 0 | 12 | signature |
| 12 | 1 | version 2 and command: 0x20 LOCAL, 0x21 PROXY |
| 13 | 1 | family and transport: 0x11 TCP over IPv4, 0x21 over IPv6 |
| 14 | 2 | n |
| 16 | n | source 4 or 16, destination 4 or 16, source port 2, destination port 2, more |

Invariants: never takes a byte behind the preamble; holds at most `PREAMBLE_SIZE_MAX` bytes; a
preamble without a source (UNKNOWN, LOCAL, other families) leaves the connection's own address.

Source: the PROXY protocol of HAProxy; RocketMQ NettyRemotingServer's HandshakeHandler.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from remoting.records.message_id import join_host

__all__ = ["PREAMBLE_SIZE_MAX", "PreambleError", "ProxyPreamble", "begins_preamble"]

PREAMBLE_SIZE_MAX: Final = 4_096
_V1_SIZE_MAX: Final = 107
_V1_BEGIN: Final = b"PROXY "
_V1_FIELDS: Final = 6
_V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD: Final = struct.Struct(">12sBBH")
assert _V2_HEAD.size == 16
_V2_TCP4: Final = 0x11
_V2_TCP6: Final = 0x21
_LOCAL: Final = 0x20
_PROXY: Final = 0x21


class PreambleError(ValueError):
    """The bytes are not a valid PROXY preamble; says where they go wrong."""


def begins_preamble(first: int) -> bool:
    """Return whether `first` can start a preamble; no frame and no handshake starts with it."""
    return first in {_V1_BEGIN[0], _V2_SIGNATURE[0]}


class ProxyPreamble:
    """Parses a preamble fed in pieces; once `is_complete`, `source` is final."""

    __slots__ = ("_held", "is_complete", "source")

    def __init__(self) -> None:
        self._held = bytearray()
        self.is_complete = False
        self.source: str | None = None
        """The client's "ip:port", where the preamble names it."""

    def take(self, data: bytes) -> int:
        """Return the number of `data`'s bytes that belong to the preamble. Raises PreambleError."""
        assert not self.is_complete
        held = len(self._held)
        self._held += data
        begin = _V2_SIGNATURE if self._held[:1] == _V2_SIGNATURE[:1] else _V1_BEGIN
        if not begin.startswith(bytes(self._held[: len(begin)])):
            raise PreambleError(f"{bytes(self._held[:16])!r} begins no PROXY preamble")
        size = self._size_of_v1() if begin is _V1_BEGIN else self._size_of_v2()
        if size is None or len(self._held) < size:
            return len(data)  # all of it; the preamble is longer
        taken = size - held
        del self._held[size:]
        self.source = self._source_of_v1() if begin is _V1_BEGIN else self._source_of_v2()
        self.is_complete = True
        return taken

    def _size_of_v1(self) -> int | None:
        end = self._held.find(b"\r\n", 0, _V1_SIZE_MAX)
        if end >= 0:
            return end + 2
        if len(self._held) >= _V1_SIZE_MAX:
            raise PreambleError(f"a PROXY line has no end within {_V1_SIZE_MAX} bytes")
        return None

    def _size_of_v2(self) -> int | None:
        if len(self._held) < _V2_HEAD.size:
            return None
        length: int
        _, command, _, length = _V2_HEAD.unpack_from(self._held)
        if command not in {_LOCAL, _PROXY}:
            raise PreambleError(f"version and command {command:#x} are not 0x20 or 0x21")
        size = _V2_HEAD.size + length
        if size > PREAMBLE_SIZE_MAX:
            raise PreambleError(f"a PROXY preamble of {size} bytes, more than {PREAMBLE_SIZE_MAX}")
        return size

    def _source_of_v1(self) -> str | None:
        fields = bytes(self._held[:-2]).decode("ascii", "replace").split(" ")
        if fields[1] == "UNKNOWN":
            return None
        versions = {"TCP4": 4, "TCP6": 6}
        if len(fields) != _V1_FIELDS or fields[1] not in versions:
            raise PreambleError(f"{' '.join(fields)!r} is no PROXY line")
        try:
            addresses = [ipaddress.ip_address(text) for text in fields[2:4]]
        except ValueError as error:
            raise PreambleError(str(error)) from error
        if any(address.version != versions[fields[1]] for address in addresses):
            raise PreambleError(f"{' '.join(fields)!r}: addresses of another family")
        ports = [int(text) if text.isdecimal() else -1 for text in fields[4:]]
        if not all(0 <= port <= 0xFFFF for port in ports):
            raise PreambleError(f"{' '.join(fields)!r}: a port that is none")
        return join_host(str(addresses[0]), ports[0])

    def _source_of_v2(self) -> str | None:
        _, command, family, length = _V2_HEAD.unpack_from(self._held)
        if command == _LOCAL or family not in {_V2_TCP4, _V2_TCP6}:
            return None
        address_size = 4 if family == _V2_TCP4 else 16
        if length < 2 * address_size + 4:
            raise PreambleError(f"{length} bytes are too few for the addresses of a preamble")
        address = bytes(self._held[16 : 16 + address_size])
        port = int.from_bytes(self._held[16 + 2 * address_size : 18 + 2 * address_size], "big")
        return join_host(str(ipaddress.ip_address(address)), port)
