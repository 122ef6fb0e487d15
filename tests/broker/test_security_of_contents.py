"""Requests that name a message by its place, or claim a name: permissions hold all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from broker.process.server import Broker
from campaigns.rig.waiting import until
from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message_id import parse_offset_msg_id
from tests.broker.rig import send_fields
from tests.broker.secured import ask, broker_with, stored

ACCOUNTS = """
accounts:
  - accessKey: owner01
    secretKey: secret-of-owner
    topicPerms: [payments=PUB|SUB]
    groupPerms: [OG=SUB]
  - accessKey: thief01
    secretKey: secret-of-thief
    topicPerms: [orders=PUB|SUB]
    groupPerms: [TG=SUB]
  - {accessKey: admin001, secretKey: secret-of-admin, admin: true}
"""
SETTINGS = (
    "acl_enable = true",
    "transaction_timeout_ms = 100",
    "transaction_check_interval_ms = 100",
)


class Account:
    """A client of one account, which answers whatever it is asked."""

    def __init__(self, broker: Broker, name: str, secret: str) -> None:
        self.broker = broker
        self.asked: list[RemotingCommand] = []
        self.client = RemotingClient(sign=Signer(name, secret).sign, on_request=self._on_request)

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        self.asked.append(command)
        if not command.is_oneway:
            connection.send(command.response(ResponseCode.SUCCESS))

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        answer = await ask(self.broker, self.client, code, fields, body)
        assert isinstance(answer, RemotingCommand), answer
        return answer

    async def beat(self, client_id: str, *, produces: str = "", consumes: str = "") -> None:
        body = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": produces}] if produces else [],
            "consumerDataSet": [{"groupName": consumes}] if consumes else [],
        }
        answer = await self.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark


class Theft:
    """A broker with one message and one half of the owner's."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.owner = Account(broker, "owner01", "secret-of-owner")
        self.thief = Account(broker, "thief01", "secret-of-thief")
        self.admin = Account(broker, "admin001", "secret-of-admin")

    async def begin(self) -> None:
        sent = await self.owner.ask(310, send_fields(topic="payments"), b"secret")
        self.message_id = sent.ext_fields["msgId"]
        self.position = str(parse_offset_msg_id(self.message_id)[2])
        fields = send_fields(topic="payments", key="H1", TRAN_MSG="true", PGROUP="PG")
        half = await self.owner.ask(310, fields, b"secret half")
        self.decision = {
            "producerGroup": "PG",
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(parse_offset_msg_id(half.ext_fields["msgId"])[2]),
        }

    async def end(self) -> None:
        for account in (self.owner, self.thief, self.admin):
            await account.client.close()


async def begun(broker: Broker) -> Theft:
    theft = Theft(broker)
    await theft.begin()
    return theft


def accounts_in(directory: Path) -> str:
    file = directory / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    return f'acl_file = "{file}"'


async def test_a_place_in_the_log_opens_nothing(tmp_path, caplog):
    async with broker_with(tmp_path, accounts_in(tmp_path), *SETTINGS) as broker:
        theft = await begun(broker)
        before = stored(broker)
        await theft.thief.beat("t1", consumes="TG")
        place = {"offset": theft.position}
        back = {**place, "delayLevel": "0"}
        consume = {"consumerGroup": "TG", "clientId": "t1", "msgId": theft.message_id}
        for code, fields in [
            (RequestCode.VIEW_MESSAGE_BY_ID, place),
            (RequestCode.VIEW_MESSAGE_BY_ID, {**place, "topic": "orders"}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "group": "TG"}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "group": "TG", "originTopic": "orders"}),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, {**consume, "topic": "orders"}),
        ]:
            answer = await theft.thief.ask(code, fields)
            assert answer.code == ResponseCode.NO_PERMISSION, (code, fields)
            assert answer.remark == "No default permission for topic:payments"
            assert b"secret" not in answer.body
        assert stored(broker) == before
        assert {asked.code for asked in theft.thief.asked} <= {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        }
        assert caplog.text.count("No default permission for topic:payments") == 5, "in the log"

        for account in (theft.owner, theft.admin):
            answer = await account.ask(RequestCode.VIEW_MESSAGE_BY_ID, place)
            assert b"secret" in answer.body, answer.remark
        answer = await theft.owner.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "group": "OG", "delayLevel": "-1"}
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert stored(broker)["%DLQ%OG"] == 1
        await theft.end()


async def test_nobody_decides_anothers_transaction(tmp_path):
    async with broker_with(tmp_path, accounts_in(tmp_path), *SETTINGS) as broker:
        theft = await begun(broker)
        before = stored(broker)
        for topic in ({}, {"topic": "orders"}):
            for decision in ("8", "12"):
                answer = await theft.thief.ask(
                    RequestCode.END_TRANSACTION,
                    {**theft.decision, **topic, "commitOrRollback": decision},
                )
                assert answer.code == ResponseCode.NO_PERMISSION
        assert stored(broker) == before
        assert len(broker.replica.state.halves) == 1
        answer = await theft.owner.ask(
            RequestCode.END_TRANSACTION, {**theft.decision, "commitOrRollback": "8"}
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert stored(broker)["payments"] == before["payments"] + 1
        await theft.end()


async def test_who_only_calls_itself_a_producer_is_not_asked_about_transactions(tmp_path):
    async with broker_with(tmp_path, accounts_in(tmp_path), *SETTINGS) as broker:
        theft = await begun(broker)
        await theft.thief.beat("t1", produces="PG")
        await asyncio.sleep(0.5)  # five checks' time, in which nothing may come
        assert not theft.thief.asked
        await theft.owner.beat("o1", produces="PG")
        await until(lambda: theft.owner.asked)
        assert theft.owner.asked[0].code == RequestCode.CHECK_TRANSACTION_STATE
        assert not theft.thief.asked
        await theft.end()


async def test_acknowledgements_are_judged_by_every_name_in_them(tmp_path):
    async with broker_with(tmp_path, accounts_in(tmp_path), *SETTINGS) as broker:
        theft = await begun(broker)
        ack = {
            "c": "TG",
            "t": "orders",
            "so": 0,
            "q": 0,
            "pt": 1,
            "b": "AQ==",
            "r": "0",
            "consumerGroup": "OG",
            "topic": "payments",
            "startOffset": 0,
            "queueId": 0,
            "popTime": 1,
            "bitSet": "AQ==",
        }
        body = json.dumps({"acks": [ack]}).encode()
        answer = await theft.thief.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
        await theft.end()
