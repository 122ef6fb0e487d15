"""The shop: takes orders, and has each of them reach the warehouse.

    python -m examples.outbox.shop --namesrv 127.0.0.1:9876 --database sqlite:///tmp/shop.db

An order and the decision on its half message are rows of one database transaction. Whoever answers
the broker's check, this process or the next one after a crash, reads the decision there. Where
there is none it writes "rollback" first: a local transaction that is late then finds that it may no
longer commit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import uuid

from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)
from examples.outbox.database import create_tables, transaction
from examples.outbox.orders import TOPIC, Order

__all__ = ["GROUP", "OrderListener", "decision_on", "place"]

GROUP = "shop"
ITEMS = ("apples", "bread", "cheese")
TABLES = """
create table if not exists orders (
    id text primary key, item text not null, quantity integer not null
);
create table if not exists decisions (order_id text primary key, decision text not null);
"""


def place(url: str, order: Order) -> Decision:
    """Store an order together with the decision to commit its message."""
    with transaction(url) as database:
        first = database.query(
            "insert into decisions (order_id, decision) values (?, 'commit')"
            " on conflict do nothing returning order_id",
            order.id,
        )
        if not first:  # a check came before, and has said that there is no such order
            return Decision.ROLLBACK
        database.execute(
            "insert into orders (id, item, quantity) values (?, ?, ?)",
            order.id,
            order.item,
            order.quantity,
        )
    return Decision.COMMIT


def decision_on(url: str, order_id: str) -> Decision:
    """Return what was decided on an order; what nobody has decided is rolled back from now on."""
    with transaction(url) as database:
        database.execute(
            "insert into decisions (order_id, decision) values (?, 'rollback')"
            " on conflict do nothing",
            order_id,
        )
        ((decision,),) = database.query(
            "select decision from decisions where order_id = ?", order_id
        )
    return Decision(decision)


class OrderListener:
    """The shop's side of each transaction."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return await asyncio.to_thread(place, self._url, Order.of_bytes(message.body))

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return await asyncio.to_thread(decision_on, self._url, Order.of_bytes(message.body).id)


async def take_orders(
    name_servers: list[str], url: str, *, rate_per_s: float, count: int, ends: asyncio.Event
) -> None:
    """Place orders until `ends` is set; then `count` is what was placed at most. With a rate of 0
    the shop is closed, and answers the broker's checks alone."""
    await asyncio.to_thread(create_tables, url, TABLES)
    chance = random.Random()
    settings = TransactionSettings()
    async with TransactionProducer(
        GROUP, name_servers, OrderListener(url), settings=settings
    ) as producer:
        await _await_queues(producer, ends)
        for _ in range(count if rate_per_s else 0):
            if ends.is_set():
                break
            order = Order(uuid.uuid4().hex, chance.choice(ITEMS), chance.randint(1, 9))
            message = Message(topic=TOPIC, body=order.to_bytes(), keys=(order.id,))
            try:
                await producer.send_in_transaction(message)
            except ClientError as error:
                # The half is not known to be stored, so there is no order. If it is stored after
                # all, the broker asks, and is told so.
                sys.stderr.write(f"order {order.id} is not taken: {error}\n")
            await _pause(1 / rate_per_s, ends)
        if not rate_per_s:
            await ends.wait()


async def _await_queues(producer: TransactionProducer, ends: asyncio.Event) -> None:
    """Learn the route, by which the brokers get to know this producer and ask it."""
    while not ends.is_set():
        try:
            await producer.queues(TOPIC)
        except ClientError as error:
            sys.stderr.write(f"no route yet: {error}\n")
            await _pause(0.2, ends)
        else:
            return


async def _pause(seconds: float, ends: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(ends.wait(), seconds)
    except TimeoutError:
        return


async def run(arguments: argparse.Namespace) -> None:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    await take_orders(
        arguments.namesrv.split(";"),
        arguments.database,
        rate_per_s=arguments.rate,
        count=arguments.orders,
        ends=ends,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Take orders.")
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--database", required=True)
    parser.add_argument("--rate", type=float, default=10, help="orders a second; 0: none")
    parser.add_argument("--orders", type=int, default=sys.maxsize, help="how many in all")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
