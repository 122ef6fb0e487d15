"""Consumers that pop: they acknowledge, postpone, forget and come too late.

Place in the data path: `cluster` runs one per client machine; what they receive ends in
`client_checker`, the effects in `pop_model`. Once nobody sends any more they acknowledge all.
"""

from __future__ import annotations

import asyncio
import random

from chaos.sim.groups.models.pop_model import QueueKey
from chaos.sim.groups.models.stored import value_of
from chaos.sim.groups.programs.clients import Desk
from chaos.sim.groups.programs.pop_rounds import POLLS_MS, pop_rounds
from client.consume.pop_consumer import PopConsumer, PoppedMessage

__all__ = ["POP_GROUP", "POP_TOPIC", "Popper"]

POP_TOPIC = "P"
POP_GROUP = "G"
_COUNT_MAX = 8
_LATE = 1.5  # times the invisible time


class Popper:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        await pop_rounds(self._desk, POP_GROUP, self._round)

    async def _round(self, consumer: PopConsumer, rng: random.Random) -> None:
        invisible_ms = rng.randint(100, self._desk.options.pop_invisible_ms_max)
        popped = await consumer.pop(
            POP_TOPIC,
            count_max=rng.randint(1, _COUNT_MAX),
            invisible_ms=invisible_ms,
            poll_ms=rng.choice(POLLS_MS),
        )
        for each in popped:
            key, offset = _place(each)
            value = value_of(each.message.body)
            self._desk.checker.on_popped(key, offset, each.handle.pop_ms, value)
        for each in popped:
            await self._consume(consumer, each, invisible_ms, rng)

    async def _consume(
        self, consumer: PopConsumer, popped: PoppedMessage, invisible_ms: int, rng: random.Random
    ) -> None:
        luck = rng.random() if self._desk.sending else 1.0
        if luck < 0.15:
            return  # forgotten
        if luck < 0.35:
            later = await self._postpone(consumer, popped, rng)
            if luck < 0.22:
                return
            if luck < 0.30:
                popped = later
        elif luck < 0.45:
            await asyncio.sleep(_LATE * rng.random() * invisible_ms / 1_000)
        await consumer.ack(popped)
        key, offset = _place(popped)
        self._desk.checker.on_pop_acknowledged(key, offset, popped.handle.pop_ms)

    async def _postpone(
        self, consumer: PopConsumer, popped: PoppedMessage, rng: random.Random
    ) -> PoppedMessage:
        invisible_ms = rng.randint(0, self._desk.options.pop_invisible_ms_max)
        later = await consumer.change_invisible(popped, invisible_ms)
        key, offset = _place(later)
        self._desk.checker.on_postponed(key, offset, later.handle.pop_ms)
        return later


def _place(popped: PoppedMessage) -> tuple[QueueKey, int]:
    """Return the queue and offset: in the topic, or in its retry topic."""
    handle = popped.handle
    topic = handle.topic_read(POP_TOPIC, POP_GROUP)
    return (POP_GROUP, topic, handle.queue_id), handle.offset
