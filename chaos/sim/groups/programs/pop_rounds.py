"""The loop of every client that pops: one round after the other, as long as anybody reads.

Place in the data path: `pop_clients` and `order_clients` define a round.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from chaos.sim.groups.programs.clients import PAUSE_AFTER_ERROR_S, Desk
from chaos.sim.machine.virtual_host import current
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings
from client.errors import ClientError

__all__ = ["POLLS_MS", "POP_TIMEOUT_MS", "pop_rounds"]

POP_TIMEOUT_MS = 3_000
POLLS_MS = (0, 500, 2_000)


async def pop_rounds(
    desk: Desk, group: str, play: Callable[[PopConsumer, random.Random], Awaitable[None]]
) -> None:
    """Run rounds of `play`; a failed round is counted, and the next one follows."""
    rng = current().rng
    consumer = PopConsumer(
        group,
        desk.name_servers,
        settings=PopConsumerSettings(timeout_ms=POP_TIMEOUT_MS, instance=desk.instance()),
    )
    await consumer.start()
    while True:
        await asyncio.sleep(PAUSE_AFTER_ERROR_S)
        if not desk.reading:
            continue
        try:
            await play(consumer, rng)
        except ClientError:
            desk.counts["reads_failed"] += 1
