"""One real broker of ours (a group of one) and a real name server, in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from campaigns.rig.ports import free_ports
from campaigns.rig.waiting import until
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import PushConsumerSettings
from namesrv.config import NameServerConfig
from namesrv.server import NameServer
from remoting.connections.security_config import SecurityConfig


class RealBroker:
    """Stopped and started again it keeps its store and its addresses; `security` is for both."""

    def __init__(self, root: Path, **config: Any) -> None:
        security = config.get("security", SecurityConfig())
        self.name_server = NameServer(NameServerConfig(listen="127.0.0.1:0", security=security))
        self._root = root
        self._config = config
        self._ports = free_ports(2)
        self.broker: Broker | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def name_servers(self) -> list[str]:
        return [self.name_server.address]

    async def start(self) -> None:
        await self.name_server.start()
        await self.start_broker()

    async def start_broker(self) -> None:
        peer = f"127.0.0.1:{self._ports[1]}"
        broker = self.broker = Broker(
            BrokerConfig(
                group="broker-a",
                node="n0",
                listen=self.address,
                raft_listen=peer,
                store=self._root / "store",
                name_servers=(self.name_server.address,),
                peers={"n0": peer},
                brokers={"n0": self.address},
                **self._config,
            )
        )
        await broker.start()
        self._serving = asyncio.create_task(broker.serve())
        await until(lambda: broker.log.status().ready)

    async def stop_broker(self) -> None:
        broker, serving = self.broker, self._serving
        assert broker is not None
        assert serving is not None
        self.broker = self._serving = None
        serving.cancel()
        await asyncio.wait([serving])
        await broker.stop()

    async def stop(self) -> None:
        if self.broker is not None:
            await self.stop_broker()
        await self.name_server.stop()


@asynccontextmanager
async def real_broker(root: Path, **config: Any) -> AsyncIterator[RealBroker]:
    async with contextlib.AsyncExitStack() as stack:
        broker = RealBroker(root, **config)
        stack.push_async_callback(broker.stop)
        await broker.start()
        yield broker


def settings(**changes: Any) -> PushConsumerSettings:
    values: dict[str, Any] = {
        "consume_from": ConsumeFrom.FIRST,
        "suspend_ms": 1_000,
        "commit_interval_ms": 50,
        "redelivery_ms_min": 50,
        "redelivery_ms_max": 50,
        "retry_delay_level": 1,
        **changes,
    }
    return PushConsumerSettings(**values)


async def make_topic(broker: RealBroker, topic: str, queues: int) -> None:
    async with Admin(broker.name_servers) as admin:
        await admin.create_topic(topic, queues=queues)
