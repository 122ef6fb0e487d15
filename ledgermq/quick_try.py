"""`ledgermq send` and `ledgermq tail`: a person's quick try, through the client library."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from client.errors import ClientError
from client.message import Message, MessageQueue
from client.producer import Producer
from client.pull_consumer import PullConsumer, PullStatus

__all__ = ["QuickTryError", "send_lines", "tail_topic"]

_SUSPEND_MS = 5_000


class QuickTryError(Exception):
    """What the cluster answered, for a person to read."""


async def send_lines(
    name_servers: list[str], topic: str, lines: Iterable[str], *, tags: str, keys: str
) -> None:
    """Send each line as a message; print its place. Raises QuickTryError at the first failure."""
    async with Producer("ledgermq-send", name_servers) as producer:
        for line in lines:
            message = Message(
                topic=topic, body=line.encode(), tags=tags or None, keys=tuple(keys.split())
            )
            try:
                result = await producer.send(message)
            except ClientError as error:
                certain = "not stored" if error.definite else "outcome unknown"
                raise QuickTryError(f"{certain}: {error}") from error
            sys.stdout.write(
                f"{result.status.name} {result.queue.broker_name}/{result.queue.queue_id} "
                f"offset {result.queue_offset} {result.msg_id}\n"
            )


async def tail_topic(name_servers: list[str], topic: str, *, from_start: bool, count: int) -> None:
    """Print messages of every queue as they come, until `count` of them (0: until stopped)."""
    async with PullConsumer("ledgermq-tail", name_servers) as consumer:
        printed = asyncio.Semaphore(count) if count else None
        try:
            queues = await consumer.queues(topic)
            if not queues:
                raise QuickTryError(f"topic {topic} has no queue to read")
            offsets = {
                queue: await (
                    consumer.min_offset(queue) if from_start else consumer.max_offset(queue)
                )
                for queue in queues
            }
            done = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_tail_queue(consumer, queue, offset, printed, done))
                    for queue, offset in offsets.items()
                ]
                if printed is not None:
                    await done.wait()
                    for task in tasks:
                        task.cancel()
        except ClientError as error:
            raise QuickTryError(str(error)) from error


async def _tail_queue(
    consumer: PullConsumer,
    queue: MessageQueue,
    offset: int,
    left: asyncio.Semaphore | None,
    done: asyncio.Event,
) -> None:
    while True:
        result = await consumer.pull(queue, offset, suspend_ms=_SUSPEND_MS)
        offset = result.next_begin_offset
        if result.status is not PullStatus.FOUND:
            continue
        for message in result.messages:
            if left is not None:
                if left.locked():
                    done.set()
                    return
                await left.acquire()
            text = message.body.decode(errors="replace")
            sys.stdout.write(
                f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset} {text}\n"
            )
            sys.stdout.flush()
            if left is not None and left.locked():
                done.set()
