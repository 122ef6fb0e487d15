"""What a master and its slaves tell a verifier."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgpack

from broker.ha.config import HaConfig
from broker.ha.engine import HaLog
from campaigns.rig.ports import free_ports
from campaigns.rig.waiting import until
from raft.messages import NodeId
from raft.replicated_log import StateDivergedError
from tests.broker.ha.payloads import payload_at
from tests.raft.node_group import Recorder

NODES = [NodeId("n0"), NodeId("n1")]


def events_of(store: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in sorted((store / "trace").iterdir()):
        with path.open("rb") as stream:
            found += list(msgpack.Unpacker(stream, raw=False))
    return found


class Traced:
    """A master n0 and its slave n1 in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ports = free_ports(2)
        self.peers = {node: f"127.0.0.1:{port}" for node, port in zip(NODES, ports, strict=True)}

    async def start(self, node: NodeId) -> HaLog:
        log = HaLog(
            HaConfig(
                group="broker-a",
                node_id=node,
                peers=self.peers,
                master=NODES[0],
                store=self.root / node,
                segment_size_bytes_max=1 << 16,
                listen=self.peers[node],
                heartbeat_ms=50,
                reconnect_ms=10,
                trace=True,
            ),
            Recorder(),
        )
        await log.start()
        return log


async def write(log: HaLog, count: int, body: bytes = b"x") -> None:
    for _ in range(count):
        await log.propose(lambda slot: payload_at(slot.position, [body]))


async def alike(one: HaLog, other: HaLog) -> None:
    await until(
        lambda: one.status().applied_index == other.status().applied_index, "the slave has all"
    )


async def test_both_tell_what_they_are_and_what_they_applied(tmp_path: Path) -> None:
    nodes = Traced(tmp_path)
    master, slave = await nodes.start(NODES[0]), await nodes.start(NODES[1])
    await asyncio.gather(*(write(master, 4) for _ in range(3)))
    await alike(master, slave)
    await slave.stop()
    await master.stop()
    traces = [events_of(tmp_path / node) for node in NODES]
    for events, role in zip(traces, ("leader", "follower"), strict=True):
        assert [event["event"] for event in events[:2]] == ["start", "role"]
        assert events[0]["voters"] == ["n0", "n1"]
        assert events[1]["role"] == role
        appended = [event["index"] for event in events if event["event"] == "append"]
        assert appended == list(range(1, 13))
        applied = [event for event in events if event["event"] == "apply"]
        told = [index for e in applied for index in range(int(e["first"]), int(e["index"]) + 1)]  # type: ignore[call-overload]
        assert told == appended
        assert {event["term"] for event in events} == {1}
        served = [event["index"] for event in events if event["event"] == "commit"]
        assert served == ([event["index"] for event in applied] if role == "leader" else [])
    chains = [
        {event["index"]: event["chain"] for event in events if event["event"] == "append"}
        for events in traces
    ]
    assert chains[0] == chains[1]
    states = [[e for e in events if e["event"] == "state"] for events in traces]
    assert [(e["index"], e["chain"]) for e in states[0]] == [
        (e["index"], e["chain"]) for e in states[1]
    ]
    assert [e["index"] for e in states[0]] == [12]


async def test_a_start_tells_what_it_found(tmp_path: Path) -> None:
    nodes = Traced(tmp_path)
    master = await nodes.start(NODES[0])
    await write(master, 3)
    await master.stop()
    master = await nodes.start(NODES[0])
    await master.stop()
    events = events_of(tmp_path / "n0")
    last = next(event for event in reversed(events) if event["event"] == "append")
    start = [event for event in events if event["event"] == "start"][-1]
    assert (start["incarnation"], start["index"], start["chain"]) == (2, 3, last["chain"])
    assert [e["seq"] for e in events] == sorted({int(str(e["seq"])) for e in events})


async def test_a_cut_is_told_before_the_next_start(tmp_path: Path) -> None:
    nodes = Traced(tmp_path)
    master, slave = await nodes.start(NODES[0]), await nodes.start(NODES[1])
    await write(master, 3)
    await alike(master, slave)
    await master.stop()
    shutil.copytree(tmp_path / "n0" / "ha", tmp_path / "before")
    master = await nodes.start(NODES[0])
    await write(master, 2)
    await alike(master, slave)
    await slave.stop()
    await master.stop()
    shutil.rmtree(tmp_path / "n0" / "ha")
    shutil.copytree(tmp_path / "before", tmp_path / "n0" / "ha")
    master = await nodes.start(NODES[0])
    await write(master, 1, b"y")
    slave = await nodes.start(NODES[1])
    for _ in range(2):  # what goes beyond the master's log, then the entry before it
        assert isinstance(await slave.wait_failed(), StateDivergedError)
        await slave.stop()
        slave = await nodes.start(NODES[1])
    await alike(master, slave)
    await slave.stop()
    await master.stop()
    events = events_of(tmp_path / "n1")
    told = [
        (event["event"], event["index"])
        for event in events
        if event["event"] in ("start", "truncate", "append") and event["incarnation"] != 1
    ]
    assert told == [
        *(("start", 5), ("truncate", 5)),
        *(("start", 4), ("truncate", 4)),
        *(("start", 3), ("append", 4)),
    ]


async def test_nothing_is_told_where_nobody_asked(tmp_path: Path) -> None:
    log = HaLog(
        HaConfig(
            group="broker-a",
            node_id=NODES[0],
            peers={NODES[0]: "127.0.0.1:1"},
            master=NODES[0],
            store=tmp_path,
        ),
        Recorder(),
    )
    await log.start()
    await write(log, 1)
    await log.stop()
    assert not (tmp_path / "trace").exists()
