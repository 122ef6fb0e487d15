"""Speed of the embedded Toxiproxy: one connection's throughput, and the price of a round trip.

    python -m benchmarks.toxiproxy [--binary PATH-OF-A-REAL-SERVER | --url URL] [--rounds N]

Sender, sink and proxy are processes of their own, on plain blocking sockets, so that the proxy is
what is measured. The candidates take turns, round by round, and the median is shown, since other
load on the machine then affects all alike. `direct` is the same without a proxy.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chaos.cluster.processes import free_ports
from toxiproxy.client import ProxySpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyError

CHUNK = 256 * 1024
SERVE = "import sys; from toxiproxy.server import run; sys.exit(run('127.0.0.1', 0, 1))"


def serve(listener: socket.socket) -> None:
    """Take connections one by one: the first byte says sink (`s`) or echo (`e`)."""
    buffer = bytearray(CHUNK)
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        echo = peer.recv(1) == b"e"
        total = 0
        while count := peer.recv_into(buffer):
            total += count
            if echo:
                peer.sendall(memoryview(buffer)[:count])
            elif buffer[count - 1] == 1:
                peer.sendall(b"k")
        peer.close()


def connect(address: tuple[str, int], kind: bytes) -> socket.socket:
    peer = socket.create_connection(address, timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(kind)
    return peer


def throughput(address: tuple[str, int], size: int) -> float:
    """Return megabytes per second, from the first byte sent to the sink's receipt for the last."""
    with connect(address, b"s") as peer:
        chunk = bytes(CHUNK)
        begun = time.perf_counter()
        for _ in range(size // CHUNK):
            peer.sendall(chunk)
        peer.sendall(b"\x01")
        assert peer.recv(1) == b"k"
        return size / 1e6 / (time.perf_counter() - begun)


def round_trip(address: tuple[str, int], count: int) -> float:
    """Return the median microseconds of a one-byte round trip."""
    times = []
    with connect(address, b"e") as peer:
        for _ in range(count):
            begun = time.perf_counter()
            peer.sendall(b"x")
            assert peer.recv(1) == b"x"
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6


def cpu_seconds(pid: int | None) -> float:
    """Return the processor time that a process has used; 0 if its pid is not known."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def our_server() -> Iterator[tuple[str, int]]:
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://{process.stdout.readline().split()[4]}", process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def real_server(binary: str) -> Iterator[tuple[str, int]]:
    port = free_ports(1, random.Random())[0]
    process = subprocess.Popen(
        [binary, "-host", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


async def make_proxy(url: str, upstream: tuple[str, int]) -> tuple[str, int]:
    deadline = time.monotonic() + 10
    async with ToxiproxyClient(url) as client:
        while True:
            try:
                await client.version()
                break
            except ToxiproxyError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        spec = ProxySpec(name=f"bench-{os.getpid()}", upstream=f"{upstream[0]}:{upstream[1]}")
        host, port = (await client.create_proxy(spec)).listen.rsplit(":", 1)
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--binary", help="a real server's program, to be started beside ours")
    parser.add_argument("--url", help="a real server that runs already")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--trips", type=int, default=5000)
    options = parser.parse_args()

    listener = socket.create_server(("127.0.0.1", 0))
    upstream: tuple[str, int] = listener.getsockname()
    sink = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    sink.start()
    with ExitStack() as stack:
        candidates: dict[str, tuple[tuple[str, int], int | None]] = {"direct": (upstream, None)}
        url, pid = stack.enter_context(our_server())
        candidates["ours"] = (asyncio.run(make_proxy(url, upstream)), pid)
        if options.binary:
            url, pid = stack.enter_context(real_server(options.binary))
            candidates["real"] = (asyncio.run(make_proxy(url, upstream)), pid)
        elif options.url:
            candidates["real"] = (asyncio.run(make_proxy(options.url, upstream)), None)
        measure(candidates, options.rounds, options.megabytes * 10**6, options.trips)
    sink.terminate()


def measure(
    candidates: dict[str, tuple[tuple[str, int], int | None]], rounds: int, size: int, trips: int
) -> None:
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    costs: dict[str, list[float]] = {name: [] for name in candidates}
    delays: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, (address, pid) in candidates.items():
            before = cpu_seconds(pid)
            rates[name].append(throughput(address, size))
            costs[name].append((cpu_seconds(pid) - before) / (size / 1e9))
            delays[name].append(round_trip(address, trips))
    rate = {name: statistics.median(values) for name, values in rates.items()}
    delay = {name: statistics.median(values) for name, values in delays.items()}
    print(f"{'':8} {'MB/s':>8} {'CPU s/GB':>9} {'us/trip':>8} {'added us':>9}")
    for name in candidates:
        cost = statistics.median(costs[name])
        added = delay[name] - delay["direct"]
        print(f"{name:8} {rate[name]:8.0f} {cost:9.2f} {delay[name]:8.1f} {added:9.1f}")
    if "real" in candidates:
        trip_ratio = (delay["ours"] - delay["direct"]) / (delay["real"] - delay["direct"])
        print(f"ours/real: throughput {rate['ours'] / rate['real']:.2f}, added {trip_ratio:.2f}")


if __name__ == "__main__":
    main()
