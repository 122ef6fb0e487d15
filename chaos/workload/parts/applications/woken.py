"""Requests that wait for messages of one tag, while messages of several are stored at once.

Place in the data path: `broker.request.long_polling` and `pop_polling`, in a topic of the drill's
own. A pull and a pop are held that want one tag; a batch is stored whose first message has another
one.

Invariant: the batch is the last that is sent before the answer, so that nothing else wakes the
request; it waits for much longer than an answer takes.

Source: RocketMQ NotifyMessageArrivingListener, which tells of each message; PullRequestHoldService,
PopLongPollingService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from client.message import DeliveredMessage, MessageQueue

__all__ = ["WokenByTag"]

HELD_MS: Final = 8_000
HELD_S: Final = 0.5  # by when a request is held
WOKEN_S: Final = 2.0
WANTED: Final = "blue"
BATCHES: Final = (("red", WANTED), ("red", "green", WANTED), (WANTED, "red"))

_Wait = Callable[[], Coroutine[Any, Any, list[DeliveredMessage]]]


class WokenByTag:
    """One queue, a group that pulls and one that pops."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._offset = 0  # of the group that pulls

    async def run(self) -> None:
        """Wait for each batch, in each way. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        held_ms = HELD_MS * bench.patience
        async with (
            bench.producer() as producer,
            bench.tool(f"{bench.name}-pulls") as puller,
            bench.popper(f"{bench.name}-pops") as popper,
        ):

            async def pull() -> list[DeliveredMessage]:
                pulled = await puller.pull(
                    queue, self._offset, suspend_ms=held_ms, expression=WANTED
                )
                return pulled.messages

            async def pop() -> list[DeliveredMessage]:
                popped = await popper.pop(bench.topic, poll_ms=held_ms, expression=WANTED)
                for each in popped:
                    await popper.ack(each)
                return [each.message for each in popped]

            ways: Mapping[str, _Wait] = {"pull": pull, "pop": pop}
            for tags in BATCHES:
                waiting = {name: asyncio.create_task(wait()) for name, wait in ways.items()}
                try:
                    await asyncio.sleep(HELD_S)
                    batch = [bench.message(tags=tag) for tag in tags]
                    await producer.send_batch(batch, queue=queue)
                    wanted = [each.body for each in batch if each.tags == WANTED]
                    for name, task in waiting.items():
                        await self._hold_woken(name, task, wanted, tags)
                finally:
                    for task in waiting.values():
                        task.cancel()
                    await asyncio.wait(waiting.values())
                self._offset = await self._end(queue)

    async def _hold_woken(
        self,
        name: str,
        task: asyncio.Task[list[DeliveredMessage]],
        wanted: list[bytes],
        tags: tuple[str, ...],
    ) -> None:
        """Hold that a request is answered soon, with the wanted messages. Raises ClientError."""
        bench = self._bench
        await asyncio.wait([task], timeout=WOKEN_S * bench.patience)
        answered = [each.body for each in task.result()] if task.done() else "nothing yet"
        bench.hold(
            f"what a {name} is given that waits for {WANTED}, when {' and '.join(tags)} are stored",
            expected=wanted,
            answered=answered,
        )

    async def _end(self, queue: MessageQueue) -> int:
        return await self._bench.reader.max_offset(queue)
