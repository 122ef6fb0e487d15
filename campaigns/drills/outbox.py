"""Kills shop, warehouse and brokers of `examples/outbox` in turn, and compares both databases.

An order of the shop's database has to be shipped once by the warehouse's, and nothing else may be.
Each crash is SIGKILL, at any moment of the orders that are under way; what was killed starts again.
At the end the shop takes no more orders and answers what brokers still ask; once nothing is
undecided and all that is committed is consumed, the databases are compared.

    python -m campaigns.drills.outbox --crashes 200 --output figures/outbox.json
    python -m campaigns.drills.outbox --crashes 200 --postgres --output figures/outbox-postgres.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from campaigns.rig.postgres import postgres
from campaigns.rig.waiting import await_until, until
from chaos.cluster import cluster, nodes
from client.administer.admin import Admin, AdminSettings
from client.errors import ClientError
from examples.outbox import shop, warehouse
from examples.outbox.database import create_tables, transaction
from examples.outbox.orders import TOPIC

__all__ = ["Databases", "crash", "differences", "sqlite_databases"]

ROOT: Final = Path(__file__).resolve().parents[2]
VICTIMS: Final = ("shop", "warehouse", "broker")
SETTINGS: Final[dict[str, int | bool | str]] = {
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 500,
    "transaction_check_max": 1_000,
}
ORDERS_BETWEEN: Final = 3
ORDERS_S: Final = 120.0
END_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Databases:
    """URLs of both."""

    shop: str
    warehouse: str


def sqlite_databases(folder: Path) -> Databases:
    return Databases(f"sqlite://{folder / 'shop.db'}", f"sqlite://{folder / 'warehouse.db'}")


class _Application:
    """One process of the example, which is killed and started again."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self._log = folder / f"{name}.log"
        self._argv = [sys.executable, "-m", f"examples.outbox.{name}", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._argv, *more], stdout=log, stderr=log, cwd=self._log.parent, env=environment
            )

    def kill(self) -> None:
        """Kill it. Raises AssertionError where it has ended by itself."""
        process = self._process
        assert process is not None
        assert process.poll() is None, f"it ended by itself: {self._log.read_text()[-2_000:]}"
        process.kill()
        process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def crash(
    folder: Path,
    databases: Databases,
    *,
    crashes: int,
    replicas: int = 3,
    rate: float = 50,
    seed: int,
) -> dict[str, Any]:
    """Run the example under so many crashes; return the figures, `differences` among them."""
    rng = random.Random(seed)
    up = cluster.up(
        folder,
        replicas=replicas,
        name_servers=1,
        namesrv_port=0,
        base_port=0,
        profile="fast",
        detach=True,
        settings=SETTINGS,
        report=lambda _: None,
    )
    name_servers = list(up.name_servers)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.down, folder)
        asyncio.run(_make_topic(name_servers))
        address = ";".join(name_servers)
        seller = _Application(folder, "shop", "--namesrv", address, "--database", databases.shop)
        house = _Application(
            folder, "warehouse", "--namesrv", address, "--database", databases.warehouse
        )
        applications = {"shop": seller, "warehouse": house}
        create_tables(databases.shop, shop.TABLES)
        create_tables(databases.warehouse, warehouse.TABLES)
        for application in applications.values():
            stack.callback(application.stop)
        seller.start("--rate", str(rate))
        house.start()
        for victim in itertools.islice(itertools.cycle(VICTIMS), crashes):
            _await_orders(databases, ORDERS_BETWEEN)
            time.sleep(rng.random() / rate)  # any moment of an order
            if victim == "broker":
                _kill_broker(folder, rng)
            else:
                applications[victim].kill()
                applications[victim].start(*(("--rate", str(rate)) if victim == "shop" else ()))
        _await_orders(databases, ORDERS_BETWEEN)
        seller.kill()
        seller.start("--rate", "0")
        asyncio.run(_await_end(name_servers, databases))
        figures = _figures(databases)
    return {
        "crashes": crashes,
        "of": dict(Counter(itertools.islice(itertools.cycle(VICTIMS), crashes))),
        "replicas": replicas,
        "seconds": round(time.monotonic() - began, 1),
        **figures,
        "differences": differences(databases),
    }


def differences(databases: Databases) -> list[str]:
    """Return how the warehouse's database contradicts the shop's."""
    with transaction(databases.shop) as database:
        ordered = dict(_by_id(database.query("select id, item, quantity from orders")))
    with transaction(databases.warehouse) as database:
        shipped = list(_by_id(database.query("select order_id, item, quantity from shipments")))
        stock = dict(_pair(row) for row in database.query("select item, pieces from stock"))
    times = Counter(order_id for order_id, _ in shipped)
    found = [f"{order_id} was never shipped" for order_id in ordered if not times[order_id]]
    found += [f"{order_id} was shipped {n} times" for order_id, n in times.items() if n > 1]
    found += [f"{order_id} was never ordered" for order_id in times if order_id not in ordered]
    found += [
        f"{order_id} was shipped as {order}"
        for order_id, order in shipped
        if order_id in ordered and ordered[order_id] != order
    ]
    for item, pieces in stock.items():
        left = warehouse.STOCK - sum(n for each, n in ordered.values() if each == item)
        if pieces != left:
            found.append(f"{pieces} {item} are left, not {left}")
    return found


def _by_id(rows: list[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[str, int]]]:
    for order_id, item, quantity in rows:
        yield order_id, (item, quantity)


def _pair(row: tuple[Any, ...]) -> tuple[str, int]:
    item, pieces = row
    return item, pieces


def _figures(databases: Databases) -> dict[str, int]:
    with transaction(databases.shop) as database:
        ((orders,),) = database.query("select count(*) from orders")
        ((undone,),) = database.query("select count(*) from decisions where decision = 'rollback'")
    with transaction(databases.warehouse) as database:
        ((shipments,),) = database.query("select count(*) from shipments")
        ((again,),) = database.query("select coalesce(sum(deliveries - 1), 0) from inbox")
    return {
        "orders": int(orders),
        "shipments": int(shipments),
        "rolled_back_by_checks": int(undone),
        "delivered_again": int(again),
    }


def _count(databases: Databases) -> int:
    with transaction(databases.shop) as database:
        ((count,),) = database.query("select count(*) from orders")
    return int(count)


def _await_orders(databases: Databases, more: int) -> None:
    wanted = _count(databases) + more
    await_until(lambda: _count(databases) >= wanted, f"{more} more orders", ORDERS_S)


def _kill_broker(folder: Path, rng: random.Random) -> None:
    """Kill the leader or another node, and start it again."""
    known = cluster.status(folder).nodes
    leaders = [node for node in known if node.role == "leader"]
    node = rng.choice(leaders if leaders and rng.random() < 0.7 else list(known))
    nodes.kill(folder, node.name, report=lambda _: None)
    nodes.start(folder, node.name, report=lambda _: None)


async def _make_topic(name_servers: list[str]) -> None:
    async with Admin(name_servers) as admin:
        await admin.create_topic(TOPIC, queues=4)


async def _await_end(name_servers: list[str], databases: Databases) -> None:
    """Wait until no half is undecided and nothing is left to consume."""
    async with Admin(name_servers, settings=AdminSettings(timeout_ms=20_000)) as admin:

        async def is_over() -> bool:
            try:
                if (await admin.list_halves("broker-a", count_max=1)).undecided:
                    return False
                progress = await admin.consumer_progress(warehouse.GROUP, TOPIC)
            except ClientError:
                return False  # a leader that was just started
            return len(progress) == 4 and not any(each.lag for each in progress.values())

        await until(is_over, "the end of all transactions", END_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="a server of its own, on loopback")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        folder = Path(directory)
        databases = sqlite_databases(folder)
        if arguments.postgres:
            databases = Databases(*stack.enter_context(postgres(["shop", "warehouse"])))
        figures = crash(
            folder,
            databases,
            crashes=arguments.crashes,
            replicas=arguments.replicas,
            seed=arguments.seed,
        )
    figures["database"] = "PostgreSQL" if arguments.postgres else "SQLite"
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    raise SystemExit(1 if figures["differences"] else 0)


if __name__ == "__main__":
    main()
