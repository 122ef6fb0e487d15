"""The offsets of a broadcasting consumer, in a file of its own.

Place in the data path: members of a broadcasting group each read everything, so no broker stores
their offsets; `client.consume.queue_consumer` puts them here, `client.consume.push_consumer` has
the file written every commit interval and at its end.

Invariants: the file is replaced as a whole (new file written, synced, renamed), so that after any
crash it is the old one or the new one; an unreadable file makes `open` fail, so that nothing is
read anew or skipped; one process uses a file at a time.

Format: RocketMQ's `{"offsetTable":{{"brokerName":"...","queueId":N,"topic":"..."}:OFFSET}}`, with
the queue as the field's name (`remoting.protocol.queue_table`). A queue inside a string is decoded,
too.

Source: RocketMQ LocalFileOffsetStore, OffsetSerializeWrapper.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from client.errors import ClientError
from client.message import MessageQueue
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.queue_table import QueueName, encode_queue_table, parse_queue_name

__all__ = ["LocalOffsets", "OffsetFileError", "decode_offsets", "encode_offsets"]


class OffsetFileError(ClientError):
    """The file with a broadcasting consumer's offsets can't be used; names it and says why."""


class _Table(msgspec.Struct):
    offsetTable: dict[str, int] = {}


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Encode the file's content."""
    table = encode_queue_table(
        (QueueName(queue.broker_name, queue.queue_id, queue.topic), offset)
        for queue, offset in sorted(offsets.items())
    )
    return fastjson.encode({"offsetTable": table})


def decode_offsets(content: bytes) -> dict[MessageQueue, int]:
    """Decode the file's content. Raises BodyError."""
    offsets = {}
    for key, offset in fastjson.decode(content, _Table).offsetTable.items():
        name = parse_queue_name(key)
        if offset < 0:
            raise BodyError(f"offset {offset} of {key} is below 0")
        offsets[MessageQueue(name.topic, name.broker_name, name.queue_id)] = offset
    return offsets


class LocalOffsets:
    """Offsets by queue, topics as brokers know them; with `path` None they are in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._stored = encode_offsets({})
        self._lock_file: IO[bytes] | None = None
        self._turn = asyncio.Lock()
        self._write: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Lock and read the file. Raises OffsetFileError."""
        if self._path is None:
            return
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, self._path))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])  # no thread is cancelled, and this one locks the file
            self.abandon()
            raise

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset; the next `flush` writes it."""
        self._offsets[queue] = offset

    async def flush(self) -> None:
        """Write the file if offsets changed. Raises OffsetFileError; the old content stays then."""
        async with self._turn:
            if self._write is not None and not self._write.done():
                await asyncio.wait([self._write])  # from a flush that was cancelled
            content = encode_offsets(self._offsets)
            if self._path is None or content == self._stored:
                return
            self._write = asyncio.ensure_future(asyncio.to_thread(_replace, self._path, content))
            try:
                await asyncio.shield(self._write)
            except OSError as error:
                raise OffsetFileError(
                    f"offsets can't be written to {self._path}: {error}"
                ) from error
            self._stored = content

    async def close(self) -> None:
        """Write and unlock the file. Raises OffsetFileError."""
        try:
            await self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Unlock the file without writing it."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock_file = path.with_name(f"{path.name}.lock").open("wb")
        except OSError as error:
            raise OffsetFileError(f"offsets can't be kept in {path}: {error}") from error
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                self._offsets = decode_offsets(path.read_bytes())
        except BlockingIOError as error:
            lock_file.close()
            raise OffsetFileError(f"{path} is in use by another consumer") from error
        except (OSError, BodyError) as error:
            lock_file.close()
            raise OffsetFileError(f"offsets can't be read from {path}: {error}") from error
        self._lock_file = lock_file


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    # The rename itself survives a power loss only once the directory is synced.
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
