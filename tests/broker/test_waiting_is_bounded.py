"""What requests may take while they wait: for a batch, for a message, for a decision."""

from __future__ import annotations

import pytest

from broker.leader.proposer import ProposerLimits
from broker.process.processors import Processors
from broker.pull.pull import PullProcessor
from broker.request.request import Request
from broker.send.send import SendProcessor
from broker.state.state import StateLimits
from campaigns.rig.waiting import turns
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import PullMessageRequestHeader
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields
from tests.work import counted

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_messages_that_wait_for_a_batch_are_bounded_in_bytes(rig):
    rig.context.proposer._limits = ProposerLimits(pending_size_max=3_000_000)
    send, connection = rig.make(SendProcessor), FakeConnection()
    for number in range(10):
        rig.give(send.handle, SEND, send_fields(key=f"k{number}"), bytes(1_000_000), connection)
    assert [answer.code for answer in connection.sent] == [ResponseCode.SYSTEM_BUSY] * 7
    assert "bytes wait already" in connection.sent[0].remark
    await turns(50)
    assert [answer.code for answer in connection.sent[7:]] == [ResponseCode.SUCCESS] * 3
    for number in range(10, 13):  # what was stored waits no more
        await rig.ask(send.handle, SEND, send_fields(key=f"k{number}"), bytes(1_000_000))
    rig.log.depose()
    rig.context.proposer.lost_leadership()
    assert rig.context.proposer._pending_size == 0


async def test_undecided_transactions_are_bounded(tmp_path):
    rig = Rig(tmp_path, limits=StateLimits(halves_max=2))
    processors = rig.make(Processors, rig.tasks)

    async def half(key: str) -> RemotingCommand:
        fields = send_fields(key=key, TRAN_MSG="true", PGROUP="PG")
        return await rig.ask(processors.send.handle, SEND, fields, b"x")

    first = await half("a")
    assert (await half("b")).code == first.code == ResponseCode.SUCCESS
    refused = await half("c")
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == "2 transactions are undecided already"
    decision = {
        "producerGroup": "PG",
        "tranStateTableOffset": first.ext_fields["queueOffset"],
        "commitLogOffset": str(int(first.ext_fields["msgId"][16:], 16)),
        "commitOrRollback": "12",
    }
    done = await rig.ask(processors.end_transaction.handle, RequestCode.END_TRANSACTION, decision)
    assert done.code == ResponseCode.SUCCESS, done.remark
    assert (await half("c")).code == ResponseCode.SUCCESS
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_held_pull_keeps_nothing_of_what_came_with_it(rig):
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"x")
    pull = rig.make(PullProcessor, rig.tasks)
    fields = pull_fields(offset=1) | {"sysFlag": "6", "suspendTimeoutMillis": "30000"}
    connection = FakeConnection()
    command = RemotingCommand(
        code=RequestCode.PULL_MESSAGE, ext_fields=fields | {"junk": "x" * 100_000}, body=bytes(9)
    )
    request = Request(connection, command)  # type: ignore[arg-type]
    pull.handle(PullMessageRequestHeader.from_ext_fields(command.ext_fields), request)
    assert len(rig.context.long_polling) == 1
    assert command.body == b""
    assert request.fields == command.ext_fields == {}
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(key="K2"), b"y")
    assert connection.sent[0].code == ResponseCode.SUCCESS

    too_large = fields | {"consumerGroup": "g" * 100_000, "queueOffset": "2"}
    answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, too_large)
    assert answer.code == ResponseCode.PULL_NOT_FOUND, "answered at once"


async def test_pulls_that_ran_out_of_time_make_room(rig):
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"x")
    pull, held = rig.make(PullProcessor, rig.tasks), rig.context.long_polling
    held._held_max = 2
    fields = pull_fields(offset=1) | {"sysFlag": "6", "suspendTimeoutMillis": "1000"}
    for _ in range(5):
        connections = [FakeConnection(), FakeConnection()]
        for connection in connections:
            rig.give(pull.handle, RequestCode.PULL_MESSAGE, fields, b"", connection)
        assert (len(held), [connection.sent for connection in connections]) == (2, [[], []])
        rig.passed_ms += 1_000
        held.expire(rig.passed_ms)
        answers = [connection.sent[0].code for connection in connections]
        assert (len(held), answers) == (0, [ResponseCode.PULL_NOT_FOUND] * 2)


SQL = " OR ".join(f"n = {number}" for number in range(100))
TAGS = "||".join(f"t{number}" for number in range(300))


@pytest.mark.parametrize(("kind", "expression"), [("TAG", TAGS), ("SQL92", SQL)])
@pytest.mark.parametrize("pops", [False, True])
async def test_filters_that_are_held_are_bounded_in_bytes(rig, kind, expression, pops):
    """A thousand tags take sixty thousand bytes, and each client may hold thousands of pulls."""
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"x")
    processors, desk = rig.make(Processors, rig.tasks), rig.context
    if pops:
        held, code, handle = desk.pop_polling, RequestCode.POP_MESSAGE, processors.pop.handle
    else:
        held, code, handle = desk.long_polling, RequestCode.PULL_MESSAGE, processors.pull.handle
    held._size_max = 50_000

    async def ask(connection: FakeConnection, expression: str) -> None:
        pop = {"consumerGroup": "G", "topic": "T", "queueId": "1", "maxMsgNums": "1"}
        pop |= {"invisibleTime": "10000", "pollTime": "15000", "bornTime": "0", "initMode": "0"}
        pop |= {"order": "false", "expType": kind, "exp": expression}
        pull = pull_fields(offset=0, queue=1) | {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
        pull |= {"subscription": expression, "expressionType": kind}
        rig.give(handle, code, pop if pops else pull, b"", connection)
        await turns(5)

    many = FakeConnection()
    for _ in range(5):
        await ask(many, expression)
    kept = len(held)
    assert 2 <= kept < 5
    assert len(many.sent) == 5 - kept, "the others are answered at once"
    await ask(many, "n = 1" if kind == "SQL92" else "t1")
    assert len(held) == kept + 1, "a small one has room beside them"
    for _ in range(2):
        rig.now_ms += 20_000
        held.expire(rig.passed_ms)
        await turns(5)
        assert len(held) == held._size == 0
        await ask(FakeConnection(), expression)
        assert len(held) == 1


async def test_a_question_about_all_groups_walks_their_offsets_once(rig):
    """Once per group it took minutes, and a leader its term."""
    for number in range(5_000):
        for queue_id in range(4):
            rig.state.consumer_offsets[f"G{number}", "T", queue_id] = 1
    processors = rig.make(Processors, rig.tasks)
    handler, code = (
        processors.consume_stats.broker_consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS,
    )
    with counted() as work:
        answer = await rig.ask(handler, code, {"isOrder": "false"})
    assert answer.code == ResponseCode.SUCCESS
    assert work.lines < 20 * 20_000
    await rig.ask(processors.send.handle, SEND, send_fields(), b"x")  # now there is the topic
    with counted() as work:
        answer = await rig.ask(handler, code, {"isOrder": "false"})
    assert answer.code == ResponseCode.SUCCESS
    assert work.lines < 100 * 20_000
    rig.state.consumer_offsets["more", "T", 0] = 1
    answer = await rig.ask(handler, code, {"isOrder": "false"})
    assert (answer.code, answer.remark) == (1, "more than 20000 queues: ask by group")
