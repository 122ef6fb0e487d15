"""A client that has not heard of the new leader: what it asks the old one is done all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request, send_command
from campaigns.rig.waiting import await_until
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster

JAVA = 0


def java(command: RemotingCommand) -> RemotingCommand:
    command.language = JAVA
    return command


def test_any_replica_takes_what_its_leader_takes(tmp_path: Path) -> None:
    with Processes(tmp_path / "cluster") as three:
        three.start()
        three.send("T", b"x", "K0")
        for number, name in enumerate(three.brokers, start=1):
            key = f"K{number}"
            answer = request(three.place(name).address, java(send_command("T", b"x", key)))
            assert isinstance(answer, RemotingCommand)
            assert (answer.code, answer.ext_fields["queueOffset"]) == (0, str(number))
        old = three.leader()
        three.kill(old)
        three.start_broker(old)
        seen: list[object] = []

        def stored() -> bool:  # as a client does that knows the old leader only
            sent = java(send_command("T", b"x", "K9"))
            seen.append(request(three.place(old).address, sent))
            answer = seen[-1]
            return isinstance(answer, RemotingCommand) and answer.code == 0

        await_until(stored, "the old leader takes a message")
        answer = seen[-1]
        assert isinstance(answer, RemotingCommand)
        assert answer.ext_fields["queueOffset"] == "4", seen
        bound = java(RemotingCommand(code=30, ext_fields={"topic": "T", "queueId": "0"}))
        told = request(three.place(old).address, bound)
        assert isinstance(told, RemotingCommand)
        assert (told.code, told.ext_fields["offset"]) == (0, "5")
