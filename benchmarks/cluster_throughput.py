"""Throughput of a group of three brokers: 1 KiB messages, 64 sends in flight, fsync on a majority.

    python -m benchmarks.cluster_throughput [--seconds S] [--output FILE] [--cluster DIR]

Starts a cluster of its own on free ports, sends single messages, then batches of 32, and prints
messages/s, latency quantiles and the CPU that the three broker processes took per message. Next to
it runs a bare reference (one process that appends, fdatasyncs and answers the same frames, without
replication), so that figures of different machines can be compared as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.send_load import LoadResult, SendLoad
from chaos.cluster import cluster

_PREFIX = struct.Struct(">II")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: list[int]) -> float:
    """Return the user and system time that these processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


async def load(address: str, **options: Any) -> LoadResult:
    host, _, port = address.rpartition(":")
    _, protocol = await asyncio.get_running_loop().create_connection(
        lambda: SendLoad(**options),
        host,
        int(port),
    )
    return await protocol.done


class Reference(asyncio.Protocol):
    """Appends frames to a file, fdatasyncs once per loop turn, then answers them."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, answers = 0, []
        while len(buffer) - at >= 8:
            size, header_size = _PREFIX.unpack_from(buffer, at)
            if len(buffer) - at < 4 + size:
                break
            header = json.loads(bytes(buffer[at + 8 : at + 8 + header_size]))
            answer = json.dumps({"code": 0, "flag": 1, "opaque": header["opaque"]}).encode()
            answers.append(_PREFIX.pack(4 + len(answer), len(answer)) + answer)
            at += 4 + size
        if answers:
            os.write(self._file, buffer[:at])
            os.fdatasync(self._file)
            del buffer[:at]
            self._transport.write(b"".join(answers))  # type: ignore[attr-defined]


async def reference(options: dict[str, object]) -> LoadResult:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        file = os.open(Path(directory) / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        server = await asyncio.get_running_loop().create_server(
            lambda: Reference(file), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        try:
            return await load(f"127.0.0.1:{port}", **options)
        finally:
            server.close()
            os.close(file)


async def measure(directory: Path, seconds: float, in_flight: int) -> dict[str, object]:
    status = await asyncio.to_thread(cluster.status, directory)
    leader = next(node for node in status.nodes if node.role == "leader")
    pids = [node.pid for node in status.nodes if node.pid is not None]
    figures: dict[str, object] = {"cores": os.cpu_count(), "in_flight": in_flight}
    for name, batch in (("single", 1), ("batch_32", 32)):
        options: dict[str, object] = {
            "topic": "Bench",
            "queues": 4,
            "body_size": 1024,
            "in_flight": in_flight,
            "batch": batch,
        }
        await load(leader.address, **options, seconds=1.0)  # warm
        before = cpu_s(pids)
        result = await load(leader.address, **options, seconds=seconds)
        used = cpu_s(pids) - before
        bare = await reference(options | {"seconds": min(seconds, 3.0)})
        bare_rate = bare.messages / bare.elapsed_s
        rate = result.messages / result.elapsed_s
        figures[name] = {
            "messages_per_s": round(rate),
            "p50_ms": round(result.quantile_ms(0.5), 2),
            "p99_ms": round(result.quantile_ms(0.99), 2),
            "broker_cpu_us_per_message": round(used / max(1, result.messages) * 1e6, 1),
            "refused": result.refused,
            "reference_messages_per_s": round(bare_rate),
            "ratio_to_reference": round(rate / bare_rate, 3),
        }
        print(name, json.dumps(figures[name]))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cluster", type=Path, help="one that runs already")
    arguments = parser.parse_args()
    began = time.time()
    if arguments.cluster is not None:
        figures = uvloop.run(measure(arguments.cluster, arguments.seconds, arguments.in_flight))
    else:
        with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
            directory = Path(name)
            cluster.up(directory, base_port=0, namesrv_port=0, detach=True, report=lambda _: None)
            try:
                figures = uvloop.run(measure(directory, arguments.seconds, arguments.in_flight))
            finally:
                cluster.down(directory)
    figures["took_s"] = round(time.time() - began, 1)
    figures["python"] = f"{platform.python_version()}, {Path(sys.executable).resolve()}"
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
