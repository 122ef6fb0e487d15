"""Nothing waits longer, and nothing comes earlier, because a broker's wall clock jumps."""

from __future__ import annotations

import asyncio

import pytest

from broker.delay.delivery import DelayDelivery
from broker.delay.timers import Timers
from broker.pop.pop import PopProcessor
from broker.pop.revive import PopRevive
from broker.pull.pull import PullProcessor
from broker.request.clock_exchange import ClockExchange
from broker.request.request import Request
from broker.send.send import SendProcessor
from broker.transaction.check_back import CheckBack
from campaigns.rig.waiting import turns
from remoting.errors import ConnectError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import START_MS, FakeConnection, Rig, pull_fields, send_fields
from tests.broker.transactions import half

SEND = RequestCode.SEND_MESSAGE_V2
HOUR_MS = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def store(rig, jump_ms: int, **properties: str) -> None:
    """One entry in between two jumps, and then the message that is asked for."""
    send = rig.make(SendProcessor)
    rig.jump(jump_ms)
    await rig.ask(send.handle, SEND, send_fields(key="between"), b"x")
    rig.jump(-jump_ms)
    await rig.ask(send.handle, SEND, send_fields(key="B", **properties), b"x")


@JUMPS
async def test_a_delay_level_is_punctual(rig, jump_ms):
    await store(rig, jump_ms, DELAY="2")
    delivery = rig.make(DelayDelivery)
    for passed_ms, delivered in ((4_999, 1), (1, 2)):
        rig.now_ms += passed_ms
        rig.jump(jump_ms)
        delivery.round()
        rig.jump(-jump_ms)
        await turns(20)
        assert rig.state.next_offset("T", 0) == delivered


@JUMPS
@pytest.mark.parametrize("asked", [{"TIMER_DELAY_MS": "5000"}, {"TIMER_DELIVER_MS": "5000"}])
async def test_a_timer_is_punctual(rig, jump_ms, asked):
    if "TIMER_DELIVER_MS" in asked:
        asked = {"TIMER_DELIVER_MS": str(START_MS + 5_000)}
    await store(rig, jump_ms, **asked)
    timers = rig.make(Timers)
    for passed_ms, delivered in ((4_999, 1), (1, 2)):
        rig.now_ms += passed_ms
        rig.jump(jump_ms)
        timers.round()
        rig.jump(-jump_ms)
        await turns(20)
        assert rig.state.next_offset("T", 0) == delivered


@JUMPS
async def test_a_check_back_is_punctual(rig, jump_ms):
    await store(rig, jump_ms)
    await half(rig, key="H")
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "c1", producer, rig.passed_ms)
    check = rig.make(CheckBack)
    for passed_ms, checks in ((rig.config.transaction_timeout_ms - 1, 0), (1, 1)):
        rig.now_ms += passed_ms
        rig.jump(jump_ms)
        check.round()
        rig.jump(-jump_ms)
        await turns(20)
        assert len(producer.sent) == checks


async def test_a_half_that_was_stored_in_the_future_holds_up_no_other(rig):
    """As logs of earlier releases have them."""
    await half(rig, key="H0")
    rig.now_ms += HOUR_MS
    await half(rig, key="H1")
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "c1", producer, rig.passed_ms)
    rig.context.clock_ms = lambda: START_MS + 60_000
    rig.make(CheckBack).round()
    await turns(20)
    assert len(producer.sent) == 1


@JUMPS
async def test_popped_messages_come_again_in_time(rig, jump_ms):
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(key="A"), b"x")
    pop = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "maxMsgNums": "32",
        "invisibleTime": "1000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
    }
    rig.jump(jump_ms)
    answer = await rig.ask(rig.make(PopProcessor).handle, RequestCode.POP_MESSAGE, pop)
    assert answer.code == ResponseCode.SUCCESS
    rig.jump(-jump_ms)
    for passed_ms, held in ((999, 1), (1, 0)):
        rig.now_ms += passed_ms
        rig.make(PopRevive).round()
        await turns(20)
        assert len(rig.state.pop) == held


@JUMPS
async def test_held_pulls_and_pops_end_in_time(rig, jump_ms):
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(key="A"), b"x")
    puller, popper = FakeConnection(), FakeConnection()
    fields = pull_fields(offset=1, sysFlag="6", suspendTimeoutMillis="15000")
    rig.give(rig.make(PullProcessor, rig.tasks).handle, 11, fields, b"", puller)
    pop = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "1",
        "maxMsgNums": "32",
        "invisibleTime": "1000",
        "pollTime": "15000",
        "bornTime": "0",
        "initMode": "0",
    }
    rig.give(rig.make(PopProcessor).handle, RequestCode.POP_MESSAGE, pop, b"", popper)
    for passed_ms, answers in ((14_999, 0), (1, 1)):
        rig.now_ms += passed_ms
        rig.jump(jump_ms)
        rig.context.long_polling.expire(rig.context.monotonic_ms())
        rig.context.pop_polling.expire(rig.context.monotonic_ms())
        rig.jump(-jump_ms)
        await turns(20)
        assert (len(puller.sent), len(popper.sent)) == (answers, answers)


async def test_a_producer_is_judged_by_the_true_time_where_the_groups_is_ahead(tmp_path):
    """A log whose stamps lie an hour ahead: its memory of keys is older than what is sent now."""
    rig = Rig(tmp_path / "store")
    window = rig.state.messages
    rig.state.store_timestamp_ms = START_MS + HOUR_MS
    window._memory_floor_ms = START_MS + HOUR_MS - 700_000
    send = rig.make(SendProcessor)
    rig.jump(0)
    for _ in range(2):  # the first stamp begins the time of this leader
        rig.context.clock_ms()
        rig.context.clocks.tick(leads=True)
    answer = await rig.ask(send.handle, SEND, send_fields(key="A"), b"x")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    rig.queues.close()


class _Replica:
    """Answers as it is told; None: it is down."""

    def __init__(self, *answers: dict[str, str] | None) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def request(self, address: str, command: RemotingCommand, timeout_ms: int):
        assert (address, command.code) == ("127.0.0.1:2", RequestCode.LEDGERMQ_CLOCK)
        self.asked += 1
        fields = self._answers.pop(0) if self._answers else None
        if fields is None:
            raise ConnectError("nobody listens")
        return RemotingCommand(code=ResponseCode.SUCCESS, ext_fields=fields)


async def test_replicas_ask_each_other(rig):
    clocks = ClockExchange(
        group="broker-a",
        node="n0",
        replicas={"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:2"},
        state=rig.state,
        status=rig.log.status,
        wall_ms=lambda: START_MS + HOUR_MS,
        monotonic_ms=lambda: 0,
    )
    group_ms = {"groupMillis": str(START_MS)}
    own = {"group": "broker-a", "wallMillis": str(START_MS)}
    replica = _Replica(
        None,
        {**own, **group_ms, "group": "broker-b"},
        {**own, **group_ms, "wallMillis": "-1"},
        {**own, **group_ms, "wallMillis": "9" * 40},
        {},
        own,
        {**own, **group_ms},
    )
    running = asyncio.create_task(clocks.run(replica))
    async with asyncio.timeout(5):
        while replica.asked < 8:
            assert clocks.now_ms() == START_MS + HOUR_MS or replica.asked >= 6
            await asyncio.sleep(0.01)
    running.cancel()
    assert clocks.now_ms() == START_MS
    connection = FakeConnection()
    request = Request(connection, RemotingCommand(code=RequestCode.LEDGERMQ_CLOCK))
    clocks.answer(request)
    assert connection.sent[0].ext_fields == {
        "group": "broker-a",
        "wallMillis": str(START_MS + HOUR_MS),
        "groupMillis": str(START_MS),
    }
