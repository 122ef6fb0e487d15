"""Promise G4: invisible halves, one entry per decision, the first decision wins, check-back."""

from __future__ import annotations

import pytest

from broker.entry.payload import UNIT, DecideCommand, decode_payload
from broker.entry.topics import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_MAX_TOPIC
from broker.transaction.check_back import CHECK_GROUP, CheckBack
from broker.transaction.end_transaction import EndTransactionProcessor
from campaigns.rig.waiting import turns, until
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_record, tags_code
from tests.broker.rig import FakeConnection, Rig
from tests.broker.transactions import end, half

COMMIT, ROLLBACK = "8", "12"


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_half_is_invisible_and_its_commit_is_one_entry(rig):
    fields = await half(rig)
    assert rig.state.next_offset("T", 2) == 0
    entries = len(rig.log.entries)
    answer = await end(rig, fields, COMMIT)
    assert answer.code == ResponseCode.SUCCESS
    assert len(rig.log.entries) == entries + 1
    payload = decode_payload(rig.log.entries[-1].payload)
    assert {run.topic for run in payload.runs} == {"T", OP_TOPIC}
    assert isinstance(payload.commands[0], DecideCommand)
    unit = rig.queues.get("T", 2).read(0, 1)
    record = decode_record(rig.context.read_record(int.from_bytes(unit[:8], "big")))
    assert record.body == b"pay"
    assert record.sys_flag & 0xC == 8
    assert record.prepared_transaction_offset == int(fields["commitLogOffset"])
    assert record.property_map()["TRAN_MSG"] == "true"
    op_unit = rig.queues.get(OP_TOPIC, 0).read(0, 1)
    op = decode_record(rig.context.read_record(int.from_bytes(op_unit[:8], "big")))
    assert op.body == b"0,"
    assert op.property_map() == {"TAGS": "d"}


async def test_what_is_committed_has_the_tags_keys_and_properties_of_its_half(rig):
    own = {"TAGS": "red", "KEYS": "order-7 7", "colour": "café"}
    fields = await half(rig, **own)
    assert (await end(rig, fields, COMMIT)).code == ResponseCode.SUCCESS
    position, _, code = UNIT.unpack(rig.queues.get("T", 2).read(0, 1))
    committed = decode_record(rig.context.read_record(position)).property_map()
    assert own.items() <= committed.items()
    assert code == tags_code("red"), "a consumer's tags are compared with it"


async def test_a_repeated_decision_is_answered_no_sooner_than_its_log_confirms(rig):
    fields = await half(rig)
    assert (await end(rig, fields, COMMIT)).code == ResponseCode.SUCCESS
    rig.log.confirmations = []
    processor = rig.make(EndTransactionProcessor, rig.tasks)
    connection = FakeConnection()
    for _ in range(2):
        rig.give(
            processor.handle,
            RequestCode.END_TRANSACTION,
            fields | {"commitOrRollback": COMMIT},
            b"",
            connection,
        )
    await until(lambda: len(rig.log.confirmations) == 2)
    assert connection.sent == []
    for confirm, status in zip(
        rig.log.confirmations,
        (ProposalStatus.COMMITTED, ProposalStatus.FLUSH_SLAVE_TIMEOUT),
        strict=True,
    ):
        confirm(status)
    codes = [answer.code for answer in connection.sent]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
async def test_the_first_decision_wins(rig, first, second):
    fields = await half(rig)
    assert (await end(rig, fields, first)).code == ResponseCode.SUCCESS
    assert (await end(rig, fields, first)).code == ResponseCode.SUCCESS, "idempotent"
    contrary = await end(rig, fields, second)
    assert contrary.code == ResponseCode.ILLEGAL_OPERATION
    assert "transaction already" in (contrary.remark or "")
    assert rig.state.next_offset("T", 2) == (1 if first == COMMIT else 0)
    assert rig.state.next_offset(OP_TOPIC, 0) == 1


async def test_decisions_in_flight_together_store_one(rig):
    fields = await half(rig)
    rig.log.auto_commit = False
    processor = rig.make(EndTransactionProcessor, rig.tasks)
    connection = FakeConnection()
    for decision in (COMMIT, COMMIT, ROLLBACK):
        rig.give(
            processor.handle,
            RequestCode.END_TRANSACTION,
            fields | {"commitOrRollback": decision},
            b"",
            connection,
        )
    await turns(1)
    rig.log.commit()
    await until(lambda: len(connection.sent) >= 3)
    assert [answer.code for answer in connection.sent] == [
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.ILLEGAL_OPERATION,
    ]
    assert rig.state.next_offset("T", 2) == 1


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producerGroup": "other"}, "producer group wrong"),
        ({"commitLogOffset": "7"}, "commit log offset wrong"),
        ({"tranStateTableOffset": "9"}, "Find prepared transaction message failed"),
        ({"msgId": "somebody"}, "is not somebody"),
    ],
)
async def test_an_end_that_means_another_half_is_refused(rig, changed, remark):
    fields = await half(rig)
    answer = await end(rig, fields, COMMIT, **changed)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert rig.state.halves.get(0) is not None


async def test_an_undecided_half_is_checked_then_discarded(rig):
    await half(rig)
    check = rig.make(CheckBack)
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)
    check.round()
    await turns(1)
    assert producer.sent == [], "too fresh"
    for count in range(rig.config.transaction_check_max):
        rig.now_ms += rig.config.transaction_check_interval_ms
        check.round()
        await until(lambda count=count: len(producer.sent) > count)
    question = producer.sent[0]
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.is_oneway
    record = decode_record(question.body)
    assert (record.topic, record.queue_id) == ("T", 2)
    assert question.ext_fields["commitLogOffset"] == str(record.physical_offset)
    rig.now_ms += rig.config.transaction_check_interval_ms
    check.round()
    await until(lambda: not len(rig.state.halves))
    assert rig.state.next_offset(TRANS_CHECK_MAX_TOPIC, 0) == 1
    checks_max = rig.config.transaction_check_max
    asked = [decode_record(command.body) for command in producer.sent]
    times = [record.property_map()["TRANSACTION_CHECK_TIMES"] for record in asked]
    assert times == [str(number + 1) for number in range(checks_max)]
    assert {record.sys_flag & 0xC for record in asked} == {0}, "as it is stored"
    check.round()
    await until(lambda: (CHECK_GROUP, HALF_TOPIC, 0) in rig.state.consumer_offsets)
    assert rig.state.consumer_offsets[CHECK_GROUP, HALF_TOPIC, 0] == 1


@pytest.mark.parametrize("is_deposed", [False, True])
async def test_a_half_whose_check_is_still_being_counted_is_not_checked_again(rig, is_deposed):
    await half(rig)
    check = rig.make(CheckBack)
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)

    async def next_round() -> None:
        rig.now_ms += rig.config.transaction_check_interval_ms
        check.round()
        await turns(3)

    rig.log.auto_commit = False  # the majority is slower than the interval
    for _ in range(3):
        await next_round()
    assert len(rig.log.open) == 1
    if is_deposed:
        rig.log.depose(ProposalStatus.TRUNCATED)
        check.lost_leadership()
        rig.log.lead()
    rig.log.auto_commit = True
    rig.log.commit()
    await turns(3)
    assert len(producer.sent) == (0 if is_deposed else 1)
    await next_round()
    asked = [decode_record(command.body).property_map() for command in producer.sent]
    times = [properties["TRANSACTION_CHECK_TIMES"] for properties in asked]
    assert times == (["1"] if is_deposed else ["1", "2"]), "each has a number of its own"
    undecided = rig.state.halves.get(0)
    assert undecided is not None
    assert undecided.checks == len(times)


@pytest.mark.parametrize(
    "status", [ProposalStatus.FLUSH_SLAVE_TIMEOUT, ProposalStatus.SLAVE_NOT_AVAILABLE]
)
async def test_a_check_that_is_counted_is_sent_though_slaves_are_late(rig, status):
    """A half would be given up before it was asked about as often as it is to be."""
    await half(rig)
    check = rig.make(CheckBack)
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "client-1", producer, rig.passed_ms)
    rig.log.auto_commit = False
    rig.now_ms += rig.config.transaction_check_interval_ms
    check.round()
    await turns(3)
    rig.log.commit(status=status)
    await turns(3)
    assert len(producer.sent) == 1
    undecided = rig.state.halves.get(0)
    assert undecided is not None
    assert undecided.checks == 1


async def test_without_a_producer_no_check_is_counted(rig):
    await half(rig)
    check = rig.make(CheckBack)
    for _ in range(30):
        rig.now_ms += rig.config.transaction_check_interval_ms
        check.round()
        await turns(1)
    undecided = rig.state.halves.get(0)
    assert undecided is not None
    assert undecided.checks == 0


async def test_progress_never_passes_an_undecided_half(rig):
    fields = [await half(rig, key=f"K{at}") for at in range(3)]
    check = rig.make(CheckBack)
    await end(rig, fields[1], ROLLBACK)
    await end(rig, fields[2], COMMIT)
    check.round()
    await turns(1)
    assert rig.state.consumer_offsets.get((CHECK_GROUP, HALF_TOPIC, 0)) is None
    await end(rig, fields[0], COMMIT)
    check.round()
    await until(lambda: rig.state.consumer_offsets.get((CHECK_GROUP, HALF_TOPIC, 0)) == 3)


async def test_a_replica_knows_the_same_transactions(rig, tmp_path):
    fields = [await half(rig, key=f"K{at}") for at in range(4)]
    await end(rig, fields[0], COMMIT)
    await end(rig, fields[2], ROLLBACK)
    replica = rig.replay(tmp_path / "replica")
    assert [h.queue_offset for h in replica.halves.undecided()] == [1, 3]
    assert replica.halves.decision(0) == "commit"
    assert replica.halves.decision(2) == "rollback"
    assert replica.halves.undecided() == rig.state.halves.undecided()


async def test_what_became_of_a_transaction_is_said_by_a_proven_leader_only(rig):
    fields = await half(rig)
    assert (await end(rig, fields, COMMIT)).code == ResponseCode.SUCCESS
    rig.log.leader = False  # deposed, and does not know it yet
    assert rig.context.ready
    for decision in (COMMIT, ROLLBACK):
        answer = await end(rig, fields, decision)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    unknown = await end(rig, fields, COMMIT, tranStateTableOffset="7")
    assert unknown.code == ResponseCode.SERVICE_NOT_AVAILABLE
