"""LEDGERMQ_FAILPOINTS: who may give an order, and what is answered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from broker.failpoints.handler import FailpointsProcessor
from broker.failpoints.orders import Switches
from broker.failpoints.switchboard import Switchboard
from broker.process.request_table import ROW_OF
from broker.request.needs import ADMINISTRATOR
from broker.request.request import RefusedError, Request
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection, Rig

CODE = RequestCode.LEDGERMQ_FAILPOINTS


class Broker:
    """One whose failpoints are not installed: orders reach them all the same."""

    def __init__(self, directory: Path, switches: Switches | None) -> None:
        self._replica = Rig(directory).replica
        self._processor = FailpointsProcessor(self._replica, switches)

    def given(
        self, body: bytes = b"", peer: str = "127.0.0.1:5", *, acl: bool = False
    ) -> dict[str, Any]:
        """The answer's body; its refusal is raised."""
        config = dataclasses.replace(self._replica.config, acl_enable=acl)
        self._replica.change_settings(config)
        connection: Any = FakeConnection(peer)
        self._processor.handle(Request(connection, RemotingCommand(code=CODE, body=body)))
        [answer] = connection.sent
        assert answer.code == ResponseCode.SUCCESS
        return dict(json.loads(answer.body))


@pytest.fixture
async def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path, Switchboard())


async def test_an_order_is_carried_out_and_all_points_are_told(broker: Broker) -> None:
    order = {"arm": [{"point": "reply.before", "action": "delay", "ms": 5, "only": "SEND*"}]}
    points = {each["name"]: each for each in broker.given(json.dumps(order).encode())["points"]}
    assert points["reply.before"]["armed"]["ms"] == 5
    assert points["log.sync.before"]["armed"] is None
    told = broker.given(b'{"disarm":["*"],"clock":{"offset_ms":-5000}}')
    assert not any(each["armed"] for each in told["points"])
    assert told["clock_off_ms"] == -5_000


async def test_it_is_refused_where_nobody_asked_for_failpoints(tmp_path: Path) -> None:
    broker = Broker(tmp_path, None)
    with pytest.raises(RefusedError, match="started without --failpoints") as refused:
        broker.given()
    assert refused.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("peer", ["10.0.0.7:80", "[2001:db8::1]:80", "?", "localhost:1"])
async def test_strangers_need_access_control(broker: Broker, peer: str) -> None:
    with pytest.raises(RefusedError, match="from this machine"):
        broker.given(peer=peer)
    assert broker.given(peer=peer, acl=True)["points"]
    assert broker.given(peer="[::1]:80")["points"]


async def test_a_wrong_order_is_named(broker: Broker) -> None:
    for body, why in (
        (b"x", "not an order"),
        (b'{"disarm":["no"]}', "there is no failpoint 'no'"),
        (b'{"arm":[{"point":"commit.before","action":"error","errno":"EIO"}]}', "not possible"),
    ):
        with pytest.raises(RefusedError, match=why) as refused:
            broker.given(body)
        assert refused.value.code == ResponseCode.INVALID_PARAMETER


def test_only_an_administrator_may() -> None:
    assert ROW_OF[CODE].needs is ADMINISTRATOR
