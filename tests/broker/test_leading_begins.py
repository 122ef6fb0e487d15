"""A leader that does not know its group's time yet stamps nothing by its own clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from broker.request import clock_exchange
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from raft.events import Role
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import send_fields


@pytest.mark.parametrize("asks_for_ms", [0, 3_600_000])
async def test_who_leads_waits_for_the_groups_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_for_ms: int
) -> None:
    monkeypatch.setattr(clock_exchange, "_SETTLES_IN_MS_MAX", asks_for_ms)
    raft = f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        group="broker-a",
        node="n0",
        listen=f"127.0.0.1:{free_port()}",
        raft_listen=raft,
        peers={"n0": raft},
        # Two more clocks to ask, and nobody there: one voter leads without them.
        brokers={f"n{number}": f"127.0.0.1:{free_port()}" for number in (1, 2)},
        store=tmp_path,
    )
    broker = Broker(config)
    await broker.start()
    serving = asyncio.get_running_loop().create_task(broker.serve())
    client = RemotingClient()
    try:
        await until(lambda: broker.log.status().ready, "the log is led")
        send = RemotingCommand(
            code=RequestCode.SEND_MESSAGE_V2, ext_fields=send_fields(key="A"), body=b"x"
        )
        if asks_for_ms:
            rounds = broker.replica.clocks._clock._ticked_ms or 0
            await until(
                lambda: (broker.replica.clocks._clock._ticked_ms or 0) > rounds, "clocks were read"
            )
            assert not broker.leadership.ready
            answer = await client.request(config.listen, send, 5_000)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert broker.replica.state.store_timestamp_ms == 0, "nothing was stamped"
            monkeypatch.setattr(clock_exchange, "_SETTLES_IN_MS_MAX", 0)
        await until(lambda: broker.leadership.ready, "it was asked for long enough")
        assert broker.log.status().role is Role.LEADER
        answer = await client.request(config.listen, send, 5_000)
        assert answer.code in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}
    finally:
        await client.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.stop()
