"""A dial that is cancelled at any step leaves nothing that `close` waits for."""

from __future__ import annotations

import asyncio

import uvloop

from campaigns.rig.waiting import turns
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer

TURNS_MAX = 10
ROUNDS = 10


async def _cancel_dials() -> None:
    server = RemotingServer("127.0.0.1", 0, lambda _c, _r: None, lambda _c: None)
    await server.start()
    try:
        for number in range(TURNS_MAX * ROUNDS):
            client = RemotingClient()
            dial = asyncio.create_task(client.connect(f"127.0.0.1:{server.port}"))
            await turns(number % TURNS_MAX)  # each round cancels at another step of the dial
            dial.cancel()
            await asyncio.wait([dial])
            async with asyncio.timeout(5):
                await client.close()
    finally:
        await server.stop()


def test_on_uvloop() -> None:
    uvloop.run(_cancel_dials())


async def test_on_asyncio() -> None:
    await _cancel_dials()
