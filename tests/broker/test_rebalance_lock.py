"""Locks of orderly consumers: one holder, renewed, expired, given up, bounded, across leaders."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.payload import UNIT
from broker.entry.state_part import Row
from broker.groups.locks import LockProcessor
from broker.leader.proposer import BusyError
from broker.leader.rebalance_lock import RebalanceLocks
from broker.send.send import SendProcessor
from broker.state.queue_owners import Queue, QueueOwners
from campaigns.rig.waiting import turns, until
from client.consume.queue_locks import LockTable
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_records
from tests.broker.rig import FakeConnection, Rig, send_fields

Q0, Q1 = ("T", 0), ("T", 1)


class Table:
    """Locks and owners as a leader keeps them, with the log's part done at once."""

    def __init__(self, **bounds: int) -> None:
        self.locks, self.owners = RebalanceLocks(**bounds), QueueOwners()
        self.members = {"a", "b"}

    def lock(
        self, group: str, client_id: str, queues: list[Queue], now_ms: int, claim: int = 0
    ) -> list[Queue]:
        claims = self.locks.claim(
            self.owners, group, client_id, queues, members=self.members, now_ms=now_ms, claim=claim
        )
        self.owners.lock(group, client_id, claims.free, claim)
        self.locks.end_change(group, claims.free, now_ms)
        return sorted(claims.held + claims.free)

    def sweep(self, now_ms: int) -> None:
        for group, owner, queues in self.locks.expired(self.owners, now_ms):
            self.owners.unlock(group, owner.client_id, queues, owner.claim)


def test_one_client_holds_a_queue_until_it_gives_it_up_or_is_silent():
    table = Table()
    assert table.lock("G", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert table.lock("G", "b", [Q0], 59_000) == []
    assert table.lock("other", "b", [Q0], 0) == [Q0], "groups don't meet"
    assert table.lock("G", "a", [Q0], 59_000) == [Q0], "renewed"
    assert table.lock("G", "b", [Q0, Q1], 60_001) == [Q1], "only the other expired"
    table.owners.unlock("G", "b", [Q0])
    assert table.lock("G", "b", [Q0], 60_002) == [], "what others hold stays"
    table.owners.unlock("G", "a", [Q0])
    assert table.lock("G", "b", [Q0], 60_003) == [Q0]


def test_a_client_that_is_gone_keeps_its_queues_while_it_may_believe_in_them():
    table = Table()
    assert table.lock("G", "a", [Q0], 0) == [Q0]
    table.members = {"b"}
    assert table.lock("G", "b", [Q0], 30_000) == [], "a Java client consumes for 30 s"
    assert table.lock("G", "b", [Q0], 35_001) == [Q0]


def test_shorter_leases_end_sooner_and_still_outlast_the_half_that_clients_believe_in():
    table = Table(lease_ms=12_000)
    assert table.lock("G", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert table.lock("G", "b", [Q0], 12_000) == []
    assert table.lock("G", "b", [Q0], 12_001) == [Q0]
    table.members = {"b"}
    assert table.lock("G", "a", [Q1], 20_000) == [Q1]
    assert table.lock("G", "b", [Q1], 27_000) == [], "its owner is gone, and believes for 6 s"
    assert table.lock("G", "b", [Q1], 27_001) == [Q1]


def test_a_sweep_forgets_no_renewal():
    """It frees what has expired; who renewed since the leader began holds on."""
    table = Table()
    for now_ms in range(0, 200_000, 20_000):
        assert table.lock("G", "a", [Q0, Q1], now_ms) == [Q0, Q1]
    table.sweep(185_000)
    assert table.lock("G", "b", [Q0, Q1], 185_001) == []
    table.sweep(240_001)
    assert table.lock("G", "b", [Q0, Q1], 240_002) == [Q0, Q1]


def test_a_new_leader_gives_nobodys_queue_away():
    table = Table()
    assert table.lock("G", "a", [Q0], 0) == [Q0]
    table.locks = RebalanceLocks()  # another node's, with a clock of its own
    table.locks.begin(1_000_000)
    table.members = {"b"}  # nobody has sent it a heartbeat but the other
    assert table.lock("G", "b", [Q0], 1_030_000) == []
    assert table.lock("G", "a", [Q0], 1_030_000) == [Q0], "the owner goes on"
    assert table.lock("G", "b", [Q0], 1_060_000) == []


def test_a_queue_has_one_change_under_way():
    table = Table()
    wish = table.locks.claim(table.owners, "G", "a", [Q0], members=(), now_ms=0)
    assert wish.free == [Q0]
    second = table.locks.claim(table.owners, "G", "b", [Q0], members=(), now_ms=0)
    assert (second.free, second.held) == ([], [])
    table.locks.end_change("G", [Q0], None)
    assert table.lock("G", "b", [Q0], 1) == [Q0]


def test_a_change_under_way_outlives_a_transfer_that_was_given_up():
    """The node leads on in the same term, and what it had proposed is committed behind that."""
    table = Table()
    wish = table.locks.claim(table.owners, "G", "a", [Q0], members=(), now_ms=0)
    table.locks.begin(1_000)
    assert table.lock("G", "b", [Q0], 1_001) == []
    table.owners.lock("G", "a", wish.free)
    table.locks.end_change("G", wish.free, 1_002)
    assert table.lock("G", "b", [Q0], 1_003) == []
    assert table.lock("G", "a", [Q0], 1_003) == [Q0]


def test_locks_are_bounded_and_the_expired_make_room():
    table = Table(locks_max=2)
    assert table.lock("G", "a", [("T", n) for n in range(3)], 0) == [Q0, Q1]
    assert table.lock("G", "a", [("T", 2)], 60_001) == []
    table.sweep(60_001)
    assert len(table.owners) == 0
    assert table.lock("G", "a", [("T", 2)], 60_001) == [("T", 2)]
    assert len(table.owners) == 1


def test_an_unlock_that_comes_after_the_next_claim_takes_nothing():
    table = Table()
    assert table.lock("G", "a", [Q0, Q1], 0, claim=1) == [Q0, Q1]
    assert table.lock("G", "a", [Q0], 1, claim=2) == [Q0]
    table.owners.unlock("G", "a", [Q0, Q1], 1)
    assert table.owners.of_group("G") == {Q0: ("a", 2)}
    assert table.lock("G", "b", [Q0], 2, claim=9) == [], "claims of two clients don't compare"
    assert table.lock("G", "a", [Q0], 3, claim=1) == [], "so old a lock renews nothing"
    table.owners.lock("G", "a", [Q0], 1)
    assert table.owners.of_group("G") == {Q0: ("a", 2)}
    assert table.lock("G", "b", [Q0], 60_002, claim=1) == [Q0]
    table.owners.unlock("G", "a", [Q0], 3)
    assert table.owners.of_group("G") == {Q0: ("b", 1)}


class Wanderer:
    """A client of two queues whose requests arrive when they like, as often as they like."""

    def __init__(self, table: Table, client_id: str) -> None:
        self.table, self.client_id = table, client_id
        self.client = LockTable()
        self.sent: list[tuple[str, Queue, int]] = []

    def send(self, kind: str, queue: Queue) -> None:
        claim = self.client.release([named(queue)]) if kind == "unlock" else self.client.claim
        self.sent.append((kind, queue, claim))

    def deliver(self, number: int) -> None:
        kind, queue, claim = self.sent[number % len(self.sent)]
        if kind == "unlock":
            self.table.owners.unlock("G", self.client_id, [queue], claim)
        elif not self.table.lock("G", self.client_id, [queue], 0, claim):
            return
        elif not self.client.was_released_since(named(queue), claim):
            self.client.granted(named(queue), 0)

    def believed(self) -> list[Queue]:
        return [(queue.topic, queue.queue_id) for queue in self.client.queues]


def named(queue: Queue) -> MessageQueue:
    return MessageQueue(queue[0], "broker-a", queue[1])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.one_of(
                st.tuples(st.sampled_from(["lock", "unlock"]), st.sampled_from([Q0, Q1])),
                st.integers(0, 20),
            ),
        ),
        max_size=40,
    )
)
def test_whoever_believes_in_a_lock_owns_the_queue(steps):
    table = Table()
    clients = {name: Wanderer(table, name) for name in "ab"}
    for name, step in steps:
        client = clients[name]
        if isinstance(step, tuple):
            client.send(*step)
        elif client.sent:
            client.deliver(step)
        for one in clients.values():
            owners = table.owners.of_group("G")
            assert all(owners[queue].client_id == one.client_id for queue in one.believed())


def test_deleted_topics_and_groups_have_no_owners():
    owners = QueueOwners()
    owners.lock("G", "a", [("T", 0), ("U", 0)])
    owners.lock("H", "a", [("T", 0)])
    owners.drop_topics({"T"})
    assert (len(owners), owners.groups()) == (1, ["G"])
    owners.drop_group("G")
    assert (len(owners), owners.groups()) == (0, [])


def test_rows_of_a_version_without_claims_are_read():
    owners = QueueOwners()
    owners.restore([["G", "T", 0, "c"]])
    assert owners.of_group("G") == {Q0: ("c", 0)}
    again = QueueOwners()
    again.restore(owners.capture())
    assert again == owners


@pytest.mark.parametrize(
    "row",
    [
        ["G", "T", -1, "c"],
        ["G", "T", 0, 5],
        ["G", "T"],
        ["G", "T", 0, "c", -1],
        ["G", "T", 0, "c", 1, 2],
    ],
)
def test_rows_that_are_none_are_refused(row: Row):
    with pytest.raises((ValueError, TypeError)):
        QueueOwners().restore([row])


def request_body(client: str, *queues: int, **more: int) -> bytes:
    rows = [{"brokerName": "broker-a", "queueId": queue, "topic": "T"} for queue in queues]
    return json.dumps({"clientId": client, "consumerGroup": "G", "mqSet": rows, **more}).encode()


def queues_of(answer) -> list[int]:
    return [queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]]


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    rig.context.monotonic_ms = lambda: rig.now_ms
    rig.context.locks.begin(rig.now_ms)
    await rig.ask(rig.make(SendProcessor).handle, 310, send_fields(), b"x")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_java_clients_request_is_understood(rig):
    locks = rig.make(LockProcessor)
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


async def test_owners_are_in_the_log_and_renewals_are_not(rig, tmp_path):
    locks = rig.make(LockProcessor)
    answer = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("a", 0, 1))
    assert queues_of(answer) == [0, 1]
    entries = len(rig.log.entries)
    answer = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("a", 0, 1))
    assert (queues_of(answer), len(rig.log.entries)) == ([0, 1], entries)
    answer = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("b", 0, 2))
    assert queues_of(answer) == [2]
    await rig.ask(locks.unlock, RequestCode.UNLOCK_BATCH_MQ, {}, request_body("a", 0))
    replica = rig.replay(tmp_path / "replica")
    assert replica.queue_owners.of_group("G") == {("T", 1): ("a", 0), ("T", 2): ("b", 0)}
    rig.now_ms += 60_001
    locks.sweep()
    await until(lambda: not len(rig.state.queue_owners))


async def test_a_lock_under_way_is_not_undone_by_the_unlock_before_it(rig, tmp_path):
    """The client never heard of its unlock, locks again, and the unlock's second attempt comes."""
    locks = rig.make(LockProcessor)
    lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
    await rig.ask(locks.lock, lock, {}, request_body("a", 0, claim=1))
    rig.log.auto_commit = False
    again, late = FakeConnection(), FakeConnection()
    rig.give(locks.lock, lock, {}, request_body("a", 0, claim=2), again)
    rig.give(locks.unlock, unlock, {}, request_body("a", 0, claim=1), late)
    async with asyncio.timeout(5):
        while not (again.sent and late.sent):
            rig.log.commit()
            await turns(1)
    assert (queues_of(again.sent[0]), late.sent[0].code) == ([0], ResponseCode.SUCCESS)
    expected = {Q0: ("a", 2)}
    assert rig.state.queue_owners.of_group("G") == expected
    assert rig.replay(tmp_path / "replica").queue_owners.of_group("G") == expected


async def test_an_unlock_behind_a_lock_under_way_frees_the_queue(rig, tmp_path):
    """Java's client gives up waiting for a lock after a second, and unlocks what it may have."""
    locks = rig.make(LockProcessor)
    rig.log.auto_commit = False
    locked, unlocked = FakeConnection(), FakeConnection()
    rig.give(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("a", 0), locked)
    rig.give(locks.unlock, RequestCode.UNLOCK_BATCH_MQ, {}, request_body("a", 0), unlocked)
    async with asyncio.timeout(5):
        while not (locked.sent and unlocked.sent):
            rig.log.commit()
            await turns(1)
    rig.log.auto_commit = True
    assert (queues_of(locked.sent[0]), unlocked.sent[0].code) == ([0], ResponseCode.SUCCESS)
    answer = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("b", 0))
    assert queues_of(answer) == [0]
    assert rig.replay(tmp_path / "replica").queue_owners.of_group("G") == {Q0: ("b", 0)}


@pytest.mark.parametrize("is_silent", [False, True])
async def test_an_owner_whose_queue_is_about_to_be_free_is_not_told_that_he_holds_it(
    rig, is_silent
):
    """The unlock is on its way to the log: his own, that he has not heard of, or the leader's."""
    locks = rig.make(LockProcessor)
    lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
    await rig.ask(locks.lock, lock, {}, request_body("a", 0, 1))
    rig.log.auto_commit = False
    if is_silent:
        rig.now_ms += 60_001
        await rig.ask(locks.lock, lock, {}, request_body("a", 1))
        locks.sweep()
    else:
        for _ in range(2):  # attempts
            rig.give(locks.unlock, unlock, {}, request_body("a", 0), FakeConnection())
    answer = await rig.ask(locks.lock, lock, {}, request_body("a", 0, 1))
    assert queues_of(answer) == [1]
    async with asyncio.timeout(5):
        while Q0 in rig.state.queue_owners.of_group("G"):
            rig.log.commit()
            await turns(1)
    rig.log.auto_commit = True
    async with asyncio.timeout(5):
        while not queues_of(await rig.ask(locks.lock, lock, {}, request_body("b", 0))):
            rig.log.commit()


async def test_an_unlock_that_finds_no_place_leaves_its_owner_as_he_was(rig, monkeypatch):
    locks = rig.make(LockProcessor)
    lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
    await rig.ask(locks.lock, lock, {}, request_body("a", 0))

    def busy(proposal):
        raise BusyError("full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.context.proposer, "submit", busy)
        answer = await rig.ask(locks.unlock, unlock, {}, request_body("a", 0))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        rig.now_ms += 60_001
        locks.sweep()
    answer = await rig.ask(locks.lock, lock, {}, request_body("a", 0))
    assert queues_of(answer) == [0]


@pytest.mark.parametrize("claim", [-1, 2**63, "x"])
async def test_a_claim_that_is_none_is_refused(rig, claim):
    locks = rig.make(LockProcessor)
    body = request_body("a", 0, claim=claim)
    refused = await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, body)
    assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_a_lock_whose_entry_is_lost_is_not_answered_as_held(rig):
    locks = rig.make(LockProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("a", 0), connection)
    await until(lambda: rig.log.open)
    rig.log.depose()
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.SYSTEM_ERROR
    assert "unknown" in connection.sent[0].remark


async def test_what_an_orderly_group_sends_away_is_dead(rig):
    send = rig.make(SendProcessor)
    retry = send_fields(topic="%RETRY%G", key="r1", RETRY_TOPIC="T") | {"j": "1", "l": "16"}
    locks = rig.make(LockProcessor)
    await rig.ask(locks.lock, RequestCode.LOCK_BATCH_MQ, {}, request_body("a", 0))
    answer = await rig.ask(send.handle, RequestCode.SEND_MESSAGE_V2, retry, b"x")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (record,) = decode_records(b"".join(stored(rig, "%DLQ%G")))
    assert record.body == b"x"


def stored(rig: Rig, topic: str) -> list[bytes]:
    queue = rig.queues.get(topic, 0)
    units = UNIT.iter_unpack(queue.read(0, 100))
    return [rig.log.read(position, size) for position, size, _ in units]
