"""The producer against scripted broker groups: outcomes, retries, leaders, routes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from campaigns.rig.waiting import turns, until
from client.administer.admin import Admin, AdminSettings
from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.connection.send_codec import MessageRefusedError
from client.errors import (
    ClientClosedError,
    DeadlineError,
    IllegalMessageError,
    NameServerError,
    NoPermissionError,
    NoRouteError,
    OutcomeUnknownError,
)
from client.message import Message, MessageQueue, SendStatus
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.codes import RequestCode
from remoting.records.message import decompress_body
from tests.client.fake_cluster import Act, FakeGroup, FakeNameServer, Seen

SETTINGS = ProducerSettings(
    timeout_ms=2_000, retry=RetryPolicy(attempt_timeout_ms=150, backoff_ms_max=20)
)


class Setup:
    def __init__(self, groups: list[FakeGroup], name_server: FakeNameServer, producer: Producer):
        self.groups = groups
        self.name_server = name_server
        self.producer = producer

    @property
    def group(self) -> FakeGroup:
        return self.groups[0]


@asynccontextmanager
async def setup(
    group_count: int = 1, settings: ProducerSettings = SETTINGS
) -> AsyncIterator[Setup]:
    groups = [FakeGroup(f"broker-{'abc'[number]}") for number in range(group_count)]
    for group in groups:
        await group.start()
    name_server = FakeNameServer(groups, ["T", "TBW102"])
    await name_server.start()
    producer = Producer("PG", [name_server.address], settings=settings)
    await producer.start()
    try:
        yield Setup(groups, name_server, producer)
    finally:
        await producer.stop()
        await name_server.stop()
        for group in groups:
            await group.stop()


def uniq_key_of(seen: Seen) -> str:
    properties = dict(
        entry.split("\x01", 1) for entry in seen.command.ext_fields["i"].split("\x02") if entry
    )
    return properties["UNIQ_KEY"]


async def test_a_send_is_stored_with_its_properties_and_answered_with_its_place() -> None:
    async with setup() as cluster:
        message = Message(
            topic="T",
            body=b"hello",
            tags="A",
            keys=("k1", "k2"),
            shard="s",
            flag=7,
            properties={"lmq_value": "v1"},
        )
        result = await cluster.producer.send(message)
        (record,) = cluster.group.stored("T")
        assert result.status is SendStatus.SEND_OK
        assert result.attempts == 1
        assert result.queue == MessageQueue("T", "broker-a", record.queue_id)
        assert result.queue_offset == 0
        assert result.offset_msg_id == record.offset_msg_id
        assert result.msg_id == message.uniq_key
        assert result.address == cluster.group.address(0)
        assert record.body == b"hello"
        assert record.flag == 7
        assert record.born_timestamp_ms == message.born_timestamp_ms
        assert record.property_map() == {
            "UNIQ_KEY": message.uniq_key,
            "TAGS": "A",
            "KEYS": "k1 k2",
            "__SHARDINGKEY": "s",
            "lmq_value": "v1",
        }


async def test_two_producers_with_one_seed_have_keys_of_their_own() -> None:
    settings = dataclasses.replace(SETTINGS, instance=InstanceSettings(seed=7))
    async with setup(settings=settings) as cluster:
        servers = [cluster.name_server.address]
        async with Producer("PG2", servers, settings=settings) as other:
            sent = await asyncio.gather(
                *(
                    producer.send(Message(topic="T", body=b"tick"))
                    for _ in range(50)
                    for producer in (cluster.producer, other)
                )
            )
        assert len({result.msg_id for result in sent}) == 100
        assert len(cluster.group.stored("T")) == 100


async def test_sends_go_round_the_queues_of_all_groups() -> None:
    async with setup(group_count=2) as cluster:
        results = [await cluster.producer.send(Message(topic="T", body=b"x")) for _ in range(16)]
        counts = {result.queue: 0 for result in results}
        for result in results:
            counts[result.queue] += 1
        assert len(counts) == 8
        assert set(counts.values()) == {2}


async def test_a_send_without_an_answer_is_retried_in_its_group_with_its_key() -> None:
    async with setup(group_count=3) as cluster:
        for group in cluster.groups:
            group.script = lambda seen, group=group: (
                Act.STORE_SILENTLY
                if seen.command.code == RequestCode.SEND_MESSAGE_V2 and len(group.sends()) <= 2
                else Act.ANSWER
            )
        result = await cluster.producer.send(Message(topic="T", body=b"x"))
        asked = [group for group in cluster.groups if group.sends()]
        assert len(asked) == 1
        sends = asked[0].sends()
        # The first two attempts at the leader stay unanswered; other nodes name it again.
        assert result.attempts >= 3
        assert len({uniq_key_of(seen) for seen in sends}) == 1
        assert len({seen.command.ext_fields["e"] for seen in sends}) == 1
        assert len({seen.command.ext_fields["g"] for seen in sends}) == 1
        assert len(asked[0].stored("T")) == 1


async def test_a_lost_connection_is_retried_in_its_group() -> None:
    async with setup(group_count=2) as cluster:
        for group in cluster.groups:
            group.script = lambda seen, group=group: (
                Act.STORE_AND_HANG_UP
                if seen.command.code == RequestCode.SEND_MESSAGE_V2 and len(group.sends()) == 1
                else Act.ANSWER
            )
        await cluster.producer.send(Message(topic="T", body=b"x"))
        assert sum(len(group.stored("T")) for group in cluster.groups) == 1
        assert sum(1 for group in cluster.groups if group.sends()) == 1


async def test_silence_until_the_deadline_is_unknown_and_a_second_send_settles_it() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.STORE_SILENTLY if seen.command.code == RequestCode.SEND_MESSAGE_V2 else Act.ANSWER
        )
        message = Message(topic="T", body=b"x")
        with pytest.raises(OutcomeUnknownError) as caught:
            await cluster.producer.send(message, 400)
        assert not caught.value.definite
        assert caught.value.attempts >= 2
        cluster.group.script = lambda _: Act.ANSWER
        queue = MessageQueue("T", "broker-a", int(cluster.group.sends()[0].command.ext_fields["e"]))
        result = await cluster.producer.send(message, queue=queue)
        assert result.queue_offset == 0
        assert len(cluster.group.stored("T")) == 1


async def test_a_refusal_after_silence_is_still_unknown() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.ANSWER
            if seen.command.code != RequestCode.SEND_MESSAGE_V2
            else Act.STORE_SILENTLY
            if len([item for item in cluster.group.sends() if item.node == 0]) == 1
            else (13, "too old")
        )
        with pytest.raises(OutcomeUnknownError):
            await cluster.producer.send(Message(topic="T", body=b"x"))


async def test_a_definite_refusal_is_tried_at_another_group() -> None:
    async with setup(group_count=2) as cluster:
        cluster.groups[0].script = lambda _: (2, "[REJECTREQUEST] busy")
        for _ in range(8):
            result = await cluster.producer.send(Message(topic="T", body=b"x"))
            assert result.queue.broker_name == "broker-b"
        assert len(cluster.groups[1].stored("T")) == 8


async def test_a_slow_group_isolates_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(SETTINGS, timeout_ms=60_000, latency_faults=True)
    async with setup(group_count=2, settings=settings) as cluster:
        instance, late_ms = cluster.producer.instance, 0.0
        now_ms = instance.now_ms

        async def send() -> str:
            result = await cluster.producer.send(Message(topic="T", body=b"x"))
            return result.queue.broker_name

        def refuse_late(seen: Seen) -> Act | tuple[int, str]:
            nonlocal late_ms
            if seen.command.code != RequestCode.SEND_MESSAGE_V2:
                return Act.ANSWER
            late_ms += 2_000
            return 2, "[REJECTREQUEST] busy"

        for group in cluster.groups:
            group.queue_count = 1  # so that it is the other one's turn then
        monkeypatch.setattr(instance, "now_ms", lambda: now_ms() + late_ms)
        cluster.groups[0].script = refuse_late
        while not late_ms:
            await send()
        cluster.groups[0].script = lambda _: Act.ANSWER
        assert [await send() for _ in range(8)] == ["broker-b"] * 8


async def test_a_new_topic_is_awaited_at_all_groups() -> None:
    async with setup(group_count=2) as cluster:
        late = cluster.groups[1]
        late.queue_count = 0  # it has not registered the topic yet
        settings = AdminSettings(timeout_ms=300)
        async with Admin([cluster.name_server.address], settings=settings) as admin:
            names = ["broker-a", "broker-b"]
            with pytest.raises(NoRouteError, match="not routed yet"):
                await admin.create_topic("T", queues=4, broker_names=names)
            assert late.created == ["T"]
            late.queue_count = 4
            await admin.create_topic("T", queues=4, broker_names=names)


@pytest.mark.parametrize(("code", "error"), [(13, IllegalMessageError), (16, NoPermissionError)])
async def test_hopeless_refusals_are_raised_at_once(code: int, error: type[Exception]) -> None:
    async with setup(group_count=2) as cluster:
        for group in cluster.groups:
            group.script = lambda seen: (
                (code, "no") if seen.command.code == RequestCode.SEND_MESSAGE_V2 else Act.ANSWER
            )
        with pytest.raises(error) as caught:
            await cluster.producer.send(Message(topic="T", body=b"x"))
        assert getattr(caught.value, "definite", False)
        assert sum(len(group.sends()) for group in cluster.groups) == 1


async def test_refusals_until_the_deadline_are_definite() -> None:
    async with setup() as cluster:
        cluster.group.lead(None)
        with pytest.raises(DeadlineError) as caught:
            await cluster.producer.send(Message(topic="T", body=b"x"), 300)
        assert caught.value.definite
        assert cluster.group.stored("T") == []


@pytest.mark.parametrize("is_batch", [False, True])
async def test_what_surely_was_not_stored_is_born_when_it_is_sent_again(is_batch: bool) -> None:
    """Hours later a broker would take it for older than all that it remembers."""
    async with setup() as cluster:
        cluster.group.lead(None)
        message, mine = (
            Message(topic="T", body=b"x"),
            Message(topic="T", body=b"y", born_timestamp_ms=7),
        )

        async def send(timeout_ms: int) -> None:
            if is_batch:
                await cluster.producer.send_batch([message, mine], timeout_ms)
            else:
                await cluster.producer.send(message, timeout_ms)

        with pytest.raises(DeadlineError):
            await send(300)
        key = message.uniq_key
        assert key is not None
        assert (message.born_timestamp_ms, mine.born_timestamp_ms) == (None, 7)
        cluster.group.script = lambda _: Act.IGNORE
        cluster.group.lead(0)
        with pytest.raises(OutcomeUnknownError):
            await send(500)
        assert message.born_timestamp_ms is not None, "it may be stored: the time is its own"
        assert message.uniq_key == key


async def test_code_1_is_unknown() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            (1, "in-sync replicas not enough")
            if seen.command.code == RequestCode.SEND_MESSAGE_V2
            else Act.ANSWER
        )
        with pytest.raises(OutcomeUnknownError):
            await cluster.producer.send(Message(topic="T", body=b"x"), 200)


async def test_the_hint_of_a_follower_is_followed_at_once() -> None:
    async with setup() as cluster:
        await cluster.producer.send(Message(topic="T", body=b"x"))
        cluster.name_server.freeze()
        cluster.group.lead(2)
        result = await cluster.producer.send(Message(topic="T", body=b"y"))
        assert result.attempts == 2
        assert result.address == cluster.group.address(2)
        # The leader is remembered although the route still names the old one.
        result = await cluster.producer.send(Message(topic="T", body=b"z"))
        assert result.attempts == 1


async def test_a_leader_that_no_route_has_yet_is_made_acquainted_with_the_client() -> None:
    """Name servers that are out of reach can't tell of it, and it would ask nobody for halves."""
    async with setup() as cluster:
        cluster.group.node_count = 2
        cluster.name_server.freeze()
        cluster.group.node_count = 3
        await cluster.producer.send(Message(topic="T", body=b"x"))
        cluster.group.lead(2)
        result = await cluster.producer.send(Message(topic="T", body=b"y"))
        assert result.address == cluster.group.address(2)
        await until(
            lambda: 2 in {seen.node for seen in cluster.group.sends(RequestCode.HEART_BEAT)}
        )


async def test_a_dead_leader_is_replaced_within_one_send() -> None:
    async with setup() as cluster:
        await cluster.producer.send(Message(topic="T", body=b"x"))
        cluster.name_server.freeze()
        await cluster.group.stop_node(0)
        cluster.group.lead(1)
        result = await cluster.producer.send(Message(topic="T", body=b"y"))
        assert result.address == cluster.group.address(1)
        assert len(cluster.group.stored("T")) == 2


async def test_an_election_is_waited_for() -> None:
    async with setup() as cluster:
        await cluster.producer.send(Message(topic="T", body=b"x"))
        cluster.group.lead(None)
        send = asyncio.ensure_future(cluster.producer.send(Message(topic="T", body=b"y")))
        await until(lambda: len(cluster.group.sends()) >= 4)
        assert not send.done()
        cluster.group.lead(2)
        result = await send
        assert result.address == cluster.group.address(2)


async def test_an_unknown_topic_goes_by_the_default_topic() -> None:
    async with setup() as cluster:
        result = await cluster.producer.send(Message(topic="new", body=b"x"))
        assert result.queue.topic == "new"
        assert result.queue.queue_id < 4
        assert cluster.group.sends()[0].command.ext_fields["c"] == "TBW102"


async def test_explicit_queue_and_selector() -> None:
    async with setup(group_count=2) as cluster:
        queue = MessageQueue("T", "broker-b", 3)
        assert (await cluster.producer.send(Message(topic="T", body=b"x"), queue=queue)).queue == (
            queue
        )
        result = await cluster.producer.send(
            Message(topic="T", body=b"x"), selector=lambda queues, _: queues[1]
        )
        assert result.queue == MessageQueue("T", "broker-a", 1)
        with pytest.raises(MessageRefusedError):
            await cluster.producer.send(
                Message(topic="T", body=b"x"),
                selector=lambda _queues, _: MessageQueue("T", "broker-z", 0),
            )
        with pytest.raises(MessageRefusedError, match="no queue of topic T"):
            await cluster.producer.send(
                Message(topic="T", body=b"x"), queue=MessageQueue("U", "broker-b", 3)
            )


async def test_async_sends_are_bounded_and_all_answered() -> None:
    settings = ProducerSettings(in_flight_max=8)
    async with setup(settings=settings) as cluster:
        futures = [
            await cluster.producer.send_async(Message(topic="T", body=b"%d" % number))
            for number in range(100)
        ]
        results = await asyncio.gather(*futures)
        assert len({(result.queue, result.queue_offset) for result in results}) == 100
        cluster.group.script = lambda _: Act.IGNORE
        blocked = [
            await cluster.producer.send_async(Message(topic="T", body=b"x")) for _ in range(8)
        ]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await cluster.producer.send_async(Message(topic="T", body=b"x"))
        cluster.group.script = lambda _: Act.ANSWER
        await asyncio.gather(*blocked)


async def test_a_batch_is_stored_as_one() -> None:
    async with setup() as cluster:
        messages = [Message(topic="T", body=b"%d" % number) for number in range(5)]
        result = await cluster.producer.send_batch(messages)
        assert [record.body for record in cluster.group.stored("T")] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert result.msg_id.split(",") == [message.uniq_key for message in messages]
        assert len(result.offset_msg_id.split(",")) == 5
        with pytest.raises(MessageRefusedError):
            await cluster.producer.send_batch(
                [Message(topic="T", body=b"x"), Message(topic="U", body=b"x")]
            )


async def test_oneway_leaves_without_an_answer() -> None:
    async with setup() as cluster:
        await cluster.producer.send_oneway(Message(topic="T", body=b"x"))
        await until(lambda: len(cluster.group.stored("T")) == 1)
        assert cluster.group.sends()[0].command.is_oneway


async def test_large_bodies_are_deflated() -> None:
    async with setup() as cluster:
        await cluster.producer.send(Message(topic="T", body=b"a" * 10_000))
        (record,) = cluster.group.stored("T")
        assert len(record.body) < 1_000
        assert record.sys_flag & 0x301 == 0x301
        assert decompress_body(record.body, record.sys_flag) == b"a" * 10_000


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="", body=b"x"),
        Message(topic="t" * 128, body=b"x"),
        Message(topic="T", body=b""),
        Message(topic="T", body=b"x" * (4 * 1024 * 1024 + 1)),
        Message(topic="T", body=b"x", properties={"UNIQ_KEY": "mine"}),
        Message(topic="T", body=b"x", properties={"a": "b\x02c"}),
        Message(topic="T", body=b"x", properties={"a": "b" * 40_000}),
    ],
)
async def test_what_no_broker_would_take_is_refused_here(message: Message) -> None:
    async with setup() as cluster:
        with pytest.raises(MessageRefusedError):
            await cluster.producer.send(message)
        assert cluster.group.sends() == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"topic": "T\udcff"}, "topic: text that is not UTF-8"),
        ({"tags": "\udcff"}, "properties: text that is not UTF-8"),
        ({"properties": {"p": "\udcff" * 9_000}}, "properties: text that is not UTF-8"),
        ({"body": "text"}, "a body is bytes, not str"),
        ({"body": bytearray(b"x")}, "a body is bytes, not bytearray"),
        ({"flag": 2**31}, "flag 2147483648 is beyond 32 bits"),
        ({"flag": -(2**31) - 1}, "flag -2147483649 is beyond 32 bits"),
        ({"born_timestamp_ms": 2**63}, "time of birth 9223372036854775808 is beyond 64 bits"),
    ],
)
async def test_what_the_wire_has_no_form_for_is_refused_and_named(
    wrong: dict[str, Any], named: str
) -> None:
    async with setup() as cluster:
        message = Message(**{"topic": "T", "body": b"x", **wrong})
        for send in (
            cluster.producer.send(message),
            cluster.producer.send_batch([message]),
            cluster.producer.send_oneway(message),
        ):
            with pytest.raises(MessageRefusedError, match=named):
                await send
        assert cluster.group.sends() == []
        assert cluster.group.sends(RequestCode.SEND_BATCH_MESSAGE) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"keys": "order-1"}, "keys are a sequence of texts, not the text 'order-1'"),
        ({"keys": ["a b"]}, "a key is empty or has a blank in it"),
        ({"keys": ["a", "b\tc"]}, "a key is empty or has a blank in it"),
        ({"keys": [""]}, "a key is empty or has a blank in it"),
        ({"keys": ["", "a b"]}, "a key is empty or has a blank in it"),
        ({"properties": {"color": ""}}, "a property has an empty name or value"),
        ({"properties": {"": "x"}}, "a property has an empty name or value"),
    ],
)
async def test_what_would_be_read_otherwise_is_refused(wrong: dict[str, Any], named: str) -> None:
    async with setup() as cluster:
        message = Message(topic="T", body=b"x", **wrong)
        with pytest.raises(MessageRefusedError, match=named):
            await cluster.producer.send(message)
        with pytest.raises(MessageRefusedError, match=named):
            await cluster.producer.send_batch([message])
        assert cluster.group.stored("T") == []


async def test_blanks_and_words_are_sent_as_they_are() -> None:
    async with setup() as cluster:
        message = Message(
            topic="T", body=b"x", keys=["größe", "b", "b"], properties={" ": "  ", "x": " y "}
        )
        await cluster.producer.send(message)
        (record,) = cluster.group.stored("T")
        stored = record.property_map()
        assert stored["KEYS"] == "größe b b"
        assert (stored[" "], stored["x"]) == ("  ", " y ")


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_time_nothing_is_sent(timeout_ms: int) -> None:
    async with setup() as cluster:
        producer, message = cluster.producer, Message(topic="T", body=b"x")
        await producer.send(Message(topic="T", body=b"known"))
        for send in (
            producer.send(message, timeout_ms),
            producer.send_batch([message], timeout_ms),
            producer.request(message, timeout_ms),
        ):
            with pytest.raises(DeadlineError, match="0 attempts") as caught:
                await send
            assert caught.value.definite
        with pytest.raises(NameServerError, match=f"within {timeout_ms} ms"):
            await producer.queues("elsewhere", timeout_ms)
        assert [record.body for record in cluster.group.stored("T")] == [b"known"]


async def test_the_widest_numbers_are_sent() -> None:
    async with setup() as cluster:
        for flag in (2**31 - 1, -(2**31)):
            await cluster.producer.send(Message(topic="T", body=b"x", flag=flag))
        assert {record.flag for record in cluster.group.stored("T")} == {2**31 - 1, -(2**31)}


async def test_a_silent_name_server_is_left_for_the_next() -> None:
    async with setup() as cluster:
        silent = FakeNameServer(cluster.groups, ["T"])
        silent.silent = True
        await silent.start()
        producer = Producer("PG", f"{silent.address};{cluster.name_server.address}")
        async with producer:
            for _ in range(2):
                await producer.send(Message(topic="T", body=b"x"), 5_000)
        await silent.stop()


async def test_crash_leaves_unanswered_sends_unknown_and_later_ones_refused() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda _: Act.IGNORE
        send = asyncio.ensure_future(cluster.producer.send(Message(topic="T", body=b"x")))
        await until(lambda: len(cluster.group.sends()) == 1)
        await cluster.producer.crash()
        with pytest.raises(OutcomeUnknownError):
            await send
        with pytest.raises(ClientClosedError):
            await cluster.producer.send(Message(topic="T", body=b"x"))


async def test_a_producer_is_known_to_every_node_of_its_groups() -> None:
    async with setup() as cluster:
        await cluster.producer.send(Message(topic="T", body=b"x"))
        await until(lambda: len(cluster.group.producers.get("PG", [])) == 3)


async def test_stop_lets_asynchronous_sends_end() -> None:
    async with setup() as cluster:
        cluster.group.lead(None)
        futures = [
            await cluster.producer.send_async(Message(topic="T", body=b"x")) for _ in range(5)
        ]
        stopping = asyncio.ensure_future(cluster.producer.stop())
        await until(lambda: len(cluster.group.sends()) >= 5)
        with pytest.raises(ClientClosedError):
            await cluster.producer.send_async(Message(topic="T", body=b"y"))
        cluster.group.lead(1)
        await stopping
        assert len({(await future).offset_msg_id for future in futures}) == 5


async def test_a_bug_in_a_background_loop_ends_the_client_and_is_raised_by_stop() -> None:
    async with setup() as cluster:
        producer = Producer("PG", [cluster.name_server.address])
        await producer.start()

        async def bug() -> None:
            raise RuntimeError("bug")

        producer.instance.scope.spawn(bug(), "bug")
        await until(lambda: not producer.instance.scope.running)
        with pytest.raises(ClientClosedError):
            await producer.send(Message(topic="T", body=b"x"))
        with pytest.raises(ExceptionGroup) as caught:
            await producer.stop()
        assert caught.group_contains(RuntimeError, match="bug")


async def test_a_stop_lets_the_sends_under_way_end_and_no_new_one_begin() -> None:
    async with setup() as cluster:
        held = asyncio.Event()

        def hold_first(seen: Seen) -> Act:
            if held.is_set() or seen.command.code != RequestCode.SEND_MESSAGE_V2:
                return Act.ANSWER
            held.set()
            return Act.IGNORE

        cluster.group.script = hold_first
        producer = cluster.producer
        sending = asyncio.create_task(producer.send(Message(topic="T", body=b"a")))
        await held.wait()
        stopping = asyncio.create_task(producer.stop())
        await turns(1)
        with pytest.raises(ClientClosedError):
            await producer.send(Message(topic="T", body=b"b"))
        assert (await sending).status is SendStatus.SEND_OK
        await stopping
        assert [record.body for record in cluster.group.stored("T")] == [b"a"]
