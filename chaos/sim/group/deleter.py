"""A client that sends to a topic and deletes it, over and over; now and then that of others.

Place in the data path: `cluster` runs one on a client machine; what it is told ends in `promises`.
A send to a topic that is no more makes it anew; its queues must go on where they ended.
"""

from __future__ import annotations

import asyncio
import random

from chaos.sim.group.clients import Desk, insist
from chaos.sim.group.pop_clients import POP_TOPIC
from chaos.sim.virtual_host import current
from client.admin import Admin, AdminSettings
from client.errors import ClientError
from client.message import Message
from client.producer import Producer, ProducerSettings

__all__ = ["DELETED_TOPIC", "Deleter"]

DELETED_TOPIC = "D"
_TIMEOUT_MS = 3_000
_DELETE_RATE = 0.15
_OF_OTHERS_RATE = 0.3


class Deleter:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        producer = Producer(
            "PD", desk.name_servers, settings=ProducerSettings(timeout_ms=_TIMEOUT_MS)
        )
        admin = Admin(desk.name_servers, settings=AdminSettings(timeout_ms=_TIMEOUT_MS))
        await producer.start()
        await admin.start()
        while True:
            await asyncio.sleep(rng.expovariate(1) * 2 * desk.options.send_interval_ms / 1000)
            if not desk.sending:
                continue
            if rng.random() < _DELETE_RATE:
                topic = POP_TOPIC if rng.random() < _OF_OTHERS_RATE else DELETED_TOPIC
                await self._delete(admin, topic)
            else:
                await self._send(producer, rng)

    async def _send(self, producer: Producer, rng: random.Random) -> None:
        value = self._desk.promises.new_value()
        message = Message(topic=DELETED_TOPIC, body=f"{value.name} ".encode())
        await insist(self._desk, [value], lambda: producer.send(message), rng)

    async def _delete(self, admin: Admin, topic: str) -> None:
        promises = self._desk.promises
        ends = promises.acknowledged_ends(topic)
        try:
            await admin.delete_topic(topic)
        except ClientError:
            return  # done or not: nobody relies on it
        promises.on_deleted(ends)
