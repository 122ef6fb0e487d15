"""A broker that leads its group of one in this process, configured as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.config.config import load_config
from broker.process.server import Broker
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand


def configured(directory: Path, *settings: str) -> Path:
    """A configuration file; `settings` go to its section [broker]."""
    raft = f"127.0.0.1:{free_port()}"
    file = directory / "broker.toml"
    file.write_text(
        f'group = "broker-a"\nnode = "n0"\nlisten = "127.0.0.1:{free_port()}"\n'
        f'raft_listen = "{raft}"\nstore = "{directory / "store"}"\n'
        f'[peers]\nn0 = "{raft}"\n[broker]\n' + "\n".join(settings)
    )
    return file


@asynccontextmanager
async def broker_with(directory: Path, *settings: str) -> AsyncIterator[Broker]:
    """Serving and leading."""
    broker = Broker(load_config(configured(directory, *settings)))
    await broker.start()
    serving = asyncio.get_running_loop().create_task(broker.serve())
    try:
        await until(lambda: broker.leadership.ready)
        yield broker
        assert not serving.done()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.stop()


async def ask(
    broker: Broker, client: RemotingClient, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand | RemotingError:
    command = RemotingCommand(code=code, ext_fields=fields, body=body)
    try:
        return await client.request(broker.config.listen, command, 5_000)
    except RemotingError as error:
        return error


def stored(broker: Broker) -> dict[str, int]:
    """Messages by topic."""
    return {topic: queue.next_offset for topic, _, queue in broker.replica.queues.items()}
