"""The POP consumer on a real broker of ours, and its handles."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.administer.admin import Admin
from client.connection.instance import InstanceSettings
from client.consume.pop_answer import PopAnswer
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings, PoppedMessage
from client.errors import ClientError, NoMessageError, UnansweredError
from client.message import Message
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.pop_handle import PopHandle, PopHandleError
from tests.client.real_broker import real_broker

NUMBERS = st.integers(0, (1 << 63) - 1)
FIELDS = {"popTime": "5", "invisibleTime": "9", "reviveQid": "0"}


@given(
    st.builds(
        PopHandle,
        start_offset=NUMBERS,
        pop_ms=NUMBERS,
        invisible_ms=NUMBERS,
        revive_queue=NUMBERS,
        retry_flag=st.sampled_from("012"),
        broker_name=st.sampled_from(["b", "broker-a"]),
        queue_id=NUMBERS,
        offset=NUMBERS,
    )
)
def test_a_handle_comes_back_from_its_text(handle: PopHandle) -> None:
    assert PopHandle.parse(handle.text()) == handle


def test_handles_are_made_of_what_the_answer_says() -> None:
    answer = PopAnswer(
        {**FIELDS, "startOffsetInfo": "0 2 7;1 0 3", "msgOffsetInfo": "0 2 7,8;1 0 3"}, "broker-a"
    )
    plain = answer.handle("T", 2, 8)
    assert plain.text() == "7 5 9 0 0 broker-a 2 8"
    assert plain.topic_read("T", "G") == "T"
    again = answer.handle("%RETRY%G_T", 0, 3)
    assert again.text() == "3 5 9 0 1 broker-a 0 3"
    assert again.topic_read("T", "G") == "%RETRY%G_T"
    with pytest.raises(PopHandleError, match="offset 9 of queue 2"):
        answer.handle("T", 2, 9)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**FIELDS, "popTime": "x"},
        {**FIELDS, "startOffsetInfo": "0 1"},
        {**FIELDS, "msgOffsetInfo": "0 1 2,x"},
    ],
)
def test_garbled_answers_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(PopHandleError):
        PopAnswer(fields, "broker-a")


@pytest.mark.parametrize("text", ["", "1 2 3", "1 2 3 4 5 b 6 x"])
def test_garbled_handles_are_refused(text: str) -> None:
    with pytest.raises(PopHandleError):
        PopHandle.parse(text)


async def pop_until(consumer: PopConsumer, count: int, **options: Any) -> list[PoppedMessage]:
    got: list[PoppedMessage] = []
    async with asyncio.timeout(20):
        while len(got) < count:
            got += await consumer.pop("T", poll_ms=500, **options)
    return got


@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_messages_are_hidden_acknowledged_and_come_again(
    tmp_path: Path, namespace: str
) -> None:
    async with real_broker(tmp_path) as broker:
        instance = InstanceSettings(namespace=namespace)
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("ns%T" if namespace else "T", queues=2)
        settings = PopConsumerSettings(instance=instance)
        one, two = (PopConsumer("G", broker.name_servers, settings=settings) for _ in range(2))
        producer = Producer("PG", broker.name_servers, settings=ProducerSettings(instance=instance))
        async with one, two, producer:
            for number in range(6):
                await producer.send(Message(topic="T", body=b"%d" % number))
            got = await pop_until(one, 6, invisible_ms=1_000)
            assert sorted(each.message.body for each in got) == [b"%d" % n for n in range(6)]
            assert {each.message.topic for each in got} == {"T"}
            assert await two.pop("T", invisible_ms=1_000) == []
            done, late, rest = got[0], got[1], got[2:]
            await one.ack(done)
            for each in rest:
                await one.ack(each)
            later = await one.change_invisible(late, 2_000)
            assert later.handle.invisible_ms == 2_000
            (again,) = await pop_until(two, 1, invisible_ms=30_000)
            assert again.message.uniq_key == late.message.uniq_key
            assert again.message.topic == "T"
            assert again.message.reconsume_times == 1
            await two.ack(again)
            assert await two.pop("T", poll_ms=300) == []


async def test_an_unwanted_message_that_can_not_be_acknowledged_costs_no_wanted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`BB` has the hash of `Aa`, so that the broker, which compares hashes, hands out both."""
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
        async with (
            PopConsumer("G", broker.name_servers) as consumer,
            Producer("PG", broker.name_servers) as producer,
        ):
            for tag in ("BB", "Aa"):
                await producer.send(Message(topic="T", body=tag.encode(), tags=tag))
            refused: list[bytes] = []

            async def refuse(popped: PoppedMessage) -> None:
                refused.append(popped.message.body)
                raise UnansweredError("no answer")

            monkeypatch.setattr(consumer, "ack", refuse)
            (wanted,) = await pop_until(consumer, 1, expression="Aa", invisible_ms=60_000)
            assert (wanted.message.body, refused) == (b"Aa", [b"BB"])
            monkeypatch.undo()
            await consumer.ack(wanted)


async def test_a_handle_that_means_nothing_is_an_error(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
        async with (
            PopConsumer("G", broker.name_servers) as consumer,
            Producer("PG", broker.name_servers) as producer,
        ):
            await producer.send(Message(topic="T", body=b"a"))
            (popped,) = await pop_until(consumer, 1)
            elsewhere = PopHandle.parse("0 1 1 0 0 broker-a 7 99")
            with pytest.raises(ClientError):
                await consumer.ack(PoppedMessage(message=popped.message, handle=elsewhere))


async def test_a_batch_is_acknowledged_and_order_is_kept(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
        async with (
            PopConsumer("G", broker.name_servers) as consumer,
            PopConsumer("O", broker.name_servers) as ordered,
            Producer("PG", broker.name_servers) as producer,
        ):
            for number in range(4):
                await producer.send(Message(topic="T", body=b"%d" % number))
            got = await pop_until(consumer, 4, invisible_ms=1_500, broker_name="broker-a")
            with pytest.raises(ValueError, match="one broker group"):
                await consumer.ack_all([])
            await consumer.ack_all([got[0], got[3]])
            again = await pop_until(consumer, 2, invisible_ms=60_000)
            left = {each.message.uniq_key for each in got[1:3]}
            assert {each.message.uniq_key for each in again} == left
            await consumer.ack_all(again)
            gone = again[0]
            with pytest.raises(NoMessageError):
                await consumer.change_invisible(gone, 1_000)

            first = await pop_until(ordered, 2, count_max=2, in_order=True, invisible_ms=60_000)
            assert [each.message.body for each in first] == [b"0", b"1"]
            assert await ordered.pop("T", in_order=True) == []
            await ordered.ack(first[0])
            assert await ordered.pop("T", in_order=True) == []
            await ordered.ack_all(first[1:])
            rest = await pop_until(ordered, 2, in_order=True)
            assert [each.message.body for each in rest] == [b"2", b"3"]
