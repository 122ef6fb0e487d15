"""What a name server costs as more broker groups are registered with it.

Place in the data path: `benchmarks.growth.__main__` prints its rows with those of a broker group.
A name server runs as a process; the brokers are connections that register a leader each, with 100
queues in 25 topics, one of which every group has.

Invariants: processor time is that of the name server's process; every registration and every query
is answered with success, and a query's route names every group that has the topic.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.growth.costs import cpu_s
from benchmarks.long_store import rss_mb
from chaos.cluster.processes import free_ports
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from remoting.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    decode_route,
    encode_register_body,
)

__all__ = ["name_server_rows"]

_COUNTS: Final = (1, 10, 100, 1_000)
_OWN_TOPICS: Final = 24
_SHARED_TOPIC: Final = "shared"
_TIMEOUT_MS: Final = 30_000
_RENEWALS: Final = 2_000
_QUERIES: Final = 2_000
_SHARED_QUERIES: Final = 100
_IDLE_S: Final = 3.0
_START_S: Final = 15.0


def name_server_rows(counts_max: int) -> list[dict[str, float]]:
    """Return a row for each number of broker groups."""
    address = f"127.0.0.1:{free_ports(1, random.Random())[0]}"
    with tempfile.TemporaryDirectory(dir=".", prefix="growth-") as folder:
        argv = [sys.executable, "-m", "ledgermq", "namesrv", "--listen", address]
        with (Path(folder) / "output.log").open("w") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        try:
            return uvloop.run(_rows(address, process.pid, counts_max))
        finally:
            process.terminate()
            process.wait()


async def _rows(address: str, pid: int, counts_max: int) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    async with AsyncExitStack() as stack:
        table = _Table(address, pid, stack)
        await table.started()
        for count in _COUNTS:
            if count <= counts_max:
                rows.append(await table.row(count))
                print(json.dumps(rows[-1]), flush=True)
    return rows


class _Table:
    """The name server under measurement, and the connection of each broker."""

    def __init__(self, address: str, pid: int, stack: AsyncExitStack) -> None:
        self._address = address
        self._pid = pid
        self._stack = stack
        self._brokers: list[RemotingClient] = []
        self._client = RemotingClient()
        stack.push_async_callback(self._client.close)

    async def started(self) -> None:
        """Wait until it answers."""
        command = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        async with asyncio.timeout(_START_S):
            while True:
                try:
                    await self._client.request(self._address, command, 1_000)
                except RemotingError:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def row(self, count: int) -> dict[str, float]:
        """Register brokers until there are `count`, and measure."""
        while len(self._brokers) < count:
            client = RemotingClient()
            self._stack.push_async_callback(client.close)
            self._brokers.append(client)
            await self._register(len(self._brokers) - 1)
        memory = rss_mb(self._pid)["anonymous"]
        began, before = time.monotonic(), cpu_s(self._pid)
        await asyncio.sleep(_IDLE_S)
        idle = (cpu_s(self._pid) - before) / (time.monotonic() - began)
        return {
            "count": count,
            "register_us": await self._cost(_RENEWALS, lambda n: self._register(n % count)),
            "route_us": await self._cost(_QUERIES, lambda n: self._route(f"own-{n % count}-0", 1)),
            "route_of_all_us": await self._cost(
                _SHARED_QUERIES, lambda n: self._route(_SHARED_TOPIC, count)
            ),
            "idle_ms": round(idle * 1_000, 1),
            "memory_mb": memory,
        }

    async def _cost(self, times: int, work: Callable[[int], Awaitable[None]]) -> float:
        before = cpu_s(self._pid)
        for number in range(times):
            await work(number)
        return round((cpu_s(self._pid) - before) / times * 1e6, 1)

    async def _register(self, number: int) -> None:
        names = [_SHARED_TOPIC, *(f"own-{number}-{own}" for own in range(_OWN_TOPICS))]
        body = encode_register_body(
            RegisterBrokerBody(
                data_version=DataVersion(state_version=1, timestamp_ms=1, counter=1),
                topics=[
                    TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
                    for name in names
                ],
            )
        )
        header = RegisterBrokerRequestHeader(
            broker_name=f"broker-{number}",
            broker_addr=f"10.{number >> 8}.{number & 255}.1:10911",
            cluster_name="DefaultCluster",
            ha_server_addr="",
            broker_id=0,
        )
        command = RemotingCommand(
            code=RequestCode.REGISTER_BROKER, ext_fields=header.to_ext_fields(), body=body
        )
        answer = await self._brokers[number].request(self._address, command, _TIMEOUT_MS)
        assert answer.code == 0, answer.remark

    async def _route(self, topic: str, groups: int) -> None:
        header = GetRouteInfoRequestHeader(topic=topic)
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=header.to_ext_fields()
        )
        answer = await self._client.request(self._address, command, _TIMEOUT_MS)
        assert answer.code == 0, answer.remark
        assert len(decode_route(answer.body).broker_datas) == groups
