"""Whatever is in flight, no key is stored twice (promise G2), alone or in a batch.

Sends of a few keys in any mixture, and their repetitions, while entries are committed one by one
and leaders change. The model is the log: a key stands there once at most, and who is told of
success is told of where it stands.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.entry.payload import UNIT, decode_payload
from broker.process.processors import Processors
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.headers import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from remoting.records.message import decode_record, encode_batch_body
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields


def send(rig: Rig, keys: list[str]) -> FakeConnection:
    """Of one key as a message, of several as a batch."""
    connection = FakeConnection()
    if len(keys) == 1:
        fields, code, body = send_fields(key=keys[0]), RequestCode.SEND_MESSAGE_V2, b"x"
    else:
        fields, code = send_fields(key=None), RequestCode.SEND_BATCH_MESSAGE
        body = encode_batch_body([(b"x", f"UNIQ_KEY\x01{key}\x02".encode(), 0) for key in keys])
    rig.give(rig.make(SendProcessor).handle, code, fields, body, connection)
    return connection


def stored(rig: Rig) -> dict[str, int]:
    """Key -> position."""
    found: dict[str, int] = {}
    for entry in rig.log.entries:
        for run in decode_payload(entry.payload).runs:
            for position, _, _ in UNIT.iter_unpack(run.units):
                key = decode_record(rig.context.read_record(position)).property_map()["UNIQ_KEY"]
                assert key not in found, f"{key} is stored at {found[key]} and at {position}"
                found[key] = position
    return found


@pytest.mark.parametrize("seed", range(30))
async def test_no_key_is_stored_twice_whatever_is_in_flight(tmp_path, seed):
    rng, rig = random.Random(seed), Rig(tmp_path)
    rig.log.auto_commit = False
    asked: list[tuple[list[str], FakeConnection]] = []
    for number in range(120):
        luck = rng.random()
        if luck < 0.6:
            pool = [f"k{at}" for at in range(number // 6, number // 6 + 6)]
            if asked and rng.random() < 0.4:  # the very same once more
                keys = rng.choice(asked[-8:])[0]
            else:
                keys = rng.sample(pool, rng.choice((1, 1, 2, 3)))
            asked.append((keys, send(rig, keys)))
        elif luck < 0.95:
            rig.log.commit(1)
        else:
            statuses = (ProposalStatus.LOST_LEADERSHIP, ProposalStatus.TRUNCATED)
            rig.log.depose(rng.choice(statuses))
            await turns(10)
            rig.log.lead()
        if rng.random() < 0.5:
            await turns(10)
    await turns(10)
    while rig.log.open:
        rig.log.commit()
        await turns(10)
    places = stored(rig)
    for keys, connection in asked:
        assert len(connection.sent) == 1, "answered once"
        answer = connection.sent[0]
        if answer.code == ResponseCode.SUCCESS:
            told = [int(place[16:], 16) for place in answer.ext_fields["msgId"].split(",")]
            assert told == [places[key] for key in keys]
    assert len(places) > 10
    rig.queues.close()


async def test_a_topic_whose_deletion_is_in_flight_is_gone_whatever_is_refused_behind_it(tmp_path):
    """Also where the leader could not propose for a moment: who sends makes the topic anew."""
    rig = Rig(tmp_path)
    send(rig, ["K1"])
    await turns(10)
    rig.log.auto_commit = False
    admin = rig.make(Processors, rig.tasks).admin
    for refusals in (0, 1):  # the second deletion finds no room
        rig.log.refusals = refusals
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        rig.give(admin.delete_topic, code, {"topic": "T"}, b"", FakeConnection())
        await turns(1)
    assert rig.context.proposer.topic("T") is None
    rig.context.proposer.lost_leadership()
    assert rig.context.proposer.topic("T") is None
    send(rig, ["K2"])
    await turns(1)
    rig.log.commit()
    assert "T" in rig.state.topics
    assert rig.state.next_offset("T", 0) == 2
    rig.queues.close()


async def test_a_query_waits_for_a_commit_in_flight_whatever_is_refused_behind_it(tmp_path):
    rig = Rig(tmp_path)
    send(rig, ["K1"])
    await turns(10)
    rig.log.auto_commit = False
    offsets = rig.make(OffsetProcessor, rig.tasks)
    queue = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    for offset in (3, 4):
        rig.log.refusals = offset - 3  # the second finds no room
        fields = {**queue, "commitOffset": str(offset)}
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        rig.give(offsets.update, code, fields, b"", FakeConnection())
        await turns(1)
    asking = asyncio.create_task(rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, queue))
    await turns(10)
    assert not asking.done()
    rig.log.commit()
    assert (await asking).ext_fields["offset"] == "3"
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_commit_that_rides_on_a_pull_counts_behind_one_in_flight(tmp_path):
    """Also where it goes back to the offset that is stored."""
    rig = Rig(tmp_path)
    send(rig, ["K1"])
    await turns(10)
    offsets, pulls = rig.make(OffsetProcessor, rig.tasks), rig.make(PullProcessor, rig.tasks)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"}
    assert (await rig.ask(offsets.update, code, fields)).code == ResponseCode.SUCCESS
    rig.log.auto_commit = False
    rig.give(offsets.update, code, {**fields, "commitOffset": "5"}, b"", FakeConnection())
    riding = pull_fields(commitOffset="3", sysFlag=str(PULL_COMMIT_OFFSET | PULL_SUBSCRIPTION))
    rig.give(pulls.handle, RequestCode.PULL_MESSAGE, riding, b"", FakeConnection())
    await turns(10)
    rig.log.commit()
    await turns(10)
    rig.log.commit()
    assert rig.state.consumer_offsets["G", "T", 0] == 3
    await rig.tasks.stop()
    rig.queues.close()
