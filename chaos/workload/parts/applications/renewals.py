"""An ordered member whose renewals nobody answers for a while: its queue stays its own, since its
lock lasts for longer.

Place in the data path: `client.consume.queue_locks` and what it has the queue's consumer do.

Invariants: nobody else is in the group, and the lock is held for thirty seconds, so that the member
owns the queue throughout; it commits on its clock alone, so that what it would have to begin anew
shows.

Source: RocketMQ RebalanceImpl.lockAll, where queues stay as they are when a request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage

__all__ = ["UnansweredRenewals"]

BEFORE: Final = 4
BEHIND: Final = 2
RENEWED_MS: Final = 200
COMMIT_MS: Final = 60_000
UNHEARD_S: Final = 5.0  # longer than a request waits for its answer
GIVEN_S: Final = 12.0


class UnansweredRenewals:
    """One queue, and one member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._given: list[int] = []

    async def run(self) -> None:
        """Consume, lose the answers, and go on. Raises ClientError, LinksError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        consumer = bench.consumer(
            self._listen,
            ordered=True,
            lock_interval_ms=RENEWED_MS,
            commit_interval_ms=COMMIT_MS,
        )
        consumer.subscribe(bench.topic)
        async with bench.producer() as producer, consumer:
            for _ in range(BEFORE):
                await producer.send(bench.message(), queue=queue)
            begun = await bench.becomes(
                "offsets that an ordered member was given",
                lambda: list(self._given),
                expected=list(range(BEFORE)),
                within_s=GIVEN_S,
            )
            if not begun:
                return
            async with bench.unheard():
                await asyncio.sleep(UNHEARD_S)
            async with bench.producer() as other:
                for _ in range(BEHIND):
                    await other.send(bench.message(), queue=queue)
            await bench.becomes(
                "offsets that an ordered member was given whose renewals went unanswered",
                lambda: list(self._given),
                expected=list(range(BEFORE + BEHIND)),
                within_s=GIVEN_S,
            )

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self._given += [message.queue_offset for message in messages]
        return ConsumeStatus.CONSUME_SUCCESS
