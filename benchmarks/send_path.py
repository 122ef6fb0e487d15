"""The files and functions that one send touches on a broker: how long its path is to read.

A broker, alone in its group, runs in this process; a SEND_MESSAGE_V2 frame is written to its socket
from outside of the code that is counted. Each Python function is counted that runs from the frame
until shortly after the answer, on the loop and on threads, in every one of several sends; what a
timer does in each of these spans is among them.

    python -m benchmarks.send_path             # figures, and functions by file
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from chaos.cluster.processes import free_ports
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import encode

ROOT = Path(__file__).resolve().parent.parent
SENDS = 20
WARM_UP = 5
TOPIC = "path"
AFTERMATH_S = 0.1  # in which what follows an answer is done: files, the index of keys


def send_frame(number: int) -> bytes:
    """Return one message's send as a client writes it."""
    fields = {
        "a": "producers",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x017F00000100010000{number:016X}\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    command = RemotingCommand(
        code=RequestCode.SEND_MESSAGE_V2, opaque=number, ext_fields=fields, body=b"x" * 100
    )
    return encode(command)


class Touched:
    """Functions that ran since `begin`, on every thread that was started after the first one."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        sys.setprofile(self._on_event)
        threading.setprofile(self._on_event)

    def begin(self) -> None:
        self._codes = set()

    def end(self) -> frozenset[tuple[str, str]]:
        """Return (file, function) of this project."""
        codes, self._codes = self._codes, set()
        return frozenset(
            (str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname)
            for code in codes
            if code.co_filename.startswith(str(ROOT)) and code.co_filename != __file__
        )

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)


async def touched_by_a_send(store: Path) -> frozenset[tuple[str, str]]:
    """Return what runs in each of the sends to a broker that has a store there."""
    touched = Touched()
    client_port, peer_port = free_ports(2, random.Random())
    peer = f"127.0.0.1:{peer_port}"
    broker = Broker(
        BrokerConfig(
            group="broker-a",
            node="n0",
            listen=f"127.0.0.1:{client_port}",
            raft_listen=peer,
            store=store,
            peers={"n0": peer},
        )
    )
    await broker.start()
    serving = asyncio.create_task(broker.serve())
    try:
        while not broker.log.status().ready:  # noqa: ASYNC110  # nobody notifies
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", client_port)
        sends = []
        for number in range(1, WARM_UP + SENDS + 1):
            frame = send_frame(number)
            touched.begin()
            writer.write(frame)
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            await asyncio.sleep(AFTERMATH_S)
            sends.append(touched.end())
            assert b'"code":0' in answer, answer
        writer.close()
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await broker.stop()
    return frozenset.intersection(*sends[WARM_UP:])


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(touched_by_a_send(Path(folder) / "store"))
    by_file = Counter(path for path, _ in found)
    for path, count in sorted(by_file.items()):
        names = ", ".join(sorted(name for file, name in found if file == path))
        print(f"{count:4d} {path}: {names}")
    print(f"one send touches {len(by_file)} files, {len(found)} functions")


if __name__ == "__main__":
    main()
