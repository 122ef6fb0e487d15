"""Users of 5.x: what requests change in the log, and whom the gate lets pass for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.access.access_control import AccessControl
from broker.process.processors import Processors
from broker.process.request_table import ROW_OF, dispatch_of
from broker.request.request import RefusedError, Request
from campaigns.rig.waiting import turns, until
from raft.replicated_log import ProposalStatus
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection, Rig

FORWARDED = {"ledgermqForwarded": "127.0.0.1:7"}
SEND = RequestCode.SEND_MESSAGE_V2


class Users:
    """A rig that is asked by code, and the gate over its state."""

    def __init__(self, rig: Rig, directory: Any) -> None:
        self.rig = rig
        self.handlers = dispatch_of(rig.make(Processors, rig.tasks))
        file = directory / "plain_acl.yml"
        file.write_text("accounts: [{accessKey: admin001, secretKey: of-admin, admin: true}]")
        self.gate = AccessControl(file, lambda: 1_000, users=lambda: rig.state.users, cluster="C")

    async def ask(self, code: int, body: Any = None, /, **fields: str) -> RemotingCommand:
        sent = b"" if body is None else json.dumps(body).encode()
        return await self.rig.ask(self.handlers[code], code, fields, sent)

    async def create(self, name: str = "who", /, **info: str) -> RemotingCommand:
        body = {"password": "secret", **info}
        return await self.ask(RequestCode.AUTH_CREATE_USER, body, username=name)

    async def grant(self, resource: str, action: str, decision: str = "Allow") -> RemotingCommand:
        entry = {"resource": resource, "actions": [action], "decision": decision}
        body = {"policies": [{"policyType": "Custom", "entries": [entry]}]}
        return await self.ask(RequestCode.AUTH_CREATE_ACL, body, subject="User:who")

    def refusal(self, code: int, secret: str = "secret", /, **fields: str) -> str | None:
        """Of a request that `who` has signed; None where the gate lets it pass."""
        command = RemotingCommand(code=code, ext_fields=dict(fields))
        Signer("who", secret).sign(command)
        try:
            self.gate.authorise(Request(FakeConnection(), command), ROW_OF[command.code].needs)
        except RefusedError as refused:
            return f"{refused.remark}" if refused.code == 16 else f"code {refused.code}"
        return None


@pytest.fixture
async def users(tmp_path):
    rig = Rig(tmp_path / "n0")
    rig.directory.mkdir()
    yield Users(rig, tmp_path)
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_user_is_created_shown_changed_and_deleted(users):
    assert (await users.create(userType="normal")).code == ResponseCode.SUCCESS
    told = await users.ask(RequestCode.AUTH_GET_USER, username="who")
    assert json.loads(told.body) == {
        "username": "who",
        "password": "secret",
        "userType": "Normal",
        "userStatus": "enable",
    }
    again = await users.create(password="other")
    assert (again.code, again.remark) == (16, "The user is existed")
    changed = await users.ask(
        RequestCode.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="who"
    )
    assert changed.code == ResponseCode.SUCCESS
    (listed,) = json.loads((await users.ask(RequestCode.AUTH_LIST_USER, filter="wh")).body)
    assert (listed["password"], listed["userStatus"]) == ("secret", "disable")
    assert (await users.ask(RequestCode.AUTH_LIST_USER, filter="other")).body == b""
    for _ in range(2):
        gone = await users.ask(RequestCode.AUTH_DELETE_USER, username="who")
        assert gone.code == ResponseCode.SUCCESS
    assert (await users.ask(RequestCode.AUTH_GET_USER, username="who")).body == b""


@pytest.mark.parametrize(
    ("code", "body", "fields", "remark"),
    [
        (RequestCode.AUTH_CREATE_USER, {"password": "x"}, {"username": " "}, "is blank"),
        (RequestCode.AUTH_CREATE_USER, {"password": "x"}, {"username": "u" * 256}, "256 char"),
        (RequestCode.AUTH_CREATE_USER, {}, {"username": "u"}, "password can not be blank"),
        (RequestCode.AUTH_CREATE_USER, {"password": "x" * 256}, {"username": "u"}, "at most 255"),
        (
            RequestCode.AUTH_CREATE_USER,
            {"password": "x", "userType": "Supper"},
            {"username": "u"},
            "'Supper' is not one of Normal, Super",
        ),
        (RequestCode.AUTH_CREATE_USER, [1], {"username": "u"}, "array"),
        (RequestCode.AUTH_CREATE_USER, {"password": "\x07"}, {"username": "u"}, "can be shown"),
        (RequestCode.AUTH_CREATE_USER, {"password": "\ud800"}, {"username": "u"}, "half a char"),
        (RequestCode.AUTH_CREATE_USER, {"password": "x"}, {"username": "u\n"}, "can be shown"),
        (RequestCode.AUTH_UPDATE_USER, {"password": "x"}, {"username": "u"}, "is not exist"),
        (RequestCode.AUTH_GET_ACL, None, {"subject": "User:u"}, "The subject is not exist."),
        (RequestCode.AUTH_GET_ACL, None, {"subject": "u"}, "names no subject"),
        (RequestCode.AUTH_GET_ACL, None, {}, "subject is missing"),
        (RequestCode.AUTH_DELETE_ACL, None, {"subject": "User:u"}, "The subject is not exist."),
        (
            RequestCode.AUTH_DELETE_ACL,
            None,
            {"subject": "User:u", "resource": "everything"},
            "'everything' names no resource",
        ),
        (RequestCode.AUTH_CREATE_ACL, {}, {"subject": "User:u"}, "The policies is empty."),
    ],
)
async def test_what_is_wrong_is_named(users, code, body, fields, remark):
    answer = await users.ask(code, body, **fields)
    assert answer.code not in {0, 3}
    assert remark in answer.remark
    assert not users.rig.state.users.users


@pytest.mark.parametrize(
    ("code", "body"),
    [
        # rocketmq-admin-go 1.1.0 (acl.go) names the user in these two bodies alone.
        (RequestCode.AUTH_CREATE_USER, {"username": "u", "password": "x"}),
        (RequestCode.AUTH_UPDATE_USER, {"username": "u", "password": "x"}),
        (RequestCode.AUTH_DELETE_USER, None),
        (RequestCode.AUTH_GET_USER, None),
    ],
)
async def test_a_request_that_names_no_user_is_refused_as_by_rocketmq(users, code, body):
    answer = await users.ask(code, body)
    assert (answer.code, answer.remark) == (29, "The username is blank")


async def test_permissions_are_merged_by_resource_and_taken_away(users):
    await users.create()
    assert (await users.grant("Topic:orders", "Pub")).code == ResponseCode.SUCCESS
    await users.grant("Topic:orders", "Sub")
    await users.grant("Group:G", "Sub", "Deny")
    told = json.loads((await users.ask(RequestCode.AUTH_GET_ACL, subject="User:who")).body)
    assert told == {
        "subject": "User:who",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {"resource": "Topic:orders", "actions": ["Sub"], "decision": "Allow"},
                    {"resource": "Group:G", "actions": ["Sub"], "decision": "Deny"},
                ],
            }
        ],
    }
    assert json.loads((await users.ask(RequestCode.AUTH_LIST_ACL)).body) == [told]
    assert (await users.ask(RequestCode.AUTH_LIST_ACL, resourceFilter="none")).body == b""
    await users.ask(RequestCode.AUTH_DELETE_ACL, subject="User:who", resource="Group:G")
    (only,) = users.rig.state.users.entries("who")
    assert only.resource.key == "Topic:orders"
    await users.ask(RequestCode.AUTH_DELETE_ACL, subject="User:who")
    assert (await users.ask(RequestCode.AUTH_GET_ACL, subject="User:who")).body == b""
    missing = await users.ask(RequestCode.AUTH_DELETE_ACL, subject="User:who")
    assert missing.remark == "The acl is not exist."


async def test_what_a_user_may_do_goes_with_the_user(users):
    await users.create()
    await users.grant("*", "All")
    await users.ask(RequestCode.AUTH_DELETE_USER, username="who")
    await users.create()
    assert users.rig.state.users.entries("who") == ()


async def test_the_gate_obeys_what_is_committed(users):
    assert users.refusal(SEND, b="orders") == "No acl config for who"
    await users.create()
    assert users.refusal(SEND, b="orders") == (
        "User:who has no permission to access Topic:orders from 127.0.0.1, no matched policies."
    )
    await users.grant("Topic:ord*", "Pub")
    assert users.refusal(SEND, b="orders") is None
    assert users.refusal(SEND, b="RMQ_SYS_TRACE_TOPIC") is None
    assert "Check signature failed" in users.refusal(SEND, "guess", b="orders")
    await users.grant("Topic:orders", "Pub", "Deny")
    assert users.refusal(SEND, b="orders").endswith("the decision is deny.")
    await users.ask(RequestCode.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="who")
    assert users.refusal(SEND, b="ordinary") == "User:who is disabled."


async def test_a_pull_needs_topic_and_group(users):
    await users.create()
    await users.grant("Topic:orders", "Sub")
    pull = {"topic": "orders", "consumerGroup": "G"}
    assert "Group:G" in users.refusal(RequestCode.PULL_MESSAGE, **pull)
    await users.grant("Group:G", "Sub")
    assert users.refusal(RequestCode.PULL_MESSAGE, **pull) is None
    assert users.refusal(RequestCode.GET_MAX_OFFSET, topic="payments") is None  # a question


async def test_administration_needs_its_own_permission(users):
    await users.create()
    await users.grant("Topic:*", "All")
    assert users.refusal(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="T") is None
    assert users.refusal(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T") is None
    for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.AUTH_LIST_USER):
        assert "Cluster:C" in users.refusal(code)
    await users.grant("Cluster:C", "Update")
    assert users.refusal(RequestCode.AUTH_LIST_USER) is None


async def test_super_users_are_made_by_super_users(users):
    await users.create()
    await users.create("root", userType="Super")
    users.rig.context.is_super = users.gate.is_super
    for code, body in (
        (RequestCode.AUTH_CREATE_USER, {"password": "x", "userType": "Super"}),
        (RequestCode.AUTH_UPDATE_USER, {"userType": "Super"}),
    ):
        for name in ("mine", "who"):
            answer = await users.ask(code, body, username=name, AccessKey="who")
            assert answer.code == ResponseCode.NO_PERMISSION
    for code in (RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER):
        asked = {"username": "root", "AccessKey": "who"}
        answer = await users.ask(code, {"password": "mine"}, **asked)
        assert "by super user" in answer.remark
        handed_on = asked | {"AccessKey": "admin001"} | FORWARDED
        answer = await users.ask(code, {"password": "mine"}, **handed_on)
        assert "by super user" in answer.remark
    assert users.rig.state.users.get("root").password == "secret"
    made = await users.ask(
        RequestCode.AUTH_UPDATE_USER, {"userType": "Super"}, username="who", AccessKey="root"
    )
    assert made.code == ResponseCode.SUCCESS
    assert users.refusal(RequestCode.UPDATE_BROKER_CONFIG) is None


async def test_every_replica_may_be_told_of_the_same_user(users):
    for _ in range(3):
        assert (await users.create()).code == ResponseCode.SUCCESS
    for other in ({"password": "other"}, {"userType": "Super"}, {"userStatus": "disable"}):
        answer = await users.create(**other)
        assert (answer.code, answer.remark) == (16, "The user is existed")


async def test_changes_come_one_after_the_other_and_may_be_unknown(users):
    rig, code = users.rig, RequestCode.AUTH_CREATE_USER
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(users.handlers[code], code, {"username": "a"}, b'{"password": "x"}', connection)
    await turns(1)
    assert (await users.create("b")).code == ResponseCode.SYSTEM_BUSY
    rig.log.depose(ProposalStatus.LOST_LEADERSHIP)
    await until(lambda: connection.sent)
    assert "outcome unknown" in connection.sent[0].remark
    assert (await users.create("b")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.log.leader, rig.log.auto_commit = True, True
    rig.machine.on_role_change(rig.log.status())
    assert (await users.create("b")).code == ResponseCode.SUCCESS


async def test_every_replica_computes_the_same_users(users, tmp_path):
    await users.create()
    await users.grant("Topic:orders", "Pub")
    await users.create("other", userType="Super", userStatus="disable")
    await users.ask(RequestCode.AUTH_DELETE_USER, username="other")
    assert users.rig.replay(tmp_path / "n1").users == users.rig.state.users


@pytest.mark.parametrize("what", ["the same user created again", "a user that is gone deleted"])
async def test_leader_that_was_deposed_unknowingly_confirms_nothing(users, what):
    """What it has not heard of may have changed the user: only a committed entry is an answer."""
    rig, created = users.rig, what.startswith("the same")
    if created:
        await users.create()
        code, body = RequestCode.AUTH_CREATE_USER, json.dumps({"password": "secret"}).encode()
    else:
        code, body = RequestCode.AUTH_DELETE_USER, b""
    rig.log.auto_commit = False
    connection = FakeConnection()
    command = RemotingCommand(code=code, ext_fields={"username": "who"}, body=body)
    users.handlers[code](Request(connection, command))
    await turns(5)
    assert not connection.sent
    rig.log.depose(ProposalStatus.LOST_LEADERSHIP)
    await until(lambda: connection.sent)
    assert "outcome unknown" in connection.sent[0].remark
