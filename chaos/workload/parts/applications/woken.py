"""Requests that wait, and what wakes them: a message of their tag among others, an offset that is
reset, a message that comes again.

Place in the data path: `broker.request.long_polling` and `pop_polling`, in a topic of the drill's
own. A pull and a pop are held that want one tag; a batch is stored whose first message has another
one. Then a pull is held whose group is reset, and a pop while the time of what another one has got
runs out.

Invariant: nothing but what is tried wakes the request; it waits for much longer than an answer
takes.

Source: RocketMQ NotifyMessageArrivingListener, which tells of each message; PullRequestHoldService,
PopLongPollingService, PopReviveService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.message import DeliveredMessage, MessageQueue
from client.produce.producer import Producer

__all__ = ["HeldRequests"]

HELD_MS: Final = 8_000
HELD_S: Final = 0.5  # by when a request is held
WOKEN_S: Final = 2.0
WANTED: Final = "blue"
INVISIBLE_MS: Final = 1_000
REVIVED_S: Final = 3.0
"""Within which a message comes again whose time is over: brokers look once a second."""
BATCHES: Final = (("red", WANTED), ("red", "green", WANTED), (WANTED, "red"))

_Wait = Callable[[], Coroutine[Any, Any, list[DeliveredMessage]]]


class HeldRequests:
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
            await self._reset_while_held(queue, puller, held_ms)
            await self._pop_again(popper, producer, held_ms)

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

    async def _reset_while_held(
        self, queue: MessageQueue, puller: PullConsumer, held_ms: int
    ) -> None:
        """Reset the group while its pull waits at the queue's end. Raises ClientError."""
        bench = self._bench
        await puller.commit_offset(queue, self._offset)  # the group is one that is known
        pulling = asyncio.create_task(puller.pull(queue, self._offset, suspend_ms=held_ms))
        try:
            await asyncio.sleep(HELD_S)
            await bench.admin.reset_queue(f"{bench.name}-pulls", queue, offset=0)
            await asyncio.wait([pulling], timeout=WOKEN_S * bench.patience)
            bench.hold(
                "whether a pull that waits is answered when its group is reset",
                expected=True,
                answered=pulling.done(),
            )
        finally:
            pulling.cancel()
            await asyncio.wait([pulling])

    async def _pop_again(self, popper: PopConsumer, producer: Producer, held_ms: int) -> None:
        """Pop a message and do not acknowledge it while another pop waits. Raises ClientError."""
        bench, loop = self._bench, asyncio.get_running_loop()
        message = bench.message(tags="again")
        await producer.send(message)
        first = await popper.pop(
            bench.topic, invisible_ms=INVISIBLE_MS, poll_ms=held_ms, expression="again"
        )
        popped_s = loop.time()
        again = await popper.pop(bench.topic, poll_ms=held_ms, expression="again")
        took_s = loop.time() - popped_s
        for each in again:
            await popper.ack(each)
        bench.hold(
            "what two pops are given of a message that the first one leaves, and whether in time",
            expected=[[message.body], [message.body], True],
            answered=[
                [each.message.body for each in first],
                [each.message.body for each in again],
                took_s < INVISIBLE_MS / 1000 + REVIVED_S * bench.patience,
            ],
        )

    async def _end(self, queue: MessageQueue) -> int:
        return await self._bench.reader.max_offset(queue)
