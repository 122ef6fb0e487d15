"""Counts answers to packets of one's own: ICMP echoes, which the far side's kernel answers.

Place in the data path: `chaos.links.netns` measures lost packets with it; a TCP connection would
hide them by sending again.

Invariant: only answers to this socket's own echoes count, each once.

Source: RFC 792, echo and echo reply.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

__all__ = ["count_answers", "echo", "echoed"]

_HEADER: Final = struct.Struct(">BBHHH")  # type, code, checksum, identifier, sequence
_ECHO, _REPLY = 8, 0
_SIZE_MAX: Final = 2048
PAUSE_EVERY: Final = 20  # echoes, so that no queue on the way overflows


def echo(identifier: int, sequence: int) -> bytes:
    """Return the packet of one echo."""
    bare = _HEADER.pack(_ECHO, 0, 0, identifier, sequence)
    total = sum(struct.unpack(">4H", bare))
    total = (total & 0xFFFF) + (total >> 16)
    return _HEADER.pack(_ECHO, 0, ~total & 0xFFFF, identifier, sequence)


def echoed(packet: bytes, identifier: int) -> int | None:
    """Return the sequence of an IPv4 packet that answers an echo of ours; None: another packet."""
    start = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) < start + _HEADER.size:
        return None
    kind, _, _, whose, sequence = _HEADER.unpack_from(packet, start)
    return sequence if (kind, whose) == (_REPLY, identifier) else None


async def count_answers(
    raw: socket.socket, target: str, *, identifier: int, count: int, timeout_s: float
) -> int:
    """Send echoes to the address by a raw ICMP socket; return how many were answered in time.

    Raises OSError.
    """
    loop = asyncio.get_running_loop()
    raw.setblocking(False)
    raw.connect((target, 0))
    answered: set[int] = set()

    async def receive() -> None:
        while len(answered) < count:
            sequence = echoed(await loop.sock_recv(raw, _SIZE_MAX), identifier)
            if sequence is not None:
                answered.add(sequence)

    receiving = asyncio.create_task(receive(), name="echoes")
    try:
        for sequence in range(count):
            await loop.sock_sendall(raw, echo(identifier, sequence))
            if sequence % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
        await asyncio.wait([receiving], timeout=timeout_s)
        if receiving.done():
            await receiving  # raises what it raised
    finally:
        receiving.cancel()
        await asyncio.wait([receiving])
    return len(answered)
