"""A lite pull member that seeks: to each end of its queue, beyond them, and into its middle.

Place in the data path: `client.consume.lite_pull_consumer`, whose seek is a reset of its group.

Invariants: one member owns the queue, nobody else sends to it, and nothing of it is deleted, so
that its first offset is 0 and its next one is known. Where a seek is refused the member goes on as
if there had been none.

Source: docs/CLIENT.md (lite pull); RocketMQ DefaultLitePullConsumerImpl.seek takes both ends.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.consume.lite_pull_consumer import LitePullConsumer
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["SoughtPlaces"]

FILLED: Final = 5
OWNED_S: Final = 8.0
COMES_S: Final = 8.0
STAYS_MS: Final = 700  # for which nothing may come


class SoughtPlaces:
    """One queue and its only member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Seek to and fro, and poll behind each. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        member = bench.poller(f"{bench.name}-members", lite={"poll_batch_max": FILLED})
        member.subscribe(bench.topic)
        async with bench.producer() as producer, member:
            if not await self._owns(member, queue):
                return
            await self._seek(member, queue, 0, ends=0)  # in an empty queue
            for _ in range(FILLED):
                await producer.send(bench.message(), queue=queue)
            await self._hold_polled(member, "behind a seek in an empty queue", range(FILLED))
            for offset in (2, 0, FILLED - 1, FILLED):
                await self._seek(member, queue, offset, ends=FILLED)
                await self._hold_polled(
                    member, f"behind a seek to {offset} of {FILLED}", range(offset, FILLED)
                )
            for offset in (-1, FILLED + 1):
                await self._seek(member, queue, offset, ends=FILLED)
            await producer.send(bench.message(), queue=queue)
            await self._hold_polled(member, "behind seeks that were refused", [FILLED])

    async def _owns(self, member: LitePullConsumer, queue: MessageQueue) -> bool:
        return await self._bench.becomes(
            "queues of the only member, before it seeks",
            lambda: [each for each in member.queues if each.topic == queue.topic],
            expected=[queue],
            within_s=OWNED_S,
        )

    async def _seek(
        self, member: LitePullConsumer, queue: MessageQueue, offset: int, *, ends: int
    ) -> None:
        """Seek, and hold whether it was taken; `ends`: the queue's next offset."""
        try:
            await member.seek(queue, offset)
            answered = "taken"
        except ClientError as error:
            answered = type(error).__name__
        self._bench.hold(
            f"seek to {offset} in a queue of 0 to {ends}",
            expected="taken" if 0 <= offset <= ends else "OffsetOutOfRangeError",
            answered=answered,
        )

    async def _hold_polled(
        self, member: LitePullConsumer, when: str, expected: range | list[int]
    ) -> None:
        """Poll until what is expected has come, then for a moment more."""
        polled: list[int] = []
        end_s = asyncio.get_running_loop().time() + COMES_S * self._bench.patience
        while len(polled) < len(expected) and asyncio.get_running_loop().time() < end_s:
            polled += [message.queue_offset for message in await poll_whole(member, STAYS_MS)]
        polled += [message.queue_offset for message in await poll_whole(member, STAYS_MS)]
        self._bench.hold(f"offsets polled {when}", expected=list(expected), answered=polled)
