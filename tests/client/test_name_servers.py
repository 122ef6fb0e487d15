"""A request to the name servers goes from one to the next until one of them answers it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from campaigns.rig.waiting import turns, until
from client.connection.routes import RouteSettings, RouteTable
from client.errors import BrokerBusyError, NameServerError, NoRouteError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

BUSY = ResponseCode.SYSTEM_BUSY.value


class Answering:
    """Name servers that each answer one code; None: no answer."""

    def __init__(self, codes: Mapping[str, int | None]) -> None:
        self.codes = codes
        self.asked: list[str] = []
        self.body = b""

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: float
    ) -> RemotingCommand:
        self.asked.append(address)
        code = self.codes[address]
        if code is None:
            raise RemotingError("no answer")
        await turns(1)
        answer = command.response(code, address)
        answer.body = self.body
        return answer


def table(servers: Answering) -> RouteTable:
    return RouteTable(servers, list(servers.codes), settings=RouteSettings())  # type: ignore[arg-type]


def cluster_info() -> RemotingCommand:
    return RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)


@pytest.mark.parametrize("code", [BUSY, None])
async def test_the_next_one_is_asked_where_one_does_not_serve(code: int | None) -> None:
    servers = Answering({"a": code, "b": 0})
    routes = table(servers)
    assert (await routes.name_server_request(cluster_info)).remark == "b"
    assert (await routes.name_server_request(cluster_info)).remark == "b"
    assert servers.asked == ["a", "b", "b"], "the one that answered is asked first from then on"


async def test_a_refusal_is_raised_once_all_were_asked() -> None:
    servers = Answering({"a": None, "b": BUSY, "c": 1})
    with pytest.raises(BrokerBusyError, match="broker b answered"):
        await table(servers).name_server_request(cluster_info)
    assert servers.asked == ["a", "b", "c"]


async def test_where_none_answers_that_is_said() -> None:
    with pytest.raises(NameServerError, match="no name server answers: a: no answer; b: no answer"):
        await table(Answering({"a": None, "b": None})).name_server_request(cluster_info)


async def test_names_without_a_route_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client lives long, and its application may misspell many."""
    monkeypatch.setattr("client.connection.routes._TOPICS_MAX", 3)
    servers = Answering({"a": ResponseCode.TOPIC_NOT_EXIST.value})
    routes = table(servers)
    for number in range(5):
        with pytest.raises(NoRouteError, match="name server a has no route"):
            await routes.refresh(f"misspelt-{number}")
    assert not routes._lookups
    servers.codes = {"a": 0}
    servers.body = b'{"brokerDatas":[],"queueDatas":[]}'
    for number in range(3):
        await routes.refresh(f"T{number}")
    with pytest.raises(NoRouteError, match="3 topics are in use"):
        await routes.refresh("one too many")
    await routes.refresh("T0")


async def test_lookups_of_a_topic_at_once_are_one() -> None:
    servers = Answering({"a": 0})
    servers.body = b'{"brokerDatas":[],"queueDatas":[]}'
    routes = table(servers)
    await asyncio.gather(*(routes.refresh("T") for _ in range(5)))
    assert servers.asked == ["a"]
    assert not routes._lookups


def route_of(*broker_names: str) -> bytes:
    brokers = [
        {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": f"{name}:1"}}
        for name in broker_names
    ]
    return json.dumps({"brokerDatas": brokers, "queueDatas": []}).encode()


async def test_groups_that_no_route_names_any_more_are_forgotten_when_nobody_uses_them() -> None:
    servers = Answering({"a": 0})
    servers.body = route_of("gone", "stays", "used")
    settings = RouteSettings(poll_interval_ms=20, refresh_interval_ms_min=1)
    routes = RouteTable(servers, ["a"], settings=settings)  # type: ignore[arg-type]
    await routes.refresh("T")
    routes.learn_group("of-cluster", {0: "of-cluster:1"})
    servers.body = route_of("stays")
    polling = asyncio.create_task(routes.run())
    asked = len(servers.asked)
    await until(lambda: routes.leader("used") and "gone:1" not in routes.nodes())
    await until(lambda: routes.leader("used") and len(servers.asked) >= asked + 5)
    assert routes.nodes() == ["stays:1", "used:1", "of-cluster:1"]
    await until(lambda: "used:1" not in routes.nodes())
    for report in (routes.confirm, routes.hint, routes.fail, routes.refuse):
        report("gone", "gone:1")  # of a request that was under way
    routes.follow_route("gone")
    assert routes.leader("gone") is None
    servers.body = route_of("stays", "gone")
    await until(lambda: "gone:1" in routes.nodes())
    polling.cancel()
    await asyncio.wait([polling])
