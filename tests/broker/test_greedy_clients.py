"""What one client's heartbeats may take of memory and time is bounded, and others' stay theirs."""

from __future__ import annotations

import json

import pytest

from broker.groups.clients import ClientProcessor
from broker.queues.message_filter import parse_tags
from broker.request.clients import Clients, ClientsFullError, Subscription
from remoting.connections.connection import Connection
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import FakeConnection, Rig
from tests.work import counted


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def connection() -> Connection:
    return FakeConnection()  # type: ignore[return-value]


def consumer(clients: Clients, group: str, client_id: str, to: Connection, *topics: str) -> None:
    clients.consumer_seen(
        group,
        client_id,
        to,
        message_model="CLUSTERING",
        subscriptions=[
            Subscription(topic=topic, expression="*", version=1, filter=parse_tags("*"))
            for topic in topics
        ],
        now_ms=0,
    )


def test_clients_are_bounded_over_all_groups():
    clients = Clients(clients_max=10, client_silence_ms_max=1_000, members_max=3)
    first = connection()
    clients.producer_seen("a", "1", first, 0)
    clients.producer_seen("b", "1", first, 0)
    consumer(clients, "c", "1", connection(), "T")
    for group in ("a", "new"):
        with pytest.raises(ClientsFullError, match="3 clients"):
            clients.producer_seen(group, "2", connection(), 0)
    with pytest.raises(ClientsFullError, match="3 clients"):
        consumer(clients, "new", "2", connection(), "T")
    assert clients.consumer_groups() == ["c"], "a refused one leaves no empty group"
    assert list(clients.producers()) == ["a", "b"]
    clients.producer_seen("a", "1", first, 1)  # who is known goes on
    clients.connection_closed(first)
    assert list(clients.producers()) == []
    clients.producer_seen("new", "2", connection(), 0)


def test_subscriptions_are_bounded_over_all_groups(monkeypatch):
    monkeypatch.setattr("broker.request.clients._SUBSCRIPTIONS_SIZE_MAX", 2_000)
    clients = Clients(clients_max=10, client_silence_ms_max=1_000)
    mine = connection()
    for _ in range(5):
        consumer(clients, "a", "1", mine, "T", "U")
    with pytest.raises(ClientsFullError, match="bytes"):
        consumer(clients, "b", "2", connection(), "T", "U")
    consumer(clients, "a", "1", mine, "T")
    consumer(clients, "b", "2", connection(), "T", "U")
    clients.connection_closed(mine)
    consumer(clients, "c", "3", connection(), "T")


def test_a_connection_hears_of_a_change_once_however_many_clients_it_carries():
    clients = Clients(clients_max=10_000, client_silence_ms_max=1_000)
    greedy, other = FakeConnection(), FakeConnection()
    consumer(clients, "G", "other", other, "T")  # type: ignore[arg-type]
    for number in range(2_000):
        consumer(clients, "G", f"c{number}", greedy, "T")  # type: ignore[arg-type]
    assert len(greedy.sent) == 2_000
    assert len(other.sent) == 2_001, "its own coming too"


def test_a_closed_connection_costs_what_it_brought():
    clients = Clients(clients_max=100_000, client_silence_ms_max=1_000)
    for number in range(50_000):
        clients.producer_seen("P", f"c{number}", connection(), 0)
    with counted() as work:
        for _ in range(100):
            clients.connection_closed(connection())
    assert work.lines < 100 * 100, "each would look at all of them"


def test_nobody_unregisters_another_connections_client():
    clients = Clients(clients_max=10, client_silence_ms_max=1_000)
    mine = connection()
    clients.producer_seen("P", "c", mine, 0)
    consumer(clients, "G", "c", mine, "T")
    clients.unregister("c", "P", "G", connection())
    assert clients.producer("P") is mine
    assert clients.consumer_ids("G") == ["c"]
    clients.unregister("c", "P", "G", mine)
    assert clients.producer("P") is None
    assert clients.consumer_groups() == []


def test_a_client_that_comes_over_a_new_connection_survives_the_end_of_the_old_one():
    clients = Clients(clients_max=10, client_silence_ms_max=1_000)
    old, new = connection(), connection()
    consumer(clients, "G", "c", old, "T")
    consumer(clients, "G", "c", new, "T")
    clients.connection_closed(old)
    assert clients.consumer_ids("G") == ["c"]
    clients.expire(5_000)
    assert clients.consumer_groups() == []
    clients.connection_closed(new)


@pytest.mark.parametrize(
    ("subscription", "told"),
    [
        ({"topic": "T" * 2_000, "subString": "*"}, "2000 characters of a topic"),
        ({"topic": "T", "subString": "a" * 70_000}, "70000 characters of an expression"),
    ],
)
async def test_a_subscription_of_any_size_is_refused(rig, subscription, told):
    answer = await beat(rig, [subscription])
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert told in answer.remark


async def test_expressions_that_take_long_to_compile_are_refused_together(rig):
    expression = " OR ".join(f"property{number} = {number}" for number in range(300))
    rows = [
        {"topic": f"T{number}", "subString": f"{expression} OR x = {number}",
         "expressionType": "SQL92"}
        for number in range(100)
    ]  # fmt: skip
    with counted() as work:
        answer = await beat(rig, rows)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "in one heartbeat" in answer.remark
    assert work.lines < 10_000, "none was compiled"
    assert (await beat(rig, rows[:10])).code == ResponseCode.SUCCESS


async def beat(rig: Rig, subscriptions: list[dict[str, str]]):
    group = {"groupName": "G", "subscriptionDataSet": subscriptions}
    body = json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode()
    processor = rig.make(ClientProcessor)
    return await rig.ask(processor.heartbeat, RequestCode.HEART_BEAT, {}, body)
