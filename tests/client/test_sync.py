"""The blocking facade, against a real broker that runs in a loop of its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path

import pytest

from client.administer.admin import Admin
from client.blocking import sync_clients
from client.blocking.sync import Session
from client.blocking.sync_clients import LoopThread
from client.connection.heartbeat import ConsumeFrom, ExpressionType
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer, PullStatus
from client.consume.push_consumer import PushConsumer
from client.errors import ClientClosedError, DeadlineError, NameServerError, NoRouteError
from client.message import DeliveredMessage, Message, SendStatus
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer
from tests.client.real_broker import RealBroker

SETTINGS = PushConsumerSettings(
    consume_from=ConsumeFrom.FIRST, suspend_ms=1_000, rebalance_interval_ms=500
)

POLLED = LitePullSettings(consumer=SETTINGS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    real = RealBroker(tmp_path, transaction_timeout_ms=500, transaction_check_interval_ms=200)
    try:
        asyncio.run_coroutine_threadsafe(real.start(), loop).result(30)
        yield real
    finally:
        asyncio.run_coroutine_threadsafe(real.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait_for(seconds: float, done: threading.Event) -> None:
    assert done.wait(seconds)


def test_a_script_sends_consumes_and_looks_around(broker: RealBroker) -> None:
    before = threading.active_count()
    got: list[bytes] = []
    all_here = threading.Event()

    def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        time.sleep(0.01)  # it may block
        got.extend(message.body for message in messages)
        if len(got) == 3:
            all_here.set()
        return ConsumeStatus.CONSUME_SUCCESS

    with Session(broker.name_servers) as session:
        session.admin().create_topic("T", queues=2)
        producer = session.producer("PG")
        assert len(producer.queues("T")) == 2
        with session.push_consumer(
            "CG", listen, {"T": ("n > 0", ExpressionType.SQL92)}, settings=SETTINGS
        ):
            for number in range(4):
                message = Message(topic="T", body=b"%d" % number, properties={"n": str(number)})
                assert producer.send(message).status is SendStatus.SEND_OK
            wait_for(20, all_here)
        assert sorted(got) == [b"1", b"2", b"3"]
        reader = session.pull_consumer("RG")
        queue = reader.queues("T")[0]
        assert reader.max_offset(queue) - reader.min_offset(queue) == 2
        result = reader.pull(queue, 0)
        assert result.status is PullStatus.FOUND
        assert len(result.messages) == 2
        assert reader.fetch_offset(queue) is None
        reader.commit_offset(queue, 1)
        assert reader.fetch_offset(queue) == 1
        assert "broker-a" in session.admin().cluster_info().broker_addr_table
        with pytest.raises(NoRouteError):
            session.admin().topic_route("nothing")
    with pytest.raises(ClientClosedError):
        producer.send(Message(topic="T", body=b"late"))
    assert threading.active_count() == before


def test_transactions_pops_and_polls_block_too(broker: RealBroker) -> None:
    class Till:
        def execute_local(self, message: Message, half: HalfMessage) -> Decision:
            time.sleep(0.01)
            return Decision.COMMIT

        def check_local(self, message: DeliveredMessage) -> Decision:
            return Decision.UNKNOWN

    with Session(broker.name_servers) as session:
        session.admin().create_topic("T", queues=1)
        result = session.transaction_producer("till", Till()).send_in_transaction(
            Message(topic="T", body=b"paid", keys=("order-1",))
        )
        assert result.decision is Decision.COMMIT
        popping = session.pop_consumer("PC")
        (popped,) = popping.pop("T", poll_ms=10_000)
        popping.ack(popping.change_invisible(popped, 30_000))
        polling = session.lite_pull_consumer("LC", {"T": "*"}, settings=POLLED)
        (polled,) = polling.poll(20_000)
        assert polled.body == popped.message.body == b"paid"
        polling.commit()
        assert polling.poll(50) == []
        (queried,) = session.admin().query_messages("T", "order-1")
        assert session.admin().view_message(queried.offset_msg_id).body == b"paid"


@pytest.mark.parametrize("by_session", [False, True])
def test_a_body_that_raises_has_not_consumed_its_last_poll(
    broker: RealBroker, by_session: bool
) -> None:
    with Session(broker.name_servers) as session:
        session.producer("PG").send(Message(topic="T", body=b"order"))

    def work(*, fails: bool) -> list[bytes]:
        bodies = list[bytes]()
        with Session(broker.name_servers) as session, contextlib.ExitStack() as stack:
            member = session.lite_pull_consumer("CG", {"T": "*"}, settings=POLLED)
            if not by_session:
                stack.enter_context(member)
            bodies += [polled.body for polled in member.poll(20_000)]
            if fails:
                raise KeyError(bodies[0])
        return bodies

    with pytest.raises(KeyError, match="order"):
        work(fails=True)
    assert work(fails=False) == [b"order"]
    with Session(broker.name_servers) as session:
        reader = session.pull_consumer("CG")
        offsets = {queue: reader.fetch_offset(queue) for queue in reader.queues("T")}
        assert sum(offset or 0 for offset in offsets.values()) == 1, "and then it was consumed"


def test_errors_are_those_of_the_asyncio_clients() -> None:
    with Session("127.0.0.1:1") as session:
        producer = session.producer("PG", settings=ProducerSettings(timeout_ms=300))
        with pytest.raises(DeadlineError) as refused:
            producer.send(Message(topic="T", body=b"a"))
        assert refused.value.definite
        assert isinstance(refused.value.last, NameServerError)


def test_a_call_that_would_wait_for_itself_is_refused(broker: RealBroker) -> None:
    with Session(broker.name_servers) as session:
        producer = session.producer("PG")

        async def on_the_loop() -> None:
            producer.queues("TBW102")

        with pytest.raises(RuntimeError, match="wait for itself"):
            session._loop.call(on_the_loop())


def test_listeners_may_send_in_transactions(broker: RealBroker) -> None:
    """Each holds a thread while its local transaction runs in another."""
    sent = threading.Event()

    class Till:
        def execute_local(self, message: Message, half: HalfMessage) -> Decision:
            return Decision.COMMIT

        def check_local(self, message: DeliveredMessage) -> Decision:
            return Decision.COMMIT

    with Session(broker.name_servers, listener_threads=1) as session:
        admin = session.admin()
        for topic in ("T", "U"):
            admin.create_topic(topic, queues=1)
        till = session.transaction_producer("till", Till())

        def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            till.send_in_transaction(Message(topic="U", body=b"paid"))
            sent.set()
            return ConsumeStatus.CONSUME_SUCCESS

        session.producer("PG").send(Message(topic="T", body=b"order"))
        session.push_consumer("CG", listen, {"T": "*"}, settings=SETTINGS)
        wait_for(30, sent)


def test_a_message_that_waits_for_a_thread_has_not_failed(broker: RealBroker) -> None:
    got = list[tuple[bytes, int]]()
    all_here = threading.Event()

    def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        time.sleep(0.4)  # its work: less than the limit, but eight are more
        got.append((messages[0].body, messages[0].reconsume_times))
        if len(got) == 8:
            all_here.set()
        return ConsumeStatus.CONSUME_SUCCESS

    settings = dataclasses.replace(SETTINGS, consume_timeout_ms=2_000, retry_delay_level=1)
    with Session(broker.name_servers, listener_threads=1) as session:
        session.admin().create_topic("T", queues=8)
        producer = session.producer("PG")
        for queue in producer.queues("T"):
            producer.send(Message(topic="T", body=b"%d" % queue.queue_id), queue=queue)
        session.push_consumer("CG", listen, {"T": "*"}, settings=settings)
        wait_for(30, all_here)
    assert sorted(got) == [(b"%d" % number, 0) for number in range(8)]


def test_a_listener_that_takes_too_long_has_failed(broker: RealBroker) -> None:
    again, attempts = threading.Event(), list[int]()

    def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        attempts.append(messages[0].reconsume_times)
        if len(attempts) == 1:
            wait_for(30, again)
        again.set()
        return ConsumeStatus.CONSUME_SUCCESS

    settings = dataclasses.replace(SETTINGS, consume_timeout_ms=50, retry_delay_level=1)
    with Session(broker.name_servers) as session:
        session.producer("PG").send(Message(topic="T", body=b"order"))
        session.push_consumer("CG", listen, {"T": "*"}, settings=settings)
        wait_for(30, again)
    assert attempts == [0, 1]


FOR_FUTURES = [
    StopIteration(),  # of `next` without a default: a future can't carry it
    futures.CancelledError(),  # of a future of the application's: it would cancel the consumer's
    SystemExit(3),  # it would end the loop's thread
]


@pytest.mark.parametrize("error", FOR_FUTURES, ids=repr)
def test_whatever_a_listener_raises_its_message_comes_again(
    broker: RealBroker, error: BaseException
) -> None:
    attempts = list[int]()
    again = threading.Event()

    def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        attempts.append(messages[0].reconsume_times)
        if len(attempts) == 1:
            raise error
        again.set()
        return ConsumeStatus.CONSUME_SUCCESS

    settings = dataclasses.replace(SETTINGS, retry_delay_level=1)
    with Session(broker.name_servers) as session:
        session.producer("PG").send(Message(topic="T", body=b"order"))
        session.push_consumer("CG", listen, {"T": "*"}, settings=settings)
        wait_for(30, again)
    assert attempts == [0, 1]


@pytest.mark.parametrize("error", FOR_FUTURES, ids=repr)
def test_whatever_a_local_transaction_raises_reaches_its_sender(
    broker: RealBroker, error: BaseException
) -> None:
    checked = threading.Event()

    class Till:
        def execute_local(self, message: Message, half: HalfMessage) -> Decision:
            raise error

        def check_local(self, message: DeliveredMessage) -> Decision:
            if not checked.is_set():
                checked.set()
                raise error
            return Decision.COMMIT

    with Session(broker.name_servers) as session:
        session.admin().create_topic("T", queues=1)
        till = session.transaction_producer("till", Till())
        with pytest.raises(RuntimeError, match="the listener raised") as raised:
            till.send_in_transaction(Message(topic="T", body=b"paid"))
        assert raised.value.__cause__ is error
        wait_for(30, checked)
        (paid,) = session.lite_pull_consumer("CG", {"T": "*"}, settings=POLLED).poll(30_000)
        assert paid.body == b"paid", "the next check was answered"


def test_checks_are_answered_while_a_local_transaction_blocks(broker: RealBroker) -> None:
    checked = threading.Event()

    class Till:
        def execute_local(self, message: Message, half: HalfMessage) -> Decision:
            wait_for(30, checked)
            return Decision.COMMIT

        def check_local(self, message: DeliveredMessage) -> Decision:
            checked.set()
            return Decision.UNKNOWN

    with Session(broker.name_servers, listener_threads=1) as session:
        session.admin().create_topic("T", queues=1)
        till = session.transaction_producer("till", Till())
        sent = till.send_in_transaction(Message(topic="T", body=b"paid"))
        assert checked.is_set()
        assert sent.decision is Decision.COMMIT


def test_a_session_stops_the_last_client_first(broker: RealBroker) -> None:
    at_work, outcomes = threading.Event(), list[str]()

    with Session(broker.name_servers) as session:
        producer = session.producer("PG")
        producer.send(Message(topic="T", body=b"order"))

        def forward(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            at_work.set()
            time.sleep(0.5)  # the session ends meanwhile
            outcomes.append(producer.send(Message(topic="T2", body=b"bill")).status.name)
            return ConsumeStatus.CONSUME_SUCCESS

        session.push_consumer("CG", forward, {"T": "*"}, settings=SETTINGS)
        wait_for(30, at_work)
    assert outcomes == ["SEND_OK"]


def test_calls_of_other_threads_end_with_their_session(broker: RealBroker) -> None:
    begun, ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    session = Session(broker.name_servers)
    loop = session._loop

    async def waits_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.call(waits_for_ever())
        except ClientClosedError as error:
            raised.append(error)
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(30, begun)
    session.close()
    wait_for(30, ended)
    thread.join()
    assert [str(error) for error in raised] == ["the session ended meanwhile"]
    with pytest.raises(ClientClosedError, match="has ended"):
        loop.call(waits_for_ever())


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ledgermq-client"]


def test_a_session_ends_where_a_loop_runs() -> None:
    """As in a notebook, or in the blocking part of an asyncio program."""
    ended = list[str]()

    async def waits_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the task")

    async def cell() -> LoopThread:
        with Session("127.0.0.1:1") as session:
            session.producer("PG")
            asyncio.run_coroutine_threadsafe(waits_for_ever(), session._loop._loop)
        return session._loop

    closed = asyncio.run(cell())
    assert ended == ["the task"]
    assert closed._loop.is_closed()
    assert not loop_threads()


def test_a_session_that_is_refused_leaves_no_thread() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Session("127.0.0.1:1", listener_threads=0)
    assert not loop_threads()


BLOCKING = [
    (sync_clients.SyncProducer, Producer),
    (sync_clients.SyncTransactionProducer, TransactionProducer),
    (sync_clients.SyncPopConsumer, PopConsumer),
    (sync_clients.SyncPullConsumer, PullConsumer),
    (sync_clients.SyncLitePullConsumer, LitePullConsumer),
    (sync_clients.SyncPushConsumer, PushConsumer),
    (sync_clients.SyncAdmin, Admin),
]
LIFE = {"start", "stop", "stop_after_error", "crash"}  # the session's business
NOT_BLOCKING = {
    "send_async",  # its result is a future of the loop
    "send_half",  # parts of `send_in_transaction`
    "end",
    "reset",  # the broker's request, for `ConsumerAdmin`
}


def calls_of(kind: type) -> dict[str, inspect.Signature]:
    """The public methods that the class itself declares."""
    return {
        name: inspect.signature(method)
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


@pytest.mark.parametrize(("blocking", "waiting"), BLOCKING, ids=lambda kind: kind.__name__)
def test_blocking_calls_take_what_the_asyncio_ones_take(blocking: type, waiting: type) -> None:
    for name, signature in calls_of(blocking).items():
        assert signature == inspect.signature(getattr(waiting, name)), name
    coroutines = {
        name for name in calls_of(waiting) if inspect.iscoroutinefunction(getattr(waiting, name))
    }
    assert coroutines - calls_of(blocking).keys() <= LIFE | NOT_BLOCKING
