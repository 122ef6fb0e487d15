"""Background sender of a client's message traces to the trace topic.

Place in the data path: producers and push consumers with `TraceSettings` add records to a `Tracer`;
it sends them, many in one message, through a producer of its own.

Invariants: tracing delays nothing and fails nothing: records that find no room, and those of a
message that could not be sent, are counted in `lost` and logged. `stop` sends the waiting records,
as far as its time allows. A record is sent whatever its size: that of a large batch is found under
the first of its keys only.

Source: RocketMQ AsyncTraceDispatcher (queue of 2,048, at most 100 records in a message).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from client.connection.task_scope import TaskScope
from client.errors import ClientError
from client.message import Message
from client.namespace import GROUP_SIZE_MAX, Namespace
from client.trace.codec import TraceRecord, record_keys, record_text

__all__ = ["TraceSender", "TraceSettings", "Tracer", "trace_group"]

_log = logging.getLogger(__name__)

_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"
_BODY_SIZE_MAX: Final = 120_000
_KEYS_SIZE_MAX: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Settings of tracing. Records wait at most `linger_ms` to be sent together."""

    topic: str = "RMQ_SYS_TRACE_TOPIC"
    waiting_max: int = 2_048
    batch_max: int = 100
    linger_ms: int = 100

    def __post_init__(self) -> None:
        for name in ("waiting_max", "batch_max", "linger_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


def trace_group(namespace: Namespace, group: str) -> str:
    """Return the group of the producer that sends the traces of `group`: as much of its name as
    there is room for."""
    room = GROUP_SIZE_MAX - len(namespace.wrap(_GROUP_PREFIX))
    return _GROUP_PREFIX + group[: max(0, room)]


class TraceSender(Protocol):
    """The tracer's own producer."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def crash(self) -> None: ...

    async def send(self, message: Message) -> object: ...


class Tracer:
    """Collects and sends records; call `add` on the loop, between `start` and `stop`."""

    def __init__(self, sender: TraceSender, settings: TraceSettings) -> None:
        self._sender = sender
        self._settings = settings
        self._waiting: deque[TraceRecord] = deque()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # of those who send what waits
        self.lost = 0
        """Records that were dropped, or whose message is not certainly stored."""

    async def start(self, scope: TaskScope) -> None:
        await self._sender.start()
        scope.spawn(self._run(), "client-trace")

    async def stop(self, timeout_ms: float) -> None:
        """Send the waiting records, and close; after `timeout_ms` the rest is dropped."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._send_waiting()
        except TimeoutError:
            self._lose(len(self._waiting), "the time for a stop is over")
            await self.crash()
        else:
            await self._sender.stop()

    async def crash(self) -> None:
        """Stop as a killed process would; waiting records are dropped."""
        self._waiting.clear()
        await self._sender.crash()

    def add(self, records: Iterable[TraceRecord]) -> None:
        for record in records:
            if len(self._waiting) >= self._settings.waiting_max:
                self.lost += 1
                if self.lost == 1:
                    _log.warning("message traces are lost: too many wait to be sent")
            else:
                self._waiting.append(record)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self._settings.linger_ms / 1000)
            await self._send_waiting()

    async def _send_waiting(self) -> None:
        async with self._turn:
            while self._waiting:
                message, count = self._next_message()
                try:
                    await self._sender.send(message)
                except ClientError as error:
                    self._lose(count, str(error))
                except asyncio.CancelledError:
                    self._lose(count, "the send was cut short")
                    raise

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if count:
            _log.warning("%d message traces are lost: %s", count, why)

    def _next_message(self) -> tuple[Message, int]:
        texts: list[str] = []
        keys: dict[str, None] = {}
        body_size = keys_size = 0
        while self._waiting and len(texts) < self._settings.batch_max:
            record = self._waiting[0]
            text, names = record_text(record), record_keys(record)
            body_size += len(text)
            keys_size += sum(map(_key_size, names))
            if texts and (body_size > _BODY_SIZE_MAX or keys_size > _KEYS_SIZE_MAX):
                break
            self._waiting.popleft()
            texts.append(text)
            keys.update(dict.fromkeys(names))
        body = "".join(texts).encode()
        return Message(topic=self._settings.topic, body=body, keys=_with_room(keys)), len(texts)


def _key_size(key: str) -> int:
    return len(key.encode()) + 1


def _with_room(keys: Collection[str]) -> tuple[str, ...]:
    """Return the first of the keys, as many as a message has room for."""
    sizes = itertools.accumulate(map(_key_size, keys))
    return tuple(key for key, size in zip(keys, sizes, strict=True) if size <= _KEYS_SIZE_MAX)
