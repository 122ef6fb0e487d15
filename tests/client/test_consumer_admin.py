"""What administrators ask a consumer through its broker, and what it may change while it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.rig.waiting import turns, until
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.consume.queue_consumer import QueueConsumer
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.produce.producer import Producer
from remoting.connections.rpc import RemotingClient
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.client.real_broker import RealBroker, make_topic, real_broker, settings

QUEUE = MessageQueue("T", "broker-a", 0)


class Bodies:
    """A listener that notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.answers: list[ConsumeStatus | Exception] = []

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self.seen += [message.body for message in messages]
        answer = self.answers.pop(0) if self.answers else ConsumeStatus.CONSUME_SUCCESS
        if isinstance(answer, Exception):
            raise answer
        return answer


def consumer(broker: RealBroker, listener: Bodies, **changes: object) -> PushConsumer:
    made = PushConsumer("CG", broker.name_servers, listener, settings=settings(**changes))
    made.subscribe("T", "a")
    return made


async def send(broker: RealBroker, *bodies: bytes, tag: str = "a") -> list[SendResult]:
    async with Producer("PG", broker.name_servers) as producer:
        return [
            await producer.send(Message(topic="T", body=body, tags=tag), queue=QUEUE)
            for body in bodies
        ]


async def ask(
    broker: RealBroker, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    client = RemotingClient()
    try:
        command = RemotingCommand(code=code, ext_fields=fields, body=body)
        return await client.request(broker.address, command, 5_000)
    finally:
        await client.close()


async def test_what_an_administrator_asks_through_the_broker(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Bodies()
        async with consumer(broker, listener) as member:
            sent = await send(broker, b"0", b"1")
            await until(lambda: listener.seen == [b"0", b"1"])
            ours = {"consumerGroup": "CG", "clientId": member.client_id}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = await ask(broker, code, ours | {"jstackEnable": "false"})
            assert answer.code == 0, answer.remark
            info = fastjson.parse(answer.body)
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert {each["topic"] for each in info["subscriptionSet"]} == {"T", "%RETRY%CG"}
            key = next(name for name in info["mqTable"] if json.loads(name)["topic"] == "T")
            assert b'"mqTable":{{"brokerName"' in answer.body
            assert json.loads(key) == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
            await until(lambda: member.states()[-1].commit_offset == 2)
            assert info["mqTable"][key]["lastConsumeTimestamp"] > 0

            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = await ask(broker, code, {"topic": "T", "group": "CG"})
            (table,) = fastjson.parse(answer.body)["consumerTable"].values()
            assert list(table.values()) == [2]

            outcomes = []
            listener.answers = [
                ConsumeStatus.RECONSUME_LATER,
                ValueError("no"),
                ConsumeStatus.CONSUME_SUCCESS,
            ]
            for _ in range(3):
                fields = ours | {"msgId": sent[1].offset_msg_id}
                answer = await ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
                assert answer.code == 0, answer.remark
                outcomes.append(json.loads(answer.body)["consumeResult"])
            assert outcomes == ["CR_LATER", "CR_THROW_EXCEPTION", "CR_SUCCESS"]
            assert listener.seen == [b"0", b"1", b"1", b"1", b"1"], "and none comes again"


async def test_a_member_goes_on_where_the_broker_says(tmp_path: Path) -> None:
    """As a broker of RocketMQ 4.9 tells its members of a reset."""
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Bodies()
        async with consumer(broker, listener) as member:
            await send(broker, b"0", b"1", b"2")
            await until(lambda: len(listener.seen) == 3)
            assert broker.broker is not None
            client = broker.broker.desk.clients.consumers("CG")[member.client_id]
            key = json.dumps({"brokerName": "broker-a", "queueId": 0, "topic": "T"})

            async def reset(group: str, offset: int) -> RemotingCommand:
                command = RemotingCommand(
                    code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    ext_fields={"topic": "T", "group": group},
                    body=json.dumps({"offsetTable": {key: offset}}).encode(),
                )
                return await client.connection.request(command, 5_000)

            assert (await reset("other", 0)).code == ResponseCode.SYSTEM_ERROR
            assert (await reset("CG", -1)).code == ResponseCode.SYSTEM_ERROR
            assert listener.seen == [b"0", b"1", b"2"]
            assert (await reset("CG", 1)).code == 0
            await until(lambda: listener.seen == [b"0", b"1", b"2", b"1", b"2"])
            await until(lambda: member.states()[-1].commit_offset == 3)


async def test_a_subscription_changes_while_it_runs(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Bodies()
        async with consumer(broker, listener) as member:
            await send(broker, b"0")
            await until(lambda: listener.seen == [b"0"])
            member.subscribe("T", "b")
            await send(broker, b"no", tag="a")
            await send(broker, b"1", tag="b")
            await until(lambda: listener.seen == [b"0", b"1"])
            member.unsubscribe("T")
            await until(lambda: QUEUE not in member.queues)
            await send(broker, b"2", tag="b")
            member.subscribe("T", "b")
            await until(lambda: listener.seen == [b"0", b"1", b"2"])


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_topic_that_is_left_while_its_queues_are_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """Whoever unsubscribes while locks are asked for, or queues released, has no queues of it, and
    goes on with other topics."""
    async with real_broker(tmp_path) as broker:
        for topic in ("T", "U"):
            await make_topic(broker, topic, 1)
        listener = Bodies()
        async with consumer(broker, listener, ordered=ordered) as member:
            await until(lambda: QUEUE in member.queues)
            release, left = member._release, []

            async def leaving(released: Sequence[QueueConsumer], *, commit: bool = True) -> None:
                await release(released, commit=commit)
                if not left:
                    left.append("U")
                    member.unsubscribe("U")

            monkeypatch.setattr(member, "_release", leaving)
            member.subscribe("U")
            await until(lambda: left)
            await send(broker, b"0")
            await until(lambda: listener.seen == [b"0"])
            member.subscribe("U")
            await until(lambda: any(queue.topic == "U" for queue in member.queues))


async def test_a_suspended_consumer_keeps_its_queues_and_pulls_nothing(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Bodies()
        async with consumer(broker, listener) as member:
            await until(lambda: QUEUE in member.queues)
            member.suspend()
            await send(broker, b"0")
            await asyncio.sleep(0.1)
            assert QUEUE in member.queues
            assert listener.seen == []
            member.resume()
            await until(lambda: listener.seen == [b"0"])


async def test_a_suspended_consumer_pulls_the_queues_alone_that_are_resumed(
    tmp_path: Path,
) -> None:
    """Queues that it gains later stay suspended as well."""
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 2)
        listener = Bodies()
        async with consumer(broker, listener) as member, Producer("PG", broker.name_servers) as by:
            async with consumer(broker, Bodies()):
                await until(lambda: len(_of_topic(member)) == 1)
                (resumed,) = _of_topic(member)
                member.suspend()
                member.resume([resumed])
            await until(lambda: len(_of_topic(member)) == 2)
            (gained,) = set(_of_topic(member)) - {resumed}
            await by.send(Message(topic="T", body=b"of the gained one", tags="a"), queue=gained)
            await by.send(Message(topic="T", body=b"of the other", tags="a"), queue=resumed)
            await until(lambda: listener.seen == [b"of the other"])
            await turns(50)
            assert listener.seen == [b"of the other"]
            member.resume()
            await until(lambda: len(listener.seen) == 2)


async def test_nothing_comes_twice_when_a_member_joins(tmp_path: Path) -> None:
    """Who had the queue commits before who gets it begins, however rarely it commits."""
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 4)
        listener = Bodies()
        rarely = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, commit_interval_ms=60_000)
        members = [
            PushConsumer("CG", broker.name_servers, listener, settings=rarely) for _ in range(4)
        ]
        async with Producer("PG", broker.name_servers) as producer:
            for number, member in enumerate(members):
                member.subscribe("T")
                await member.start()
                wanted = 4 // (number + 1)
                await until(
                    lambda member=member, wanted=wanted: len(_of_topic(member)) == wanted  # type: ignore[misc]
                )
                for queue_id in range(4):
                    for _ in range(5):
                        message = Message(topic="T", body=b"%d" % len(listener.seen))
                        await producer.send(message, queue=MessageQueue("T", "broker-a", queue_id))
                total = 20 * (number + 1)
                await until(lambda total=total: len(listener.seen) >= total)  # type: ignore[misc]
        for member in members:
            await member.stop()
        assert len(listener.seen) == 80


def _of_topic(member: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in member.queues if queue.topic == "T"]
