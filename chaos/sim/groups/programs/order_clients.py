"""Consumers that pop in order: they acknowledge, postpone, forget, and repeat an attempt.

Place in the data path: `programs` runs them on client machines; what they receive ends in
`client_checker`, the effects in `order_model`. Once nobody sends any more they acknowledge all.
"""

from __future__ import annotations

import asyncio
import random

from chaos.sim.groups.models.pop_model import QueueKey
from chaos.sim.groups.models.stored import value_of
from chaos.sim.groups.programs.clients import Desk
from chaos.sim.groups.programs.pop_rounds import POLLS_MS, POP_TIMEOUT_MS, pop_rounds
from chaos.sim.groups.programs.settings import GROUP
from chaos.sim.machine.virtual_host import current
from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["ORDER_GROUP", "ORDER_TOPIC", "OrderPopper"]

ORDER_TOPIC = "Q"
ORDER_GROUP = "GO"
_COUNT_MAX = 4
_ATTEMPT_TIMEOUT_MS = 1_000
_LATE = 1.5  # times the invisible time
_NOTHING = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.POLLING_FULL.value,
        ResponseCode.POLLING_TIMEOUT.value,
    }
)


class OrderPopper:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._attempts = 0

    async def run(self) -> None:
        await pop_rounds(self._desk, ORDER_GROUP, self._round)

    async def _round(self, consumer: PopConsumer, rng: random.Random) -> None:
        invisible_ms = rng.randint(100, self._desk.options.pop_invisible_ms_max)
        attempt_id = self._new_attempt(consumer) if rng.random() < 0.5 else ""
        popped = await self._pop(consumer, attempt_id, invisible_ms, rng)
        if attempt_id and self._desk.sending and rng.random() < 0.2:  # as if no answer had come
            popped = await self._pop(consumer, attempt_id, invisible_ms, rng)
        for each in popped:
            await self._consume(consumer, each, rng)

    def _new_attempt(self, consumer: PopConsumer) -> str:
        self._attempts += 1
        return f"{consumer.client_id}/{self._attempts}"

    async def _pop(
        self, consumer: PopConsumer, attempt_id: str, invisible_ms: int, rng: random.Random
    ) -> list[PoppedMessage]:
        """Pop in order; the product's consumer has no such call, but reads the answer."""
        poll_ms = rng.choice(POLLS_MS)
        fields = {
            "consumerGroup": ORDER_GROUP,
            "topic": ORDER_TOPIC,
            "queueId": "-1",
            "maxMsgNums": str(rng.randint(1, _COUNT_MAX)),
            "invisibleTime": str(invisible_ms),
            "pollTime": str(poll_ms),
            "initMode": "0",
            "bornTime": str(current().clock.wall_ns() // 1_000_000),
            "order": "true",
            "attemptId": attempt_id,
        }
        answer, _ = await call_group(
            consumer.instance,
            GROUP,
            lambda: RemotingCommand(code=RequestCode.POP_MESSAGE, ext_fields=dict(fields)),
            topic=ORDER_TOPIC,
            timeout_ms=poll_ms + POP_TIMEOUT_MS,
            # Without an attempt id a second try may not get what the first was given.
            policy=RetryPolicy(attempt_timeout_ms=poll_ms + _ATTEMPT_TIMEOUT_MS),
            accept=_NOTHING | {ResponseCode.SUCCESS.value},
        )
        if answer.code in _NOTHING:
            return []
        popped = consumer._popped(answer, ORDER_TOPIC, GROUP)
        for each in popped:
            key, offset, pop_ms = _place(each)
            value = value_of(each.message.body)
            self._desk.checker.on_popped_in_order(key, offset, pop_ms, value)
        return popped

    async def _consume(
        self, consumer: PopConsumer, popped: PoppedMessage, rng: random.Random
    ) -> None:
        luck = rng.random() if self._desk.sending else 1.0
        if luck < 0.15:
            return  # forgotten
        key, offset, pop_ms = _place(popped)
        if luck < 0.3:
            invisible_ms = rng.randint(0, self._desk.options.pop_invisible_ms_max)
            await consumer.change_invisible(popped, invisible_ms)
            if luck < 0.25:
                return
        elif luck < 0.4:  # sometimes too late: another consumer has it by then
            await asyncio.sleep(_LATE * rng.random() * popped.handle.invisible_ms / 1_000)
        with self._desk.checker.requests.request("ack_order", *key, offset, pop_ms) as request:
            await consumer.ack(popped)
            request.is_done = True
        self._desk.checker.on_order_acknowledged(key, offset, pop_ms)


def _place(popped: PoppedMessage) -> tuple[QueueKey, int, int]:
    """Return the queue, the offset and the pop time."""
    handle = popped.handle
    return (ORDER_GROUP, ORDER_TOPIC, handle.queue_id), handle.offset, handle.pop_ms
