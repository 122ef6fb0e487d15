"""Illegal requests of the part `operator`: brokers and name servers refuse each, and keep none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from chaos.workload.parts.common.leader_requests import create_topic_command
from chaos.workload.parts.operator.illegal_requests import (
    MISSING,
    illegal_at_brokers,
    illegal_at_name_servers,
)
from namesrv.config import NameServerConfig
from namesrv.server import NameServer
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from tests.broker.secured import broker_with
from tests.namesrv.requests import register

TIMEOUT_MS = 5_000
CLUSTER = "DefaultCluster"


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


async def test_brokers_refuse_each(tmp_path: Path, client: RemotingClient) -> None:
    async with broker_with(tmp_path) as broker:
        address = broker.config.listen
        made = create_topic_command("there", queues=1, perm=6)
        assert (await client.request(address, made, TIMEOUT_MS)).code == 0
        before = set(broker.replica.state.topics), set(broker.replica.state.groups)
        for illegal in illegal_at_brokers("there", CLUSTER):
            answer = await client.request(address, illegal.command(), TIMEOUT_MS)
            assert answer.code != 0, illegal.name
        assert before == (set(broker.replica.state.topics), set(broker.replica.state.groups))


async def test_name_servers_refuse_each(client: RemotingClient) -> None:
    server = NameServer(NameServerConfig(listen="127.0.0.1:0"))
    await server.start()
    async with AsyncExitStack() as ends:
        ends.push_async_callback(server.stop)
        assert (await client.request(server.address, register(), TIMEOUT_MS)).code == 0
        asked = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        before = (await client.request(server.address, asked, TIMEOUT_MS)).body
        assert CLUSTER.encode() in before
        for illegal in illegal_at_name_servers(CLUSTER, "broker-a"):
            answer = await client.request(server.address, illegal.command(), TIMEOUT_MS)
            assert answer.code != 0, illegal.name
        asked = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        assert (await client.request(server.address, asked, TIMEOUT_MS)).body == before
        assert MISSING.encode() not in before
