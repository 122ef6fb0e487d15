"""A log of bounded size under real brokers: old messages go, readers go on, restarts are short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records
from tests.broker.rig import pull_fields

pytestmark = pytest.mark.cluster

SEGMENT = 1 << 20
SETTINGS = {"segment_size_bytes_max": SEGMENT, "log_size_bytes_max": 3 * SEGMENT}
BODY_SIZE = 100_000
OFFSET_MOVED = 21


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "cluster", broker_settings=SETTINGS) as processes:
        yield processes.start()


def body(number: int) -> bytes:
    return f"{number:08d}".encode() * (BODY_SIZE // 8)


def send(processes: Processes, numbers: range) -> None:
    for number in numbers:
        stored = processes.send("T", body(number), f"K{number}")
        assert stored.queue_offset == number


def ask(processes: Processes, code: int, **fields: str) -> RemotingCommand | None:
    """The leader's answer; None where there is none at this moment."""
    command = RemotingCommand(code=code, ext_fields={"topic": "T", "queueId": "0"} | fields)
    answer = request(processes.place(processes.leader()).address, command)
    return None if isinstance(answer, RemotingError) else answer


def min_offset(processes: Processes) -> int:
    answer = ask(processes, 31)
    return 0 if answer is None else int(answer.ext_fields["offset"])


def has_cut(processes: Processes, name: str) -> bool:
    # A file's sparse index beside it is deleted behind it: for a moment it is the first name.
    names = (path.name for path in (processes.store(name) / "commitlog").iterdir())
    return min(int(each) for each in names if each.isdecimal()) > 0


def read_all(processes: Processes, start: int, end: int) -> None:
    """Every message of [start, end) is there, with its bytes."""
    at = start
    while at < end:
        answer = ask(processes, 11, **pull_fields(offset=at))
        assert answer is not None
        assert answer.code == 0, (at, answer.code, answer.remark)
        for record in decode_records(answer.body):
            assert record.queue_offset == at
            assert record.body == body(at)
            at += 1


def test_old_messages_go_and_readers_hear_of_it(three: Processes) -> None:
    send(three, range(80))
    await_until(lambda: min_offset(three) > 20, "the log is cut to its bound")
    kept = min_offset(three)
    assert kept < 60, "and not further"
    moved = ask(three, 11, **pull_fields(offset=3))
    assert moved is not None
    assert moved.code == OFFSET_MOVED
    assert int(moved.ext_fields["nextBeginOffset"]) >= kept
    read_all(three, min_offset(three), 80)
    # Each replica cuts its own log: a follower may be behind the leader's.
    await_until(lambda: all(has_cut(three, name) for name in three.brokers), "on every replica")

    three.kill(*three.brokers)
    for name in three.brokers:
        three.start_broker(name)
    three.await_ready()
    # Each replica cuts its own log: the one that leads now may have been behind.
    await_until(lambda: min_offset(three) >= kept, "the new leader has cut its log as well")
    read_all(three, min_offset(three), 80)
    send(three, range(80, 90))
    read_all(three, min_offset(three), 90)


def test_a_replica_that_missed_the_beginning_gets_it_installed(three: Processes) -> None:
    send(three, range(10))
    late = next(name for name in three.brokers if name != three.leader())
    three.kill(late)
    send(three, range(10, 90))
    await_until(lambda: min_offset(three) > 30, "what it lacks is gone", seconds=40)
    three.start_broker(late)
    three.await_caught_up()
    others = [name for name in three.brokers if name != late]
    three.kill(*others)
    for name in others:
        three.start_broker(name)
    three.await_ready()
    send(three, range(90, 100))
    three.await_caught_up()
    start = min_offset(three)
    address = three.place(late).address
    for offset in range(start, 100):
        command = RemotingCommand(code=11, ext_fields=pull_fields(offset=offset, maxMsgNums="1"))
        answer = request(address, command)
        assert isinstance(answer, RemotingCommand), answer
        if answer.code == 0:  # its own log may begin later
            assert decode_records(answer.body)[0].body == body(offset)
        else:
            assert offset < 90, (offset, answer.code, answer.remark)
    assert processes_say_installed(three, late)


def processes_say_installed(processes: Processes, name: str) -> bool:
    return "install" in processes.output(name)
