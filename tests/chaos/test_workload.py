"""The workload's own rules: processes, values, the application's database, pacing, shards."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaigns.rig.waiting import turns
from chaos.experiment.load import _deal_shards, part_topics, slot_names
from chaos.recording.history import HistoryWriter, MessageRow, QueueRow
from chaos.scenario.scenario import ScenarioError, WorkloadSection, parse_scenario
from chaos.workload.actor import Actor, outcome_of
from chaos.workload.contents_digest import contents_digest
from chaos.workload.key_reader import KnownKeys
from chaos.workload.local_database import LocalDatabase
from chaos.workload.messages import (
    MessageMaker,
    row_of_delivered,
    row_of_message,
    row_of_stored,
)
from chaos.workload.namespaced_history import NamespacedHistory
from chaos.workload.namespaces import WireName
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.pull_reader import _Member
from chaos.workload.transactional_sender import introduce
from client.errors import BrokerUnreachableError, NoRouteError, UnansweredError
from client.message import DeliveredMessage, MessageQueue, SendResult, SendStatus
from client.produce.transaction_producer import Decision
from tests.chaos.histories import ops_of


def _actor(history: HistoryWriter) -> Actor:
    return Actor(history, root="p", client="c", client_group="g")


def test_a_process_is_retired_after_an_info(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        actor = _actor(history)
        for outcome in ("ok", "info", "fail", "info", "ok"):
            with actor.operation("send") as operation:
                operation.complete(outcome)
    assert [op["process"] for op in ops_of(tmp_path / "h")] == ["p", "p", "p~1", "p~1", "p~2"]


def test_one_thing_at_a_time(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        actor = _actor(history)
        with (
            actor.operation("send"),
            pytest.raises(AssertionError, match="one thing"),
            actor.operation("send"),
        ):
            pass


async def test_a_cancelled_operation_is_unknown(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        actor = _actor(history)
        begun = asyncio.Event()

        async def work() -> None:
            with actor.operation("send"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (row,) = ops_of(tmp_path / "h")
    assert row["type"] == "info"


def test_clients_of_a_namespace_are_recorded_by_the_names_of_the_wire(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", started_ns=0) as writer:
        history = NamespacedHistory(writer, "lab")
        actor = Actor(history, root="p", client="c", client_group="readers")
        with actor.operation("poll", topic="orders", broker_group="broker-a") as operation:
            shown = [
                MessageRow(value="v", topic="%RETRY%readers"),
                MessageRow(value="w"),
                MessageRow(value="x", topic=WireName("%RETRY%lab%readers_lab%orders")),
            ]
            operation.complete("ok", messages=shown)
        with actor.operation("assign") as operation:
            row = QueueRow(broker_group="broker-a", topic="lab%orders", queue=0)
            operation.complete("ok", assigned=[row])
    poll, assign = ops_of(tmp_path / "h")
    assert (poll["topic"], poll["client_group"]) == ("lab%orders", "lab%readers")
    assert [each["topic"] for each in poll["messages"]] == [
        "%RETRY%lab%readers",
        None,
        "%RETRY%lab%readers_lab%orders",  # which the part named itself
    ]
    # The client showed a name of the wire: that is no topic of anybody's.
    assert [each["topic"] for each in assign["assigned"]] == ["lab%lab%orders"]


def test_parts_that_make_requests_by_themselves_are_in_no_namespace() -> None:
    with pytest.raises(ScenarioError, match="searches can't be in a namespace"):
        parse_scenario('[workload]\nnamespaced = ["searches"]\n', name="x")
    named = parse_scenario('[workload]\nnamespaced = ["resets"]\n[workload.resets]\n', name="x")
    assert part_topics(named) == {"resets": ("res%resets",)}


def test_a_timeout_is_never_a_failure() -> None:
    assert outcome_of(UnansweredError("timeout")) == "info"
    assert outcome_of(BrokerUnreachableError("refused")) == "fail"


def test_what_is_sent_comes_back_as_the_same_row() -> None:
    maker = MessageMaker(prefix="p", body_bytes=100, rng=random.Random(1))
    first = maker.make("orders", uniq_key="U0", shard="s1")
    second = maker.make("orders", uniq_key="U1", shard="s1", transactional=True)
    assert len(first.body) == 100
    sent = row_of_message(second, broker_group="broker-a", queue=3, offset=9)
    assert (sent.seq, sent.shard, sent.tx) == (1, "s1", f"tx-{sent.value}")
    assert row_of_message(first).value != sent.value
    read = row_of_delivered(
        DeliveredMessage(
            topic="orders",
            queue=MessageQueue("orders", "broker-a", 3),
            queue_offset=9,
            body=second.body,
            properties={
                **second.properties,
                "KEYS": " ".join(second.keys),
                "TAGS": second.tags or "",
                "UNIQ_KEY": "U1",
                "__SHARDINGKEY": second.shard or "",
            },
            uniq_key="U1",
            offset_msg_id="",
            physical_offset=0,
            born_timestamp_ms=0,
            store_timestamp_ms=0,
            flag=second.flag,
            sys_flag=0,
            reconsume_times=2,
            prepared_transaction_offset=0,
        )
    )
    names = ("value", "uniq_key", "keys", "broker_group", "topic", "queue", "offset")
    for name in (*names, "digest", "shard", "seq", "tx"):
        assert getattr(read, name) == getattr(sent, name)
    assert read.reconsume == 2


def test_checks_of_a_late_decision_are_told_to_whoever_sends_it() -> None:
    database, checks = LocalDatabase(), []
    assert database.execute("t", Decision.COMMIT) is Decision.COMMIT
    database.decide_late("t", lambda: checks.append("asked"))
    assert database.check("t") is Decision.UNKNOWN
    assert checks == ["asked"]
    database.decided("t")
    assert database.check("t") is Decision.COMMIT
    assert checks == ["asked"]


def test_the_database_settles_a_transaction_once() -> None:
    database = LocalDatabase()
    assert database.execute("t1", Decision.COMMIT) is Decision.COMMIT
    assert database.check("t1") is Decision.COMMIT
    assert database.check("t2") is Decision.ROLLBACK
    assert database.execute("t2", Decision.COMMIT) is Decision.ROLLBACK, "a check came first"
    database.answer_unknown_first("t1", 2)
    answers = [database.check("t1") for _ in range(3)]
    assert answers == [Decision.UNKNOWN, Decision.UNKNOWN, Decision.COMMIT]


def test_every_shard_has_one_writer() -> None:
    settings = WorkloadSection(plain_clients=3, plain_processes=2, shards=17)
    dealt = [
        shard
        for client in range(3)
        for process in _deal_shards(settings, client)
        for shard in process
    ]
    assert sorted(dealt) == list(range(17))


def test_slots_are_distinct() -> None:
    names = slot_names(parse_scenario("[load]\n", name="x"))
    assert len(set(names)) == len(names)


async def test_pace_does_not_catch_up() -> None:
    stop = asyncio.Event()
    pace = Pace(1000.0, random.Random(1))
    assert await pace.wait(stop)
    stop.set()
    assert not await pace.wait(stop)
    assert await sleep_until_set(stop, 10)


@pytest.mark.parametrize(
    ("body", "flag", "properties", "digest"),
    [
        (b"hello", 0, {"TAGS": "a"}, 7560684089011591531),
        (
            b"hello",
            7,
            {"TAGS": "a", "KEYS": "k1 k2", "u_": "", "u_a": "1", "UNIQ_KEY": "x"},
            -6720152112533199961,
        ),
        (b"", 0, {}, -1700982381690277310),
    ],
)
def test_a_digest_is_the_formats(
    body: bytes, flag: int, properties: dict[str, str], digest: int
) -> None:
    assert contents_digest(body, flag, properties) == digest


def test_messages_of_a_batch_stand_one_behind_the_other() -> None:
    maker = MessageMaker(prefix="p", body_bytes=10, rng=random.Random(1))
    queue = MessageQueue("orders", "broker-a", 1)
    result = SendResult(
        status=SendStatus.SEND_OK,
        msg_id="U0,U1",
        offset_msg_id="0",
        queue=queue,
        queue_offset=7,
        transaction_id=None,
        attempts=1,
        address="h:1",
    )
    messages = [maker.make("orders", uniq_key=f"U{number}") for number in range(2)]
    rows = [row_of_stored(message, result, number) for number, message in enumerate(messages)]
    assert [(row.value, row.queue, row.offset) for row in rows] == [("p-0", 1, 7), ("p-1", 1, 8)]


def test_only_what_was_acknowledged_is_asked_for() -> None:
    known = KnownKeys()
    rng = random.Random(1)
    assert known.draw(rng) is None
    maker = MessageMaker(prefix="p", body_bytes=10, rng=rng)
    message = maker.make("orders", uniq_key="U0")
    message.keys = ("one", "two")
    known.acknowledged(message, MessageQueue("orders", "broker-a", 1))
    drawn = {(one.key, one.unique) for _ in range(50) if (one := known.draw(rng)) is not None}
    assert drawn == {("U0", True), ("one", False), ("two", False)}


async def test_the_next_key_is_one_of_a_message_that_is_acknowledged_later() -> None:
    known, queue = KnownKeys(), MessageQueue("orders", "broker-a", 1)
    maker = MessageMaker(prefix="p", body_bytes=10, rng=random.Random(1))
    first, second = (maker.make("orders", uniq_key=f"U{number}") for number in range(2))
    first.keys, second.keys = ("early",), ("late",)
    known.acknowledged(first, queue)
    assert await known.next(0) is None
    waiting = asyncio.create_task(known.next(10))
    await turns(2)
    known.acknowledged(second, queue, in_batch=True)
    question = await waiting
    assert question is not None
    assert question.key == "late"
    assert [each.key for each in known.of_batches] == ["late"]


def test_messages_have_no_key_one_or_several_and_unusual_properties() -> None:
    maker = MessageMaker(prefix="p", body_bytes=10, rng=random.Random(1))
    made = [maker.make("orders", uniq_key=f"U{number}") for number in range(100)]
    assert {len(message.keys) for message in made} == {0, 1, 3}
    shared = Counter(key for message in made for key in message.keys)
    assert {1, 2} <= set(shared.values())
    texts = {value for message in made for value in message.properties.values()}
    assert any(text.isspace() for text in texts)
    assert any(text != text.strip() and not text.isspace() for text in texts)
    assert any("\x01" in text for text in texts)
    assert all(texts)


def test_a_transaction_that_nobody_decides_stays_unknown() -> None:
    database = LocalDatabase()
    database.never_decide("x")
    assert {database.check("x") for _ in range(100)} == {Decision.UNKNOWN}
    with pytest.raises(AssertionError):
        database.execute("x", Decision.COMMIT)


class Routes:
    """A producer that learns of no topic at its first attempts."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.known: list[str] = []

    async def queues(self, topic: str, timeout_ms: int | None = None) -> tuple[MessageQueue, ...]:
        if self.failures:
            self.failures -= 1
            raise NoRouteError(f"no route to {topic}")
        self.known.append(topic)
        return ()


async def test_a_producer_introduces_itself_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come back before a leader has, and sends nothing once the load is over."""
    monkeypatch.setattr("chaos.workload.transactional_sender.PAUSE_AFTER_CRASH_S", 0.001)
    routes = Routes(failures=3)
    await introduce(routes, ["orders", "payments"], asyncio.Event())
    assert routes.known == ["orders", "payments"]
    end = asyncio.Event()
    end.set()
    hopeless = Routes(failures=1)
    await introduce(hopeless, ["orders"], end)
    assert hopeless.known == []


async def test_a_reader_that_never_learnt_where_to_begin_ends_as_any_other(tmp_path: Path) -> None:
    """Nobody answers it, for as long as the run lasts: its link is still cut, say."""
    drained = asyncio.Event()

    class Deaf:
        group = "pull-0"

        async def fetch_offset(self, queue: MessageQueue) -> int | None:
            drained.set()
            raise UnansweredError("fetch_offset: no answer")

    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
        member = _Member(
            SimpleNamespace(history=history, queues=queues),  # type: ignore[arg-type]
            Deaf(),  # type: ignore[arg-type]
            "pull-0.0",
            {},
            rng=random.Random(1),
            on_read=lambda messages: None,
        )
        await member.run(drained, drained, None, leave=True)
    assert [(op["f"], op["type"]) for op in ops_of(tmp_path / "h")] == [("fetch_offset", "info")]
