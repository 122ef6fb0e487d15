"""Broadcasting members whose file of offsets can't be written for a while.

Place in the data path: `client.consume.local_offsets`. A member has a folder of its own; while that
is away it consumes, so that nothing of it can be stored; then the folder is there again, nothing
new comes, and a successor starts with the file.

Invariants: the folder is moved, and a file lies in its place, so that whatever a client does there
fails, and works again later; what the file holds is told by what a successor is given.

Source: RocketMQ LocalFileOffsetStore (persistAll writes all offsets each time); docs/CLIENT.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.connection.heartbeat import MessageModel
from client.consume.listener import ConsumeStatus
from client.consume.local_offsets import OffsetFileError
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["OffsetFiles"]

QUEUES: Final = 2
MESSAGES: Final = 3  # of a queue, before the folder is away, and again while it is
COMMIT_MS: Final = 150
WRITTEN_S: Final = 1.5  # a file is written with each commit, on a disk that may be busy
GIVEN_S: Final = 5.0
AGAIN_S: Final = 1.0
CRASHES: Final = "crashes once a commit is over"
STOPS: Final = "stops when it is there again"
STOPS_AWAY: Final = "stops while it is away"
ENDS: Final = (CRASHES, STOPS, STOPS_AWAY)


class OffsetFiles:
    """One member for each way to end, all at once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._queues: list[MessageQueue] = []

    async def run(self) -> None:
        """Consume with and without a folder. Raises ClientError."""
        bench = self._bench
        self._queues = await bench.make_topic(QUEUES)
        async with contextlib.AsyncExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-offsets-"))
            members = [_FileMember(bench, Path(name) / str(at), end) for at, end in enumerate(ENDS)]
            for member in members:
                await member.start()
                stack.push_async_callback(member.leave)
            await self._send_and_await(members)
            await asyncio.sleep(WRITTEN_S)
            for member in members:
                member.take_folder_away()
            await self._send_and_await(members)
            await asyncio.gather(*(member.end() for member in members))
            for member in members:
                await member.hold_successor()

    async def _send_and_await(self, members: Sequence[_FileMember]) -> None:
        """Send to each queue, and wait until each member was given all."""
        bodies: set[bytes] = set()
        async with self._bench.producer() as producer:
            for queue in self._queues:
                for _ in range(MESSAGES):
                    message = self._bench.message()
                    await producer.send(message, queue=queue)
                    bodies.add(message.body)
        await self._bench.becomes(
            "messages that broadcasting members were not given",
            lambda: [len(bodies - set(member.given)) for member in members],
            expected=[0] * len(members),
            within_s=GIVEN_S,
        )


class _FileMember:
    """A member, and its successor of the same file."""

    def __init__(self, bench: Bench, folder: Path, end: str) -> None:
        self._bench = bench
        self._folder = folder
        self._elsewhere = folder.with_name(f"{folder.name}-away")
        self._end = end
        self._unwritten: list[bytes] = []
        self._has_ended = False
        self.given: list[bytes] = []
        self._consumer = self._member()

    def _member(self) -> PushConsumer:
        consumer = self._bench.consumer(
            self._listen,
            group=f"{self._bench.name}-members",
            message_model=MessageModel.BROADCASTING,
            offset_file=self._folder / "offsets.json",
            commit_interval_ms=COMMIT_MS,
            suspend_ms=1_000,
        )
        consumer.subscribe(self._bench.topic)
        return consumer

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self.given += [message.body for message in messages]
        return ConsumeStatus.CONSUME_SUCCESS

    async def start(self) -> None:
        self._folder.mkdir()
        await self._consumer.start()

    def take_folder_away(self) -> None:
        self._folder.rename(self._elsewhere)
        self._folder.touch()
        self._unwritten = list(self.given)

    def _bring_back(self) -> None:
        self._folder.unlink()
        self._elsewhere.rename(self._folder)

    async def end(self) -> None:
        """Let commits fail, and end as this member does."""
        await asyncio.sleep(WRITTEN_S)
        if self._end == STOPS_AWAY:
            await self._stop(expected=OffsetFileError.__name__)
            self._bring_back()
            return
        self._bring_back()
        if self._end == STOPS:
            await self._stop(expected="stopped")
        else:
            await asyncio.sleep(WRITTEN_S)
            await self.leave()

    async def leave(self) -> None:
        """Crash, where it has not ended."""
        if not self._has_ended:
            self._has_ended = True
            await self._consumer.crash()

    async def _stop(self, *, expected: str) -> None:
        answered, self._has_ended = "stopped", True
        try:
            await self._consumer.stop()
        except OffsetFileError as error:
            answered = type(error).__name__
        self._bench.hold(
            f"how a broadcasting member ends that {self._end}",
            expected=expected,
            answered=answered,
        )

    async def hold_successor(self) -> None:
        """Hold that a successor is given what could not be stored, and nothing else."""
        before, self.given = self.given, []
        expected = before[len(self._unwritten) :] if self._end == STOPS_AWAY else []
        async with self._member():
            loop = asyncio.get_running_loop()
            end_s = loop.time() + (GIVEN_S if expected else AGAIN_S)
            while (not expected or len(self.given) < len(expected)) and loop.time() < end_s:
                await self._bench.pause()
        self._bench.hold(
            f"messages that the successor of a member is given that {self._end}",
            expected=sorted(expected),
            answered=sorted(self.given),
        )
