"""The warehouse: ships each order exactly once.

    python -m examples.outbox.warehouse --namesrv 127.0.0.1:9876 --database sqlite:///tmp/house.db

A message may be delivered again: after a crash, a failover, a rebalance. The inbox has a row for
each order that was seen, in the same database transaction as what the order does: seen means done.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence

from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage
from examples.outbox.database import create_tables, transaction
from examples.outbox.orders import TOPIC, Order

__all__ = ["GROUP", "ship"]

GROUP = "warehouse"
STOCK = 1_000_000  # pieces of each item at the beginning
TABLES = """
create table if not exists inbox (order_id text primary key, deliveries integer not null);
create table if not exists shipments (
    order_id text not null, item text not null, quantity integer not null
);
create table if not exists stock (item text primary key, pieces integer not null);
insert into stock values ('apples', 1000000), ('bread', 1000000), ('cheese', 1000000)
    on conflict do nothing;
"""


def ship(url: str, order: Order) -> bool:
    """Ship an order, unless that was done before; return whether it was done now."""
    with transaction(url) as database:
        ((deliveries,),) = database.query(
            "insert into inbox (order_id, deliveries) values (?, 1) on conflict (order_id)"
            " do update set deliveries = inbox.deliveries + 1 returning deliveries",
            order.id,
        )
        if deliveries > 1:
            return False
        database.execute(
            "insert into shipments (order_id, item, quantity) values (?, ?, ?)",
            order.id,
            order.item,
            order.quantity,
        )
        database.execute(
            "update stock set pieces = pieces - ? where item = ?", order.quantity, order.item
        )
    return True


async def serve(name_servers: list[str], url: str, ends: asyncio.Event) -> None:
    """Ship what is ordered until `ends` is set."""

    async def consume(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for message in messages:
            await asyncio.to_thread(ship, url, Order.of_bytes(message.body))
        return ConsumeStatus.CONSUME_SUCCESS

    await asyncio.to_thread(create_tables, url, TABLES)
    settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer(GROUP, name_servers, consume, settings=settings)
    consumer.subscribe(TOPIC)
    async with consumer:
        await ends.wait()


async def run(arguments: argparse.Namespace) -> None:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    await serve(arguments.namesrv.split(";"), arguments.database, ends)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ship orders.")
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--database", required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
