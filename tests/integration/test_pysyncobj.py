"""A cluster on PySyncObj: the same broker, the same answers, another engine under it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from campaigns.rig.processes import request, send_command
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.cluster import ClusterError
from chaos.cluster.processes import ProcessTable
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0


def send(directory: Path, key: str) -> tuple[int, int]:
    """Send until acknowledged; queue and offset."""
    deadline = time.monotonic() + DEADLINE_S
    said: object = None
    while time.monotonic() < deadline:
        for node in cluster.status(directory).nodes:
            if node.role == "leader":
                said = request(node.address, send_command("T", key.encode(), key))
                if isinstance(said, RemotingCommand) and said.code == 0:
                    return int(said.ext_fields["queueId"]), int(said.ext_fields["queueOffset"])
        time.sleep(0.05)
    raise AssertionError(f"{key} was not acknowledged: {said}")


def test_a_cluster_on_pysyncobj_survives_its_leader(tmp_path: Path) -> None:
    directory = tmp_path.resolve()
    cluster.up(
        directory,
        engine="pysyncobj",
        name_servers=1,
        base_port=0,
        namesrv_port=0,
        detach=True,
        report=lambda _: None,
    )
    table = ProcessTable(directory)
    try:
        before = [send(directory, f"{number:032d}") for number in range(10)]
        leader = next(n for n in cluster.status(directory).nodes if n.role == "leader")
        name = f"{leader.group}-{leader.name}"
        table.stop([name], timeout_s=0)  # SIGKILL follows SIGTERM at once
        after = [send(directory, f"{number:032d}") for number in range(10, 20)]
        assert send(directory, f"{3:032d}") == before[3], "a retry is told the first place"
        offsets = sorted(before + after)
        assert offsets == sorted(set(offsets))
        table.start(name, cluster.broker_process(directory, name))

        def all_hold_the_same() -> bool:
            ends = {node.commit_index for node in cluster.status(directory).nodes}
            return len(ends) == 1 and None not in ends

        await_until(all_hold_the_same, "the restarted node has all")
        with pytest.raises(ClusterError, match="engine pysyncobj"):
            cluster.up(directory, engine="raft", base_port=0, namesrv_port=0, name_servers=1)
    finally:
        cluster.down(directory)
    segments = [
        (directory / "nodes" / "broker-a" / node / "commitlog" / f"{0:020d}").read_bytes()
        for node in ("n0", "n1", "n2")
    ]
    shortest = min(len(segment.rstrip(b"\0")) for segment in segments)
    assert len({segment[:shortest] for segment in segments}) == 1
