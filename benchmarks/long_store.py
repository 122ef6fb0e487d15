"""A broker with a long log: memory while it grows, and restarts after SIGTERM and kill -9.

    python -m benchmarks.long_store [--messages N] [--directory DIR] [--output FILE]

One broker, 1 KiB messages in batches of 32 into 4 queues. Ten million take about 11 GB of disk and
a few minutes. "Serving" means: it leads, and answers a pull of the newest message and of the oldest
with their bytes. Restarts are measured twice each, with the files in the page cache as far as
memory allows, and the broker's log of each start-up is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.cluster_throughput import cpu_s
from benchmarks.send_load import SendLoad
from chaos.cluster.broker_status import query
from chaos.cluster.processes import free_ports
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

_START_TIMEOUT_S = 300.0
_SLICE_S = 10.0
_BATCH = 32
_QUEUES = 4


def rss_mb(pid: int) -> dict[str, int]:
    """Return the resident memory in MiB: all of it, the part that is not mapped files, the peak."""
    values = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    names = {"rss": "VmRSS", "anonymous": "RssAnon", "peak": "VmHWM"}
    return {name: int(values[key].split()[0]) // 1024 for name, key in names.items()}


class Broker:
    """One broker process, restarted over the same store."""

    def __init__(self, directory: Path, settings: str) -> None:
        remoting, raft = free_ports(2, random.Random())
        self.address = f"127.0.0.1:{remoting}"
        self.output = directory / "output.log"
        self.store = directory / "store"
        self.config = directory / "broker.toml"
        self.config.write_text(
            f'group = "broker-a"\nnode = "n0"\nlisten = "{self.address}"\n'
            f'raft_listen = "127.0.0.1:{raft}"\nstore = "{self.store}"\n'
            f'[peers]\nn0 = "127.0.0.1:{raft}"\n[broker]\n{settings}'
        )

    def start(self) -> None:
        argv = [sys.executable, "-m", "ledgermq", "broker", "--config", str(self.config)]
        with self.output.open("a") as output:
            self.process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)

    async def await_serving(self) -> float:
        """Return the seconds until both ends of a queue are answered with their messages."""
        begin = time.perf_counter()
        client = RemotingClient()
        try:
            while time.perf_counter() - begin < _START_TIMEOUT_S:
                if self.process.poll() is not None:
                    raise SystemExit(f"the broker ended: {self.output.read_text()[-2000:]}")
                status = await query(client, self.address, timeout_ms=500)
                if status is not None and status.ready and await self._serves(client):
                    return time.perf_counter() - begin
                await asyncio.sleep(0.05)
        finally:
            await client.close()
        raise SystemExit("the broker does not serve")

    async def _serves(self, client: RemotingClient) -> bool:
        try:
            bounds = [
                int((await client.request(self.address, command, 10_000)).ext_fields["offset"])
                for command in (
                    RemotingCommand(code=code, ext_fields={"topic": "Bench", "queueId": "0"})
                    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
                )
            ]
            for offset in {bounds[0], max(bounds[0], bounds[1] - 1)} if bounds[1] else ():
                answer = await client.request(self.address, _pull(offset), 10_000)
                if answer.code or decode_records(answer.body)[0].queue_offset != offset:
                    return False
        except RemotingError:
            return False
        return True

    def end(self, number: signal.Signals) -> float:
        begin = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait()
        return time.perf_counter() - begin


def _pull(offset: int) -> RemotingCommand:
    return RemotingCommand(
        code=RequestCode.PULL_MESSAGE,
        ext_fields={
            "consumerGroup": "bench",
            "topic": "Bench",
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "1",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )


async def feed(broker: Broker, messages: int) -> dict[str, object]:
    sent, began = 0, time.perf_counter()
    host, _, port = broker.address.rpartition(":")
    cpu = cpu_s([broker.process.pid])
    while sent < messages:
        _, load = await asyncio.get_running_loop().create_connection(
            lambda: SendLoad(
                topic="Bench",
                queues=_QUEUES,
                body_size=1024,
                in_flight=16,
                batch=_BATCH,
                seconds=_SLICE_S,
            ),
            host,
            int(port),
        )
        result = await load.done
        sent += result.messages
        print(
            f"{sent:>10} messages, {result.messages / result.elapsed_s:.0f}/s, "
            f"p99 {result.quantile_ms(0.99):.0f} ms, slowest {result.quantile_ms(1.0):.0f} ms, "
            f"{rss_mb(broker.process.pid)} MB",
            flush=True,
        )
    took_s = time.perf_counter() - began
    used_s = cpu_s([broker.process.pid]) - cpu
    return {
        "messages": sent,
        "messages_per_s": round(sent / took_s),
        "broker_cpu_us_per_message": round(used_s / sent * 1e6, 1),
        "rss_mb": rss_mb(broker.process.pid),
    }


async def restart(broker: Broker, number: signal.Signals) -> dict[str, object]:
    stop_s = broker.end(number)
    seen = broker.output.stat().st_size
    broker.start()
    serving_s = await broker.await_serving()
    printed = broker.output.read_bytes()[seen:].decode()
    figures = {
        "stop_s": round(stop_s, 2),
        "serving_s": round(serving_s, 2),
        "rss_mb": rss_mb(broker.process.pid),
    }
    print(number.name, json.dumps(figures))
    print("".join(f"    {line[:160]}\n" for line in printed.splitlines()[:30]), end="", flush=True)
    return figures


async def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, object]:
    broker = Broker(directory, "".join(f"{line}\n" for line in arguments.setting))
    broker.start()
    try:
        await broker.await_serving()
        figures: dict[str, object] = {"feed": await feed(broker, arguments.messages)}
        size = sum(path.stat().st_blocks * 512 for path in broker.store.rglob("*"))
        figures["store_mb"] = size >> 20
        for number in (signal.SIGKILL, signal.SIGTERM) * 2:  # the first replays the most
            figures.setdefault(number.name, []).append(await restart(broker, number))  # type: ignore[attr-defined]
        await feed(broker, 1)  # it still accepts messages
    finally:
        if broker.process.poll() is None:
            broker.end(signal.SIGTERM)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, help="where the store goes; default: here")
    parser.add_argument("--setting", action="append", default=[], help='"key = value" of a broker')
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    where = arguments.directory or Path()
    free = os.statvfs(where).f_bavail * os.statvfs(where).f_frsize
    if free < 1_300 * arguments.messages:
        raise SystemExit(f"{free} bytes are free in {where}, too few for so many messages")
    with tempfile.TemporaryDirectory(dir=where, prefix="bench-") as name:
        figures = uvloop.run(measure(arguments, Path(name).resolve()))
    print(json.dumps(figures))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
