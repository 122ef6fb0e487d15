"""Users of 5.x through a failover: what was acknowledged is there, whoever leads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster


def ask(address: str, code: int, body: object = None, **fields: str) -> RemotingCommand:
    sent = b"" if body is None else json.dumps(body).encode()
    answer = request(address, RemotingCommand(code=code, ext_fields=fields, body=sent))
    assert isinstance(answer, RemotingCommand), answer
    return answer


def test_users_and_permissions_survive_their_leader(tmp_path: Path) -> None:
    entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}
    with Processes(tmp_path / "cluster") as group:
        group.start()
        leader = group.leader()
        address = group.place(leader).address
        assert ask(address, RequestCode.AUTH_CREATE_USER, {"password": "p"}, username="u").code == 0
        body = {"policies": [{"policyType": "Custom", "entries": [entry]}]}
        assert ask(address, RequestCode.AUTH_CREATE_ACL, body, subject="User:u").code == 0
        group.kill(leader)
        successor = group.place(group.leader(other_than=leader)).address
        answer = ask(successor, RequestCode.AUTH_GET_ACL, subject="User:u")
        assert json.loads(answer.body)["policies"][0]["entries"] == [entry]
        assert ask(successor, RequestCode.AUTH_DELETE_USER, username="u").code == 0
        group.start_broker(leader)
        await_until(lambda: leader in group.statuses(), "the old leader is back")
        group.await_caught_up()
        answer = ask(address, RequestCode.AUTH_LIST_USER)
        assert (answer.code, answer.body) == (0, b"")
