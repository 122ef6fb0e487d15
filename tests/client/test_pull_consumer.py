"""The pull consumer and the administrator against scripted brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin, AdminSettings
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings, PullStatus
from client.errors import (
    DeadlineError,
    InvalidParameterError,
    NoRouteError,
    OutcomeUnknownError,
    RequestNotSupportedError,
    UnencodableRequestError,
)
from client.message import Message, MessageQueue
from client.produce.producer import Producer
from remoting.protocol.codes import RequestCode
from tests.client.fake_cluster import Act, FakeGroup, FakeNameServer

QUEUE = MessageQueue("T", "broker-a", 0)


class Setup:
    def __init__(self, group: FakeGroup, name_server: FakeNameServer) -> None:
        self.group = group
        self.name_server = name_server

    async def fill(self, count: int, tags: str | None = None) -> None:
        async with Producer("PG", [self.name_server.address]) as producer:
            for number in range(count):
                message = Message(topic="T", body=b"%d" % number, tags=tags)
                await producer.send(message, queue=QUEUE)


@asynccontextmanager
async def setup() -> AsyncIterator[tuple[Setup, PullConsumer]]:
    group = FakeGroup("broker-a")
    await group.start()
    name_server = FakeNameServer([group], ["T"])
    await name_server.start()
    settings = PullConsumerSettings(
        timeout_ms=1_000, retry=RetryPolicy(attempt_timeout_ms=150, backoff_ms_max=20)
    )
    async with PullConsumer("CG", [name_server.address], settings=settings) as consumer:
        yield Setup(group, name_server), consumer
    await name_server.stop()
    await group.stop()


async def test_a_queue_is_read_from_end_to_end() -> None:
    async with setup() as (cluster, consumer):
        await cluster.fill(50)
        assert await consumer.queues("T") == tuple(
            MessageQueue("T", "broker-a", number) for number in range(4)
        )
        assert await consumer.min_offset(QUEUE) == 0
        assert await consumer.max_offset(QUEUE) == 50
        offset, bodies = 0, []
        while offset < 50:
            result = await consumer.pull(QUEUE, offset, 20)
            assert result.status is PullStatus.FOUND
            assert result.address == cluster.group.address(0)
            assert (result.min_offset, result.max_offset) == (0, 50)
            bodies += [message.body for message in result.messages]
            offset = result.next_begin_offset
        assert bodies == [b"%d" % number for number in range(50)]
        first = (await consumer.pull(QUEUE, 0, 1)).messages[0]
        (record, *_) = cluster.group.stored("T")
        assert first.queue == QUEUE
        assert first.offset_msg_id == record.offset_msg_id
        assert first.store_timestamp_ms == record.store_timestamp_ms
        assert first.uniq_key == record.property_map()["UNIQ_KEY"]


async def test_every_status_of_a_pull() -> None:
    async with setup() as (cluster, consumer):
        await cluster.fill(3, tags="A")
        end = await consumer.pull(QUEUE, 3)
        assert (end.status, end.messages, end.next_begin_offset) == (PullStatus.NO_NEW_MSG, [], 3)
        beyond = await consumer.pull(QUEUE, 9)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        other = await consumer.pull(QUEUE, 0, expression="B")
        assert (other.status, other.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 3)


async def test_a_long_poll_waits_for_a_message() -> None:
    async with setup() as (cluster, consumer):
        pull = asyncio.ensure_future(consumer.pull(QUEUE, 0, suspend_ms=3_000))
        await until(lambda: bool(cluster.group.sends(RequestCode.PULL_MESSAGE)))
        await cluster.fill(1)
        assert (await pull).status is PullStatus.FOUND


async def test_offsets_are_stored_and_told() -> None:
    async with setup() as (cluster, consumer):
        assert await consumer.fetch_offset(QUEUE) is None
        await consumer.commit_offset(QUEUE, 7)
        assert await consumer.fetch_offset(QUEUE) == 7
        (query, _) = cluster.group.sends(RequestCode.QUERY_CONSUMER_OFFSET)
        assert query.command.ext_fields["setZeroIfNotFound"] == "false"


async def test_offsets_by_time() -> None:
    async with setup() as (cluster, consumer):
        await cluster.fill(3)
        assert await consumer.search_offset(QUEUE, 0) == 0
        assert await consumer.search_offset(QUEUE, 10**13) == 3


async def test_requests_follow_the_leader() -> None:
    async with setup() as (cluster, consumer):
        await cluster.fill(3)
        assert await consumer.max_offset(QUEUE) == 3
        cluster.name_server.freeze()
        await cluster.group.stop_node(0)
        cluster.group.lead(2)
        assert await consumer.max_offset(QUEUE) == 3
        result = await consumer.pull(QUEUE, 0)
        assert result.address == cluster.group.address(2)


async def test_an_unanswered_commit_is_unknown_and_a_refused_one_is_not() -> None:
    async with setup() as (cluster, consumer):
        cluster.group.script = lambda _: Act.IGNORE
        with pytest.raises(OutcomeUnknownError):
            await consumer.commit_offset(QUEUE, 1, 300)
        cluster.group.script = lambda _: Act.ANSWER
        cluster.group.lead(None)
        with pytest.raises(DeadlineError) as caught:
            await consumer.commit_offset(QUEUE, 1, 300)
        assert caught.value.definite
        cluster.group.lead(1)
        cluster.group.script = lambda _: (29, "queueId[9] is illegal")
        with pytest.raises(InvalidParameterError):
            await consumer.max_offset(MessageQueue("T", "broker-a", 9))


async def test_what_the_wire_has_no_form_for_is_definite_and_not_tried_again() -> None:
    async with setup() as (cluster, consumer):
        for request, named in (
            (consumer.pull(QUEUE, 2**63), "queueOffset is '9223372036854775808'"),
            (consumer.pull(QUEUE, 0, 2**31), "maxMsgNums is '2147483648'"),
            (consumer.commit_offset(QUEUE, 2**70), "commitOffset is '1180591620717411303424'"),
            (consumer.search_offset(QUEUE, -(2**63) - 1), "timestamp is '-9223372036854775809'"),
            (consumer.pull(QUEUE, 0, expression="\udcff"), "holds text that is not UTF-8"),
        ):
            with pytest.raises(UnencodableRequestError, match=named) as caught:
                await request
            assert caught.value.definite
            assert not caught.value.retriable
        codes = {seen.command.code for seen in cluster.group.seen}
        assert codes <= {RequestCode.HEART_BEAT}
        assert (await consumer.pull(QUEUE, 2**63 - 1)).status is PullStatus.OFFSET_ILLEGAL


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_time_nothing_is_asked(timeout_ms: int) -> None:
    async with setup() as (cluster, consumer):
        for request in (
            consumer.pull(QUEUE, 0, timeout_ms=timeout_ms),
            consumer.commit_offset(QUEUE, 1, timeout_ms),
            consumer.fetch_offset(QUEUE, timeout_ms),
        ):
            with pytest.raises(DeadlineError, match="0 attempts"):
                await request
        assert {seen.command.code for seen in cluster.group.seen} <= {RequestCode.HEART_BEAT}


async def test_unknown_topics_and_groups_are_named() -> None:
    async with setup() as (_, consumer):
        with pytest.raises(NoRouteError, match="nowhere"):
            await consumer.queues("nowhere")
        with pytest.raises(DeadlineError, match="broker-z"):
            await consumer.max_offset(MessageQueue("T", "broker-z", 0), 200)


async def test_brokers_hear_of_the_group() -> None:
    async with setup() as (cluster, consumer):
        await consumer.max_offset(QUEUE)
        await until(lambda: consumer.client_id in cluster.group.members.get("CG", {}))


async def test_a_node_that_forgot_the_client_hears_of_it_at_once() -> None:
    async with setup() as (cluster, consumer):
        await consumer.max_offset(QUEUE)
        members = cluster.group.members.setdefault("CG", {})
        await until(lambda: consumer.client_id in members)
        before = len(cluster.group.sends(RequestCode.HEART_BEAT))
        await until(lambda: len(cluster.group.sends(RequestCode.HEART_BEAT)) >= 3)
        members[consumer.client_id].abort("scripted")
        await until(lambda: len(cluster.group.sends(RequestCode.HEART_BEAT)) > max(3, before))
        await until(lambda: consumer.client_id in members)


async def test_nothing_stored_is_an_answer_even_after_silence() -> None:
    async with setup() as (cluster, consumer):
        asked = RequestCode.QUERY_CONSUMER_OFFSET
        cluster.group.script = lambda seen: (
            Act.IGNORE
            if seen.command.code == asked and len(cluster.group.sends(asked)) == 1
            else Act.ANSWER
        )
        assert await consumer.fetch_offset(QUEUE) is None


async def test_the_administrator_creates_topics_and_waits_for_their_route() -> None:
    async with setup() as (cluster, _):
        async with Admin([cluster.name_server.address]) as admin:
            info = await admin.cluster_info()
            assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
            await admin.create_topic("new", queues=4)
            assert cluster.group.created == ["new"]
            assert len((await admin.topic_route("new")).write_queues) == 4
            with pytest.raises(RequestNotSupportedError):
                await admin.replica_status(cluster.group.address(0))
        settings = AdminSettings(timeout_ms=200)
        async with Admin([cluster.name_server.address], settings=settings) as admin:
            with pytest.raises(NoRouteError, match="not routed yet"):
                await admin.create_topic("wide", queues=8)
