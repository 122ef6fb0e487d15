"""What our own clients can do, as cases: they must hold on RocketMQ as they do on ledgermq."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence

from campaigns.interop.python_library_cases import LIBRARY_CASES
from campaigns.interop.python_program import Rig, Seen, keys, message, run
from campaigns.interop.python_tool_cases import TOOL_CASES
from client.connection.heartbeat import ConsumeFrom, ExpressionType, MessageModel
from client.connection.send_codec import Compression, CompressionType
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.consume.queue_requests import PullStatus
from client.errors import ClientError
from client.message import DeliveredMessage, Message, SendStatus
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer


async def send(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        first = await rig.send(producer, message(topic, "A", "k0", naïve="wert 中"))
        await rig.midpoint()
        await rig.send_all(producer, topic, "k", 1, 20)
        await rig.seen_all(seen, keys("k", 0, 20))
    read = seen.messages["k0"]
    assert read.uniq_key == first.msg_id, read
    assert read.properties["naïve"] == "wert 中", read
    assert read.body == b"body of k0", read
    return f"20 read, {len(seen.repeated)} repeated"


async def send_async(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        futures = [await producer.send_async(message(topic, "A", f"a{i}")) for i in range(50)]
        await asyncio.gather(*futures)
        await rig.midpoint()
        await rig.seen_all(seen, keys("a", 0, 50))
    return "50"


async def send_oneway(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        for key in keys("o", 0, 10):
            await producer.send_oneway(message(topic, "A", key))
        await rig.seen_all(seen, keys("o", 0, 10))
        await rig.midpoint()
    return "10"


async def send_batch(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        result = await producer.send_batch([message(topic, "B", key) for key in keys("b", 0, 50)])
        await rig.midpoint()
        await rig.seen_all(seen, keys("b", 0, 50))
    assert len(set(result.offset_msg_id.split(","))) == 50, result
    return "50"


async def send_queue(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    queue = (await producer.queues(topic))[2]
    for number in range(6):
        result = await producer.send(message(topic, "A", f"q{number}"), 20_000, queue=queue)
        assert (result.queue, result.queue_offset) == (queue, number), result
        if number == 2:
            await rig.midpoint()
    return "offsets 0 to 5"


async def send_large(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    body = bytes(range(256)) * ((4 << 20) // 256 - 20)
    async with rig.consuming(topic) as seen:
        await rig.send(producer, Message(topic=topic, body=body, keys=("large",)))
        await rig.midpoint()
        await rig.seen_all(seen, ["large"])
    assert seen.messages["large"].body == body
    try:
        await producer.send(
            Message(topic=topic, body=random.Random(5).randbytes(5 << 20), keys=("x",)), 10_000
        )
    except ClientError as error:
        reason, definite = str(error), error.definite
    else:
        raise AssertionError("5 MB were taken")
    assert definite, reason
    return f"{len(body)} bytes; then {reason}"


async def tags(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic, "TagB || 标签") as seen:
        for number in range(20):
            tag = ["TagA", "TagB", "标签", None][number % 4]
            await rig.send(producer, message(topic, tag, f"t{number}"))
        await rig.midpoint()
        await rig.until(lambda: len(seen.counts), lambda: len(seen.counts) == 10)
    return "10 of 20"


async def sql(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    kind = ExpressionType.SQL92
    async with rig.consuming(topic, "a > 5 AND b = 'x'", kind=kind) as seen:
        for number in range(10):
            await rig.send(producer, message(topic, "A", f"s{number}", a=str(number), b="x"))
        await rig.midpoint()
        await rig.seen_all(seen, keys("s", 6, 10))
        assert len(seen.counts) == 4, seen.counts
    return "4 of 10"


async def sql_invalid(rig: Rig) -> str:
    topic = await rig.topic()
    try:
        async with rig.consuming(topic, "a > > 3", kind=ExpressionType.SQL92):
            raise AssertionError("a wrong expression was taken")
    except ClientError as error:
        return str(error)


async def resume(rig: Rig) -> str:
    topic = await rig.topic()
    group = rig.unique("g")
    producer = await rig.producer()
    async with rig.consuming(topic, group=group) as first:
        await rig.send_all(producer, topic, "m", 0, 20)
        await rig.seen_all(first, keys("m", 0, 20))
    await rig.midpoint()
    await rig.send_all(producer, topic, "m", 20, 25)
    async with rig.consuming(topic, group=group) as second:
        await rig.seen_all(second, keys("m", 20, 25))
        await asyncio.sleep(0.5)  # what must not come would have come by now
    assert len(second.counts) == 5, second.counts
    return "only what was new"


async def two_members(rig: Rig) -> str:
    topic = await rig.topic()
    group = rig.unique("g")
    producer = await rig.producer()
    async with rig.consuming(topic, group=group) as one, rig.consuming(topic, group=group) as two:
        await rig.midpoint()
        sent = 0
        deadline = time.monotonic() + 40
        while not (one.counts and two.counts):
            assert time.monotonic() < deadline, "one of two members gets nothing"
            await rig.send_all(producer, topic, "m", sent, sent + 4)
            sent += 4
            await asyncio.sleep(0.2)
        wanted = keys("m", 0, sent)
        await rig.until(lambda: f"{sent} sent", lambda: not two.missing(one.missing(wanted)))
    return f"{len(one.counts)} and {len(two.counts)} of {sent}"


async def broadcast(rig: Rig) -> str:
    topic = await rig.topic()
    group = rig.unique("g")
    producer = await rig.producer()
    settings = PushConsumerSettings(
        message_model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.FIRST
    )
    async with (
        rig.consuming(topic, group=group, settings=settings) as one,
        rig.consuming(topic, group=group, settings=settings) as two,
    ):
        await rig.send_all(producer, topic, "b", 0, 10)
        await rig.midpoint()
        await rig.send_all(producer, topic, "b", 10, 20)
        await rig.seen_all(one, keys("b", 0, 20))
        await rig.seen_all(two, keys("b", 0, 20))
    return "each of two read 20"


async def retry(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    times: list[int] = []

    async def refuse_once(given: object) -> ConsumeStatus:
        times.append(len(times))
        return ConsumeStatus.RECONSUME_LATER if len(times) == 1 else ConsumeStatus.CONSUME_SUCCESS

    async with rig.consuming(topic, take=refuse_once):
        await rig.send(producer, message(topic, "A", "again"))
        await rig.until(lambda: times, lambda: bool(times))
        await rig.midpoint()
        await rig.until(lambda: times, lambda: len(times) == 2)
    return "read twice"


async def pull(rig: Rig) -> str:
    topic = await rig.topic(1)
    producer = await rig.producer()
    async with PullConsumer(rig.unique("g"), rig.servers) as consumer:
        (queue,) = await consumer.queues(topic)
        await rig.send_all(producer, topic, "p", 0, 10)
        await rig.midpoint()
        found = await consumer.pull(queue, 3, 4, 20_000)
        assert [each.keys[0] for each in found.messages] == keys("p", 3, 7), found
        assert (found.min_offset, found.max_offset) == (0, 10), found
        end = await consumer.pull(queue, 10, timeout_ms=20_000)
        assert end.status is PullStatus.NO_NEW_MSG, end
        deadline = time.monotonic() + 30
        while True:  # where the leader has died a follower may answer, which corrects no offset
            beyond = await consumer.pull(queue, 11, timeout_ms=20_000)
            if not rig.faults or beyond.status is PullStatus.OFFSET_ILLEGAL:
                break
            assert time.monotonic() < deadline, beyond
            await asyncio.sleep(0.2)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 10), beyond
        other = await consumer.pull(queue, 0, timeout_ms=20_000, expression="Nope")
        assert other.status is PullStatus.NO_MATCHED_MSG, other
        assert await consumer.search_offset(queue, 1, 20_000) == 0
        assert await consumer.max_offset(queue, 20_000) == 10
    return "found, none, illegal, no match"


async def offsets(rig: Rig) -> str:
    topic = await rig.topic(1)
    producer = await rig.producer()
    await rig.send_all(producer, topic, "p", 0, 10)
    async with PullConsumer(rig.unique("g"), rig.servers) as consumer:
        (queue,) = await consumer.queues(topic)
        await consumer.pull(queue, 0, timeout_ms=20_000)
        await rig.midpoint()
        await consumer.commit_offset(queue, 7, 30_000)
        assert await consumer.fetch_offset(queue, 30_000) == 7
    return "7"


class Decisions:
    """Commits "c...", rolls back "r...", and "uc..." and "ur..." when asked."""

    def __init__(self) -> None:
        self.checked: set[str] = set()

    async def execute_local(self, sent: Message, half: HalfMessage) -> Decision:
        assert half is not None
        first = sent.keys[0][0]
        return {"c": Decision.COMMIT, "r": Decision.ROLLBACK}.get(first, Decision.UNKNOWN)

    async def check_local(self, half: DeliveredMessage) -> Decision:
        self.checked.add(half.keys[0])
        return Decision.COMMIT if half.keys[0].startswith("uc") else Decision.ROLLBACK


async def _in_transaction(rig: Rig, producer: TransactionProducer, topic: str, key: str) -> None:
    """Send until a half is stored as it should be: else the client has rolled it back, and another
    one is sent."""
    until = time.monotonic() + 60
    while True:
        done = await producer.send_in_transaction(message(topic, "T", key), 30_000)
        if done.send.status is SendStatus.SEND_OK:
            return
        assert rig.faults, done
        assert time.monotonic() < until, done
        await asyncio.sleep(0.2)


async def transactions(rig: Rig) -> str:
    topic = await rig.topic()
    decisions = Decisions()
    async with (
        TransactionProducer(rig.unique("p"), rig.servers, decisions) as producer,
        rig.consuming(topic) as seen,
    ):
        for number in range(5):
            for kind in ("c", "r", "uc", "ur"):
                await _in_transaction(rig, producer, topic, f"{kind}{number}")
            if number == 2:
                await rig.midpoint()
        await rig.seen_all(seen, keys("c", 0, 5))
        await rig.until(lambda: decisions.checked, lambda: len(decisions.checked) == 10)
        await rig.seen_all(seen, keys("uc", 0, 5))
        await asyncio.sleep(0.5)  # what must not come would have come by now
    assert len(seen.counts) == 10, seen.counts
    assert not seen.repeated, seen.repeated
    return "5 committed, 5 committed when asked"


async def delays(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        began = time.time() * 1000
        await rig.send(producer, message(topic, "A", "later", DELAY="2"))
        await rig.midpoint()
        await rig.seen_all(seen, ["later"])
    late_ms = seen.at_ms["later"] - began - 5_000
    assert late_ms >= 0, late_ms
    return f"{late_ms:.0f} ms late"


async def orderly(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    settings = PushConsumerSettings(ordered=True, consume_from=ConsumeFrom.FIRST)
    queue = (await producer.queues(topic))[1]
    async with rig.consuming(topic, settings=settings) as seen:
        for number, key in enumerate(keys("o", 0, 40)):
            await producer.send(message(topic, "A", key), 30_000, queue=queue)
            if number == 20:
                await rig.midpoint()
        await rig.seen_all(seen, keys("o", 0, 40))
    assert _first_readings(seen) == keys("o", 0, 40), seen.order
    return "40 in order"


async def request_reply(rig: Rig) -> str:
    topic = await rig.topic()
    requester, answerer = await rig.producer(), await rig.producer()

    async def answer(given: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for each in given:
            await answerer.reply(each, b"re: " + each.body, 20_000)
        return ConsumeStatus.CONSUME_SUCCESS

    async with rig.consuming(topic, take=answer):
        for key in keys("r", 0, 5):
            reply = await requester.request(message(topic, "A", key), 30_000)
            assert reply.body == b"re: body of " + key.encode(), reply
    return "5 replies"


async def pop(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    seen = Seen()
    async with PopConsumer(rig.unique("g"), rig.servers) as consumer:
        await rig.send_all(producer, topic, "p", 0, 20)
        late = None
        while seen.missing(keys("p", 0, 20)) or seen.counts["p7"] < 2:
            for popped in await consumer.pop(topic, invisible_ms=10_000, poll_ms=1_000):
                await seen.take([popped.message])
                if popped.message.keys == ["p7"] and late is None:
                    late = await consumer.change_invisible(popped, 2_000)
                else:
                    await consumer.ack(popped)
    return f"20 read, {len(seen.repeated)} repeated"


async def compression(rig: Rig) -> str:
    topic = await rig.topic()
    reader = await rig.producer()
    queue = (await reader.queues(topic))[0]
    body = b"compress me " * 2_000
    for kind in CompressionType:
        settings = ProducerSettings(compression=Compression(kind=kind))
        async with Producer(rig.unique("pg"), rig.servers, settings=settings) as producer:
            await producer.send(
                Message(topic=topic, body=body, keys=(kind.name,)), 20_000, queue=queue
            )
    async with rig.consuming(topic) as seen:
        await rig.seen_all(seen, [kind.name for kind in CompressionType])
    assert all(each.body == body for each in seen.messages.values())
    return ", ".join(seen.order)


def _first_readings(seen: Seen) -> list[str]:
    return list(dict.fromkeys(seen.order))


CASES = {
    "send": send,
    "send-async": send_async,
    "send-oneway": send_oneway,
    "send-batch": send_batch,
    "send-queue": send_queue,
    "send-large": send_large,
    "tags": tags,
    "sql": sql,
    "sql-invalid": sql_invalid,
    "resume": resume,
    "two-members": two_members,
    "broadcast": broadcast,
    "retry": retry,
    "pull": pull,
    "offsets": offsets,
    "transactions": transactions,
    "delays": delays,
    "orderly": orderly,
    "request-reply": request_reply,
    "pop": pop,
    "compression": compression,
    **LIBRARY_CASES,
    **TOOL_CASES,
}


if __name__ == "__main__":
    run({f"python-{name}": case for name, case in CASES.items()}, sys.argv[1:])
