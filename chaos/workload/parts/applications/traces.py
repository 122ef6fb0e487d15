"""Traces of all kinds, and at their limits of size: none is lost.

Place in the data path: `client.trace`. Traced producers send batches of many messages, long tags
and many keys within the time for which records wait to be sent together, and transactions and
delayed messages; a traced member consumes, fails and raises. All trace into a topic of their own.

Invariant: what is in the topic is read as the dashboard reads it, by `trace_records`, and is what
was sent and consumed; nothing of it comes from `client.trace`. It is looked for as mqadmin does,
too: by a message's id, and by its keys.

Source: RocketMQ AsyncTraceDispatcher (limits of a trace message), TraceDataEncoder,
ConsumeMessageTraceHookImpl, EndTransactionTraceHookImpl; QueryMsgTraceByIdSubCommand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import SENT_ONCE, Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.trace_records import Trace, traces_of
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage, Message
from client.produce.transaction_producer import Decision, HalfMessage
from client.trace.tracer import TraceSettings

__all__ = ["FullTraces"]

KEYS_SIZE_MAX: Final = 20_000  # of a trace message, RocketMQ's
SENDS: Final = (8, 14)
BATCH: Final = (1, 150)
TAG_SIZE: Final = (8_000, 25_000)
KEY_SIZE: Final = (500, 2_500)
KINDS: Final = 3
LINGER_MS: Final = (200, 2_000)
NORMAL_TYPE: Final = 0
HALF_TYPE: Final = 1
DELAY_TYPE: Final = 3
RAISED: Final = 2  # RocketMQ's code of a listener that raised; 4: one that asks for it later
CODES: Final = {"consumed": 0, "raises": RAISED, "fails": 4}  # by tag
CONSUMED_S: Final = 6.0
QUERIES_MAX: Final = 24  # ids and keys by which traces are looked for
COUNT_MAX: Final = 32
NAME_SIZE: Final = 80
_STATES: Final = {"commit": "COMMIT_MESSAGE", "rollback": "ROLLBACK_MESSAGE"}
_COMPARED: Final = {
    "Pub": ("group", "topic", "msg_id", "tags", "keys", "body_size", "type", "success"),
    "EndTransaction": ("group", "topic", "msg_id", "state", "transaction_id", "from_check"),
    "SubBefore": ("group", "msg_id", "retries", "keys"),
    "SubAfter": ("msg_id", "success", "keys", "code"),
}


class FullTraces:
    """One producer for each kind of large record, one of transactions, and a member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._topic = f"{UNLISTED}{bench.name}-records"
        self._sent: set[str] = set()
        self._expected: list[str] = []  # records that are to be there, of those compared
        # By id of a message, and by key: the offsets of the trace messages that tell of it.
        self._places: dict[str, set[int]] = defaultdict(set)

    async def run(self) -> None:
        """Send, stop, and read what was traced. Raises ClientError."""
        bench = self._bench
        await bench.make_topic(1)
        await bench.admin.create_topic(self._topic, queues=1, broker_names=[bench.broker_group])
        for kind in range(KINDS):
            await self._send(kind)
        await self._send_others()
        await self._consume()
        traced, records = await self._read()
        bench.hold(
            "records of transactions, delays and deliveries that are missing in the traces",
            expected="none",
            answered="; ".join(each for each in self._expected if each not in records) or "none",
        )
        bench.hold(
            "messages of a traced client that had stopped, without a trace",
            expected="none",
            answered=", ".join(sorted(self._sent - traced)) or "none",
        )
        await self._look_up()

    async def _send(self, kind: int) -> None:
        rng = self._bench.rng
        async with self._bench.producer(trace=self._settings(), compression=None) as producer:
            for _ in range(rng.randint(*SENDS)):
                messages = self._messages(kind)
                if len(messages) == 1:
                    await producer.send(messages[0])
                else:
                    await producer.send_batch(messages)
                self._sent.update(str(message.uniq_key) for message in messages)

    def _messages(self, kind: int) -> Sequence[Message]:
        rng, bench = self._bench.rng, self._bench
        if kind == 0:
            return [bench.message() for _ in range(rng.randint(*BATCH))]
        if kind == 1:
            return [bench.message(tags="t" * rng.randint(*TAG_SIZE))]
        keys = tuple(str(n) * rng.randint(*KEY_SIZE) for n in range(rng.randint(1, 3)))
        return [bench.message(keys=keys)]

    def _settings(self) -> TraceSettings:
        return TraceSettings(topic=self._topic, linger_ms=self._bench.rng.choice(LINGER_MS))

    # Records that are compared -------------------------------------------------------------------

    async def _send_others(self) -> None:
        """Send transactions with each end, and delayed messages. Raises ClientError."""
        bench = self._bench
        producer = bench.transactions(self, trace=self._settings())
        async with producer:
            for tags, state in _STATES.items():
                message = bench.message(tags=tags, keys=("one", "other"))
                sent = await producer.send_in_transaction(message)
                key = str(message.uniq_key)
                self._expect_sent(producer.group, message, HALF_TYPE)
                self._expected.append(
                    f"EndTransaction {producer.group} {bench.topic} {key} {state}"
                    f" {sent.half.transaction_id} false"
                )
            for kind, property_name in ((DELAY_TYPE, "DELAY"), (NORMAL_TYPE, "of-mine")):
                message = bench.message(keys=("k",), properties={property_name: "1"})
                await producer.send(message)
                self._expect_sent(producer.group, message, kind)

    def _expect_sent(self, group: str, message: Message, kind: int) -> None:
        self._expected.append(
            f"Pub {group} {message.topic} {message.uniq_key} {message.tags or 'null'}"
            f" {' '.join(message.keys)} {len(message.body)} {kind} true"
        )

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Decide as the tags say."""
        return Decision.COMMIT if message.tags == "commit" else Decision.ROLLBACK

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Nothing is left to a check."""
        return Decision.UNKNOWN

    async def _consume(self) -> None:
        """Have a traced member consume messages, fail one, and raise at one. Raises ClientError."""
        bench, group = self._bench, f"{self._bench.name}-consumers"
        ends: dict[str, int] = {}  # by UNIQ_KEY, the code of the first call's end

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            (message,) = messages
            times = message.reconsume_times
            code = 0 if times else CODES[message.tags or ""]
            ends[message.uniq_key] = code
            keys = " ".join(message.keys) or "null"
            success = "false" if code else "true"
            self._expected.append(f"SubBefore {group} {message.uniq_key} {times} {keys}")
            self._expected.append(f"SubAfter {message.uniq_key} {success} {keys} {code}")
            if code == RAISED:
                raise ValueError("a listener that fails on purpose")
            return ConsumeStatus.RECONSUME_LATER if code else ConsumeStatus.CONSUME_SUCCESS

        consumer = bench.consumer(
            listen,
            group=group,
            trace=self._settings(),
            retry_delay_level=1,
            suspend_ms=1_000,
            **SENT_ONCE,
        )
        consumer.subscribe(bench.topic, " || ".join(CODES))
        async with consumer, bench.producer() as producer:
            for tags in CODES:
                await producer.send(bench.message(tags=tags, keys=("a", "b")))
            await bench.becomes(
                "messages that a traced member has consumed",
                lambda: sorted(ends.values()),
                expected=[0] * len(CODES),
                within_s=CONSUMED_S,
            )

    async def _read(self) -> tuple[set[str], set[str]]:
        """Read the trace topic to its end; return the ids of what was sent, and its records as they
        are compared. Raises ClientError."""
        bench, ids, records = self._bench, set[str](), set[str]()
        (queue,) = await bench.reader.queues(self._topic)
        for message in await bench.read(queue):
            found = list(traces_of(message.body))
            for each in found:
                for key in (*each.get("msg_id", "").split(","), *each.get("keys", "").split()):
                    self._places[key].add(message.queue_offset)
            ids.update(
                key
                for trace in found
                if trace["kind"] == "Pub"
                for key in trace["msg_id"].split(",")
            )
            records.update(map(_compared, found))
            bench.hold(
                "whether a trace message of several records is within its limit",
                expected=True,
                answered=len(found) == 1 or len(" ".join(message.keys)) <= KEYS_SIZE_MAX,
            )
        return ids, records

    async def _look_up(self) -> None:
        """Look for traces by ids, and by keys, of what they tell of. Raises ClientError."""
        bench = self._bench
        names = sorted(self._places.keys() - {"", "null"})
        for name in bench.rng.sample(names, min(QUERIES_MAX, len(names))):
            expected = sorted(self._places[name])
            if len(expected) > COUNT_MAX:
                continue
            found = await bench.admin.query_messages(self._topic, name, count_max=COUNT_MAX)
            bench.hold(
                f"trace messages that are found by {name[:NAME_SIZE]}",
                expected=expected,
                answered=sorted(message.queue_offset for message in found),
            )


def _compared(trace: Trace) -> str:
    names = _COMPARED.get(trace["kind"], ())
    return " ".join([trace["kind"], *(trace.get(name, "?") for name in names)])
