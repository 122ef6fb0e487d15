"""Where a push consumer begins and goes on, against scripted brokers."""

from __future__ import annotations

import dataclasses
import time

import pytest

from campaigns.rig.waiting import until
from client.connection.heartbeat import ConsumeFrom
from remoting.protocol.codes import RequestCode
from tests.client.fake_cluster import Act
from tests.client.push_setup import Listener, Recorder, setup

IN_AN_HOUR_MS = time.time_ns() // 1_000_000 + 3_600_000


async def test_a_new_group_begins_where_it_says() -> None:
    async with setup() as cluster:
        await cluster.send(b"old")
        listener = Listener()
        await cluster.consumer(listener, consume_from=ConsumeFrom.LAST)
        await until(lambda: len(cluster.group.sends(RequestCode.PULL_MESSAGE)) >= 4)
        await cluster.send(b"new")
        await until(lambda: listener.bodies == [b"new"])


@pytest.mark.parametrize("consume_from", ConsumeFrom)
async def test_what_comes_while_a_group_is_away_is_there_when_it_is_back(
    consume_from: ConsumeFrom,
) -> None:
    """Its place is stored once it is at work, though it is the begin of an empty queue."""
    where = {"consume_from": consume_from, "consume_from_timestamp_ms": IN_AN_HOUR_MS}
    async with setup() as cluster:
        away = await cluster.consumer(Listener(), commit_interval_ms=60_000, **where)
        await until(lambda: [state.next_offset for state in away.states()] == [0] * 4)
        await away.stop()
        assert cluster.group.offsets == {("CG", "T", queue_id): 0 for queue_id in range(4)}
        await cluster.send(b"meanwhile")
        listener = Listener()
        await cluster.consumer(listener, **where)
        await until(lambda: listener.bodies == [b"meanwhile"])


@pytest.mark.parametrize("consume_from", ConsumeFrom)
async def test_a_retry_that_came_while_the_group_was_away_is_delivered(
    consume_from: ConsumeFrom,
) -> None:
    """A retry topic begins to be with the first failure: no member has an offset there before."""
    retries = "%RETRY%CG"
    async with setup() as cluster:
        listener = Listener()
        await cluster.send(b"failed")
        (failed,) = cluster.group.queues.pop(("T", 0))
        cluster.group.queues[retries, 0] = [dataclasses.replace(failed, topic=retries)]
        cluster.name_server.topics.append(retries)
        await cluster.consumer(
            listener, consume_from=consume_from, consume_from_timestamp_ms=IN_AN_HOUR_MS
        )
        await until(lambda: listener.bodies == [b"failed"])


async def test_the_start_is_never_guessed() -> None:
    async with setup() as cluster:
        cluster.group.offsets["CG", "T", 0] = 2
        for number in range(4):
            await cluster.send(b"%d" % number)
        cluster.group.script = lambda seen: (
            Act.IGNORE if seen.command.code == RequestCode.QUERY_CONSUMER_OFFSET else Act.ANSWER
        )
        listener, recorder = Listener(), Recorder()
        await cluster.consumer(listener, recorder)
        await until(lambda: len(recorder.fetches) >= 4)
        assert listener.got == []
        assert all(error is not None and not error.definite for _, _, error in recorder.fetches)
        cluster.group.script = lambda _: Act.ANSWER
        await until(lambda: listener.bodies == [b"2", b"3"])


async def test_a_position_below_the_queue_moves_up() -> None:
    async with setup() as cluster:
        for number in range(4):
            await cluster.send(b"%d" % number)
        cluster.group.offsets["CG", "T", 0] = 1
        cluster.group.min_offset = 3
        listener = Listener()
        await cluster.consumer(listener)
        await until(lambda: listener.bodies == [b"3"])


async def test_a_position_above_the_queue_is_doubted_before_it_is_given_up() -> None:
    async with setup() as cluster:
        for number in range(3):
            await cluster.send(b"%d" % number)
        records = cluster.group.queues["T", 0]
        behind, cluster.group.queues["T", 0] = records, records[:1]
        cluster.group.offsets["CG", "T", 0] = 2
        listener = Listener()
        await cluster.consumer(listener)
        await until(lambda: len(cluster.group.sends(RequestCode.PULL_MESSAGE)) >= 5)
        cluster.group.queues["T", 0] = behind
        await until(lambda: listener.bodies == [b"2"])
