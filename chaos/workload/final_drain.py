"""The final drain: after the heal every user queue is read from its first to its last message.

Place in the data path: `chaos.experiment.experiment` runs it when producers have stopped and
transactions are decided. It shows what the cluster still has; A4, A5 and A15 rest on it.

Invariants: each queue is read by one process, from min_offset on, by polls with `final` set, until
a max_offset that was read after the last producer stopped; a poll without an answer is repeated
from the same place by the process's successor, which then begins at min_offset again, so that one
process has read the whole.

Source: the run format (final; queues: drained).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext, queue_row
from chaos.workload.offset_reader import make_tool, read_max_offset, read_min_offset
from chaos.workload.pull_reader import complete_poll
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["DRAIN_GROUP", "DrainedQueue", "drain", "read_ends"]

DRAIN_GROUP: Final = "final-drain"
BATCH_MAX: Final = 32
TIMEOUT_MS: Final = 5_000
RETRY_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedQueue:
    """One queue as read after the heal. `drained`: everything below max_offset was read."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    drained: bool


async def drain(context: WorkContext, slot: Slot, deadline_s: float) -> list[DrainedQueue]:
    """Read every queue.

    `deadline_s` (loop time) bounds all of it; a queue that is not read to its end by then is
    returned as not drained.
    """
    client = slot.next_client()
    settings = PullConsumerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
    async with PullConsumer(
        DRAIN_GROUP, context.name_servers, slot.dial, settings=settings
    ) as consumer:
        return await asyncio.gather(
            *(
                _QueueDrain(context, consumer, client, number, queue).run(deadline_s)
                for number, queue in enumerate(context.all_queues)
            )
        )


async def read_ends(
    context: WorkContext, slot: Slot, deadline_s: float
) -> dict[MessageQueue, int | None]:
    """Read the maximum offset of every queue, as recorded operations.

    None for a queue without an answer by `deadline_s` (loop time).
    """
    client = slot.next_client()

    async def end_of(tool: PullConsumer, number: int, queue: MessageQueue) -> int | None:
        root = f"{client}.q{number}"
        actor = Actor(context.history, root=root, client=client, client_group=DRAIN_GROUP)
        while (end := await read_max_offset(tool, actor, queue)) is None:
            if asyncio.get_running_loop().time() >= deadline_s:
                return None
            await asyncio.sleep(RETRY_PAUSE_S)
        return end

    async with make_tool(context, slot) as tool:
        queues = context.all_queues
        ends = await asyncio.gather(*(end_of(tool, i, queue) for i, queue in enumerate(queues)))
    return dict(zip(queues, ends, strict=True))


class _QueueDrain:
    """The process of one queue."""

    def __init__(
        self,
        context: WorkContext,
        consumer: PullConsumer,
        client: str,
        number: int,
        queue: MessageQueue,
    ) -> None:
        self._context = context
        self._consumer = consumer
        self._queue = queue
        self._actor = Actor(
            context.history, root=f"{client}.q{number}", client=client, client_group=DRAIN_GROUP
        )

    async def run(self, deadline_s: float) -> DrainedQueue:
        low = high = None
        try:
            async with asyncio.timeout_at(deadline_s):
                while low is None or high is None:
                    low = await read_min_offset(self._consumer, self._queue)
                    high = await read_max_offset(self._consumer, self._actor, self._queue)
                    if low is None or high is None:
                        await asyncio.sleep(RETRY_PAUSE_S)
                through = False
                while not through:
                    through = await self._read(low, high)
        except TimeoutError:
            return DrainedQueue(
                queue=self._queue, min_offset=low or 0, max_offset=high or 0, drained=False
            )
        return DrainedQueue(queue=self._queue, min_offset=low, max_offset=high, drained=True)

    async def _read(self, low: int, high: int) -> bool:
        """Read from low to high as one process; return False where a poll went unanswered."""
        with self._actor.operation("assign") as operation:
            operation.complete("ok", assigned=[queue_row(self._queue)])
        position = low
        while position < high:
            with self._actor.operation(
                "poll",
                broker_group=self._queue.broker_name,
                topic=self._queue.topic,
                queue=self._queue.queue_id,
                offset=position,
                final=True,
            ) as operation:
                try:
                    result = await self._consumer.pull(self._queue, position, BATCH_MAX)
                except ClientError as error:
                    operation.failed(error)
                    await asyncio.sleep(RETRY_PAUSE_S)
                    return False
                complete_poll(operation, result, self._context)
            if result.next_begin_offset <= position:
                await asyncio.sleep(RETRY_PAUSE_S)
                return False  # nothing there below max_offset: poll again, the deadline decides
            position = result.next_begin_offset
        return True
