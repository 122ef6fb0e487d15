"""A client that takes more than its share, in each way there is; beside it the fuzzer goes on.

Each `burst` is one connection's (or a few hundred connections') worth of something that a broker
keeps for its clients: members of groups, topics, offsets, held pulls, popped messages, locks,
answers that nobody reads, connections that only begin. What is refused must be refused in words;
what is judged in the end is the broker's memory.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from campaigns.rig.processes import send_command
from remoting.errors import FrameError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode

__all__ = ["Greedy"]

_COUNT: Final = 300
_LINGER_S: Final = 1.0
_CONNECTIONS: Final = 150
_CONNECT_S: Final = 5.0


class Greedy:
    """`answers` counts the codes that came back, by burst."""

    def __init__(
        self,
        seed: int,
        *,
        local_address: str | None,
        sign: Callable[[RemotingCommand], None] | None,
    ) -> None:
        self._random = random.Random(seed)
        self._number = 0
        self._local = None if local_address is None else (local_address, 0)
        self._sign = sign
        self.answers: dict[str, Counter[int]] = {}
        self.bursts: Counter[str] = Counter()

    async def burst(self, address: str) -> None:
        """One of them, drawn."""
        kinds = {
            "clients": self._clients,
            "topics": self._topics,
            "offsets": self._offsets,
            "held pulls": self._pulls,
            "pops": self._pops,
            "locks": self._locks,
        }
        name = self._random.choice([*kinds, "unread answers", "beginnings"])
        self.bursts[name] += 1
        try:
            if name == "beginnings":
                await self._begin_connections(address)
            elif name == "unread answers":
                await self._never_read(address)
            else:
                seen = self.answers.setdefault(name, Counter())
                await self._pipeline(address, kinds[name](), seen)
        except OSError:
            await asyncio.sleep(0.1)  # closed by the other side: its right

    # What is asked for -------------------------------------------------------------------------

    def _names(self) -> Iterator[str]:
        for _ in range(_COUNT):
            self._number += 1
            yield f"greedy-{self._random.randrange(10**6)}-{self._number}"

    def _clients(self) -> Iterator[RemotingCommand]:
        """Distinct clients, of a group of their own each, or all of one."""
        shared = self._random.random() < 0.5
        for name in self._names():
            group = "G0" if shared else name
            row = {"groupName": group, "subscriptionDataSet": [{"topic": "T0", "subString": "*"}]}
            body = {"clientID": name * 10, "consumerDataSet": [row], "producerDataSet": []}
            body["producerDataSet"] = [{"groupName": name}]
            yield RemotingCommand(code=RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        yield RemotingCommand(
            code=RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "G0"}
        )
        yield RemotingCommand(code=RequestCode.GET_ALL_PRODUCER_INFO)

    def _topics(self) -> Iterator[RemotingCommand]:
        for name in self._names():
            yield send_command(name, b"x", name)

    def _offsets(self) -> Iterator[RemotingCommand]:
        for name in self._names():
            fields = {"consumerGroup": name, "topic": "T0", "queueId": "0", "commitOffset": "1"}
            yield RemotingCommand(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        yield RemotingCommand(code=RequestCode.GET_ALL_CONSUMER_OFFSET)

    def _pulls(self) -> Iterator[RemotingCommand]:
        """Held, and each as large as nothing forbids."""
        for name in self._names():
            fields = {
                "consumerGroup": name, "topic": "T0", "queueId": "0", "queueOffset": "1000000000",
                "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "subVersion": "0",
                "suspendTimeoutMillis": "30000", "subscription": "*", "junk": "x" * 30_000,
            }  # fmt: skip
            yield RemotingCommand(
                code=RequestCode.PULL_MESSAGE, ext_fields=fields, body=bytes(30_000)
            )

    def _pops(self) -> Iterator[RemotingCommand]:
        """By many groups, never acknowledged, visible again soon."""
        for name in self._names():
            fields = {
                "consumerGroup": name, "topic": "T0", "queueId": "-1", "maxMsgNums": "32",
                "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0",
                "order": self._random.choice(("true", "false")),
            }  # fmt: skip
            yield RemotingCommand(code=RequestCode.POP_MESSAGE, ext_fields=fields)

    def _locks(self) -> Iterator[RemotingCommand]:
        for name in self._names():
            queues = [{"brokerName": "b", "topic": "T0", "queueId": at} for at in range(8)]
            body = {"consumerGroup": name, "clientId": name * 20, "mqSet": queues}
            yield RemotingCommand(code=RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())

    # How ---------------------------------------------------------------------------------------

    def _encoded(self, commands: Iterator[RemotingCommand]) -> bytes:
        frames = bytearray()
        for opaque, command in enumerate(commands):
            command.opaque = opaque
            if self._sign is not None:
                self._sign(command)
            frames += encode(command)
        return bytes(frames)

    async def _connected(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(host, int(port), local_addr=self._local)

    async def _pipeline(
        self, address: str, commands: Iterator[RemotingCommand], seen: Counter[int]
    ) -> None:
        reader, writer = await self._connected(address)
        decoder = FrameDecoder()
        try:
            sending = asyncio.ensure_future(_send(writer, self._encoded(commands)))
            async with asyncio.timeout(2 * _LINGER_S):
                while data := await reader.read(1 << 18):
                    seen.update(answer.code for answer in decoder.feed(data) if answer.is_response)
        except (TimeoutError, FrameError):
            pass  # what is held is let go with its connection
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()

    async def _never_read(self, address: str) -> None:
        _, writer = await self._connected(address)
        fields = {
            "consumerGroup": "G0", "topic": "T0", "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "1024", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
            "suspendTimeoutMillis": "0", "subscription": "*",
        }  # fmt: skip
        pulls = (
            RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=dict(fields))
            for _ in range(_COUNT)
        )
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        try:
            async with asyncio.timeout(_LINGER_S):
                await _send(writer, self._encoded(pulls))
                await asyncio.sleep(_LINGER_S)
        except TimeoutError:
            pass
        finally:
            writer.transport.abort()

    async def _begin_connections(self, address: str) -> None:
        """Half a TLS hello, half a preamble, half a frame, or nothing."""
        host, _, port = address.rpartition(":")
        beginnings = (b"\x16\x03\x01\x02\x00\x01", b"PROXY TCP4 ", b"\x00\x10\x00\x00\x00\x00", b"")
        writers: list[asyncio.StreamWriter] = []
        try:
            for number in range(_CONNECTIONS):
                async with asyncio.timeout(_CONNECT_S):
                    _, writer = await asyncio.open_connection(
                        host, int(port), local_addr=self._local
                    )
                writers.append(writer)
                writer.write(beginnings[number % len(beginnings)])
            await asyncio.sleep(_LINGER_S)
        except TimeoutError:
            pass
        finally:
            for writer in writers:
                writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, frames: bytes) -> None:
    for start in range(0, len(frames), 1 << 18):
        writer.write(frames[start : start + (1 << 18)])
        await writer.drain()
