"""`cluster start|stop|kill|pause|resume`: one node of a cluster, by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import ledgermq, ledgermq_here, one_line
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.cluster import ClusterError, plan_ports
from chaos.cluster.layout import lay_out
from chaos.cluster.nodes import process_name
from chaos.cluster.processes import ProcessTable

PORTS = ("--base-port", "0", "--namesrv-port", "0", "--name-servers", "1")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    if (path / "cluster.json").exists():
        cluster.down(path)


def by_hand(verb: str, directory: Path, node: str) -> str:
    done = ledgermq("cluster", verb, directory, node)
    assert done.returncode == 0, done.stderr
    return done.stdout


def node_of(directory: Path, name: str) -> dict:
    asked = ledgermq("cluster", "status", directory, "--json")
    return next(node for node in json.loads(asked.stdout)["nodes"] if node["name"] == name)


@pytest.mark.cluster
def test_a_node_that_was_killed_comes_back(directory: Path) -> None:
    assert ledgermq("cluster", "up", directory, "--detach", *PORTS).returncode == 0
    table = ProcessTable(directory)
    assert by_hand("kill", directory, "n1").startswith("killed broker-a-n1")
    assert table.state("broker-a-n1") == "gone"
    status = ledgermq("cluster", "status", directory).stdout
    assert "None" not in status
    assert "n1  pid -  " in status
    refused = ledgermq("cluster", "up", directory, "--detach", *PORTS)
    assert "down: broker-a-n1 (`ledgermq cluster start`" in one_line(refused, 2)
    for verb in ("kill", "pause", "resume", "stop"):
        again = ledgermq("cluster", verb, directory, "broker-a-n1")
        assert one_line(again, 2) == "ledgermq: broker-a-n1 is not running"
    assert "started, pid" in by_hand("start", directory, "n1")
    await_until(lambda: node_of(directory, "n1")["role"] in {"follower", "leader"}, "it is back")
    refused = ledgermq("cluster", "start", directory, "n1")
    assert "already runs as pid" in one_line(refused, 2)


@pytest.mark.cluster
def test_pause_resume_stop_start(directory: Path) -> None:
    assert ledgermq("cluster", "up", directory, "--detach", *PORTS).returncode == 0
    table = ProcessTable(directory)
    by_hand("pause", directory, "n2")
    assert table.state("broker-a-n2") == "T"
    assert node_of(directory, "n2")["role"] == "unreachable"
    by_hand("resume", directory, "n2")
    await_until(lambda: node_of(directory, "n2")["role"] != "unreachable", "it goes on")
    await_until(lambda: "the loop was held up for" in table.output_tail("broker-a-n2"), "told")
    by_hand("pause", directory, "namesrv-0")
    by_hand("resume", directory, "namesrv-0")
    assert by_hand("stop", directory, "n2") == "stopped broker-a-n2\n"
    assert table.find("broker-a-n2") is None
    by_hand("stop", directory, "namesrv-0")
    by_hand("start", directory, "namesrv-0")
    by_hand("start", directory, "n2")
    assert set(cluster.down(directory)) == {"namesrv-0"} | {f"broker-a-n{i}" for i in range(3)}


@pytest.mark.cluster
def test_a_foreground_cluster_stops_what_was_started_by_hand(directory: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq", "cluster", "up", str(directory), *PORTS],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert any("leader" in line for line in lines)
            by_hand("kill", directory, "n0")
            assert "n0 ended" in process.stdout.readline()
            by_hand("start", directory, "n0")
            table = ProcessTable(directory)
            started = table.find("broker-a-n0")
            assert started is not None
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            assert not started.alive
            assert table.names() == []
        finally:
            process.kill()


@pytest.mark.cluster
def test_a_port_that_was_taken_meanwhile_is_named(directory: Path) -> None:
    up = cluster.up(
        directory, replicas=1, namesrv_port=0, base_port=0, detach=True, report=lambda _: None
    )
    by_hand("kill", directory, "n0")
    port = int(up.nodes[0].address.rpartition(":")[2])
    code = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE)
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            refused = ledgermq("cluster", "start", directory, "n0")
            taken = f"port {port} on 127.0.0.1, needed by broker-a-n0 (remoting)"
            assert taken in one_line(refused, 2)
        finally:
            holder.kill()


def test_what_is_no_node_is_said(tmp_path: Path) -> None:
    for verb in ("start", "stop", "kill", "pause", "resume"):
        done = ledgermq_here("cluster", verb, tmp_path, "n0")
        assert "holds no cluster" in one_line(done, 2)
    ports = plan_ports(groups=2, replicas=3, name_servers=1, namesrv_port=0, base_port=0)
    layout = lay_out(groups=2, replicas=3, name_servers=1, ports=ports)
    assert process_name(layout, "n1", "broker-b") == "broker-b-n1"
    assert process_name(layout, "broker-b-n2", None) == "broker-b-n2"
    assert process_name(layout, "namesrv-0", None) == "namesrv-0"
    with pytest.raises(ClusterError, match="several groups, name one: broker-a-n1, broker-b-n1"):
        process_name(layout, "n1", None)
    with pytest.raises(ClusterError, match="there is no node 'n9'; there is broker-a-n0"):
        process_name(layout, "n9", None)
    with pytest.raises(ClusterError, match="there is no group broker-c"):
        process_name(layout, "n1", "broker-c")
