"""The index by key under a real broker that is killed, and whose index is deleted or damaged."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

pytestmark = pytest.mark.cluster

COUNT = 6


def found(processes: Processes, name: str, key: str) -> list[bytes] | None:
    """Bodies of the messages with this key; None where the broker doesn't say."""
    fields = {
        "topic": "T",
        "key": key,
        "maxNum": "64",
        "beginTimestamp": "0",
        "endTimestamp": str(time.time_ns()),
    }
    command = RemotingCommand(code=RequestCode.QUERY_MESSAGE, ext_fields=fields)
    answer = request(processes.place(name).address, command, 10_000)
    if not isinstance(answer, RemotingCommand):
        return None
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    if answer.code:
        return None
    return [record.body for record in decode_records(answer.body)]


def test_messages_are_found_by_key_whatever_happens_to_the_index(tmp_path: Path) -> None:
    with Processes(tmp_path / "cluster", replicas=1) as processes:
        processes.start()
        (name,) = processes.brokers
        for number in range(COUNT):
            processes.send("T", b"%d" % number, f"K{number}")
        assert found(processes, name, "K4") == [b"4"]
        assert found(processes, name, "K99") == []
        index = processes.store(name) / "index"
        for harm in ("none", "deleted", "damaged"):
            if harm == "damaged":
                processes.terminate(name)  # so that the checkpoint names what is in the file
            else:
                processes.kill(name)
            if harm == "deleted":
                shutil.rmtree(index)
            elif harm == "damaged":
                (file,) = index.iterdir()
                with file.open("r+b") as stream:
                    stream.seek(40 + 4 * 5_000_000 + 20 * 2)
                    stream.write(bytes(20))
            processes.start_broker(name)
            await_until(lambda: found(processes, name, "K0") == [b"0"], f"found, index {harm}")
            for number in range(COUNT):
                assert found(processes, name, f"K{number}") == [b"%d" % number], harm
        output = processes.output(name)
        assert "Traceback" not in output
        assert "built again from the log" in output
