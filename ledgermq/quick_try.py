"""`ledgermq send` and `ledgermq tail`: quick manual tests of a cluster, by the client library."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping

from client.connection.instance import InstanceSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings, PullStatus
from client.errors import ClientError
from client.message import Message, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from ledgermq.endings import first_of
from remoting.connections.tls import client_context
from remoting.protocol.acl_signature import Signer

__all__ = ["QuickTryError", "instance_settings", "send_lines", "tail_topic"]

_SUSPEND_MS = 5_000
_EMPTY_PULL_WAIT_S = 0.05


class QuickTryError(Exception):
    """A failure of a quick test; the message is for a person to read."""


def instance_settings(*, access_key: str, secret_key: str, tls: bool) -> InstanceSettings:
    """Build the client's account and TLS settings. Raises QuickTryError for half an account."""
    if bool(access_key) != bool(secret_key):
        raise QuickTryError("an account has an access key and a secret key")
    return InstanceSettings(
        signer=Signer(access_key, secret_key) if access_key else None,
        tls=client_context() if tls else None,
    )


async def send_lines(
    name_servers: list[str],
    topic: str,
    lines: Iterable[bytes],
    *,
    tags: str,
    keys: str,
    instance: InstanceSettings,
) -> None:
    """Send each line as a message; print its place. Raises QuickTryError at the first failure."""
    settings = ProducerSettings(instance=instance)
    async with Producer("ledgermq-send", name_servers, settings=settings) as producer:
        for line in lines:
            message = Message(topic=topic, body=line, tags=tags or None, keys=tuple(keys.split()))
            try:
                result = await producer.send(message)
            except ClientError as error:
                certain = "not stored" if error.definite else "outcome unknown"
                raise QuickTryError(f"{certain}: {error}") from error
            sys.stdout.write(
                f"{result.status.name} {result.queue.broker_name}/{result.queue.queue_id} "
                f"offset {result.queue_offset} {result.msg_id}\n"
            )


async def tail_topic(
    name_servers: list[str],
    topic: str,
    *,
    from_start: bool,
    count: int,
    instance: InstanceSettings,
) -> None:
    """Print messages of every queue as they arrive, until `count` of them (0: until stopped)."""
    settings = PullConsumerSettings(instance=instance)
    async with PullConsumer("ledgermq-tail", name_servers, settings=settings) as consumer:
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
            await _tail_queues(consumer, offsets, printed)
        except ClientError as error:
            raise QuickTryError(str(error)) from error


async def _tail_queues(
    consumer: PullConsumer, offsets: Mapping[MessageQueue, int], left: asyncio.Semaphore | None
) -> None:
    """Print until none is `left` to print. Raises the first error of any queue."""
    done = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_tail_queue(consumer, queue, offset, left, done))
                for queue, offset in offsets.items()
            ]
            if left is not None:
                await done.wait()
                for task in tasks:
                    task.cancel()
    except ExceptionGroup as errors:
        raise first_of(errors) from errors


async def _tail_queue(
    consumer: PullConsumer,
    queue: MessageQueue,
    offset: int,
    left: asyncio.Semaphore | None,
    done: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        result = await consumer.pull(queue, offset, suspend_ms=_SUSPEND_MS)
        offset = result.next_begin_offset
        if result.status is PullStatus.NO_NEW_MSG and loop.time() - began < _EMPTY_PULL_WAIT_S:
            await asyncio.sleep(_EMPTY_PULL_WAIT_S)  # a broker that holds no pulls, or no more
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
