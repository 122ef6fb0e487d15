"""An orderly member whose listener takes longer than its lock, which is lost and comes back while
the listener is still at work.

Place in the data path: `client.consume.push_consumer`, `queue_locks` and `consumer_admin`. Answers
to the drill's clients are lost for longer than a broker keeps the lock, and come again; meanwhile
the listener has one message, and others that were pulled wait behind it.

Invariants: nobody else is in the group, so that the lock comes back to the same member; the
listener is called for one queue by one call at a time; what was pulled and not consumed is no
progress.

Source: RocketMQ ProcessQueue (lock of consumption), ConsumeMessageOrderlyService,
ConsumerRunningInfo and GetConsumerStatusBody (committed offsets).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["SlowListener"]

MESSAGES: Final = 5
HELD_MS: Final = 500
RENEWED_MS: Final = 50
UNHEARD_S: Final = 1.3  # more than twice the time for which a lock is held
WORK_S: Final = 4.0
BEGINS_S: Final = 6.0
GIVEN_S: Final = 10.0


class SlowListener:
    """One queue, and one member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._at_work = 0
        self._at_once = 0
        self._given: list[int] = []
        self._is_slow = True

    async def run(self) -> None:
        """Lose the lock during a call, and get it back. Raises ClientError, LinksError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        async with bench.producer() as producer:
            for _ in range(MESSAGES):
                await producer.send(bench.message(), queue=queue)
        consumer = bench.consumer(
            self._listen,
            ordered=True,
            consume_batch_max=1,
            lock_interval_ms=RENEWED_MS,
            lock_held_ms=HELD_MS,
            suspend_ms=500,
        )
        consumer.subscribe(bench.topic)
        async with consumer:
            began = await bench.becomes(
                "messages that a slow listener has begun with",
                lambda: self._given[:1],
                expected=[0],
                within_s=BEGINS_S,
            )
            if not began:
                return
            await self._hold_status(consumer.group, consumer.client_id)
            async with bench.unheard():
                await asyncio.sleep(UNHEARD_S)
            await asyncio.sleep(WORK_S)
            self._is_slow = False
            await bench.becomes(
                "offsets that a slow listener was given, once it is fast",
                lambda: sorted(set(self._given)),
                expected=list(range(MESSAGES)),
                within_s=GIVEN_S,
            )
        bench.hold(
            "calls of a listener for a queue for which another one was at work",
            expected=0,
            answered=self._at_once,
            is_calm=False,
        )

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self._at_once += self._at_work > 0
        self._at_work += 1
        self._given += [message.queue_offset for message in messages]
        try:
            if self._is_slow:
                await asyncio.sleep(WORK_S)
        finally:
            self._at_work -= 1
        return ConsumeStatus.CONSUME_SUCCESS

    async def _hold_status(self, group: str, client_id: str) -> None:
        """Hold how far the member says that it is, through a broker. Raises ClientError."""
        fields = {"group": group, "topic": self._bench.topic, "clientAddr": client_id}
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await self._bench.request(code, fields)
        answered: object = f"code {answer.code}"
        if not answer.code:
            answered = _places(answer.body, client_id, self._bench.topic)
        if not answered:
            return  # a busy machine has lost the lock already
        self._bench.hold(
            "offsets that a member says it has consumed, whose first message is at work",
            expected=[0],
            answered=answered,
        )


def _places(body: bytes, client_id: str, topic: str) -> object:
    """Return the offsets of a member in a topic's queues; text where they can't be read."""
    try:
        table = fastjson.decode(body, dict[str, Any]).get("consumerTable", {})
    except BodyError as error:
        return str(error)
    return sorted(
        offset
        for name, offset in table.get(client_id, {}).items()
        if parse_queue_name(name).topic == topic
    )
