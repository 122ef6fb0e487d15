"""Message traces: RocketMQ's text, and what clients tell of a real broker's messages."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.connection.task_scope import TaskScope
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.errors import NoRouteError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)
from client.trace.codec import (
    ConsumeReturn,
    MessageKind,
    TraceEnd,
    TraceRecord,
    TraceSend,
    TraceSubAfter,
    TraceSubBefore,
    record_keys,
    record_text,
)
from client.trace.tracer import Tracer, TraceSettings
from tests.client.push_setup import setup
from tests.client.real_broker import real_broker

SENT = TraceSend(
    time_ms=5,
    region="R",
    group="PG",
    topic="T",
    msg_id="ID",
    tags=None,
    keys=("k1", "k2"),
    store_host="1.2.3.4:10911",
    body_size=7,
    cost_ms=3,
    kind=MessageKind.NORMAL,
    offset_msg_id="OFF",
    is_success=True,
)


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (SENT, "Pub 5 R PG T ID null k1_k2 1.2.3.4:10911 7 3 0 OFF true"),
        (
            TraceSubBefore(
                time_ms=5,
                region="R",
                group="G",
                request_id="Q",
                msg_id="ID",
                retry_times=2,
                keys=(),
            ),
            "SubBefore 5 R G Q ID 2 null",
        ),
        (
            TraceSubAfter(
                time_ms=9,
                request_id="Q",
                msg_id="ID",
                cost_ms=4,
                is_success=False,
                keys=["k"],
                code=ConsumeReturn.FAILED,
            ),
            "SubAfter Q ID 4 false k 4 9",
        ),
        (
            TraceEnd(
                time_ms=5,
                region="R",
                group="G",
                topic="T",
                msg_id="ID",
                tags="x",
                keys=(),
                store_host="h:1",
                transaction_id="TX",
                state="COMMIT_MESSAGE",
                is_from_check=False,
            ),
            "EndTransaction 5 R G T ID x null h:1 2 TX COMMIT_MESSAGE false",
        ),
    ],
)
def test_records_are_rocketmq_s_text(record: TraceRecord, fields: str) -> None:
    expected = (
        "\x01".join(
            field.replace("_", " ") if field == "k1_k2" else field for field in fields.split(" ")
        )
        + "\x02"
    )
    assert record_text(record) == expected


def test_the_keys_of_a_batch_are_each_of_its_ids() -> None:
    assert record_keys(SENT) == ["ID", "k1", "k2"]
    others = dataclasses.replace(SENT, msg_id="one, two,", keys=())
    assert record_keys(others) == ["one", "two"]


class Sender:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.error: NoRouteError | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def crash(self) -> None: ...

    async def send(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(message)


class HangingSender(Sender):
    """Its messages are answered by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.is_crashed = False

    async def crash(self) -> None:
        self.is_crashed = True

    async def send(self, message: Message) -> None:
        self.begun += 1
        await asyncio.Event().wait()


async def test_a_tracer_is_bounded_and_counts_what_it_loses() -> None:
    sender = Sender()
    tracer = Tracer(sender, TraceSettings(waiting_max=7, batch_max=3))
    tracer.add([SENT] * 9)
    assert tracer.lost == 2
    await tracer.stop(60_000)
    assert [message.body.count(b"\x02") for message in sender.sent] == [3, 3, 1]
    assert sender.sent[0].topic == "RMQ_SYS_TRACE_TOPIC"
    assert sender.sent[0].keys == ("ID", "k1", "k2")
    sender.error = NoRouteError("none")
    tracer.add([SENT] * 2)
    await tracer.stop(60_000)
    assert tracer.lost == 4


async def test_a_tracer_sends_in_the_background() -> None:
    sender, scope = Sender(), TaskScope()
    await scope.start()
    tracer = Tracer(sender, TraceSettings(linger_ms=1))
    await tracer.start(scope)
    tracer.add([SENT])
    await until(lambda: len(sender.sent) == 1)
    await scope.stop()


async def test_a_stop_gives_all_that_waits_one_deadline() -> None:
    sender, scope = HangingSender(), TaskScope()
    await scope.start()
    tracer = Tracer(sender, TraceSettings(batch_max=1, linger_ms=1))
    await tracer.start(scope)
    tracer.add([SENT] * 5)
    await until(lambda: sender.begun)
    await tracer.stop(20)
    assert sender.is_crashed
    await scope.stop()
    assert (tracer.lost, sender.begun) == (5, 1)


async def test_a_producer_s_stop_leaves_its_tracer_what_its_sends_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with setup() as cluster:
        settings = ProducerSettings(timeout_ms=200, trace=TraceSettings())
        producer = Producer("G", [cluster.name_server.address], settings=settings)
        await producer.start()
        left: list[float] = []

        async def stop(timeout_ms: float) -> None:
            left.append(timeout_ms)

        monkeypatch.setattr(producer._tracer, "stop", stop)
        cluster.group.lead(None)
        await producer.send_async(Message(topic="T", body=b"x"), 60_000)
        await until(cluster.group.sends)
        await producer.stop()
        assert left[0] < 100


async def test_a_trace_with_more_keys_than_a_message_has_room_for_is_found_under_the_first() -> (
    None
):
    async with setup() as cluster:
        cluster.name_server.topics.append("RMQ_SYS_TRACE_TOPIC")
        settings = ProducerSettings(trace=TraceSettings(linger_ms=1))
        async with Producer("G", [cluster.name_server.address], settings=settings) as producer:
            sent = await producer.send_batch([Message(topic="T", body=b"x") for _ in range(1_100)])
            await until(lambda: cluster.group.stored("RMQ_SYS_TRACE_TOPIC"))
            assert producer._tracer is not None
            assert producer._tracer.lost == 0
        (trace,) = cluster.group.stored("RMQ_SYS_TRACE_TOPIC")
        ids, keys = sent.msg_id.split(","), trace.property_map()["KEYS"].split(" ")
        assert len(ids) == 1_100
        assert keys == ids[: len(keys)]
        assert 600 < len(keys) < 700


def test_the_room_for_keys_is_counted_in_bytes() -> None:
    tracer = Tracer(Sender(), TraceSettings())
    tracer.add([dataclasses.replace(SENT, keys=("鍵" * 5_000, "匙" * 5_000))])
    message, _ = tracer._next_message()
    assert message.keys == ("ID", "鍵" * 5_000)


class Commits:
    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.COMMIT


async def test_what_clients_did_stands_in_the_trace_topic(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        trace = TraceSettings(topic="Traces", linger_ms=10)
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
            await admin.create_topic("Traces", queues=1)
        consumed = asyncio.Event()

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            if messages[0].body == b"half":
                consumed.set()
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(
            "CG",
            broker.name_servers,
            listen,
            settings=PushConsumerSettings(consume_from=ConsumeFrom.FIRST, trace=trace),
        )
        consumer.subscribe("T")
        producer = TransactionProducer(
            "PG",
            broker.name_servers,
            Commits(),
            settings=TransactionSettings(producer=ProducerSettings(trace=trace)),
        )
        async with consumer, producer:
            plain = await producer.send(Message(topic="T", body=b"plain", tags="x", keys=("k",)))
            await producer.send_in_transaction(Message(topic="T", body=b"half"))
            await asyncio.wait_for(consumed.wait(), 20)
        async with PullConsumer("TOOL", broker.name_servers) as tool:
            (queue,) = await tool.queues("Traces")
            messages = (await tool.pull(queue, 0)).messages
        records = [
            record.split("\x01")
            for message in messages
            for record in message.body.decode().split("\x02")
            if record
        ]
        kinds = sorted(record[0] for record in records)
        assert kinds == ["EndTransaction"] + ["Pub"] * 2 + ["SubAfter"] * 2 + ["SubBefore"] * 2
        (sent,) = [record for record in records if record[0] == "Pub" and record[5] == plain.msg_id]
        assert sent[3:5] == ["PG", "T"]
        assert sent[6:10] == ["x", "k", broker.address, "5"]
        assert sent[11:] == ["0", plain.offset_msg_id, "true"]
        before = {record[4]: record[5] for record in records if record[0] == "SubBefore"}
        after = {record[1]: record[2] for record in records if record[0] == "SubAfter"}
        assert before == after
        assert any(plain.msg_id in message.keys and "k" in message.keys for message in messages)
