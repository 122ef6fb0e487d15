"""The gate: who gets in, who is refused, and what a changed file does."""

from __future__ import annotations

import logging
import os

import pytest

from broker.access.access_control import AccessControl
from broker.access.accounts import AclFileError
from broker.entry.payload import GrantCommand, UserCommand
from broker.entry.policies import PolicyEntry
from broker.process.request_table import ROW_OF
from broker.request.request import RefusedError, Request
from broker.state.user_table import UserTable
from remoting.protocol.acl_signature import SIGNATURE_FIELD, Signer
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection

FILE = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
  - accessKey: producer1
    secretKey: secret-of-producer
    defaultTopicPerm: DENY
    topicPerms: [orders=PUB, "%RETRY%stolen=PUB"]
  - accessKey: admin001
    secretKey: secret-of-admin
    whiteRemoteAddress: 10.1.1.1
    admin: true
"""
PRODUCER = Signer("producer1", "secret-of-producer")
ADMIN = Signer("admin001", "secret-of-admin")


@pytest.fixture
def gate(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE)
    return AccessControl(file, lambda: 1_000)


def request(code=310, fields=None, body=b"", signer=None, peer="127.0.0.1:5"):
    command = RemotingCommand(code=code, ext_fields=dict(fields or {"b": "orders"}), body=body)
    if signer is not None:
        signer.sign(command)
    return Request(FakeConnection(peer), command)


def authorise(gate, asked) -> None:
    gate.authorise(asked, ROW_OF[asked.command.code].needs)


def refusal(gate, asked) -> str:
    with pytest.raises(RefusedError) as caught:
        authorise(gate, asked)
    assert caught.value.code == 16
    return caught.value.remark


def test_a_signed_request_within_its_permissions_passes(gate):
    authorise(gate, request(signer=PRODUCER, body=b"hello"))
    authorise(gate, request(17, {"topic": "anything"}, signer=ADMIN))
    authorise(gate, request(fields={"b": "RMQ_SYS_TRACE_TOPIC"}, signer=PRODUCER))


def test_white_addresses_need_no_signature(gate):
    authorise(gate, request(peer="10.0.0.9:5"))
    authorise(gate, request(peer="[::ffff:10.0.0.9]:5"))
    authorise(gate, request(fields={"AccessKey": "admin001"}, peer="10.1.1.1:5"))
    assert "No accessKey" in refusal(gate, request(peer="10.1.1.1:5"))


def test_who_is_refused_hears_why(gate):
    assert refusal(gate, request()) == "No accessKey is configured"
    assert refusal(gate, request(signer=Signer("nobody01", "x"))) == "No acl config for nobody01"
    wrong = request(signer=Signer("producer1", "secret-of-another"))
    assert refusal(gate, wrong) == "Check signature failed for accessKey=producer1"
    other = request(fields={"b": "payments"}, signer=PRODUCER)
    assert refusal(gate, other) == "No default permission for topic:payments"
    group = request(11, {"topic": "orders", "consumerGroup": "G"}, signer=PRODUCER)
    assert refusal(gate, group) == "No default permission for topic:orders"
    assert "Need admin permission for request code=17" in refusal(
        gate, request(17, {"topic": "orders"}, signer=PRODUCER)
    )
    retry = request(fields={"a": "mine", "b": "%RETRY%stolen"}, signer=PRODUCER)
    assert refusal(gate, retry) == "No default permission for group:stolen"


@pytest.mark.parametrize("change", ["body", "field", "added", "removed", "signature"])
def test_whatever_is_signed_can_not_be_changed(gate, change):
    asked = request(fields={"b": "orders", "i": "KEYS\x01k\x02"}, signer=PRODUCER, body=b"hello")
    command = asked.command
    authorise(gate, asked)
    match change:
        case "body":
            command.body = b"hellO"
        case "field":
            command.ext_fields["i"] = "KEYS\x01l\x02"
        case "added":
            command.ext_fields["zzz"] = "1"
        case "removed":
            del command.ext_fields["i"]
        case "signature":
            del command.ext_fields[SIGNATURE_FIELD]
    assert "Check signature failed" in refusal(gate, asked)


def test_the_flag_that_some_clients_add_after_signing_is_let_through(gate):
    fields = {"topic": "orders", "key": "k"}
    late = request(12, fields, signer=ADMIN)
    late.command.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    authorise(gate, late)
    authorise(gate, request(12, {**fields, "_UNIQUE_KEY_QUERY": "true"}, signer=ADMIN))


def test_a_changed_file_takes_effect_and_a_broken_one_does_not(gate, tmp_path, caplog):
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE.replace("orders=PUB", "payments=PUB"))
    gate.reload()
    authorise(gate, request(fields={"b": "payments"}, signer=PRODUCER))
    refusal(gate, request(signer=PRODUCER))
    file.write_text("accounts: [{accessKey: producer1, secretKey: new-secret-0, admin: maybe}]")
    gate.reload()
    authorise(gate, request(fields={"b": "payments"}, signer=PRODUCER))
    assert "admin" in caplog.text
    assert "new-secret-0" not in caplog.text
    file.unlink()
    gate.reload()
    gate.reload()
    assert caplog.text.count("is gone") == 1
    authorise(gate, request(peer="10.0.0.9:5"))
    file.write_text("accounts: []")
    gate.reload()
    assert "No accessKey" in refusal(gate, request(peer="10.0.0.9:5"))


def test_a_file_replaced_by_one_of_equal_size_and_time_is_seen(gate, tmp_path):
    file, other = tmp_path / "plain_acl.yml", tmp_path / "new"
    other.write_text(FILE.replace("orders=PUB", "wisdom=PUB"))
    status = file.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)
    gate.reload()
    authorise(gate, request(fields={"b": "wisdom"}, signer=PRODUCER))


def test_without_a_usable_file_there_is_no_gate(tmp_path):
    with pytest.raises(FileNotFoundError):
        AccessControl(tmp_path / "none.yml", lambda: 0)
    (tmp_path / "bad.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(AclFileError, match="not UTF-8"):
        AccessControl(tmp_path / "bad.yml", lambda: 0)


def test_refusals_are_logged_without_secrets_and_not_without_end(gate, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            refusal(gate, request(signer=Signer("producer1", "secret-of-another")))
    assert 0 < len(caplog.records) <= 20
    assert "producer1" in caplog.text
    assert "secret-of" not in caplog.text


def test_what_a_replica_hands_on_is_judged_by_who_asked(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE)
    gate = AccessControl(file, lambda: 1_000, inner_access_key="admin001")
    handed_on = {"ledgermqForwarded": "127.0.0.1:9", "ledgermqAccount": "producer1"}
    asked = request(37, handed_on, signer=ADMIN)
    authorise(gate, asked)
    assert asked.account == "producer1"
    asked.require("orders", to_write=True)
    with pytest.raises(RefusedError, match="No default permission for topic:payments"):
        asked.require("payments", to_write=True)

    may_do_all = request(37, {"ledgermqForwarded": "10.0.0.9:9"}, signer=ADMIN)
    authorise(gate, may_do_all)
    may_do_all.require("payments", to_write=True)

    claims = {**handed_on, "ledgermqAccount": "admin001"}
    asked = request(37, claims, signer=PRODUCER)
    authorise(gate, asked)
    assert asked.account == "producer1", "only brokers are believed"
    with pytest.raises(RefusedError):
        asked.require("payments", to_write=True)


def test_a_broker_signs_with_the_secret_of_now(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE)
    gate = AccessControl(file, lambda: 1_000)
    sign = gate.signer("admin001")
    for secret in ("secret-of-admin", "another-secret-of-admin"):
        file.write_text(FILE.replace("secret-of-admin", secret))
        gate.reload()
        signed, wanted = request(), request(signer=Signer("admin001", secret))
        sign(signed.command)
        assert signed.command.ext_fields == wanted.command.ext_fields


PEER = "10.0.0.9:5000"


def test_who_may_send_from_its_address_alone_is_asked_back_there(tmp_path):
    """Else a half of it is undecided for ever, and holds the log."""
    users = UserTable()
    users.apply(UserCommand("producer", "secret-of-it", "Normal", "enable"))
    entry = PolicyEntry.read("Custom", "Topic:T", ["Pub"], ["10.1.0.0/16"], "Allow")
    users.apply(GrantCommand("producer", [entry.texts()]))
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: []\n")
    gate = AccessControl(file, lambda: 0, users=lambda: users, cluster="C")
    assert gate.may_publish("producer", "10.1.2.3:5000", "T")
    assert not gate.may_publish("producer", PEER, "T")
    assert not gate.may_publish("producer", "10.1.2.3:5000", "U")


@pytest.mark.parametrize("kind", ["Normal", "Super"])
def test_a_user_that_is_disabled_may_nothing_any_more(tmp_path, kind):
    """Its client goes on being connected, and would get check-backs with the messages in them."""
    users = UserTable()
    users.apply(UserCommand("who", "secret-of-it", kind, "enable"))
    entry = PolicyEntry.read("Custom", "Topic:T", ["Pub"], [], "Allow")
    users.apply(GrantCommand("who", [entry.texts()]))
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: []\n")
    gate = AccessControl(file, lambda: 0, users=lambda: users, cluster="C")
    asked = request(37, {"topic": "T"}, signer=Signer("who", "secret-of-it"))
    authorise(gate, asked)
    asked.require("T", to_write=True)
    assert gate.may_publish("who", PEER, "T")
    users.apply(UserCommand("who", "secret-of-it", kind, "disable"))
    assert not gate.may_publish("who", PEER, "T")
    with pytest.raises(RefusedError, match="disabled"):
        asked.require("T", to_write=True)


def test_an_account_that_is_gone_may_nothing_any_more(gate, tmp_path):
    asked = request(37, {"topic": "orders"}, signer=PRODUCER)
    authorise(gate, asked)
    asked.require("orders", to_write=True)
    assert gate.may_publish("producer1", PEER, "orders")
    assert not gate.may_publish("producer1", PEER, "payments")
    assert gate.may_publish(None, PEER, "payments"), "from a white address"
    (tmp_path / "plain_acl.yml").write_text("accounts: []\n")
    gate.reload()
    assert not gate.may_publish("producer1", PEER, "orders")
    with pytest.raises(RefusedError):
        asked.require("orders", to_write=True)
