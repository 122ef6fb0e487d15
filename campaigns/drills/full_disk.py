"""A full disk on the leader, on a follower, on all: what producers see, and the recovery.

    python -m campaigns.drills.full_disk [--output FILE]

Each store is a small tmpfs of its own (needs root). A producer with default settings sends all
the time; the disk is filled with ballast, kept full, and emptied again. Measured: outcomes of the
sends meanwhile, the longest gap between acknowledged ones, and how long after the room came back
the first one was acknowledged. In the end every acknowledged message is asked for again with its
key: the answer must name the place where it was stored first.

Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from campaigns.rig.processes import Processes
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer

DISK_BYTES = 96 << 20
FULL_S = 6.0
BODY = bytes(4096)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "ledgermq-drill", str(path)],
        check=True,
    )
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


class Ballast:
    """Takes what is free, again and again: the store frees no room by itself."""

    def __init__(self, store: Path) -> None:
        self._path = store / "ballast"
        self._store = store

    def fill(self) -> None:
        with self._path.open("ab") as file:
            stat = os.statvfs(self._store)
            wanted = stat.f_bavail * stat.f_frsize
            while wanted:
                size = os.fstat(file.fileno()).st_size
                try:
                    os.posix_fallocate(file.fileno(), size, wanted)
                except OSError:
                    wanted //= 2  # the store took some meanwhile
                else:
                    return

    def remove(self) -> None:
        self._path.unlink()


class Load:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._number = 0
        self.acknowledged: list[tuple[float, str, int, int]] = []  # when, key, queue, offset
        self.errors: list[tuple[float, str]] = []

    async def run(self) -> None:
        while True:
            self._number += 1
            message = Message(topic="Full", body=BODY)
            try:
                result = await self._producer.send(message, timeout_ms=3_000)
            except ClientError as error:
                self.errors.append((time.monotonic(), f"{type(error).__name__}: {error}"[:160]))
                await asyncio.sleep(0.02)  # a person's loop would not spin either
                continue
            self.acknowledged.append(
                (time.monotonic(), result.msg_id, result.queue.queue_id, result.queue_offset)
            )
            await asyncio.sleep(0.002)


async def fill_and_free(group: Processes, load: Load, victims: list[str]) -> dict[str, object]:
    """Full for FULL_S, then room again; what was seen."""
    ballasts = [Ballast(group.store(name)) for name in victims]
    began = time.monotonic()
    while time.monotonic() < began + FULL_S:
        for ballast in ballasts:
            await asyncio.to_thread(ballast.fill)
        await asyncio.sleep(0.05)
    freed = time.monotonic()
    for ballast in ballasts:
        ballast.remove()
    async with asyncio.timeout(30):
        while not load.acknowledged or load.acknowledged[-1][0] < freed + 0.2:
            await asyncio.sleep(0.02)
    after = next(when for when, *_ in load.acknowledged if when >= freed)
    times = [when for when, *_ in load.acknowledged if began - 0.5 <= when <= after]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    while_full = [when for when in times if began <= when < freed]
    errors = Counter(text for when, text in load.errors if began <= when <= after + 0.2)
    down = {
        name: group.table.output_tail(name).splitlines()[-1:]
        for name in group.brokers
        if group.table.find(name) is None
    }
    return {
        "acknowledged_while_full": len(while_full),
        "errors_seen_by_the_producer": dict(errors.most_common(4)),
        "longest_gap_s": round(max(gaps, default=0.0), 3),
        "first_acknowledged_after_room_s": round(after - freed, 3),
        "nodes_that_stopped": down,
    }


async def drill(group: Processes) -> dict[str, object]:
    figures: dict[str, object] = {}
    async with Producer("drill", group.name_servers) as producer:
        load = Load(producer)
        task = asyncio.create_task(load.run())
        while len(load.acknowledged) < 50:
            await asyncio.sleep(0.02)
        for case in ("leader", "follower", "all"):
            leader = await asyncio.to_thread(group.leader)
            follower = next(name for name in group.brokers if name != leader)
            victims = {"leader": [leader], "follower": [follower], "all": group.brokers}[case]
            figures[case] = await fill_and_free(group, load, victims)
            print(case, json.dumps(figures[case]), flush=True)
            for name in group.brokers:
                if group.table.find(name) is None:
                    await asyncio.to_thread(group.start_broker, name)
            await asyncio.to_thread(group.await_ready)
        task.cancel()
        await asyncio.wait([task])
    await asyncio.to_thread(group.await_caught_up)
    lost = 0
    for _, key, queue, offset in load.acknowledged:
        place = await asyncio.to_thread(group.send, "Full", BODY, key, queue_id=queue)
        lost += place.queue_offset != offset
    figures["acknowledged"] = len(load.acknowledged)
    figures["acknowledged_and_lost"] = lost
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    settings = {"disk_free_size_min": 8 << 20}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drill-", dir=".")))
        group = Processes(
            root.resolve(),
            broker_settings=settings,
            raft_settings={"segment_size_bytes_max": 8 << 20},
        )
        for name in group.brokers:
            stack.enter_context(small_disk(group.store(name)))
        stack.enter_context(group)
        figures = asyncio.run(drill(group.start()))
    print(json.dumps(figures, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    if figures["acknowledged_and_lost"]:
        raise SystemExit("acknowledged messages were lost")


if __name__ == "__main__":
    main()
