"""Messages that are looked for by key in a topic on all broker groups, as tools look for them.

Place in the data path: `client.administer.admin`, which asks each broker group and puts their
answers together. The drill sends to groups in turn and at random, under a key of many messages, one
of the same hash, and keys of their own, in several writings, and reads all queues. Some senders'
clocks are minutes off, some messages wait for a delay level and some for a commit, so that births
and storings have different orders, within a broker group and across them.

Invariant: what is to be found is computed from the messages read: those with the key, of them those
within the time, of them the newest; by times of storing only, since equal ones tell no order.
Whether a broker group takes sends for the topic makes no difference.

Source: RocketMQ MQAdminImpl.queryMessage (maxNum, begin, end, _UNIQUE_KEY_QUERY), IndexFile (by
hash alone).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.workload.messages import wall_ms
from chaos.workload.parts.applications.bench import Bench
from client.message import DeliveredMessage, Message, MessageQueue, PropertyName, SendResult
from client.produce.transaction_producer import Decision, HalfMessage, half_message
from remoting.protocol.route import PERM_READ

__all__ = ["KeyLookups"]

QUEUES: Final = 2  # of each broker group
MESSAGES: Final = 20
APART_S: Final = 0.003
TWINS: Final = (  # keys of which Java's String.hashCode is the same, in several writings
    ("Aa", "BB"),
    ("\u00e4\u00df", "\u00e3\u00fe"),
    ("\u4e2d\u6587", "\u4e2c\u65a6"),
    ("\U0001f40d", "\U0001f02c"),
)
# What keys of one message begin with, in as many writings.
OWN: Final = ("own", "gr\u00f6\u00dfe", "\u8ba2\u5355", "\U0001f680")
LOOKUPS: Final = 14
READABLE: Final = 9  # of them come before the topic can no longer be sent to
COUNT_MAX: Final = 32
PAGE: Final = 32
CLOCKS_MS: Final = (0, -240_000, -60_000, -1_000, 1_000, 60_000)  # how far senders' clocks are off
DELAYED_SHARE: Final = 0.15
HALVES_SHARE: Final = 0.15
STORED_S: Final = 4.0  # within which the last of the delayed ones is to be there: level 1 is 1 s


class KeyLookups:
    """One topic, filled first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._shared, self._twin = bench.rng.choice(TWINS)

    async def run(self) -> None:
        """Fill the topic, and look for messages. Raises ClientError."""
        bench = self._bench
        groups = sorted(bench.kit.context.world.layout.groups)
        await bench.admin.create_topic(bench.topic, queues=QUEUES, broker_names=groups)
        queues = [MessageQueue(bench.topic, name, at) for name in groups for at in range(QUEUES)]
        there = await self._fill(queues)
        there.sort(key=lambda message: message.store_timestamp_ms)
        for number in range(LOOKUPS):
            if number == READABLE:
                await self._close_to_sends(
                    bench.rng.sample(groups, bench.rng.randint(1, len(groups)))
                )
            own = _own_key(bench.rng.randrange(len(OWN)))
            await self._look_up(
                there, bench.rng.choice((self._shared, self._shared, self._twin, own, "none"))
            )
        await self._look_up_unique(bench.rng.choice(there))

    async def _close_to_sends(self, groups: Sequence[str]) -> None:
        """Let the topic be read alone at some broker groups: its messages are still found there.
        Raises ClientError."""
        await self._bench.admin.create_topic(
            self._bench.topic, queues=QUEUES, perm=PERM_READ, broker_names=groups
        )
        end_s = asyncio.get_running_loop().time() + STORED_S * self._bench.patience
        while asyncio.get_running_loop().time() < end_s:
            route = await self._bench.admin.topic_route(self._bench.topic)
            if not {queue.broker_name for queue in route.write_queues} & set(groups):
                return
            await self._bench.pause()

    async def _fill(self, queues: Sequence[MessageQueue]) -> list[DeliveredMessage]:
        """Send the messages, decide the halves among them at last, and return all as they are
        stored. Raises ClientError."""
        bench, rng = self._bench, self._bench.rng
        halves: list[SendResult] = []
        async with bench.producer() as producer, bench.transactions(self) as transactions:
            for number in range(MESSAGES):
                shared = (self._shared, self._twin, "")[rng.choice((0, 0, 0, 1, 2))]
                keys = tuple(key for key in (_own_key(number), shared) if key)
                message = bench.message(
                    keys=rng.sample(keys, len(keys)),
                    born_timestamp_ms=wall_ms() + rng.choice(CLOCKS_MS),
                )
                queue, draw = rng.choice(queues), rng.random()
                if draw < HALVES_SHARE:
                    halves.append(await transactions.send_half(message, queue=queue))
                else:
                    if draw < HALVES_SHARE + DELAYED_SHARE:
                        message.properties = {PropertyName.DELAY: "1"}
                    await producer.send(message, queue=queue)
                await asyncio.sleep(APART_S)
            rng.shuffle(halves)
            for half in halves:
                await transactions.end(half_message(half), Decision.COMMIT)
        end_s = asyncio.get_running_loop().time() + STORED_S * self._bench.patience
        there = await self._read_all(queues)
        while len(there) < MESSAGES and asyncio.get_running_loop().time() < end_s:
            await bench.pause()
            there = await self._read_all(queues)
        bench.hold(
            "messages that were sent, delayed and committed, and are stored",
            expected=MESSAGES,
            answered=len(there),
        )
        return there

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to the drill, which decides halves itself."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Commit, as the drill is about to."""
        return Decision.COMMIT

    async def _read_all(self, queues: Sequence[MessageQueue]) -> list[DeliveredMessage]:
        return [message for queue in queues for message in await self._read(queue)]

    async def _read(self, queue: MessageQueue) -> Sequence[DeliveredMessage]:
        return (await self._bench.reader.pull(queue, 0, PAGE)).messages

    async def _look_up(self, there: Sequence[DeliveredMessage], key: str) -> None:
        rng, times = self._bench.rng, [message.store_timestamp_ms for message in there]
        count_max = rng.choice((1, 2, 5, COUNT_MAX))
        begin_ms, end_ms = 0, times[-1] + 1
        if rng.random() < 0.5:
            begin_ms, end_ms = sorted((rng.choice(times), rng.choice(times)))
        found = await self._bench.admin.query_messages(
            self._bench.topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
        )
        expected = [
            message.store_timestamp_ms
            for message in there
            if key in message.keys and begin_ms <= message.store_timestamp_ms <= end_ms
        ]
        what = f"the newest {count_max} with {key}, of {begin_ms} to {end_ms}"
        self._bench.hold(
            f"times of storing of {what}",
            expected=expected[-count_max:],
            answered=[message.store_timestamp_ms for message in found],
        )
        bodies = {message.body for message in there if key in message.keys}
        strange = len([message for message in found if message.body not in bodies])
        self._bench.hold(f"messages that lack the key, among {what}", expected=0, answered=strange)

    async def _look_up_unique(self, message: DeliveredMessage) -> None:
        found = await self._bench.admin.query_messages(
            self._bench.topic, message.uniq_key, unique=True
        )
        self._bench.hold(
            "places of a message that is looked for by its id",
            expected=[(message.queue, message.queue_offset)],
            answered=[(each.queue, each.queue_offset) for each in found],
        )


def _own_key(number: int) -> str:
    return f"{OWN[number % len(OWN)]}-{number}"
