"""Locks of orderly consumers: one holder, renewed, expired, given up, bounded."""

from __future__ import annotations

import json

from broker.processor.locks import LockProcessor
from broker.processor.send import SendProcessor
from broker.rebalance_lock import RebalanceLocks
from remoting.codes import RequestCode, ResponseCode
from tests.broker.rig import Rig, send_fields

Q0, Q1 = ("T", 0), ("T", 1)


def test_one_client_holds_a_queue_until_it_gives_it_up_or_is_silent():
    locks = RebalanceLocks()
    assert locks.lock("G", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock("G", "b", [Q0], 59_000) == []
    assert locks.lock("other", "b", [Q0], 0) == [Q0], "groups don't meet"
    assert locks.lock("G", "a", [Q0], 59_000) == [Q0], "renewed"
    assert locks.lock("G", "b", [Q0, Q1], 60_001) == [Q1], "only the other expired"
    locks.unlock("G", "b", [Q0])
    assert locks.lock("G", "b", [Q0], 60_002) == [], "what others hold stays"
    locks.unlock("G", "a", [Q0])
    assert locks.lock("G", "b", [Q0], 60_003) == [Q0]


def test_locks_are_bounded_and_the_expired_make_room():
    locks = RebalanceLocks(locks_max=2)
    assert locks.lock("G", "a", [("T", n) for n in range(3)], 0) == [Q0, Q1]
    assert locks.lock("G", "a", [("T", 2)], 60_001) == [("T", 2)]
    assert len(locks) == 1


async def test_a_java_clients_request_is_understood(tmp_path):
    rig = Rig(tmp_path / "store")
    send = SendProcessor(rig.context)
    await rig.ask(send.handle, RequestCode.SEND_MESSAGE_V2, send_fields(), b"x")
    locks = LockProcessor(rig.context, RebalanceLocks())
    body = (
        b'{"clientId":"c","consumerGroup":"G","mqSet":'
        b'[{"brokerName":"broker-a","queueId":1,"topic":"T"},'
        b'{"brokerName":"broker-a","queueId":77,"topic":"T"}],"onlyThisBroker":false}'
    )
    answer = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, body)
    held = json.loads(answer.body)["lockOKMQSet"]
    assert held == [{"topic": "T", "queueId": 1, "brokerName": "broker-a"}]
    unlocked = await rig.ask(locks.unlock, RequestCode.UNLOCK_BATCH_MQ, {}, body)
    assert unlocked.code == ResponseCode.SUCCESS
    for wrong in (b"", b"[]", b'{"consumerGroup":"a/b","clientId":"c"}'):
        refused = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, wrong)
        assert refused.code == ResponseCode.INVALID_PARAMETER
    rig.queues.close()
