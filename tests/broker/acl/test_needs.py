"""What each request needs."""

from __future__ import annotations

import pytest

from broker.entry.permission import Permission
from broker.process.request_table import OPERATORS, ROW_OF
from broker.request.needs import MalformedRequestError
from remoting.protocol.command import RemotingCommand

PUB, SUB = Permission.PUB, Permission.SUB
HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
    b'[{"topic":"T","subString":"*"},{"topic":"%RETRY%G"}]}],"producerDataSet":[{"groupName":"P"}]}'
)
READ = {"topic": "T", "consumerGroup": "G"}
MAY_READ = {"T": SUB, "%RETRY%G": SUB}


@pytest.mark.parametrize(
    ("code", "fields", "body", "needs"),
    [
        (10, {"topic": "T", "producerGroup": "P"}, b"", {"T": PUB}),
        (10, {"topic": "%RETRY%G", "producerGroup": "P"}, b"", {"%RETRY%G": SUB}),
        (310, {"a": "P", "b": "T"}, b"", {"T": PUB}),
        (310, {"a": "Other", "b": "%RETRY%G"}, b"", {"%RETRY%G": SUB}),
        (320, {"b": "T"}, b"", {"T": PUB}),
        (325, {"b": "T"}, b"", {"T": PUB}),
        (36, {"group": "G", "offset": "1"}, b"", {"%RETRY%G": SUB}),
        (11, READ, b"", MAY_READ),
        (361, READ, b"", MAY_READ),
        (14, READ, b"", MAY_READ),
        (15, READ, b"", MAY_READ),
        (200050, READ, b"", MAY_READ),
        (200051, READ, b"", MAY_READ),
        (200053, READ, b"", MAY_READ),
        (200051, {"topic": "%RETRY%G_T", "consumerGroup": "G"}, b"", MAY_READ),
        (200053, {"topic": "%RETRY%H_T", "consumerGroup": "G"}, b"",
         {"%RETRY%H_T": SUB, "%RETRY%G": SUB}),
        (200151, {}, b'{"acks":[{"c":"G","t":"T","consumerGroup":"H","topic":"U"}]}',
         {**MAY_READ, "U": SUB, "%RETRY%H": SUB}),
        (200151, {}, b'{"acks":[{"c":"G","t":"T"},{"consumerGroup":"H","topic":"U"}]}',
         {**MAY_READ, "U": SUB, "%RETRY%H": SUB}),
        (400, {}, b'{"topic":"T","consumerGroup":"G"}', MAY_READ),
        (12, {"topic": "T", "key": "k"}, b"", {"T": SUB}),
        (34, {}, HEARTBEAT, MAY_READ),
        (34, {}, b'{"clientID":"c","consumerDataSet":null}', {}),
        (35, {"clientID": "c", "producerGroup": "P"}, b"", {}),
        (35, {"clientID": "c", "consumerGroup": "G"}, b"", {"%RETRY%G": SUB}),
        (38, {"consumerGroup": "G"}, b"", {"%RETRY%G": SUB}),
        (41, {}, b'{"consumerGroup":"G","clientId":"c","mqSet":[]}', {"%RETRY%G": SUB}),
        (37, {"producerGroup": "P"}, b"", {}),
        (28, {}, b"", {}),
    ],
)  # fmt: skip
def test_a_request_needs_what_it_touches(code, fields, body, needs):
    command = RemotingCommand(code=code, ext_fields=fields, body=body)
    assert ROW_OF[code].needs.of(command) == needs


@pytest.mark.parametrize("code", [34, 41, 42, 400, 200151])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]", b'{"consumerGroup":7,"acks":7}'])
def test_a_body_that_says_nothing_is_refused(code, body):
    if code == 34 and body.startswith(b'{"'):
        return  # names no consumer
    with pytest.raises(MalformedRequestError):
        ROW_OF[code].needs.of(RemotingCommand(code=code, body=body))


def test_what_changes_the_broker_is_an_administrators():
    administrators = {code for code, row in ROW_OF.items() if row.needs.admin}
    assert administrators >= {
        17,
        25,
        200,
        207,
        215,
        222,
        225,
        314,
        60003,
        60004,
        60007,
        60008,
        60009,
    }
    assert not administrators & {10, 11, 14, 15, 34, 36, 37, 310, 320, 60001}


def test_nobody_but_a_replica_asks_without_an_account():
    assert {code for code, row in ROW_OF.items() if row.needs.free} == {60005}


def test_connections_are_reserved_for_what_clients_at_work_do_not_ask():
    assert {17, 28, 105, 200, 60001, 60005} & ROW_OF.keys() <= OPERATORS
    assert not OPERATORS & {10, 11, 12, 14, 15, 29, 30, 31, 32, 34, 36, 37, 38, 41, 42, 310, 320}
