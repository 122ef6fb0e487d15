"""Administrators that change a topic's queues and permissions, and settings of running brokers.

Place in the data path: `programs` runs them on client machines; a topic's shapes end in
`shape_model`, messages in `client_checker`. Each is the only one who changes what it changes, and
tries requests in between that should be rejected now.
"""

from __future__ import annotations

import asyncio
import random

from chaos.sim.groups.models.shape_model import Shape
from chaos.sim.groups.programs.clients import PAUSE_AFTER_ERROR_S, TOPIC, Desk, insist, until_known
from chaos.sim.groups.programs.readers import show_pull
from chaos.sim.groups.programs.settings import GROUP
from chaos.sim.machine.violation import Violation
from chaos.sim.machine.virtual_host import current
from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import Message, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SHAPED_TOPIC", "Reshaper", "Tuner"]

SHAPED_TOPIC = "S"
_TIMEOUT_MS = 3_000
_QUEUES_MAX = 6
_PERMS = (6, 6, 6, 4, 2, 0)
_READABLE = 4
_RESHAPE_RATE = 0.3
_PULL_RATE = 0.4
_CHANGE_RATE = 0.4
_TUNER_PACE = 3  # so many times rarer than sends


class Reshaper:
    """Changes the topic's shape, sends to queues that exist or not, and pulls from them.

    It also pulls from queues that exist again after the topic had fewer.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._acknowledged = 0  # number of the last acknowledged change

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        producer = Producer(
            "PS", desk.name_servers, settings=ProducerSettings(timeout_ms=_TIMEOUT_MS)
        )
        consumer = PullConsumer(
            "CS", desk.name_servers, settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS)
        )
        await producer.start()
        await consumer.start()
        await until_known(lambda: consumer.queues(TOPIC))
        while True:
            await asyncio.sleep(rng.expovariate(1) * desk.options.send_interval_ms / 1000)
            if not desk.sending:
                continue
            try:
                if rng.random() < _RESHAPE_RATE:
                    await self._reshape(consumer, rng)
                elif rng.random() < _PULL_RATE:
                    await self._pull(consumer, rng)
                else:
                    await self._send(producer, rng)
            except ClientError:
                desk.counts["reads_failed"] += 1

    async def _reshape(self, consumer: PullConsumer, rng: random.Random) -> None:
        shape = Shape(rng.randint(1, _QUEUES_MAX), rng.randint(1, _QUEUES_MAX), rng.choice(_PERMS))
        fields = {
            "topic": SHAPED_TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": str(shape.read),
            "writeQueueNums": str(shape.write),
            "perm": str(shape.perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        await call_group(
            consumer.instance,
            GROUP,
            lambda: RemotingCommand(
                code=RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=dict(fields)
            ),
            topic=TOPIC,
            timeout_ms=_TIMEOUT_MS,
            policy=RetryPolicy(attempts_max=rng.choice((1, 64))),
        )
        self._acknowledged = self._desk.checker.shapes.on_answered(
            SHAPED_TOPIC, shape, self._acknowledged
        )
        self._desk.counts["topics_reshaped"] += 1

    async def _send(self, producer: Producer, rng: random.Random) -> None:
        queue_id = rng.randrange(_QUEUES_MAX)
        value = self._desk.checker.new_value()
        message = Message(topic=SHAPED_TOPIC, body=f"{value.name} ".encode())
        queue = MessageQueue(SHAPED_TOPIC, GROUP, queue_id)
        acknowledged = self._acknowledged
        result = await insist(self._desk, [value], lambda: producer.send(message, queue=queue), rng)
        shapes = self._desk.checker.shapes.since(SHAPED_TOPIC, acknowledged)
        if all(one is not None and queue_id >= max(one.read, one.write) for one in shapes):
            if result is not None and shapes:
                raise Violation("shapes", f"a send to queue {queue_id} is stored: {shapes}")
            self._desk.counts["shapes_kept"] += 1

    async def _pull(self, consumer: PullConsumer, rng: random.Random) -> None:
        desk = self._desk
        queue = MessageQueue(SHAPED_TOPIC, GROUP, rng.randrange(_QUEUES_MAX))
        offset = rng.randint(0, desk.checker.end_of(SHAPED_TOPIC, queue.queue_id))
        acknowledged, leaders = self._acknowledged, desk.leaders()
        result = None
        try:
            result = await consumer.pull(queue, offset)
        finally:
            shapes = desk.checker.shapes.since(SHAPED_TOPIC, acknowledged)
            is_wrong = bool(shapes) and all(
                one is not None and (queue.queue_id >= one.read or not one.perm & _READABLE)
                for one in shapes
            )
            desk.counts["shapes_kept"] += is_wrong and result is None
        show_pull(desk, queue, offset, result)
        # Any other replica may not have the change yet.
        if is_wrong and leaders == desk.leaders() == {result.address}:
            raise Violation("shapes", f"{queue} is read, in force are {shapes}")


class Tuner:
    """Changes settings of one broker after the other, and checks that they are kept.

    They survive deaths and starts, but not the loss of a disk.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._acknowledged: dict[tuple[str, str], str] = {}  # by address and name
        self._wiped = 0

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        consumer = PullConsumer(
            "CU", desk.name_servers, settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS)
        )
        await consumer.start()
        await until_known(lambda: consumer.queues(TOPIC))
        self._acknowledged.clear()  # another broker may not have what the last one acknowledged
        while True:
            pace = _TUNER_PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * pace)
            address = rng.choice(desk.brokers())
            try:
                if desk.sending and rng.random() < _CHANGE_RATE:
                    await self._change(consumer, address, rng)
                else:
                    await self._check_settings(consumer, address)
            except RemotingError:
                desk.counts["reads_failed"] += 1
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)

    async def _request(
        self, consumer: PullConsumer, address: str, code: RequestCode, body: bytes = b""
    ) -> RemotingCommand:
        connection = await consumer.instance.rpc.connect(address)
        return await connection.request(RemotingCommand(code=code, body=body), _TIMEOUT_MS)

    async def _change(self, consumer: PullConsumer, address: str, rng: random.Random) -> None:
        name, value = _draw(rng)
        self._acknowledged.pop((address, name), None)  # until the outcome is known
        body = f"{name}={value}\n".encode()
        wiped = self._desk.counts["disks_wiped"]
        answer = await self._request(consumer, address, RequestCode.UPDATE_BROKER_CONFIG, body)
        if answer.code == 0 and wiped == self._desk.counts["disks_wiped"]:
            self._acknowledged[address, name] = value
            self._desk.counts["settings_changed"] += 1

    async def _check_settings(self, consumer: PullConsumer, address: str) -> None:
        answer = await self._request(consumer, address, RequestCode.GET_BROKER_CONFIG)
        wiped = self._desk.counts["disks_wiped"]
        if wiped != self._wiped:
            self._wiped = wiped
            self._acknowledged.clear()
        if answer.code != 0:
            return
        shown = dict(line.partition("=")[::2] for line in answer.body.decode().splitlines())
        for (broker, name), value in self._acknowledged.items():
            if broker == address and shown[name] != value:
                raise Violation(
                    "settings",
                    f"{address}: {name}={value} was acknowledged, {shown[name]} is shown",
                )


def _draw(rng: random.Random) -> tuple[str, str]:
    """Draw a setting that may change without effect on the checks."""
    return rng.choice(
        (
            ("transactionCheckMax", str(rng.randint(2, 15))),
            ("transactionCheckInterval", str(rng.randint(300, 2_000))),
            ("transactionTimeOut", str(rng.randint(300, 3_000))),
            ("maxTransferCountOnMessageInMemory", str(rng.randint(1, 64))),
            ("maxTransferBytesOnMessageInMemory", str(rng.randint(1, 20_000))),
            ("recallMessageEnable", rng.choice(("true", "false"))),
            ("rejectTransactionMessage", rng.choice(("true", "false"))),
            ("enablePropertyFilter", rng.choice(("true", "false"))),
        )
    )
