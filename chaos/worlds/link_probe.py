"""An own connection through a proxy: does the far side react to what is sent?

Place in the data path: `chaos.worlds.local` probes the links of a fault with it, before the fault,
under it and after it.

What is sent depends on what is spoken there. A broker and a name server get a request and must
answer it. A Raft listener gets bytes that are no handshake and must close the connection: it does
so at once, logs it, and is not disturbed. Both reactions need both directions of the connection,
so silence says that at least one is dead.

Invariant: a refused or reset connect is not silence: then nothing is known of the link.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from chaos.broker_status import STATUS_CODE
from chaos.worlds.links import Protocol
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import encode

__all__ = ["ProxyProbe", "probe_proxy"]

NOT_A_HANDSHAKE: Final = b"\xff" * 64
ANSWER_SIZE_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProbe:
    """`reacted` None: no connection came about."""

    reacted: bool | None
    elapsed_ms: float
    evidence: str


async def probe_proxy(host: str, port: int, protocol: Protocol, *, timeout_s: float) -> ProxyProbe:
    """Never raises for what the network does."""
    begin = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        text = f"no connection ({type(error).__name__})"
        return ProxyProbe(reacted=None, elapsed_ms=_since(begin), evidence=text)
    seen = 0
    try:
        writer.write(_bytes_to_send(protocol))
        async with asyncio.timeout(timeout_s - (time.monotonic() - begin)):
            while data := await reader.read(ANSWER_SIZE_MAX):
                seen += len(data)
                if protocol is not Protocol.RAFT:
                    break
        elapsed_ms = _since(begin)
        how = "closed" if protocol is Protocol.RAFT else f"answered {seen} bytes"
        reacted = protocol is Protocol.RAFT or seen > 0
        text = f"{how} in {elapsed_ms:.0f} ms" if reacted else "closed without an answer"
        return ProxyProbe(reacted=True if reacted else None, elapsed_ms=elapsed_ms, evidence=text)
    except TimeoutError:
        greeting = f" after {seen} bytes of greeting" if seen else ""
        text = f"silent for {timeout_s * 1000:.0f} ms{greeting}"
        return ProxyProbe(reacted=False, elapsed_ms=_since(begin), evidence=text)
    except ConnectionError as error:
        reacted = protocol is Protocol.RAFT  # a reset is how a listener may refuse
        text = f"connection ended ({type(error).__name__}) in {_since(begin):.0f} ms"
        return ProxyProbe(
            reacted=True if reacted else None, elapsed_ms=_since(begin), evidence=text
        )
    finally:
        writer.transport.abort()


def _bytes_to_send(protocol: Protocol) -> bytes:
    match protocol:
        case Protocol.RAFT:
            return NOT_A_HANDSHAKE
        case Protocol.BROKER:
            return encode(RemotingCommand(code=STATUS_CODE))
        case Protocol.NAME_SERVER:
            return encode(RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO))


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1000
