"""A lookup in the middle of an election is answered with the new leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from namesrv import held_lookups
from namesrv.config import NameServerConfig
from namesrv.server import NameServer
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand
from remoting.protocol.route import decode_route
from tests.namesrv.requests import register

JAVA = 0
OLD, NEW = "127.0.0.1:10911", "127.0.0.1:10921"


class Group:
    """Two brokers of one group, and a client."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.old, self.new, self.client = (RemotingClient() for _ in range(3))

    async def register(self, who: RemotingClient, command: RemotingCommand) -> None:
        answer = await who.request(self.server.address, command, 1_000)
        assert answer.code == 0, answer.remark

    async def lose_leader(self) -> None:
        connection = self.old.connection(self.server.address)
        assert connection is not None
        connection.close()
        while 0 in await self.addresses(LANGUAGE_PYTHON):
            await asyncio.sleep(0.005)

    async def addresses(self, language: int = JAVA) -> dict[int, str]:
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, language=language, ext_fields={"topic": "T"}
        )
        answer = await self.client.request(self.server.address, command, 3_000)
        assert answer.code == 0, answer.remark
        return decode_route(answer.body).broker_datas[0].broker_addrs


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    server = NameServer(NameServerConfig(listen="127.0.0.1:0"))
    await server.start()
    group = Group(server)
    await group.register(group.old, register(0, OLD, term=1))
    await group.register(group.new, register(1, NEW, term=1))
    yield group
    for client in (group.old, group.new, group.client):
        await client.close()
    await server.stop()


async def test_a_lookup_waits_for_the_new_leader(group: Group) -> None:
    await group.lose_leader()
    waiting = asyncio.ensure_future(group.addresses())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    assert await group.addresses(LANGUAGE_PYTHON) == {1: NEW}, "clients of ours don't wait"
    await group.register(group.new, register(0, NEW, term=2))
    assert await waiting == {0: NEW}


async def test_all_lookups_together_wait_no_longer_than_one(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_lookups, "_WAIT_MS_MAX", 60)
    await group.lose_leader()
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await group.addresses() == {1: NEW}
    assert loop.time() - began >= 0.05
    monkeypatch.setattr(held_lookups, "_WAIT_MS_MAX", 3_600_000)  # for whoever waits anew
    for _ in range(20):
        assert await group.addresses() == {1: NEW}
    monkeypatch.setattr(held_lookups, "_WAIT_MS_MAX", 60)
    # The next time that there is no leader, they wait anew.
    await group.register(group.new, register(0, NEW, term=2))
    await group.register(group.new, register(1, NEW, term=2))
    began = loop.time()
    assert await group.addresses() == {1: NEW}
    assert loop.time() - began >= 0.05


async def test_lookups_of_led_groups_do_not_wait_and_a_stop_ends_those_that_do(
    group: Group,
) -> None:
    assert await group.addresses() == {0: OLD, 1: NEW}
    await group.lose_leader()
    waiting = asyncio.ensure_future(group.addresses())
    await asyncio.sleep(0.02)
    await group.server.stop()
    with pytest.raises(Exception, match="lost"):
        await waiting
