"""Probes a proxy by an own connection: does the far side react to what is sent?

Place in the data path: `chaos.links.proxies` probes the links of a fault with it, before the fault,
during it and after it.

What is sent depends on the protocol. A broker and a name server get a request and must answer it. A
Raft listener gets the HELLO of a stranger and must reject it: it does so at once, logs it, and is
not disturbed; PySyncObj gets a status request, DLedger one for its metadata, for a group that it is
not of. A RocketMQ master gets a slave's report that it has nothing, and sends its log's last file
from the beginning: it counts one more slave for as long as the probe takes, which acknowledges
nothing. An answer needs both directions of the connection,
so none within the deadline means that at least one is dead. A bare close is no answer: proxies pass
on a close even where they swallow every byte.

Invariant: where no connection is made nothing is known of the link.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chaos.cluster.broker_status import STATUS_CODE
from chaos.links.base import Link, LinkProbe, LinksError
from chaos.links.proxy_plan import LinkProxy, Protocol, streams_of
from raft.messages import NodeId
from raft.peers.handshake import NONCE_SIZE, SECRET_SIZE_MIN, Credentials, Dialler
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import encode

__all__ = ["OpenConnection", "ProxyProbe", "open_link", "probe_links", "probe_proxy"]

ANSWER_SIZE_MAX: Final = 65_536
STRANGER: Final = Credentials(group="probe", node_id=NodeId("probe"), secret=bytes(SECRET_SIZE_MIN))
STRANGERS_HELLO: Final = Dialler(STRANGER, NodeId("probe"), bytes(NONCE_SIZE)).hello()
# PySyncObj's frame (size, zlib) of its utility message ["status"], as pickle writes it.
_PICKLED_STATUS: Final = b"\x80\x02]q\x00X\x06\x00\x00\x00statusq\x01a."
PYSYNCOBJ_STATUS: Final = struct.pack("i", len(zlib.compress(_PICKLED_STATUS))) + zlib.compress(
    _PICKLED_STATUS
)


DLEDGER_METADATA: Final = 50000
# The position up to which a slave has the log, 8 bytes.
SLAVE_AT_0: Final = bytes(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProbe:
    """The result of one probe. `reacted` None: no connection was made; `timed_out`: nor refused."""

    reacted: bool | None
    elapsed_ms: float
    evidence: str
    timed_out: bool = False


async def probe_links(
    links: Sequence[Link],
    proxies: Sequence[LinkProxy],
    addresses: Mapping[str, str],
    process_state: Callable[[str], str],
    *,
    timeout_s: float,
    until_closed: bool = False,
    dials_through: bool = False,
    socket_of: Callable[[str], socket.socket] | None = None,
) -> list[LinkProbe]:
    """Probe all links at once, each through every proxy that carries it.

    `addresses`: by proxy, the address to dial. `process_state`: state letter of a process.
    `dials_through`: a connection is made with the target itself, not with a proxy beside us, so
    that one which nobody answers shows a cut, too. `socket_of` returns the socket by which a dialer
    dials; None: any.
    """

    async def probe_one(proxy: LinkProxy) -> ProxyProbe:
        host, _, port = addresses[proxy.name].rpartition(":")
        probe = await probe_proxy(
            host,
            int(port),
            proxy.protocol,
            timeout_s=timeout_s,
            until_closed=until_closed,
            dialing=None if socket_of is None else socket_of(proxy.dialer),
        )
        is_silent = probe.reacted is None and probe.timed_out
        return replace(probe, reacted=False) if dials_through and is_silent else probe

    async def probe_link(link: Link) -> LinkProbe:
        carriers = [proxy for proxy, _ in streams_of([link], proxies)]
        # Silence proves a cut only where the target could answer.
        down = [p.target for p in carriers if process_state(p.target) in {"gone", "T", "Z"}]
        if down or not carriers:
            why = f"{down[0]} does not run" if down else "no proxy carries it"
            return LinkProbe(link=link, passes=None, round_trip_ms=None, evidence=why)
        seen = await asyncio.gather(*(probe_one(proxy) for proxy in carriers))
        return _judge(link, carriers, seen)

    return list(await asyncio.gather(*(probe_link(link) for link in links)))


async def probe_proxy(
    host: str,
    port: int,
    protocol: Protocol,
    *,
    timeout_s: float,
    until_closed: bool = False,
    dialing: socket.socket | None = None,
) -> ProxyProbe:
    """Probe a proxy, until the answer or the far side's close.

    `dialing`: the socket to do it by; None: any. Never raises for network errors.
    """
    begin = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connected(host, port, dialing)
    except (OSError, TimeoutError) as error:
        text = f"no connection ({type(error).__name__})"
        return ProxyProbe(
            reacted=None,
            elapsed_ms=_since(begin),
            evidence=text,
            timed_out=isinstance(error, TimeoutError),
        )
    try:
        writer.write(_bytes_to_send(protocol))
        async with asyncio.timeout(timeout_s - (time.monotonic() - begin)):
            answer = await reader.read(ANSWER_SIZE_MAX)
            while until_closed and await reader.read(ANSWER_SIZE_MAX):
                pass
        elapsed_ms = _since(begin)
        how = f"answered {len(answer)} bytes" if answer else "closed without an answer"
        text = f"{how} in {elapsed_ms:.0f} ms"
        return ProxyProbe(reacted=bool(answer), elapsed_ms=elapsed_ms, evidence=text)
    except TimeoutError:
        text = f"silent for {timeout_s * 1000:.0f} ms"
        return ProxyProbe(reacted=False, elapsed_ms=_since(begin), evidence=text)
    except ConnectionError as error:
        text = f"ended without an answer ({type(error).__name__}) in {_since(begin):.0f} ms"
        return ProxyProbe(reacted=False, elapsed_ms=_since(begin), evidence=text)
    finally:
        writer.transport.abort()


class OpenConnection:
    """An own connection that is made once and probed again and again."""

    def __init__(
        self,
        protocol: Protocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
    ) -> None:
        self._protocol = protocol
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s

    @classmethod
    async def make(
        cls,
        host: str,
        port: int,
        protocol: Protocol,
        *,
        timeout_s: float,
        dialing: socket.socket | None = None,
    ) -> OpenConnection:
        """Connect, by the socket `dialing` if given. Raises OSError, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connected(host, port, dialing)
        return cls(protocol, reader, writer, timeout_s)

    async def passes(self) -> bool | None:
        """Send a request; True: answered, False: silence, None: the connection has ended."""
        try:
            self._writer.write(_bytes_to_send(self._protocol))
            async with asyncio.timeout(self._timeout_s):
                return bool(await self._reader.read(ANSWER_SIZE_MAX)) or None
        except TimeoutError:
            return False
        except ConnectionError:
            return None

    async def close(self) -> None:
        self._writer.transport.abort()


async def open_link(
    link: Link, proxies: Sequence[LinkProxy], addresses: Mapping[str, str], *, timeout_s: float
) -> OpenConnection:
    """Connect over the link, by the first of the proxies that carries it. Raises LinksError."""
    for proxy in proxies:
        if (proxy.dialer, proxy.target) == (link.who, link.whom):
            host, _, port = addresses[proxy.name].rpartition(":")
            try:
                return await OpenConnection.make(
                    host, int(port), proxy.protocol, timeout_s=timeout_s
                )
            except (OSError, TimeoutError) as error:
                raise LinksError(f"no connection over {link}: {error}") from error
    raise LinksError(f"nothing carries connections of {link.who} to {link.whom}")


async def _connected(
    host: str, port: int, dialing: socket.socket | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect. The socket is closed where that fails."""
    if dialing is None:
        return await asyncio.open_connection(host, port)
    try:
        dialing.setblocking(False)
        await asyncio.get_running_loop().sock_connect(dialing, (host, port))
        return await asyncio.open_connection(sock=dialing)
    except (OSError, asyncio.CancelledError):
        dialing.close()
        raise


def _bytes_to_send(protocol: Protocol) -> bytes:
    match protocol:
        case Protocol.RAFT:
            return STRANGERS_HELLO
        case Protocol.DLEDGER:
            return encode(RemotingCommand(code=DLEDGER_METADATA, body=b"{}"))
        case Protocol.ROCKETMQ_HA:
            return SLAVE_AT_0
        case Protocol.PYSYNCOBJ:
            return PYSYNCOBJ_STATUS
        case Protocol.BROKER:
            return encode(RemotingCommand(code=STATUS_CODE))
        case Protocol.NAME_SERVER:
            return encode(RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO))


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1000


def _judge(link: Link, proxies: Sequence[LinkProxy], seen: Sequence[ProxyProbe]) -> LinkProbe:
    reactions = {probe.reacted for probe in seen}
    passes = reactions.pop() if len(reactions) == 1 else None
    return LinkProbe(
        link=link,
        passes=passes,
        round_trip_ms=max(probe.elapsed_ms for probe in seen) if passes else None,
        evidence=", ".join(
            f"{proxy.dialer}'s connection {probe.evidence}"
            for proxy, probe in zip(proxies, seen, strict=True)
        ),
    )
