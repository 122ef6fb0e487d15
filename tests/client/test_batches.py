"""Lists of messages cut into batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.administer.admin import Admin
from client.connection.send_codec import MessageRefusedError, prepare_batch
from client.consume.pull_consumer import PullConsumer
from client.errors import BrokerRefusedError, NotRecalledError
from client.message import Message
from client.produce.batches import split_batches
from client.produce.producer import Producer
from tests.client.real_broker import real_broker

KEY = "7F0000010001000000000000000000AB"
messages = st.builds(
    Message,
    topic=st.sampled_from(["A", "B"]),
    body=st.binary(min_size=1, max_size=300),
    tags=st.none() | st.sampled_from(["t", "ümläut"]),
    keys=st.lists(st.sampled_from(["k1", "k2"]), max_size=2),
    properties=st.dictionaries(st.sampled_from(["x", "größe"]), st.sampled_from(["1", "é" * 40])),
    uniq_key=st.just(KEY),
    born_timestamp_ms=st.just(1),
)


@given(st.lists(messages, max_size=30), st.integers(1, 2_000), st.integers(1, 5))
def test_pieces_keep_order_topic_and_limits(
    given_messages: list[Message], size_max: int, count_max: int
) -> None:
    pieces = list(split_batches(given_messages, size_bytes_max=size_max, count_max=count_max))
    for topic in ("A", "B"):
        ours = [message for piece in pieces for message in piece if message.topic == topic]
        wanted = [message for message in given_messages if message.topic == topic]
        assert [id(each) for each in ours] == [id(each) for each in wanted]
    for piece in pieces:
        assert 1 <= len(piece) <= count_max
        prepared = prepare_batch(piece, group="PG")  # refuses two topics
        assert len(piece) == 1 or len(prepared.body) <= size_max


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_delayed_messages_stay_alone(name: str) -> None:
    delayed = Message(topic="A", body=b"d", properties={name: "1"})
    one, two = Message(topic="A", body=b"1"), Message(topic="A", body=b"2")
    assert list(split_batches([one, delayed, two])) == [[one], [delayed], [two]]
    stamped = [replace(each, uniq_key=KEY, born_timestamp_ms=1) for each in (one, delayed)]
    with pytest.raises(MessageRefusedError, match=f"property {name}"):
        prepare_batch(stamped, group="PG")


def test_text_that_is_not_utf_8_is_the_batch_s_to_refuse() -> None:
    wrong = Message(topic="A", body=b"x", tags="\udcff", uniq_key=KEY, born_timestamp_ms=1)
    (piece,) = split_batches([wrong])
    with pytest.raises(MessageRefusedError, match="not UTF-8"):
        prepare_batch(piece, group="PG")


def test_a_batch_has_positive_bounds() -> None:
    one = Message(topic="A", body=b"1")
    with pytest.raises(ValueError, match="positive"):
        list(split_batches([one], count_max=0))


async def test_a_long_list_is_stored_whole_and_found_by_its_keys(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        many = [Message(topic="T", body=b"x" * 900, keys=(f"k{n}",)) for n in range(500)]
        async with (
            Producer("PG", broker.name_servers) as producer,
            Admin(broker.name_servers) as admin,
        ):
            results = [
                await producer.send_batch(piece)
                for piece in split_batches(many, size_bytes_max=100_000)
            ]
            assert len(results) > 3
            ids = ",".join(result.msg_id for result in results).split(",")
            assert ids == [message.uniq_key for message in many]
            (found,) = await admin.query_messages("T", "k321")
            assert (found.uniq_key, found.queue.broker_name) == (many[321].uniq_key, "broker-a")
            assert [found] == await admin.query_messages("T", found.uniq_key, unique=True)
            assert await admin.view_message(found.offset_msg_id) == found
            assert await admin.query_messages("T", "k999") == []
            with pytest.raises(MessageRefusedError, match="no message id"):
                await admin.view_message("k321")
            elsewhere = found.offset_msg_id[:-1] + ("0" if found.offset_msg_id[-1] != "0" else "1")
            with pytest.raises(BrokerRefusedError):
                await admin.view_message(elsewhere)


async def test_a_timer_message_is_recalled(tmp_path: Path) -> None:
    async with (
        real_broker(tmp_path) as broker,
        Producer("PG", broker.name_servers) as producer,
    ):
        later = {"TIMER_DELAY_SEC": "60"}
        sent = await producer.send(Message(topic="T", body=b"later", properties=later))
        assert await producer.recall(sent) == sent.msg_id
        assert await producer.recall(sent) == sent.msg_id, "again changes nothing"
        soon = Message(topic="T", body=b"soon", properties={"TIMER_DELAY_MS": "1"})
        delivered = await producer.send(soon)
        async with PullConsumer("CG", broker.name_servers) as reader:
            ends = 0
            while not ends:
                ends = sum([await reader.max_offset(each) for each in await reader.queues("T")])
        with pytest.raises(NotRecalledError) as late:
            await producer.recall(delivered)
        assert late.value.definite
        plain = await producer.send(Message(topic="T", body=b"now"))
        with pytest.raises(MessageRefusedError, match="no timer message"):
            await producer.recall(plain)
