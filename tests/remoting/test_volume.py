"""One connection carries any number of times each of its bounds: what is over is not counted on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from campaigns.rig.waiting import until
from remoting.connections.connection import ConnectionLimits
from remoting.connections.rpc import RemotingClient
from remoting.protocol.command import RemotingCommand
from tests.remoting.echo import Echo

_BOUND = 300_000
_LIMITS = ConnectionLimits(
    pending_requests_max=8, write_buffer_size_high=_BOUND // 2, write_buffer_size_max=_BOUND
)


@pytest.mark.parametrize("size", [100, 10_000, 60_000])
async def test_a_connection_carries_many_times_its_bounds(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    echo = Echo(limits=_LIMITS, unsent_size_max=_BOUND, unfinished_size_max=_BOUND)
    await echo.server.start()
    client = RemotingClient(limits=_LIMITS)
    address = f"127.0.0.1:{echo.server.port}"
    body = bytes(size)
    try:
        await client.request(address, RemotingCommand(code=1), 5_000)
        (connection,) = echo.server.connections
        for _ in range(max(40, 2 * _BOUND // size // 4)):  # of four each
            answers = await asyncio.gather(
                *(
                    client.request(address, RemotingCommand(code=1, body=body), 5_000)
                    for _ in range(4)
                )
            )
            assert [answer.body for answer in answers] == [body] * 4
            assert connection.unsent_size == 0
            assert connection.unfinished_size == 0
        large = bytes(max(size, 10_000))
        for _ in range(4 * _BOUND // len(large)):  # and what nobody answers
            await client.oneway(address, RemotingCommand(code=2, body=large), 5_000)
            await client.request(address, RemotingCommand(code=1), 5_000)
        assert echo.server.connections == {connection}, "it is the same one"
        assert echo.server._unfinished_size == 0
        assert echo.closed == []
        assert caplog.text == ""
        await client.close()
        await until(lambda: echo.closed == [connection])
    finally:
        await client.close()
        await echo.server.stop()
