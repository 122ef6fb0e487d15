"""ConsumeQueues that are damaged or deleted under real brokers: nothing wrong is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records
from tests.broker.rig import pull_fields

pytestmark = pytest.mark.cluster

COUNT = 8


def pulled(processes: Processes, name: str, offset: int) -> list[bytes] | None:
    """Bodies from the offset on; None where the broker doesn't answer with messages."""
    command = RemotingCommand(code=11, ext_fields=pull_fields(offset=offset))
    answer = request(processes.place(name).address, command)
    if isinstance(answer, RemotingError) or answer.code:
        return None
    return [record.body for record in decode_records(answer.body)]


def test_a_damaged_unit_makes_the_broker_start_anew(tmp_path: Path) -> None:
    bodies = [f"message {number}".encode() for number in range(COUNT)]
    with Processes(tmp_path / "cluster", replicas=1) as processes:
        processes.start()
        (name,) = processes.brokers
        for body in bodies:
            processes.send("T", body, body.decode())
        pid = processes.pid(name)
        path = processes.store(name) / "consumequeue" / "T" / "0" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(3 * 20)
            file.write(bytes(20))
        assert pulled(processes, name, 0) is None
        await_until(lambda: pulled(processes, name, 0) == bodies, "the queue is built again")
        assert processes.pid(name) == pid
        assert "the unit of offset 3 names no such message" in processes.output(name)
        assert "Traceback" not in processes.output(name)
        processes.send("T", b"goes on", "goes on")
