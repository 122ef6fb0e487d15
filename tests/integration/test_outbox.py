"""`examples/outbox`: exactly-once effects while its processes and brokers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.drills.outbox import Databases, crash, differences, sqlite_databases
from client.produce.transaction_producer import Decision
from examples.outbox import shop, warehouse
from examples.outbox.database import create_tables, transaction
from examples.outbox.orders import Order


@pytest.fixture
def databases(tmp_path: Path) -> Databases:
    databases = sqlite_databases(tmp_path)
    create_tables(databases.shop, shop.TABLES)
    create_tables(databases.warehouse, warehouse.TABLES)
    return databases


def test_three_crashes_lose_and_double_nothing(tmp_path: Path, databases: Databases) -> None:
    figures = crash(tmp_path, databases, crashes=3, replicas=1, seed=1)
    assert figures["differences"] == []
    assert figures["orders"] == figures["shipments"] > 0
    assert figures["of"] == {"shop": 1, "warehouse": 1, "broker": 1}


def test_an_order_that_a_check_has_rolled_back_is_not_placed(databases: Databases) -> None:
    late, early = Order("late", "bread", 2), Order("early", "bread", 3)
    assert shop.decision_on(databases.shop, late.id) is Decision.ROLLBACK
    assert shop.place(databases.shop, late) is Decision.ROLLBACK
    assert shop.place(databases.shop, early) is Decision.COMMIT
    assert shop.decision_on(databases.shop, early.id) is Decision.COMMIT
    with transaction(databases.shop) as database:
        assert database.query("select id, quantity from orders") == [("early", 3)]


def test_an_order_that_fails_halfway_leaves_nothing(databases: Databases) -> None:

    def fail_halfway() -> None:
        with transaction(databases.shop) as database:
            database.execute("insert into decisions (order_id, decision) values ('x', 'commit')")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail_halfway()
    assert shop.decision_on(databases.shop, "x") is Decision.ROLLBACK


def test_what_is_delivered_twice_is_shipped_once(databases: Databases) -> None:
    order = Order("one", "apples", 4)
    shop.place(databases.shop, order)
    assert warehouse.ship(databases.warehouse, order)
    assert not warehouse.ship(databases.warehouse, order)
    assert differences(databases) == []


def test_the_comparison_can_say_no(databases: Databases) -> None:
    for number in range(3):
        shop.place(databases.shop, Order(f"{number}", "bread", 1))
    warehouse.ship(databases.warehouse, Order("0", "bread", 1))
    warehouse.ship(databases.warehouse, Order("1", "bread", 2))
    warehouse.ship(databases.warehouse, Order("foreign", "bread", 1))
    with transaction(databases.warehouse) as database:
        database.execute("insert into shipments values ('0', 'bread', 1)")
    assert differences(databases) == [
        "2 was never shipped",
        "0 was shipped 2 times",
        "foreign was never ordered",
        "1 was shipped as ('bread', 2)",
        "999996 bread are left, not 999997",
    ]


def test_a_url_of_no_database_is_refused() -> None:
    with pytest.raises(ValueError, match="sqlite:///PATH"):
        create_tables("mysql://here/x", shop.TABLES)
