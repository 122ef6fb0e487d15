"""The push consumer against scripted brokers: delivery, offsets, rebalance, redelivery."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from campaigns.rig.waiting import until
from client.connection.heartbeat import MessageModel
from client.consume.listener import ConsumerObserver, ConsumeStatus
from client.consume.pull_in_progress import PullInProgress
from client.consume.queue_consumer import QueueConsumer
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_JAVA, RemotingCommand
from remoting.records.message import decode_properties
from tests.client.fake_cluster import Act, Seen
from tests.client.push_setup import Listener, Recorder, setup

_SUCCESS = ConsumeStatus.CONSUME_SUCCESS


def refuse_copies(seen: Seen) -> Act | tuple[int, str]:
    """No sends to a retry topic."""
    to_retry = seen.command.ext_fields.get("b", "").startswith("%RETRY%")
    return (16, "not here") if to_retry else Act.ANSWER


async def test_messages_are_delivered_in_order_and_committed() -> None:
    async with setup() as cluster:
        listener, recorder = Listener(), Recorder()
        for number in range(50):
            await cluster.send(b"%d" % number, number % 2)
        await cluster.consumer(listener, recorder)
        await until(lambda: len(listener.got) == 50)
        for queue_id in range(2):
            offsets = [m.queue_offset for m in listener.got if m.queue.queue_id == queue_id]
            assert offsets == list(range(25))
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 25)
        await until(lambda: cluster.group.offsets.get(("CG", "T", 1)) == 25)
        assert recorder.assignments == [tuple(MessageQueue("T", "broker-a", n) for n in range(4))]
        assert {offset for _, offset, _ in recorder.fetches} == {None}
        await until(lambda: len(recorder.commits) >= 2)  # recorded once their answers are there
        assert {error for _, _, error in recorder.commits} == {None}


async def test_new_messages_wake_a_held_pull() -> None:
    async with setup() as cluster:
        listener = Listener()
        await cluster.consumer(listener, suspend_ms=60_000)
        await until(lambda: len(cluster.group.sends(RequestCode.PULL_MESSAGE)) >= 4)
        await cluster.send(b"x", 3)
        await until(lambda: listener.bodies == [b"x"])


async def test_stop_commits_and_a_successor_goes_on_from_there() -> None:
    async with setup() as cluster:
        first, second = Listener(), Listener()
        recorder = Recorder()
        await cluster.send(b"a")
        consumer = await cluster.consumer(first, recorder, commit_interval_ms=60_000)
        await until(lambda: first.bodies == [b"a"])
        await consumer.stop()
        assert (MessageQueue("T", "broker-a", 0), 1, None) in recorder.commits
        assert cluster.group.members["CG"] == {}
        await cluster.send(b"b")
        await cluster.consumer(second)
        await until(lambda: second.bodies == [b"b"])


async def test_a_crash_commits_nothing() -> None:
    async with setup() as cluster:
        first, second = Listener(), Listener()
        await cluster.send(b"a")
        consumer = await cluster.consumer(first, commit_interval_ms=60_000)
        await until(lambda: first.bodies == [b"a"])
        await consumer.crash()
        await until(lambda: cluster.group.members["CG"] == {})
        assert cluster.group.offsets == {}
        await cluster.consumer(second)
        await until(lambda: second.bodies == [b"a"])


async def test_a_failed_message_comes_again_and_holds_the_offset() -> None:
    async with setup() as cluster:
        listener = Listener()
        listener.answer = lambda message: (
            ConsumeStatus.RECONSUME_LATER
            if message.body == b"1" and message.reconsume_times < 2
            else ConsumeStatus.CONSUME_SUCCESS
        )
        cluster.group.script = refuse_copies
        for number in range(4):
            await cluster.send(b"%d" % number)
        await cluster.consumer(listener, redelivery_ms_min=150, redelivery_ms_max=150)
        await until(lambda: b"3" in listener.bodies)
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)
        await until(lambda: (b"1", 2) in listener.seen)
        assert [seen for seen in listener.seen if seen[0] == b"1"] == [
            (b"1", 0),
            (b"1", 1),
            (b"1", 2),
        ]
        await until(lambda: cluster.group.offsets["CG", "T", 0] == 4)
        # The broker does not know the request: it is asked once per queue, not at each failure.
        assert len(cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


async def test_a_broker_that_takes_messages_back_gets_them() -> None:
    async with setup() as cluster:
        cluster.group.send_back_code = 0
        listener = Listener()
        listener.answer = lambda _: ConsumeStatus.RECONSUME_LATER
        await cluster.send(b"a")
        await cluster.consumer(listener)
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)
        (back,) = cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK)
        (record,) = cluster.group.stored("T")
        assert back.command.ext_fields["offset"] == str(record.physical_offset)
        assert back.command.ext_fields["originTopic"] == "T"
        assert back.command.ext_fields["group"] == "CG"
        assert listener.bodies == [b"a"]


async def test_a_message_that_a_broker_can_t_take_back_is_sent_to_the_retry_topic() -> None:
    async with setup() as cluster:
        listener = Listener()
        listener.answer = lambda _: ConsumeStatus.RECONSUME_LATER
        await cluster.send(b"a", tags="TAG", keys=("k",), properties={"mine": "1"})
        await cluster.consumer(listener, reconsume_times_max=5, retry_delay_level=2)
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)
        assert len(cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
        (record,) = cluster.group.stored("T")
        (copy,) = cluster.group.sends()[1:]
        fields = copy.command.ext_fields
        assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%CG", "1", "5")
        properties = decode_properties(fields["i"].encode())
        assert properties == {
            "UNIQ_KEY": record.property_map()["UNIQ_KEY"],
            "TAGS": "TAG",
            "KEYS": "k",
            "mine": "1",
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": record.offset_msg_id,
            "DELAY": "2",
        }
        assert copy.command.body == b"a"


async def test_no_copy_is_sent_where_the_broker_may_have_taken_it_back() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.IGNORE if seen.command.code == RequestCode.CONSUMER_SEND_MSG_BACK else Act.ANSWER
        )
        listener = Listener()
        listener.answer = lambda message: (
            ConsumeStatus.RECONSUME_LATER
            if message.reconsume_times == 0
            else ConsumeStatus.CONSUME_SUCCESS
        )
        await cluster.send(b"a")
        await cluster.consumer(listener)
        await until(lambda: listener.seen == [(b"a", 0), (b"a", 1)])
        assert len(cluster.group.sends()) == 1
        assert len(cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


async def test_a_message_that_may_be_taken_back_is_not_sent_back_again() -> None:
    """A master that lacks its slave stores a copy for each request, and answers that it may be
    lost."""
    async with setup() as cluster:
        cluster.group.send_back_code = 1
        cluster.group.send_back_remark = "outcome unknown: slave not available"
        listener = Listener()
        listener.answer = lambda message: (
            ConsumeStatus.RECONSUME_LATER
            if message.reconsume_times == 0
            else ConsumeStatus.CONSUME_SUCCESS
        )
        await cluster.send(b"a")
        await cluster.consumer(listener)
        await until(lambda: listener.seen == [(b"a", 0), (b"a", 1)])
        assert len(cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


async def test_an_ordered_queue_is_consumed_under_its_lock_only() -> None:
    async with setup() as cluster:
        await cluster.send(b"a")
        cluster.group.locks["CG", "T", 0] = "somebody else"
        listener = Listener()
        consumer = await cluster.consumer(listener, ordered=True, lock_interval_ms=100)
        await until(lambda: len(consumer.queues) == 3)
        assert listener.bodies == []
        del cluster.group.locks["CG", "T", 0]
        await until(lambda: listener.bodies == [b"a"])
        # A lock that is lost takes its queue away, and nothing more of it is committed.
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)
        cluster.group.locks["CG", "T", 0] = "somebody else"
        await until(lambda: len(consumer.queues) == 3)
        cluster.group.offsets["CG", "T", 0] = 0
        del cluster.group.locks["CG", "T", 0]
        await until(lambda: listener.bodies == [b"a", b"a"])
        await consumer.stop()
        assert cluster.group.locks == {}


async def test_an_ordered_message_goes_to_the_dead_letters_after_its_last_attempt() -> None:
    async with setup() as cluster:
        listener = Listener()
        listener.answer = lambda message: (
            ConsumeStatus.RECONSUME_LATER if message.body == b"bad" else _SUCCESS
        )
        await cluster.send(b"bad")
        await cluster.send(b"good")
        await cluster.consumer(listener, ordered=True, reconsume_times_max=2)
        await until(lambda: listener.bodies == [b"bad", b"bad", b"bad", b"good"])
        (copy,) = [seen for seen in cluster.group.sends() if seen.command.body == b"bad"][1:]
        fields = copy.command.ext_fields
        assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%CG", "3", "2")
        assert cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK) == []


async def test_an_ordered_queue_waits_for_its_failed_message() -> None:
    async with setup() as cluster:
        listener = Listener()
        listener.answer = lambda message: (
            ConsumeStatus.RECONSUME_LATER
            if message.body == b"0" and message.reconsume_times < 2
            else ConsumeStatus.CONSUME_SUCCESS
        )
        for number in range(3):
            await cluster.send(b"%d" % number)
        await cluster.consumer(listener, ordered=True)
        await until(lambda: b"2" in listener.bodies)
        assert listener.bodies == [b"0", b"0", b"0", b"1", b"2"]
        assert cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK) == []


class OfItsOwnError(BaseException):
    """As pytest's `fail` and gevent's `Timeout` are."""


@pytest.mark.parametrize(
    "error", [RuntimeError("bug"), asyncio.CancelledError(), OfItsOwnError()], ids=repr
)
async def test_a_listener_that_raises_is_called_again(error: BaseException) -> None:
    """A CancelledError is of something that it awaited: nobody has cancelled the consumer."""
    async with setup() as cluster:
        calls: list[int] = []

        async def listener(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            calls.append(messages[0].reconsume_times)
            if len(calls) == 1:
                raise error
            return ConsumeStatus.CONSUME_SUCCESS

        cluster.group.script = refuse_copies
        await cluster.send(b"a")
        await cluster.consumer(listener)  # type: ignore[arg-type]
        await until(lambda: calls == [0, 1])


@pytest.mark.parametrize("returned", [None, True])
async def test_a_listener_that_returns_no_status_has_failed(
    returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says what it returned: the message may become a dead letter by that."""
    async with setup() as cluster:
        cluster.group.send_back_code = 0
        listener, recorder = Listener(), Recorder()
        listener.answer = lambda _: returned  # type: ignore[assignment, return-value]
        await cluster.send(b"a")
        await cluster.consumer(listener, recorder)
        await until(lambda: cluster.group.sends(RequestCode.CONSUMER_SEND_MSG_BACK))
        assert recorder.deliveries == [ConsumeStatus.RECONSUME_LATER]
        assert (
            f"a listener returned {returned}, which is no ConsumeStatus: 1 messages" in caplog.text
        )


async def test_an_observer_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the metrics are down")

    listener, observer = Listener(), Recorder()
    hooks = {name for name in vars(ConsumerObserver) if not name.startswith("_")}
    for hook in hooks:
        setattr(observer, hook, fail)
    async with setup() as cluster:
        await cluster.send(b"a")
        consumer = await cluster.consumer(listener, observer, ordered=True)
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)
        await cluster.send(b"b")
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 2)
        await consumer.stop()
    assert listener.bodies == [b"a", b"b"]
    assert {hook for hook in hooks if f"it was not told `{hook}`" in caplog.text} == hooks


async def test_queues_are_shared_and_taken_over() -> None:
    async with setup() as cluster:
        first, second = Recorder(), Recorder()
        one = await cluster.consumer(Listener(), first)
        await until(lambda: len(one.queues) == 4)
        two = await cluster.consumer(Listener(), second)
        await until(lambda: len(one.queues) == 2 and len(two.queues) == 2)
        assert not set(one.queues) & set(two.queues)
        await until(lambda: first.assignments[-1] == one.queues)
        await two.stop()
        await until(lambda: len(one.queues) == 4)


async def test_a_lost_queue_is_committed_before_another_member_begins() -> None:
    async with setup() as cluster:
        for number in range(40):
            await cluster.send(b"%d" % number, number % 4)
        one, two = Listener(), Listener()
        first = await cluster.consumer(one, commit_interval_ms=60_000)
        await until(lambda: len(one.got) == 40)
        second = await cluster.consumer(two, commit_interval_ms=60_000)
        await until(lambda: len(first.queues) == 2 and len(second.queues) == 2)
        for queue in second.queues:
            await until(
                lambda queue=queue: cluster.group.offsets.get(("CG", "T", queue.queue_id)) == 10
            )


@pytest.mark.parametrize("node_dies", [True, False])
async def test_delivery_goes_on_at_the_new_leader(node_dies: bool) -> None:
    async with setup() as cluster:
        listener = Listener()
        await cluster.consumer(listener, suspend_ms=10_000, answer_slack_ms=5_000)
        await cluster.send(b"a")
        await until(lambda: listener.bodies == [b"a"])
        await until(lambda: len(cluster.group.members["CG"]) == 1)
        if node_dies:
            await cluster.group.stop_node(0)
        cluster.group.lead(2)
        await cluster.send(b"b")
        if not node_dies:
            # The old leader holds the pull; only a route or another request tells of the new one.
            for consumer in cluster.consumers:
                await consumer.instance.routes.refresh("T")
        await until(lambda: listener.bodies == [b"a", b"b"])


async def test_delivery_goes_on_where_slaves_refuse_as_busy() -> None:
    """A consumer of RocketMQ that once took a slave for the leader pulled from it for good."""
    async with setup() as cluster:
        cluster.group.slaves_are_busy = True
        listener = Listener()
        consumer = await cluster.consumer(listener, suspend_ms=10_000, answer_slack_ms=5_000)
        await cluster.send(b"a")
        await until(lambda: listener.bodies == [b"a"])
        consumer.instance.routes.fail(cluster.group.name, cluster.group.address(0))
        await cluster.send(b"b")
        await until(lambda: listener.bodies == [b"a", b"b"])


async def test_no_slave_of_rocketmq_is_taken_for_the_leader() -> None:
    async with setup() as cluster:
        cluster.group.language = LANGUAGE_JAVA
        listener = Listener()
        consumer = await cluster.consumer(listener)
        await cluster.send(b"a")
        await until(lambda: listener.bodies == [b"a"])
        await until(lambda: len(cluster.group.members["CG"]) == 1)
        routes, name = consumer.instance.routes, cluster.group.name
        routes.fail(name, cluster.group.address(0))
        leader = routes.leader(name)
        assert leader is not None
        assert leader.address == cluster.group.address(0)
        cluster.group.lead(2)
        await routes.refresh("T")
        await cluster.send(b"b")
        await until(lambda: listener.bodies == [b"a", b"b"])


async def test_nodes_that_name_each_other_are_not_asked_in_a_hurry() -> None:
    async with setup() as cluster:

        def pulls(queue_id: str) -> list[Seen]:
            seen = cluster.group.sends(RequestCode.PULL_MESSAGE)
            return [one for one in seen if one.command.ext_fields["queueId"] == queue_id]

        await cluster.send(b"a")
        listener = Listener()
        await cluster.consumer(listener)
        await until(lambda: listener.bodies == [b"a"])
        for node in range(3):
            cluster.group.hints[node] = cluster.group.address((node + 1) % 3)
        cluster.group.lead(None)
        cluster.group.seen.clear()
        began_s = time.monotonic()
        for connection in cluster.group.servers[0].connections:
            connection.abort("scripted")
        for queue_id in map(str, range(4)):
            await until(lambda queue_id=queue_id: len(pulls(queue_id)) >= 5, seconds=60)
            # Two hints at once, and waits of 80 and 160 ms after the next failures.
            assert pulls(queue_id)[4].at_s - began_s >= 0.23
        cluster.group.hints.clear()
        cluster.group.lead(1)
        await cluster.send(b"b")
        await until(lambda: listener.bodies == [b"a", b"b"], seconds=60)


async def test_tags_are_compared_exactly() -> None:
    async with setup() as cluster:
        listener = Listener()
        for tag in ("A", "B", None, "AaAa", "BBBB"):
            await cluster.send((tag or "none").encode(), tags=tag)
        # AaAa and BBBB have the same Java hash: the broker can't tell them apart.
        await cluster.consumer(listener, expression="A || AaAa")
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 5)
        assert listener.bodies == [b"A", b"AaAa"]


async def test_a_commit_without_an_answer_is_told_as_unknown() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.IGNORE if seen.command.code == RequestCode.UPDATE_CONSUMER_OFFSET else Act.ANSWER
        )
        recorder = Recorder()
        await cluster.send(b"a")
        await cluster.consumer(Listener(), recorder, timeout_ms=300)
        await until(lambda: 1 in {offset for _, offset, _ in recorder.commits})
        assert all(error is not None and not error.definite for _, _, error in recorder.commits)
        cluster.group.script = lambda _: Act.ANSWER
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 1)


async def test_flow_control_stops_pulling() -> None:
    async with setup() as cluster:
        release = asyncio.Event()

        async def listener(_: Sequence[DeliveredMessage]) -> ConsumeStatus:
            await release.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        for number in range(40):
            await cluster.send(b"%d" % number)
        await cluster.consumer(  # type: ignore[arg-type]
            listener, held_count_max=10, pull_batch_max=5
        )

        def pulls() -> int:
            return sum(
                seen.command.ext_fields["queueId"] == "0"
                for seen in cluster.group.sends(RequestCode.PULL_MESSAGE)
            )

        await until(lambda: pulls() == 2)
        await asyncio.sleep(0.1)
        assert pulls() == 2
        release.set()
        await until(lambda: cluster.group.offsets.get(("CG", "T", 0)) == 40)


async def test_broadcasting_members_get_everything() -> None:
    async with setup() as cluster:
        one, two = Listener(), Listener()
        await cluster.send(b"a")
        await cluster.consumer(one, message_model=MessageModel.BROADCASTING)
        await cluster.consumer(two, message_model=MessageModel.BROADCASTING)
        await until(lambda: one.bodies == [b"a"] and two.bodies == [b"a"])
        assert cluster.group.offsets == {}


async def test_all_queues_of_a_group_follow_its_new_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: list[MessageQueue] = []
    async with setup() as cluster:
        consumer = await cluster.consumer(Listener())
        await until(lambda: len(consumer.queues) == 4)
        monkeypatch.setattr(
            QueueConsumer, "leader_moved", lambda self, address: moved.append(self.queue)
        )
        consumer._on_leader("broker-b", "127.0.0.1:2")
        assert moved == []
        consumer._on_leader("broker-a", "127.0.0.1:2")
        assert sorted(moved) == sorted(consumer.queues)


async def test_a_leader_that_moves_while_a_wait_ends_disturbs_nobody():
    consumer = QueueConsumer.__new__(QueueConsumer)
    consumer._pulling = PullInProgress(lambda offset, to: None)
    consumer._pulled_from = "127.0.0.1:1"

    async def answer() -> RemotingCommand:
        consumer.leader_moved("127.0.0.1:2")
        try:
            await asyncio.sleep(10)
        finally:
            consumer.leader_moved("127.0.0.1:3")  # nobody waits any more
        raise AssertionError("unreachable")

    with pytest.raises(TimeoutError):
        await consumer._pulling.wait_for(0, answer())
    consumer._pulling.stop()
