"""Delay levels, and how far brokers say that each of them is.

Place in the data path: `broker.admin` answers GET_ALL_DELAY_OFFSET from what `broker.delay` has
delivered; a slave of RocketMQ's takes its progress from that answer.

Invariants: the level is one that no retry has, which other clients may have delivered meanwhile, so
that progress is at least the drill's own.

Source: RocketMQ ScheduleMessageService.encode, whose table has levels from 1 on.
"""

from __future__ import annotations

import json
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.records.property_names import PropertyName

__all__ = ["LevelProgress"]

LEVEL: Final = 2  # five seconds; retries begin with the third
SENT: Final = 3
DELIVERED_S: Final = 15.0


class LevelProgress:
    """One level."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Have messages wait, and compare the level's progress. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        before = await self._progress()
        async with bench.producer() as producer:
            for _ in range(SENT):
                delayed = bench.message(properties={PropertyName.DELAY: str(LEVEL)})
                await producer.send(delayed, queue=queue)
        if await self._is_delivered(queue):
            bench.hold(
                f"whether {SENT} deliveries are in the progress of their level",
                expected=True,
                answered=await self._progress() >= before + SENT,
            )

    async def _is_delivered(self, queue: MessageQueue) -> bool:
        async def end() -> int:
            return await self._bench.reader.max_offset(queue)

        return await self._bench.comes(
            f"messages of level {LEVEL} that are delivered",
            end,
            expected=SENT,
            within_s=DELIVERED_S,
        )

    async def _progress(self) -> int:
        """Return how many messages of the level the broker says it has delivered. Raises
        ClientError."""
        answer = await self._bench.request(RequestCode.GET_ALL_DELAY_OFFSET, {})
        table = json.loads(answer.body)["offsetTable"]
        return int(table.get(str(LEVEL), 0))
