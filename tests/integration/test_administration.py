"""What an administrator did outlives the leader; settings hold for one process, and its next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import pull_fields

pytestmark = pytest.mark.cluster

OFFSET_MOVED, TOPIC_NOT_EXIST = 21, 17


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "cluster") as processes:
        yield processes.start()


def ask(
    processes: Processes, code: int, fields: dict[str, str] | None = None, body: bytes = b""
) -> RemotingCommand:
    """The leader's answer, asked again while there is none."""
    found: list[RemotingCommand] = []

    def answered() -> bool:
        command = RemotingCommand(code=code, ext_fields=dict(fields or {}), body=body)
        answer = request(processes.place(processes.leader()).address, command)
        if isinstance(answer, RemotingCommand) and answer.code != 14:
            found.append(answer)
        return bool(found)

    await_until(answered, f"an answer to {code}")
    return found[0]


def done(processes: Processes, code: int, fields: dict[str, str], body: bytes = b"") -> None:
    answer = ask(processes, code, fields, body)
    assert answer.code == 0, (code, answer.code, answer.remark)


def test_deletions_resets_and_groups_outlive_the_leader(three: Processes) -> None:
    for topic in ("T", "Gone"):
        for number in range(3):
            assert three.send(topic, b"x", f"{topic}{number}").queue_offset == number
    committed = {"consumerGroup": "G", "queueId": "0", "commitOffset": "3"}
    for topic in ("T", "Gone"):
        done(three, 15, committed | {"topic": topic})
    done(three, 200, {}, b'{"groupName":"Configured","retryMaxTimes":5}')
    done(three, 200, {}, b'{"groupName":"Dropped"}')
    done(three, 222, {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"})
    done(three, 215, {"topic": "Gone"})
    done(three, 207, {"groupName": "Dropped", "cleanOffset": "true"})

    leader = three.leader()
    three.kill(leader)
    three.leader(other_than=leader)

    moved = ask(three, 11, pull_fields(offset=3))
    assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (OFFSET_MOVED, "0")
    done(three, 15, committed | {"topic": "T"})  # of a member that has not heard of it
    query = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    assert ask(three, 14, query).ext_fields["offset"] == "0"
    assert ask(three, 11, pull_fields(offset=0)).code == 0
    await_until(
        lambda: ask(three, 11, pull_fields(offset=2)).code == 0, "the reset is followed and gone"
    )
    assert ask(three, 11, pull_fields(offset=0) | {"topic": "Gone"}).code == TOPIC_NOT_EXIST
    offsets = json.loads(ask(three, 43).body)["offsetTable"]
    assert "Gone@G" not in offsets
    groups = json.loads(ask(three, 201).body)["subscriptionGroupTable"]
    assert groups["Configured"]["retryMaxTimes"] == 5
    assert "Dropped" not in groups
    assert three.send("Gone", b"x", "again").queue_offset == 3, "no offset comes a second time"
    bounds = {"topic": "Gone", "queueId": "0"}
    assert ask(three, 31, bounds).ext_fields["offset"] == "3"

    three.start_broker(leader)
    three.await_ready()
    three.await_caught_up()
    for place in three.layout.brokers:
        first = request(
            place.address,
            RemotingCommand(code=11, ext_fields=pull_fields(offset=3) | {"topic": "Gone"}),
        )
        assert isinstance(first, RemotingCommand)
        assert first.code == 0, (place.name, first.remark)


def test_settings_hold_for_one_process_and_its_next_life(three: Processes) -> None:
    leader = three.leader()
    address = three.place(leader).address

    def setting(name: str) -> str | None:
        answer = request(address, RemotingCommand(code=26))
        if not isinstance(answer, RemotingCommand):
            return None
        return dict(line.split("=", 1) for line in answer.body.decode().splitlines()).get(name)

    changed = request(address, RemotingCommand(code=25, body=b"maxMessageSize=1234\n"))
    assert isinstance(changed, RemotingCommand)
    assert changed.code == 0, changed.remark
    assert setting("maxMessageSize") == "1234"
    three.terminate(leader)
    three.start_broker(leader)
    await_until(lambda: setting("maxMessageSize") == "1234", "it was kept")
