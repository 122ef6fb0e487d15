"""Nodes that die, stores that were touched, restarts: what was acknowledged is there, as it was."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, Stored, one_line, print_line, request, send_command
from campaigns.rig.waiting import await_until
from client.message import Message
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

pytestmark = pytest.mark.cluster

QUEUES = 4
COMMIT, ROLLBACK = 8, 12


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "cluster") as processes:
        yield processes.start()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "cluster", replicas=1) as processes:
        yield processes.start()


# What a cluster answers ------------------------------------------------------------------------


def ask(processes: Processes, code: int, **fields: object) -> RemotingCommand:
    """The leader's answer."""
    command = RemotingCommand(code=code, ext_fields={k: str(v) for k, v in fields.items()})
    answer = request(processes.place(processes.leader()).address, command)
    assert isinstance(answer, RemotingCommand), answer
    return answer


def bodies(processes: Processes, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """(queue offset, body) of everything in a queue, by pulls."""
    end = int(ask(processes, 30, topic=topic, queueId=queue_id).ext_fields["offset"])
    found: list[tuple[int, bytes]] = []
    while len(found) < end:
        answer = ask(
            processes,
            11,
            consumerGroup="R",
            topic=topic,
            queueId=queue_id,
            queueOffset=len(found),
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
        )
        assert answer.code == 0, answer.remark
        found += [(r.queue_offset, r.body) for r in decode_records(answer.body)]
    assert [offset for offset, _ in found] == list(range(end))
    return found


def send_half(processes: Processes, key: str) -> Stored:
    command = send_command("T", key.encode(), key)
    command.ext_fields["i"] += "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    command.ext_fields["f"] = "4"
    answer = request(processes.place(processes.leader()).address, command)
    assert isinstance(answer, RemotingCommand), answer
    assert answer.code == 0, answer.remark
    return Stored(
        queue_id=0,
        queue_offset=int(answer.ext_fields["queueOffset"]),
        position=int(answer.ext_fields["msgId"][16:], 16),
    )


def end(processes: Processes, half: Stored, key: str, decision: int) -> RemotingCommand:
    return ask(
        processes,
        37,
        producerGroup="PG",
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.position,
        commitOrRollback=decision,
        fromTransactionCheck="false",
        msgId=key,
        transactionId=key,
    )


def what_is_told(processes: Processes) -> dict[str, object]:
    """Everything that a client can ask, from the leader."""
    queues = range(QUEUES)
    return {
        "bodies": {q: bodies(processes, "T", q) for q in queues},
        "halves": bodies(processes, "RMQ_SYS_TRANS_HALF_TOPIC", 0),
        "ops": len(bodies(processes, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)),
        "offsets": [
            ask(processes, 14, consumerGroup="CG", topic="T", queueId=q).ext_fields["offset"]
            for q in queues
        ],
        "topics": json.loads(ask(processes, 21).body)["topicConfigTable"],
    }


def fill(processes: Processes) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """Messages, and four halves: committed, rolled back and two undecided; consumer offsets."""
    stored = {
        f"K{n}": processes.send("T", b"body %d" % n, f"K{n}", queue_id=n % QUEUES)
        for n in range(40)
    }
    halves = {key: send_half(processes, key) for key in ("committed", "rolled", "open", "later")}
    assert end(processes, halves["committed"], "committed", COMMIT).code == 0
    assert end(processes, halves["rolled"], "rolled", ROLLBACK).code == 0
    for queue_id in range(QUEUES):
        answer = ask(
            processes,
            15,
            consumerGroup="CG",
            topic="T",
            queueId=queue_id,
            commitOffset=3 + queue_id,
        )
        assert answer.code == 0, answer.remark
    return stored, halves


# Tests -----------------------------------------------------------------------------------------


def test_kill_9_of_every_node_at_once_loses_nothing(three: Processes) -> None:
    stored, halves = fill(three)
    before = what_is_told(three)
    last = three.send("T", b"the very last", "LAST", queue_id=3)
    three.kill(*three.brokers, "namesrv-0")
    three.start()

    after = what_is_told(three)
    queue = after["bodies"]
    assert isinstance(queue, dict)
    assert queue[3].pop() == (last.queue_offset, b"the very last")
    assert after == before
    # A retry of what was stored before the crash is answered with its place.
    assert three.send("T", b"the very last", "LAST", queue_id=3) == last
    for key, place in stored.items():
        number = int(key[1:])
        assert three.send("T", b"body %d" % number, key, queue_id=number % QUEUES) == place
    assert send_half(three, "open") == halves["open"]
    # What was decided stays decided; what was not can be.
    assert end(three, halves["committed"], "committed", COMMIT).code == 0
    assert end(three, halves["committed"], "committed", ROLLBACK).code == 604
    assert end(three, halves["rolled"], "rolled", COMMIT).code == 604
    length = len(bodies(three, "T", 0))
    assert end(three, halves["later"], "later", COMMIT).code == 0
    assert [body for _, body in bodies(three, "T", 0)[length:]] == [b"later"]
    three.await_caught_up()


def test_consume_queues_are_rebuilt_byte_for_byte(three: Processes) -> None:
    fill(three)
    before = what_is_told(three)
    three.await_caught_up()
    for name in three.brokers:
        assert three.terminate(name) == 0
    kept = {name: consume_queue_files(three, name) for name in three.brokers}
    assert kept["broker-a-n0"] == kept["broker-a-n1"] == kept["broker-a-n2"]
    assert len(kept["broker-a-n0"]) >= QUEUES + 2
    for name in three.brokers:
        shutil.rmtree(three.store(name) / "consumequeue")
        three.start_broker(name)
    three.await_ready()
    assert what_is_told(three) == before
    three.await_caught_up()
    for name in three.brokers:
        assert three.terminate(name) == 0
        assert consume_queue_files(three, name) == kept[name]


def consume_queue_files(processes: Processes, name: str) -> dict[str, bytes]:
    root = processes.store(name) / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def log_file(processes: Processes, name: str) -> Path:
    (path,) = sorted((processes.store(name) / "commitlog").glob("0*"))
    return path


def test_damage_that_no_peer_can_mend_is_told_and_not_served(one: Processes) -> None:
    (name,) = one.brokers
    for number in range(20):
        one.send("T", b"x" * 200, f"K{number}")
    one.kill(name)  # without the snapshot of a clean stop, which would contain what is damaged
    path = log_file(one, name)
    data = bytearray(path.read_bytes())
    starts = [at for at in range(len(data)) if data.startswith(b"LMQ1", at)]
    damaged = starts[len(starts) // 2]
    data[damaged + 100] ^= 0x01
    path.write_bytes(data)
    index = int.from_bytes(data[damaged + 8 : damaged + 16], "big")
    one.start_broker(name)
    await_until(
        lambda: f"the log is damaged: entries {index}..{index}: " in one.output(name),
        "the damage is told",
    )
    # The damage is told within the start, in which a SIGTERM is not waited for yet.
    await_until(lambda: one.output(name).count(" listening on ") == 2, "it serves")
    refused = request(one.place(name).address, send_command("T", b"y", "K20"))
    assert not isinstance(refused, RemotingCommand) or refused.code != 0
    assert one.terminate(name) == 0
    left = path.read_bytes()
    assert data.startswith(left), "the evidence is left as it is"
    assert not any(data[len(left) :]), "only the room behind the log's end is gone"
    data[damaged + 100] ^= 0x01
    path.write_bytes(data)
    one.start_broker(name)
    one.await_ready()
    assert len(bodies(one, "T", 0)) == 20


def test_a_torn_tail_is_dropped_and_told(one: Processes) -> None:
    (name,) = one.brokers
    stored = one.send("T", b"kept", "K1")
    assert one.terminate(name) == 0
    path = log_file(one, name)
    data = path.read_bytes()
    last = data.rindex(b"LMQ1")
    behind = last + int.from_bytes(data[last + 4 : last + 8], "big")
    assert not any(data[behind:]), "zeros of the preallocation"
    torn = data[last : last + 76] + b"\x01"
    path.write_bytes(data[:behind] + torn + data[behind + len(torn) :])
    one.start_broker(name)
    one.await_ready()
    told = next(line for line in one.output(name).splitlines()[::-1] if "torn bytes" in line)
    print_line(told)
    assert "77 torn bytes dropped (" in told
    assert one.send("T", b"kept", "K1") == stored


def test_a_hard_state_that_is_gone_refuses_to_start(one: Processes) -> None:
    (name,) = one.brokers
    one.send("T", b"kept", "K1")
    assert one.terminate(name) == 0
    copies = sorted(one.store(name).glob("hard_state*"))
    kept = [state.read_bytes() for state in copies]
    assert len(copies) == 2
    for state in copies:
        state.unlink()
    line = one_line(one.run_broker(name), 2)
    assert "hard_state" in line
    for state, data in zip(copies, kept, strict=True):
        state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    line = one_line(one.run_broker(name), 2)
    assert "hard_state" in line
    copies[0].write_bytes(kept[0])  # one of them is enough
    one.start_broker(name)
    one.await_ready()
    assert [state.read_bytes()[:8] for state in copies] == [kept[0][:8], kept[0][:8]]
    assert bodies(one, "T", 0) == [(0, b"kept")]


# Leaving and coming back -----------------------------------------------------------------------


class Sender:
    """Sends without a pause, as a producer with its defaults does, and times acknowledgements."""

    def __init__(self, name_servers: list[str]) -> None:
        self._producer = Producer(
            "Rolling", name_servers, settings=ProducerSettings(timeout_ms=10_000)
        )
        self.acknowledged: list[float] = []

    async def run(self, until: asyncio.Event) -> None:
        """Raises the first error that a producer's caller sees."""
        async with self._producer:
            while not until.is_set():
                body = b"%d" % len(self.acknowledged)
                await self._producer.send(Message(topic="T", body=body))
                self.acknowledged.append(time.monotonic())

    def gap_s(self, since: float) -> float:
        """The longest time without an acknowledgement."""
        times = [since, *(t for t in self.acknowledged if t > since)]
        return max(b - a for a, b in itertools.pairwise(times))


def rolling_restart(processes: Processes, sender: Sender) -> list[str]:
    """Every node once, the leader last; what was measured."""
    told = []
    await_until(lambda: len(sender.acknowledged) > 100, "sends are acknowledged")
    leader = processes.leader()
    for name in [*(n for n in processes.brokers if n != leader), leader]:
        role = "leader" if name == processes.leader() else "follower"
        began = time.monotonic()
        assert processes.terminate(name) == 0
        stopped = time.monotonic() - began
        if role == "leader":
            assert processes.leader() != name
        processes.start_broker(name)
        processes.await_ready()
        processes_ready = len(sender.acknowledged)
        await_until(lambda seen=processes_ready: len(sender.acknowledged) > seen + 20, "it goes on")
        gap = sender.gap_s(began)
        told.append(f"{name} ({role}): stopped in {stopped:.2f} s, longest gap {gap:.2f} s")
        if role == "leader":
            assert "did not take over in time" not in processes.output(name)
    return told


async def test_a_rolling_restart_shows_no_error_to_a_producer(three: Processes) -> None:
    sender = Sender(three.name_servers)
    until = asyncio.Event()
    sending = asyncio.create_task(sender.run(until))
    try:
        for line in await asyncio.to_thread(rolling_restart, three, sender):
            print_line(line)
        assert not sending.done()
    finally:
        until.set()
        await sending
    count = await asyncio.to_thread(
        lambda: sum(len(bodies(three, "T", queue_id)) for queue_id in range(QUEUES))
    )
    assert count == len(sender.acknowledged), "each once"
