"""Transactions: decisions as requests, their honest outcomes, check-backs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from campaigns.rig.waiting import until
from client.connection.retry import RetryPolicy
from client.errors import ContraryDecisionError, OutcomeUnknownError
from client.message import DeliveredMessage, Message
from client.produce.producer import ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    EndResult,
    HalfMessage,
    TransactionObserver,
    TransactionProducer,
    TransactionSettings,
    half_message,
)
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_JAVA, RemotingCommand
from tests.client.fake_cluster import HALF_TOPIC, Act, FakeGroup, FakeNameServer

END = RequestCode.END_TRANSACTION


class Listener:
    """Decides as told and remembers what it was asked."""

    def __init__(self) -> None:
        self.local = Decision.COMMIT
        self.memory = Decision.COMMIT
        self.executed: list[Message] = []
        self.checked: list[DeliveredMessage] = []

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        assert half.topic == message.topic
        self.executed.append(message)
        return self.local

    async def check_local(self, message: DeliveredMessage) -> Decision:
        self.checked.append(message)
        return self.memory


class Recorder(TransactionObserver):
    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def half_sent(self, message, result, error, *, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        assert t_invoke <= t_complete
        self.events.append(("half", "ok" if result is not None else type(error).__name__))

    def local_decided(self, message, decision, *, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        self.events.append(("local", decision))

    def end_sent(self, half, decision, result, *, from_check, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        self.events.append(("check-end" if from_check else "end", (decision, result.outcome)))

    def check_received(self, message, half, address, *, t_invoke):  # type: ignore[no-untyped-def]
        self.events.append(("check", message.uniq_key))

    def check_answered(self, message, half, decision, result, *, t_complete):  # type: ignore[no-untyped-def]
        self.events.append(("answered", (decision, result.outcome)))


class Setup:
    def __init__(self) -> None:
        self.group = FakeGroup("broker-a")
        self.name_server = FakeNameServer([self.group], ["T"])
        self.listener = Listener()
        self.recorder = Recorder()

    async def start(self) -> None:
        await self.group.start()
        await self.name_server.start()
        self.producer = TransactionProducer(
            "PG",
            [self.name_server.address],
            self.listener,
            settings=TransactionSettings(
                end_timeout_ms=1_000,
                producer=ProducerSettings(
                    retry=RetryPolicy(attempt_timeout_ms=150, backoff_ms_max=20)
                ),
            ),
            observer=self.recorder,
        )
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.stop()
        await self.name_server.stop()
        await self.group.stop()


@asynccontextmanager
async def setup() -> AsyncIterator[Setup]:
    cluster = Setup()
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def answered(recorder: Recorder) -> int:
    return sum(name == "answered" for name, _ in recorder.events)


def message() -> Message:
    return Message(topic="T", body=b"x", properties={"lmq_tx": "t1"})


@pytest.mark.parametrize(
    ("decision", "stored"), [(Decision.COMMIT, "committed"), (Decision.ROLLBACK, "rolled back")]
)
async def test_a_decision_reaches_the_half(decision: Decision, stored: str) -> None:
    async with setup() as cluster:
        cluster.listener.local = decision
        sent = message()
        result = await cluster.producer.send_in_transaction(sent)
        (half,) = cluster.group.halves
        assert half.decision == stored
        assert half.record.topic == "T"
        assert half.record.property_map()["TRAN_MSG"] == "true"
        assert half.record.property_map()["PGROUP"] == "PG"
        assert result.decision is decision
        assert result.end == EndResult(outcome=EndOutcome.OK)
        assert cluster.group.sends()[0].command.ext_fields["f"] == "4"
        (end,) = cluster.group.sends(END)
        assert end.command.ext_fields == {
            "producerGroup": "PG",
            "tranStateTableOffset": "0",
            "commitLogOffset": "0",
            "commitOrRollback": "8" if decision is Decision.COMMIT else "12",
            "fromTransactionCheck": "false",
            "msgId": sent.uniq_key,
            "transactionId": sent.uniq_key,
            "topic": "T",
            "bname": "broker-a",
        }
        assert [name for name, _ in cluster.recorder.events] == ["half", "local", "end"]


async def test_an_unknown_decision_is_left_to_the_check() -> None:
    async with setup() as cluster:
        cluster.listener.local = Decision.UNKNOWN
        result = await cluster.producer.send_in_transaction(message())
        assert result.end is None
        assert cluster.group.sends(END) == []
        await until(lambda: "PG" in cluster.group.producers)
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")
        await until(lambda: cluster.recorder.events[-1][0] == "answered")
        (checked,) = cluster.listener.checked
        assert checked.properties["lmq_tx"] == "t1"
        assert checked.topic == "T"
        (end,) = cluster.group.sends(END)
        assert end.command.ext_fields["fromTransactionCheck"] == "true"
        assert end.command.ext_fields["bname"] == "broker-a"
        assert cluster.recorder.events[-1] == ("answered", (Decision.COMMIT, EndOutcome.OK))


async def test_an_unanswered_end_is_repeated_until_it_is_known() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.STORE_SILENTLY
            if seen.command.code == END and len(cluster.group.sends(END)) == 1
            else Act.ANSWER
        )
        result = await cluster.producer.send_in_transaction(message())
        assert result.end == EndResult(outcome=EndOutcome.OK)
        assert len(cluster.group.sends(END)) > 1


async def test_an_end_to_rocketmq_is_sent_once() -> None:
    """It carries a decision out as often as it comes."""
    async with setup() as cluster:
        cluster.group.language = LANGUAGE_JAVA
        routes = cluster.producer.instance.routes
        half = half_message(await cluster.producer.send_half(message()))
        await cluster.producer.instance.greet(cluster.group.address(0))
        leader = routes.leader(cluster.group.name)
        assert leader is not None
        assert leader.goes_by_route
        cluster.group.script = lambda seen: (
            Act.STORE_SILENTLY if seen.command.code == END else Act.ANSWER
        )
        result = await cluster.producer.end(half, Decision.COMMIT, timeout_ms=400)
        assert result.outcome is EndOutcome.INFO
        assert len(cluster.group.sends(END)) == 1


@pytest.mark.parametrize("memory", [Decision.COMMIT, Decision.UNKNOWN])
async def test_a_check_of_rocketmq_is_answered_to_the_broker_that_asked(memory: Decision) -> None:
    """It asks as soon as it is master; the route that names it comes later."""
    async with setup() as cluster:
        cluster.group.language = LANGUAGE_JAVA
        cluster.listener.memory = memory
        await cluster.producer.send_half(message())
        await until(lambda: "PG" in cluster.group.producers)
        routes = cluster.producer.instance.routes
        await cluster.producer.instance.greet(cluster.group.address(0))
        leader = routes.leader(cluster.group.name)
        assert leader is not None
        leader.update({node + 1: address for node, address in enumerate(leader.nodes)})
        assert leader.address is None
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.recorder.events[-1][0] == "answered")
        await until(lambda: len(cluster.group.sends(END)) == 1)
        (end,) = cluster.group.sends(END)
        assert end.node == 0
        assert end.command.ext_fields["fromTransactionCheck"] == "true"
        outcome = EndOutcome.INFO if memory is Decision.UNKNOWN else EndOutcome.OK
        assert cluster.recorder.events[-1] == ("answered", (memory, outcome))


async def test_an_end_that_is_never_answered_is_info() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: Act.IGNORE if seen.command.code == END else Act.ANSWER
        result = await cluster.producer.send_in_transaction(message())
        assert result.end is not None
        assert result.end.outcome is EndOutcome.INFO
        assert isinstance(result.end.error, OutcomeUnknownError)


async def test_a_contrary_decision_is_a_definite_failure_even_after_silence() -> None:
    async with setup() as cluster:
        half = half_message(await cluster.producer.send_half(message()))
        cluster.group.halves[0].decision = "rolled back"
        cluster.group.script = lambda seen: (
            Act.IGNORE
            if seen.command.code == END and len(cluster.group.sends(END)) == 1
            else Act.ANSWER
        )
        result = await cluster.producer.end(half, Decision.COMMIT)
        assert result.outcome is EndOutcome.FAIL
        assert isinstance(result.error, ContraryDecisionError)
        assert "rolled back" in str(result.error)


async def test_an_end_follows_the_leader() -> None:
    async with setup() as cluster:
        half = half_message(await cluster.producer.send_half(message()))
        cluster.name_server.freeze()
        await cluster.group.stop_node(0)
        cluster.group.lead(2)
        result = await cluster.producer.end(half, Decision.COMMIT)
        assert result.outcome is EndOutcome.OK
        assert cluster.group.halves[0].decision == "committed"


async def test_a_new_leader_can_ask_without_any_further_request() -> None:
    async with setup() as cluster:
        cluster.listener.local = Decision.UNKNOWN
        await cluster.producer.send_in_transaction(message())
        await until(lambda: len(cluster.group.producers.get("PG", [])) == 3)
        await cluster.group.stop_node(0)
        cluster.group.lead(1)
        await until(lambda: cluster.group.producers["PG"][0].closed)
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")


@pytest.mark.parametrize(
    "error", [RuntimeError("database is down"), asyncio.CancelledError()], ids=repr
)
async def test_a_failing_check_listener_is_asked_again(error: BaseException) -> None:
    async with setup() as cluster:
        cluster.listener.local = Decision.UNKNOWN
        await cluster.producer.send_in_transaction(message())
        await until(lambda: "PG" in cluster.group.producers)
        memory = cluster.listener.check_local

        async def fail(_: DeliveredMessage) -> Decision:
            raise error

        cluster.listener.check_local = fail  # type: ignore[method-assign]
        for count in range(1, TransactionSettings().check_workers + 1):  # none of them ends
            cluster.group.ask_check(0, "PG")
            await until(lambda count=count: answered(cluster.recorder) == count)
        assert cluster.recorder.events[-1] == ("answered", (Decision.UNKNOWN, EndOutcome.INFO))
        cluster.listener.check_local = memory  # type: ignore[method-assign]
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")


async def test_a_check_that_returns_no_decision_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with setup() as cluster:
        cluster.listener.local = Decision.UNKNOWN
        cluster.listener.memory = None  # type: ignore[assignment]
        sent = await cluster.producer.send_in_transaction(message())
        await until(lambda: "PG" in cluster.group.producers)
        cluster.group.ask_check(0, "PG")
        await until(lambda: answered(cluster.recorder) == 1)
        assert cluster.recorder.events[-1] == ("answered", (Decision.UNKNOWN, EndOutcome.INFO))
        said = "a listener returned None, which is no Decision: the broker will ask again about"
        assert f"{said} {sent.half.msg_id}" in caplog.text
        cluster.listener.memory = Decision.COMMIT
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")


async def test_a_local_transaction_without_a_decision_is_left_to_the_check() -> None:
    async with setup() as cluster:
        cluster.listener.local = None  # type: ignore[assignment]
        with pytest.raises(TypeError, match="execute_local returned None, which is no Decision"):
            await cluster.producer.send_in_transaction(message())
        await until(lambda: "PG" in cluster.group.producers)
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")


async def test_an_observer_that_fails_ends_nothing() -> None:
    async with setup() as cluster:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("the metrics are down")

        for hook in ("half_sent", "local_decided", "end_sent", "check_received", "check_answered"):
            setattr(cluster.recorder, hook, fail)
        cluster.listener.local = Decision.UNKNOWN
        await cluster.producer.send_in_transaction(message())
        await until(lambda: "PG" in cluster.group.producers)
        cluster.group.ask_check(0, "PG")
        await until(lambda: cluster.group.halves[0].decision == "committed")
        cluster.listener.local = Decision.COMMIT
        sent = await cluster.producer.send_in_transaction(message())
        assert sent.end == EndResult(outcome=EndOutcome.OK)


async def test_a_crash_sends_no_end() -> None:
    async with setup() as cluster:
        half = half_message(await cluster.producer.send_half(message()))
        await cluster.producer.crash()
        result = await cluster.producer.end(half, Decision.COMMIT)
        assert result.outcome is EndOutcome.FAIL
        assert cluster.group.sends(END) == []
        assert (HALF_TOPIC, 0) in cluster.group.queues


async def test_an_unknown_half_runs_no_local_transaction() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.STORE_SILENTLY if seen.command.code != RequestCode.HEART_BEAT else Act.ANSWER
        )
        with pytest.raises(OutcomeUnknownError):
            await cluster.producer.send_in_transaction(message(), 300)
        assert cluster.listener.executed == []
        assert cluster.recorder.events == [("half", "OutcomeUnknownError")]


async def test_a_garbled_check_is_dropped_and_counted() -> None:
    async with setup() as cluster:
        await cluster.producer.send_half(message())
        await until(lambda: "PG" in cluster.group.producers)
        command = RemotingCommand(
            code=RequestCode.CHECK_TRANSACTION_STATE,
            ext_fields={"tranStateTableOffset": "0", "commitLogOffset": "0"},
            body=b"no record",
        )
        cluster.group.producers["PG"][0].oneway(command)
        await until(lambda: cluster.producer.checks_dropped == 1)
