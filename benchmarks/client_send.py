"""The cost of a send for the client: CPU microseconds per message, and messages per second.

A trivial broker (it answers every send at once and stores nothing) runs in a process of its own, so
that the client's CPU time is its own. Run: `python -m benchmarks.client_send [--profile]`.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import multiprocessing.connection
import pstats
import time

import uvloop

from client.message import Message
from client.produce.producer import Producer
from remoting.connections.connection import Connection
from remoting.connections.server import RemotingServer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

MESSAGE_ID = "7F00000100002A9F0000000000000000"


def serve(ready: multiprocessing.connection.Connection) -> None:
    """Serve as name server and broker in one: routes to itself, answers sends."""

    async def main() -> None:
        offset = 0

        def on_request(connection: Connection, command: RemotingCommand) -> None:
            nonlocal offset
            if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                connection.send(command.response(0, body=route(server.address)))
                return
            fields: dict[str, str] = {}
            if command.code == RequestCode.SEND_MESSAGE_V2:
                offset += 1
                fields = {
                    "msgId": MESSAGE_ID,
                    "queueId": command.ext_fields["e"],
                    "queueOffset": str(offset),
                    "MSG_REGION": "DefaultRegion",
                    "TRACE_ON": "true",
                    "transactionId": MESSAGE_ID,
                }
            connection.send(command.response(0, ext_fields=fields))

        server = RemotingServer("127.0.0.1", 0, on_request)
        await server.start()
        ready.send(server.address)
        await asyncio.Event().wait()

    uvloop.run(main())


def route(address: str) -> bytes:
    broker = {"brokerName": "broker-a", "cluster": "C", "brokerAddrs": {"0": address}}
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}
    return json.dumps({"brokerDatas": [broker], "queueDatas": [queues]}).encode()


async def measure(address: str, count: int, in_flight: int, profile: bool) -> None:
    body = b"x" * 1024
    async with Producer("bench", [address]) as producer:

        async def work(share: int) -> None:
            for _ in range(share):
                await producer.send(Message(topic="T", body=body))

        await asyncio.gather(*(work(100) for _ in range(in_flight)))
        profiler = cProfile.Profile() if profile else None
        if profiler is not None:
            profiler.enable()
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(count // in_flight) for _ in range(in_flight)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if profiler is not None:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
        print(
            f"send, {in_flight:4d} in flight: {count / wall:8.0f} msg/s,"
            f" client CPU {cpu / count * 1e6:5.1f} us/msg"
        )
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count // 1_000):
            futures = [
                await producer.send_async(Message(topic="T", body=body)) for _ in range(1_000)
            ]
            await asyncio.gather(*futures)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"send_async:           {count / wall:8.0f} msg/s,"
            f" client CPU {cpu / count * 1e6:5.1f} us/msg"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        uvloop.run(measure(here.recv(), arguments.count, arguments.in_flight, arguments.profile))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
