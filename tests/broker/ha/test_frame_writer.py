"""Frames to a connection that is closed meanwhile, on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from broker.ha.frame_writer import send
from campaigns.rig.ports import free_ports

LOOPS = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


async def _send_after(close: Callable[[asyncio.StreamWriter], None]) -> bytes:
    received = bytearray()
    ended = asyncio.Event()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read())
        writer.close()
        ended.set()

    (port,) = free_ports(1)
    async with await asyncio.start_server(attend, "127.0.0.1", port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        send(writer, b"one ", b"frame")
        await writer.drain()
        close(writer)
        with pytest.raises(ConnectionError):
            send(writer, b" more")
        async with asyncio.timeout(10):
            await ended.wait()
    return bytes(received)


@LOOPS
def test_a_closed_connection_raises_a_connection_error(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(_send_after(lambda writer: writer.close())) == b"one frame"
