"""Upstream servers and clients for the traffic tests."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from campaigns.rig.waiting import until
from toxiproxy.client import ProxySpec, ToxiproxyClient

DEADLINE_S = 10.0


@dataclass
class Upstream:
    """A server behind the proxy: what it got, and the sockets it holds."""

    address: str = ""
    received: bytearray = field(default_factory=bytearray)
    ended: list[BaseException | None] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def until(self, condition: Callable[["Upstream"], bool]) -> None:
        """Wait until the condition holds, or fail."""
        await until(lambda: condition(self), seconds=DEADLINE_S)


@asynccontextmanager
async def upstream(*, echo: bool = True, greeting: bytes = b"") -> AsyncIterator[Upstream]:
    """A server that keeps what it gets and, as asked, sends it back."""
    state = Upstream()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.writers.append(writer)
        error: BaseException | None = None
        try:
            if greeting:
                writer.write(greeting)
            while data := await reader.read(1 << 16):
                state.received += data
                if echo:
                    writer.write(data)
                    await writer.drain()
        except ConnectionError as lost:
            error = lost
        state.ended.append(error)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    state.address = f"{host}:{port}"
    try:
        yield state
    finally:
        server.close()
        for writer in state.writers:
            writer.close()


@dataclass
class Conversation:
    """A connection through the proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def round_trip(self, data: bytes) -> float:
        """Send, await the echo; the seconds it took."""
        begun = time.monotonic()
        self.writer.write(data)
        assert await self.read(len(data)) == data
        return time.monotonic() - begun

    async def read(self, count: int) -> bytes:
        """Exactly so many bytes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(count)

    async def end(self) -> tuple[bytes, str]:
        """All until the end, and how it ended: `fin` or `rst`."""
        got = bytearray()
        async with asyncio.timeout(DEADLINE_S):
            try:
                while data := await self.reader.read(1 << 16):
                    got += data
            except ConnectionResetError:
                return bytes(got), "rst"
        return bytes(got), "fin"

    async def silent(self, seconds: float) -> bool:
        """Whether neither data nor an end comes for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
                return False
        return True


async def flood(writer: asyncio.StreamWriter, chunk_size: int, seconds: float) -> int:
    """Write as fast as the other side takes it, for so long; the bytes written."""
    sent = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                writer.write(bytes(chunk_size))
                sent += chunk_size
                await writer.drain()
    return sent


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Conversation]:
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Conversation(reader, writer)
    finally:
        writer.close()


async def make_proxy(client: ToxiproxyClient, behind: Upstream, name: str = "link") -> str:
    """A proxy in front of an upstream; its address."""
    return (await client.create_proxy(ProxySpec(name=name, upstream=behind.address))).listen
