"""Administration: resets, clones, relays, settings, groups and topics, halves that are resumed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.admin.consumer_relay import _RELAYS_MAX
from broker.config.config import ConfigError
from broker.config.settings import SETTINGS, document, load_settings
from broker.entry.topics import TRANS_CHECK_MAX_TOPIC
from broker.leader.proposer import BusyError, Proposal
from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.transaction.check_back import CheckBack
from campaigns.rig.waiting import turns, until
from raft.messages import NodeId
from raft.replicated_log import NotLeaderError, ProposalStatus
from remoting.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import START_MS, FakeConnection, Rig, pull_fields, send_fields


class Admin:
    """A rig that is asked by code, as the broker's dispatch does."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.handlers = dispatch_of(rig.make(Processors, rig.tasks))

    async def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.rig.ask(self.handlers[code], code, fields or {}, body)

    async def body_of(self, code: int, fields: dict[str, str] | None = None) -> Any:
        answer = await self.ask(code, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return fastjson.parse(answer.body)

    async def send(self, key: str, queue: int = 0, **properties: str) -> RemotingCommand:
        fields = send_fields(key=key, queue=queue, **properties)
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, fields, b"body")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def commit_offset(self, group: str, offset: int, queue: int = 0) -> None:
        fields = {"consumerGroup": group, "topic": "T", "queueId": str(queue)}
        answer = await self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": str(offset)}
        )
        assert answer.code == ResponseCode.SUCCESS

    async def pull(self, offset: int) -> RemotingCommand:
        """A pull of group G that waits for nothing."""
        return await self.ask(RequestCode.PULL_MESSAGE, pull_fields(offset=offset))


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    rig = Rig(tmp_path / "n0")
    rig.directory.mkdir()
    yield Admin(rig)
    await rig.tasks.stop()
    rig.queues.close()


def key_of(queue: int) -> str:
    return f'{{"brokerName":"broker-a","queueId":{queue},"topic":"T"}}'


RESET = {"group": "G", "topic": "T", "timestamp": "0", "isForce": "true"}


# Tables by queue ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"}),
    ],
)
async def test_a_queue_that_names_a_field_is_a_bare_object(
    admin: Admin, code: int, fields: dict[str, str]
) -> None:
    """Clients from 5.4.0 on read no string in its place."""
    await admin.send("K")
    await admin.commit_offset("G", 1)
    told = f'{{"messageQueueTable":{{{key_of(0)}:7}}}}'.encode()
    Member(RemotingCommand(code=0, body=told)).join(admin.rig, "c1")
    answer = await admin.ask(code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert f"{{{key_of(0)}:".encode() in answer.body
    assert rb"{\"" not in answer.body


# Resets ------------------------------------------------------------------------------------------


async def test_a_reset_is_followed_by_the_next_pull_and_then_forgotten(admin: Admin) -> None:
    for number in range(4):
        await admin.send(f"K{number}")
    await admin.commit_offset("G", 4)
    table = await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    assert table["offsetTable"][key_of(0)] == 0
    moved = await admin.pull(4)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.ext_fields["nextBeginOffset"] == "0"
    await admin.commit_offset("G", 4)  # of a member that has not heard of it
    assert admin.rig.state.consumer_offsets["G", "T", 0] == 0
    assert (await admin.pull(4)).code == ResponseCode.PULL_OFFSET_MOVED, "the answer may be lost"
    assert (await admin.pull(0)).code == ResponseCode.SUCCESS
    await until(lambda: admin.rig.state.resets.get("G", "T", 0) is None)
    await admin.commit_offset("G", 3)
    assert admin.rig.state.consumer_offsets["G", "T", 0] == 3
    assert (await admin.pull(3)).code == ResponseCode.SUCCESS


async def test_a_pull_that_waits_hears_of_a_reset(admin: Admin) -> None:
    await admin.send("K")
    await admin.commit_offset("G", 1)
    connection = FakeConnection()
    held = pull_fields(offset=1) | {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
    admin.rig.give(admin.handlers[11], 11, held, b"", connection)
    await turns(1)
    assert not connection.sent
    await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_leader_that_can_not_prove_itself_sends_nobody_back(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, and others lead, where the consumer has followed the reset since."""
    await admin.send("K")
    await admin.commit_offset("G", 1)
    await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)

    async def refused() -> int:
        raise NotLeaderError(None)

    with monkeypatch.context() as patch:
        patch.setattr(admin.rig.log, "read_index", refused)
        assert (await admin.pull(1)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await admin.pull(0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await admin.pull(1)).code == ResponseCode.PULL_OFFSET_MOVED
    assert (await admin.pull(0)).code == ResponseCode.SUCCESS


async def test_a_member_that_is_at_the_resets_offset_hears_of_it(admin: Admin) -> None:
    """It may hold messages before it, which it is not to consume any more."""
    await admin.send("K")
    await admin.commit_offset("G", 0)
    fields = RESET | {"timestamp": "-1"}
    table = await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert table["offsetTable"][key_of(0)] == 1
    moved = await admin.pull(1)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.ext_fields["nextBeginOffset"] == "1"
    await admin.commit_offset("G", 0)
    assert admin.rig.state.consumer_offsets["G", "T", 0] == 1
    assert (await admin.pull(1)).code == ResponseCode.PULL_NOT_FOUND
    assert admin.rig.state.resets.get("G", "T", 0) is None
    assert (await admin.pull(1)).code == ResponseCode.PULL_NOT_FOUND
    again = await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    assert again["offsetTable"][key_of(0)] == 1
    assert (await admin.pull(1)).code == ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize(
    ("fields", "offsets"),
    [
        ({"timestamp": "-1"}, [3, 1]),
        ({"timestamp": "-2"}, [3, 1]),
        ({"timestamp": str(START_MS + 20)}, [1, 0]),
        ({"timestamp": "-1", "isForce": "false"}, [2, 1]),
        ({"queueId": "0", "offset": "1"}, [1]),
        ({"queueId": "1", "timestamp": str(START_MS)}, [0]),
    ],
)
async def test_where_a_reset_goes(admin: Admin, fields: dict[str, str], offsets: list[int]) -> None:
    for number in range(3):
        admin.rig.now_ms = START_MS + 10 + 10 * number
        await admin.send(f"K{number}")
    admin.rig.now_ms = START_MS + 15
    await admin.send("other", queue=1)
    await admin.commit_offset("G", 2)
    body = await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
    assert list(body["offsetTable"].values())[: len(offsets)] == offsets


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "0", "offset": "7"}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "soon"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_resets_that_are_refused(
    admin: Admin, fields: dict[str, str], code: ResponseCode
) -> None:
    await admin.send("K")
    await admin.commit_offset("G", 1)
    answer = await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | fields)
    assert answer.code == code
    assert not len(admin.rig.state.resets)


async def test_members_are_told_where_resets_are_not_the_servers(admin: Admin) -> None:
    await admin.send("K")
    await admin.commit_offset("G", 1)
    context = admin.rig.context
    context.config = replace(context.config, use_server_side_reset_offset=False)
    offline = await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    member = Member()
    member.join(admin.rig)
    await admin.body_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    told = member.sent[-1]
    assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert f'{{"offsetTable":{{{key_of(0)}:0'.encode() in told.body
    assert not len(admin.rig.state.resets)


async def test_a_clone_goes_on_where_its_source_is(admin: Admin) -> None:
    await admin.send("K0")
    await admin.send("K1", queue=1)
    await admin.commit_offset("G", 1)
    await admin.commit_offset("G", 1, queue=1)
    fields = {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}
    assert (await admin.ask(RequestCode.CLONE_GROUP_OFFSET, fields)).code == ResponseCode.SUCCESS
    offsets = admin.rig.state.consumer_offsets
    assert {key: at for key, at in offsets.items() if key[0] == "H"} == {
        ("H", "T", 0): 1,
        ("H", "T", 1): 1,
    }
    unknown = await admin.ask(RequestCode.CLONE_GROUP_OFFSET, fields | {"srcGroup": "nobody"})
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# Relays ------------------------------------------------------------------------------------------


class Member(FakeConnection):
    """A consumer that answers what the broker asks it with `answer`."""

    def __init__(self, answer: RemotingCommand | Exception | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[RemotingCommand] = []

    def join(self, rig: Rig, client_id: str = "c1") -> None:
        rig.context.clients.consumer_seen(
            "G", client_id, self, message_model="CLUSTERING", subscriptions=[], now_ms=rig.passed_ms
        )  # type: ignore[call-arg]

    def oneway(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert timeout_ms > 0
        self.asked.append(command)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


WHO = {"consumerGroup": "G", "clientId": "c1"}


async def test_a_consumers_answer_is_handed_back_as_it_is(admin: Admin) -> None:
    body = b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{}},"properties":{}}'
    member = Member(RemotingCommand(code=5, remark="said", ext_fields={"x": "y"}, body=body))
    member.join(admin.rig)
    answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHO | {"jstackEnable": "true"})
    assert (answer.code, answer.remark, answer.ext_fields) == (5, "said", {"x": "y"})
    assert answer.body == body
    assert member.asked[0].ext_fields["jstackEnable"] == "true"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeoutError("late"), ResponseCode.CONSUME_MSG_TIMEOUT),
        (ConnectionLostError("gone"), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_consumer_that_does_not_answer(
    admin: Admin, error: Exception, code: ResponseCode
) -> None:
    unknown = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHO)
    assert unknown.remark == "The Consumer <G> <c1> not online"
    Member(error).join(admin.rig)
    answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHO)
    assert answer.code == code


async def test_a_consumer_gets_the_message_that_it_shall_consume(admin: Admin) -> None:
    sent = await admin.send("K")
    member = Member(RemotingCommand(code=0, body=b'{"consumeResult":"CR_SUCCESS"}'))
    member.join(admin.rig)
    fields = WHO | {"msgId": sent.ext_fields["msgId"]}
    answer = await admin.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    assert b"body" in member.asked[0].body
    assert member.asked[0].ext_fields["brokerName"] == "broker-a"
    missing = await admin.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, WHO | {"msgId": "7F00000100002A9F" + "0" * 16}
    )
    assert missing.code == ResponseCode.SYSTEM_ERROR


async def test_relays_under_way_are_bounded(admin: Admin) -> None:
    Member().join(admin.rig)
    handler = admin.handlers[RequestCode.GET_CONSUMER_RUNNING_INFO]
    for _ in range(_RELAYS_MAX):
        admin.rig.give(handler, 307, dict(WHO), b"", FakeConnection())
    answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHO)
    assert answer.code == ResponseCode.SYSTEM_BUSY


async def test_what_members_say_of_their_offsets(admin: Admin) -> None:
    table = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}'
    Member(RemotingCommand(code=0, body=table)).join(admin.rig, "c1")
    Member(ConnectionLostError("gone")).join(admin.rig, "c2")
    Member(RemotingCommand(code=0, body=b"[1]")).join(admin.rig, "c3")
    code, fields = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"}
    told = await admin.body_of(code, fields)
    assert told["consumerTable"] == {"c1": {key_of(0): 7}}
    nobody = await admin.ask(code, fields | {"group": "other"})
    assert nobody.code == ResponseCode.SYSTEM_ERROR


# Settings ----------------------------------------------------------------------------------------


def settings_in(answer: RemotingCommand) -> dict[str, str]:
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


async def test_settings_change_at_once_and_outlive_the_process(admin: Admin) -> None:
    rig = admin.rig
    shown = await admin.ask(RequestCode.GET_BROKER_CONFIG)
    assert settings_in(shown).keys() == SETTINGS.keys()
    assert json.loads(shown.ext_fields["version"])["counter"] == 0
    body = b"maxMessageSize=3\nfileReservedTime = 5\n# no setting\nbrokerName=broker-a\n"
    assert (await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)).code == 0
    refused = await admin.ask(310, send_fields(key="K"), b"long")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    again = settings_in(await admin.ask(RequestCode.GET_BROKER_CONFIG))
    assert (again["maxMessageSize"], again["fileReservedTime"]) == ("3", "5")
    assert rig.context.config.retention.file_reserved_time_hours == 5
    assert (
        await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"transactionCheckMax=9")
    ).code == 0
    restarted = load_settings(rig.config)
    assert (restarted.message_size_max, restarted.transaction_check_max) == (3, 9)


@pytest.mark.parametrize("level", ["0", "-1"])  # to its next try, to the dead letters
async def test_a_message_that_is_larger_than_is_taken_now_is_still_one(
    admin: Admin, level: str
) -> None:
    sent = await admin.ask(RequestCode.SEND_MESSAGE_V2, send_fields(key="K"), bytes(200_000))
    place = {"offset": str(int(sent.ext_fields["msgId"][16:], 16))}
    assert (
        await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"maxMessageSize=100000")
    ).code == ResponseCode.SUCCESS
    viewed = await admin.ask(RequestCode.VIEW_MESSAGE_BY_ID, place)
    assert viewed.code == ResponseCode.SUCCESS, viewed.remark
    fields = place | {"group": "G", "delayLevel": level}
    sent_back = await admin.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert sent_back.code == ResponseCode.SUCCESS, sent_back.remark


async def test_of_all_settings_that_are_sent_back_the_changed_ones_are_saved(
    admin: Admin,
) -> None:
    """A tool reads all of them, changes one and sends all: the file goes on to say the others."""
    rig = admin.rig
    all_of_them = settings_in(await admin.ask(RequestCode.GET_BROKER_CONFIG))
    for hours in ("5", "6"):
        lines = [
            f"{name}={text}" for name, text in (all_of_them | {"fileReservedTime": hours}).items()
        ]
        body = "\n".join(lines).encode()
        assert (await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)).code == 0
    saved = json.loads((rig.directory / "settings.json").read_bytes())
    assert saved["settings"] == {"fileReservedTime": "6"}
    saved["settings"] |= {"namesrvAddr": "127.0.0.1:1", "clientCallbackExecutorThreads": "99"}
    (rig.directory / "settings.json").write_text(json.dumps(saved))
    moved = replace(rig.config, name_servers=("127.0.0.1:7",), message_size_max=1_000)
    restarted = load_settings(moved)
    assert restarted.name_servers == ("127.0.0.1:7",)
    assert restarted.message_size_max == 1_000
    assert restarted.retention.file_reserved_time_hours == 6


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"noSuchThing=1", ResponseCode.INVALID_PARAMETER, "noSuchThing"),
        (b"maxMessageSize=big", ResponseCode.INVALID_PARAMETER, "maxMessageSize"),
        (b"maxMessageSize=99999999", ResponseCode.INVALID_PARAMETER, "maxMessageSize"),
        (b"transactionCheckMax=0", ResponseCode.INVALID_PARAMETER, "transaction_check_max"),
        (b"deleteWhen=25", ResponseCode.INVALID_PARAMETER, "delete_when"),
        (b"brokerPermission=7", ResponseCode.INVALID_PARAMETER, "brokerPermission"),
        (b"autoCreateTopicEnable=maybe", ResponseCode.INVALID_PARAMETER, "autoCreateTopicEnable"),
        (b"brokerName=other", ResponseCode.NO_PERMISSION, "brokerName"),
        (b"\xff\xfe", ResponseCode.INVALID_PARAMETER, "UTF-8"),
        (b"x" * 70_000, ResponseCode.INVALID_PARAMETER, "70019"),
    ],
)
async def test_settings_that_are_refused_change_nothing(
    admin: Admin, body: bytes, code: ResponseCode, named: str
) -> None:
    before = admin.rig.context.config
    answer = await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=5\n" + body)
    assert (answer.code, named in (answer.remark or "")) == (code, True), answer.remark
    assert admin.rig.context.config is before
    assert not (admin.rig.directory / "settings.json").exists()


async def test_a_settings_file_that_is_none_is_refused_by_name(admin: Admin) -> None:
    for text in ("{", '{"version":2,"settings":{}}', '{"version":1,"settings":{"x":"y"}}'):
        (admin.rig.directory / "settings.json").write_text(text)
        with pytest.raises(ConfigError, match=r"settings\.json"):
            load_settings(admin.rig.config)


async def test_a_brokers_permission_is_asked_by_sends_and_pulls(admin: Admin) -> None:
    """A send by a route that still leads here is taken, but for an ordered topic."""
    stored = await admin.send("K")
    position = str(int(stored.ext_fields["msgId"][16:], 16))
    fields = {"topic": "O", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert (await admin.ask(code, fields | {"order": "true"})).code == 0
    for permission, ordered_code, pull_code in (("4", 16, 0), ("2", 0, 16), ("6", 0, 0)):
        body = f"brokerPermission={permission}".encode()
        assert (await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)).code == 0
        sent = await admin.ask(310, send_fields("O", key=f"O{permission}"), b"x")
        assert (sent.code, (await admin.pull(0)).code) == (ordered_code, pull_code)
        assert (await admin.ask(310, send_fields(key=f"K{permission}"), b"x")).code == 0
        back = {"offset": position, "group": "G", "delayLevel": "1", "originTopic": "T"}
        sent_back = await admin.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert sent_back.code == ordered_code


def test_the_document_of_settings_is_what_the_table_says() -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / "SETTINGS.md"
    assert path.read_text(encoding="utf-8") == document(), (
        "bring it up to date: python -m broker.config.settings docs/SETTINGS.md"
    )


# Topics and groups -------------------------------------------------------------------------------


async def test_topics_in_a_list_are_made_together_or_not_at_all(admin: Admin) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    good = {"topicName": "A", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    body = {"topicConfigList": [good, {"topicName": "B", "attributes": {"+dedupe": "false"}}]}
    bad = {"topicConfigList": [{**good, "topicName": "C"}, {"topicName": "SELF_TEST_TOPIC"}]}
    assert (await admin.ask(code, {}, json.dumps(body).encode())).code == ResponseCode.SUCCESS
    refused = await admin.ask(code, {}, json.dumps(bad).encode())
    assert refused.code == ResponseCode.INVALID_PARAMETER
    topics = admin.rig.state.topics
    assert topics["A"].read_queue_count == 2
    assert topics["B"].attributes == {"dedupe": "false"}
    assert "C" not in topics


@pytest.mark.parametrize("name", ["DefaultCluster", "broker-a", "TBW102", "rmq_sys_x"])
async def test_topics_that_brokers_rely_on_are_nobodys_to_change(admin: Admin, name: str) -> None:
    before = admin.rig.state.topics.get(name)
    fields = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    refused = await admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert refused.remark == f"The topic[{name}] is conflict with system topic."
    assert admin.rig.state.topics.get(name) == before


async def test_topics_are_deleted_by_request(admin: Admin) -> None:
    await admin.send("K")
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    for name in ("SELF_TEST_TOPIC", "broker-a", " "):
        assert (await admin.ask(code, {"topic": name})).code == ResponseCode.INVALID_PARAMETER
    assert (await admin.ask(code, {"topic": "T"})).code == ResponseCode.SUCCESS
    assert (await admin.ask(code, {"topic": "T"})).code == ResponseCode.SUCCESS, "gone already"
    assert (await admin.pull(0)).code == ResponseCode.TOPIC_NOT_EXIST
    listed = await admin.body_of(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "SELF_TEST_TOPIC" in listed["topicList"]


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"topic": "New", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
    ],
)
async def test_a_topic_is_made_or_gone_for_its_asker_once_name_servers_know(
    admin: Admin, code: int, fields: dict[str, str]
) -> None:
    """Who deletes a topic there next would find it brought back by a registration under way."""
    await admin.send("K")
    told: list[Callable[[], None]] = []
    admin.rig.desk.when_routes_registered = told.append
    connection = FakeConnection()
    admin.rig.give(admin.handlers[code], code, fields, b"", connection)
    await until(lambda: bool(told), "it is committed")
    topics = admin.rig.state.topics
    assert ("New" in topics) if "New" in fields.values() else ("T" not in topics)
    assert not connection.sent
    told.pop()()
    assert connection.sent[-1].code == ResponseCode.SUCCESS


async def test_groups_in_a_list_and_their_deletion(admin: Admin) -> None:
    await admin.send("K")
    await admin.commit_offset("G", 1)
    body = b'{"groupConfigList":[{"groupName":"G","retryMaxTimes":3},{"groupName":"H"}]}'
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert (await admin.ask(code, {}, body)).code == ResponseCode.SUCCESS
    assert admin.rig.state.groups["G"]["retryMaxTimes"] == 3
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert (await admin.ask(delete, {"groupName": "H", "cleanOffset": "false"})).code == 0
    assert (await admin.ask(delete, {"groupName": "G", "cleanOffset": "true"})).code == 0
    assert not admin.rig.state.groups
    assert not admin.rig.state.consumer_offsets


async def test_topics_of_a_list_are_deleted_or_none(admin: Admin) -> None:
    """Each by an entry of its own, and the answer when all are."""
    make, code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.DELETE_TOPIC_IN_BROKER_LIST
    body = json.dumps({"topicConfigList": [{"topicName": name} for name in "ABC"]}).encode()
    assert (await admin.ask(make, {}, body)).code == ResponseCode.SUCCESS
    topics, entries = admin.rig.state.topics, admin.rig.log.entries
    for names in ([], ["A", " "], ["A", "SELF_TEST_TOPIC"], ["A", "x" * 256]):
        refused = await admin.ask(code, {}, json.dumps({"topicList": names}).encode())
        assert refused.code == ResponseCode.INVALID_PARAMETER, refused.remark
    many = json.dumps({"topicList": [f"T{number}" for number in range(1_001)]}).encode()
    assert (await admin.ask(code, {}, many)).code == ResponseCode.INVALID_PARAMETER
    assert (await admin.ask(code, {}, b'{"topicList":7}')).code == ResponseCode.INVALID_PARAMETER
    assert {"A", "B", "C"} <= topics.keys()
    before = len(entries)
    body = json.dumps({"topicList": ["A", "never", "B", "A"]}).encode()
    assert (await admin.ask(code, {}, body)).code == ResponseCode.SUCCESS
    assert not {"A", "B"} & topics.keys()
    assert "C" in topics
    assert len(entries) == before + 3


async def test_groups_of_a_list_are_deleted_or_none(admin: Admin) -> None:
    await admin.send("K")
    for name in ("G", "H", "I"):
        await admin.commit_offset(name, 1)
    body = b'{"groupConfigList":[{"groupName":"G"},{"groupName":"H"},{"groupName":"I"}]}'
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert (await admin.ask(code, {}, body)).code == ResponseCode.SUCCESS
    delete, state = RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, admin.rig.state
    for illegal in (b'{"groupNameList":["G","no name"]}', b'{"groupNameList":[]}', b"{}"):
        assert (await admin.ask(delete, {}, illegal)).code == ResponseCode.INVALID_PARAMETER
    assert state.groups.keys() == {"G", "H", "I"}
    assert (await admin.ask(delete, {}, b'{"groupNameList":["G","G"]}')).code == 0
    assert state.groups.keys() == {"H", "I"}
    assert len(state.consumer_offsets) == 3, "offsets stay"
    body = b'{"groupNameList":["H","nobody"],"cleanOffset":true}'
    assert (await admin.ask(delete, {}, body)).code == 0
    assert state.groups.keys() == {"I"}
    assert {group for group, _, _ in state.consumer_offsets} == {"G", "I"}


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (ProposalStatus.TRUNCATED, ResponseCode.SYSTEM_ERROR),
        (ProposalStatus.LOST_LEADERSHIP, ResponseCode.SYSTEM_ERROR),
        (None, ResponseCode.SYSTEM_ERROR),
        ("busy", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_list_that_is_done_in_part_is_no_failure(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, second: Any, code: int
) -> None:
    """Whoever reads "surely not" would take the first topic for one that is there (promise G7)."""
    proposer = admin.rig.leadership.proposer
    submit = proposer.submit
    proposals: list[Proposal] = []

    def counted(proposal: Proposal) -> None:
        proposals.append(proposal)
        if len(proposals) == 1:
            submit(proposal)
        elif second == "busy":
            raise BusyError("full")
        else:
            proposal.on_done(second)

    monkeypatch.setattr(proposer, "submit", counted)
    body = b'{"topicList":["A","B"]}'
    told = await admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, {}, body)
    assert told.code == code
    assert told.remark.startswith("outcome unknown: 1 of 2"), told.remark


async def test_what_others_read_of_a_group_is_shown_as_it_came(admin: Admin) -> None:
    """RocketMQ's proxy asks for the retries of a group, and its tools for what it subscribes to."""
    code, config_of = (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    )
    shown = {
        "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
        "subscriptionDataSet": [{"topic": "T", "expressionType": "TAG", "expression": "*"}],
    }
    body = json.dumps({"groupName": "G", **shown}).encode()
    assert (await admin.ask(code, {}, body)).code == ResponseCode.SUCCESS
    known = await admin.body_of(config_of, {"group": "G"})
    assert {name: known[name] for name in shown} == shown
    everyone = await admin.body_of(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert everyone["subscriptionGroupTable"]["G"] == known
    for name in shown:
        none = json.dumps({"groupName": "H", name: None}).encode()
        assert (await admin.ask(code, {}, none)).code == ResponseCode.SUCCESS
        assert name not in await admin.body_of(config_of, {"group": "H"}), "null is no policy"
        assert name not in await admin.body_of(config_of, {"group": "nobody"})
    large = json.dumps({"groupName": "G", "groupRetryPolicy": {"x": "y" * 4_096}}).encode()
    refused = await admin.ask(code, {}, large)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "groupRetryPolicy" in refused.remark


async def test_a_group_that_is_offline_is_listed(admin: Admin) -> None:
    """Its backlog is what a tool wants to show."""
    await admin.send("K")
    await admin.commit_offset("gone", 0)
    everyone = await admin.body_of(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert everyone["subscriptionGroupTable"]["gone"]["groupName"] == "gone"


# Halves ------------------------------------------------------------------------------------------


async def test_a_half_that_was_given_up_is_checked_again_once(admin: Admin) -> None:
    rig = admin.rig
    await admin.send("K", TRAN_MSG="true", PGROUP="PG")
    rig.now_ms += rig.config.transaction_retention_ms + 1
    rig.make(CheckBack).round()
    await until(lambda: not len(rig.state.halves))
    pulled = await admin.ask(
        RequestCode.PULL_MESSAGE, pull_fields(offset=0) | {"topic": TRANS_CHECK_MAX_TOPIC}
    )
    position = int.from_bytes(pulled.body[28:36], "big")
    message_id = f"7F00000100002A9F{position:016X}"
    code = RequestCode.RESUME_CHECK_HALF_MESSAGE
    first = await admin.ask(code, {"msgId": message_id})
    assert first.code == ResponseCode.SUCCESS, first.remark
    assert len(rig.state.halves) == 1
    assert (await admin.ask(code, {"msgId": message_id})).code == ResponseCode.SYSTEM_ERROR
    plain = await admin.send("plain")
    other = await admin.ask(code, {"msgId": plain.ext_fields["msgId"]})
    assert other.code == ResponseCode.SYSTEM_ERROR
    assert len(rig.state.halves) == 1


# Replicas ----------------------------------------------------------------------------------------


class Replica:
    """What `RemotingClient` is to the processors: answers what is asked, or fails."""

    def __init__(self, answer: RemotingCommand | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, RemotingCommand]] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms > 0
        self.asked.append((address, command))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def follow(admin: Admin, replica: Replica) -> None:
    """Be a follower of n1, which is `replica`."""
    rig = admin.rig
    rig.log.leader = False
    rig.context.ready = False
    rig.context.remoting = replica  # type: ignore[assignment]
    rig.context.broker_addresses = {"n1": "127.0.0.1:1"}
    status = rig.log.status()
    rig.log.status = lambda: replace(status, leader_id=NodeId("n1"), ready=False)  # type: ignore[method-assign]


async def test_only_a_leader_takes_a_masters_flush_offset(admin: Admin) -> None:
    code = RequestCode.RESET_MASTER_FLUSH_OFFSET
    assert (await admin.ask(code, {"masterFlushOffset": "0"})).code == ResponseCode.SUCCESS
    follow(admin, Replica(ConnectError("gone")))
    assert (await admin.ask(code, {"masterFlushOffset": "0"})).code == ResponseCode.NO_PERMISSION


async def test_nobody_is_held_back_for_cold_data(admin: Admin) -> None:
    told = await admin.body_of(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    assert told["configTable"] == {}


async def test_how_far_the_other_replicas_are(admin: Admin) -> None:
    await admin.send("K")
    rig, end = admin.rig, len(admin.rig.log.data)
    status = replace(rig.log.status(), voters=(NodeId("n0"), NodeId("n1"), NodeId("n2")))
    rig.log.status = lambda: status  # type: ignore[method-assign]
    rig.context.broker_addresses = {"n1": "127.0.0.1:1"}
    told = {"group": "broker-a", "end_position": end - 5}
    rig.context.remoting = Replica(  # type: ignore[assignment]
        RemotingCommand(code=0, body=json.dumps(told).encode())
    )
    body = await admin.body_of(RequestCode.GET_BROKER_HA_STATUS)
    assert (body["master"], body["masterCommitLogMaxOffset"]) == (True, end)
    (replica,) = body["haConnectionInfo"]
    assert (replica["slaveAckOffset"], replica["diff"], replica["inSync"]) == (end - 5, 5, True)
    rig.context.remoting = Replica(ConnectError("gone"))  # type: ignore[assignment]
    assert (await admin.body_of(RequestCode.GET_BROKER_HA_STATUS))["haConnectionInfo"] == []
    follow(admin, Replica(ConnectError("gone")))
    follower = await admin.body_of(RequestCode.GET_BROKER_HA_STATUS)
    assert follower["haClientRuntimeInfo"]["masterAddr"] == "127.0.0.1:1"
