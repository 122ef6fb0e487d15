"""A client that sends to a topic and deletes it, over and over, and sometimes another client's
topic.

Place in the data path: `cluster` runs one on a client machine; its answers end in `client_checker`.
A send to a deleted topic creates it again; its queues must go on where they ended. Some of its
messages wait for their time when the topic is deleted, and some of the transactional producer's
messages are for this topic too: none of them may appear in the next topic of that name.
"""

from __future__ import annotations

import asyncio
import random

from broker.entry.levels import delay_ms, schedule_queue_id
from chaos.sim.groups.programs.clients import DELETED_TOPIC, Desk, insist
from chaos.sim.groups.programs.pop_clients import POP_TOPIC
from chaos.sim.machine.virtual_host import current
from client.administer.admin import Admin, AdminSettings
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer, ProducerSettings
from remoting.records.property_names import PropertyName

__all__ = ["Deleter"]

_TIMEOUT_MS = 3_000
_DELETE_RATE = 0.15
_OF_OTHERS_RATE = 0.3
_TIMER_RATE = 0.25
_WAITING_RATE = 0.5  # timer messages, and those of the shortest delay
_TIMER_DELAY_MS_MAX = 4_000


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
        luck = rng.random()
        value = self._desk.checker.new_value(is_delayed=luck < _WAITING_RATE)
        properties = {}
        if luck < _TIMER_RATE:
            value.delay_ms = int(rng.random() * _TIMER_DELAY_MS_MAX)
            properties[PropertyName.TIMER_DELAY_MS] = str(value.delay_ms)
        elif luck < _WAITING_RATE:
            value.delay_ms = delay_ms(schedule_queue_id(1))
            properties[PropertyName.DELAY] = "1"
        message = Message(
            topic=DELETED_TOPIC, body=f"{value.name} ".encode(), properties=properties
        )
        await insist(self._desk, [value], lambda: producer.send(message), rng)

    async def _delete(self, admin: Admin, topic: str) -> None:
        checker = self._desk.checker
        ends = checker.acknowledged_ends(topic)
        try:
            await admin.delete_topic(topic)
        except ClientError:
            return  # done or not: nobody relies on it
        checker.on_deleted(ends)
