"""`cluster up`, `status` and `down` on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from campaigns.rig.certificates import Authority
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.layout import LayoutError
from chaos.cluster.processes import PortInUseError, ProcessTable

pytestmark = pytest.mark.cluster


@pytest.fixture
def directory(tmp_path: Path):
    yield tmp_path / "cluster"
    if (tmp_path / "cluster" / "cluster.json").exists():
        cluster.down(tmp_path / "cluster")


def test_up_status_kill_one_and_down(directory: Path) -> None:
    reported: list[str] = []
    up = cluster.up(directory, namesrv_port=0, base_port=0, detach=True, report=reported.append)
    assert len(up.name_servers) == 2
    assert [node.role for node in up.nodes].count("leader") == 1
    assert all(node.commit_index is not None for node in up.nodes)
    assert any("leader" in line for line in reported)
    asked = json.loads(cluster.status(directory).to_json())
    assert set(asked) == {"name_servers", "nodes"}
    assert set(asked["nodes"][0]) == {
        "group",
        "name",
        "pid",
        "address",
        "role",
        "term",
        "last_index",
        "commit_index",
    }
    with pytest.raises(cluster.ClusterError, match="already runs"):
        cluster.up(directory, namesrv_port=0, base_port=0, detach=True, report=reported.append)
    with pytest.raises(cluster.ClusterError, match="1 group"):
        cluster.up(directory, groups=2, namesrv_port=0, base_port=0, report=reported.append)

    victim = next(node for node in up.nodes if node.role == "leader")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)

    def another_leads() -> bool:
        nodes = cluster.status(directory).nodes
        others = [node for node in nodes if node.name != victim.name]
        assert all(node.pid is not None for node in others), "nobody else is touched"
        return any(node.role == "leader" for node in others)

    await_until(another_leads, "the others elect a leader")
    dead = next(n for n in cluster.status(directory).nodes if n.name == victim.name)
    assert (dead.pid, dead.role, dead.term) == (None, "down", None)
    stopped = cluster.down(directory)
    assert len(stopped) == 4
    assert cluster.down(directory) == []
    assert all(node.role == "down" for node in cluster.status(directory).nodes)


def test_settings_reach_brokers_and_name_servers(directory: Path, tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("node")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(
        "accounts:\n- {accessKey: someone, secretKey: secret-enough, admin: true}\n"
    )
    arguments = ["cluster", "up", str(directory), "--namesrv-port", "0", "--base-port", "0"]
    arguments += ["--replicas", "1", "--name-servers", "1", "--detach"]
    settings = {
        "tls_mode": "enforcing",
        "tls_cert_file": certificate.cert,
        "tls_key_file": certificate.key,
        "tls_dial": "true",
        "acl_enable": "true",
        "acl_file": accounts,
        "acl_inner_access_key": "someone",
        "pull_count_max": "77",
    }
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    _ledgermq(*arguments)
    server = cluster.status(directory).name_servers[0]
    account = {"LEDGERMQ_ACCESS_KEY": "someone", "LEDGERMQ_SECRET_KEY": "secret-enough"}
    send = ["send", "T", "hello", "--namesrv", server, "--tls"]
    reported = _ledgermq(*send, environment=account)
    assert "SEND_OK" in reported.stdout
    tail = ["tail", "T", "--from-start", "--count", "1", "--namesrv", server, "--tls"]
    assert "hello" in _ledgermq(*tail, environment=account).stdout
    refused = _ledgermq(*send, check=False)
    assert refused.returncode == 2
    assert "not stored" in refused.stderr
    assert _ledgermq(*arguments, "--set", "nonsense", check=False).returncode == 64
    toml = tomllib.loads((directory / "config" / "broker-a-n0.toml").read_text())
    assert toml["broker"]["pull_count_max"] == 77


def _ledgermq(
    *arguments: str, environment: dict[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done


def test_foreground_stops_at_sigterm(directory: Path) -> None:
    arguments = ["cluster", "up", str(directory), "--namesrv-port", "0", "--base-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq", *arguments, "--replicas", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert "leader" in lines[1]
        table = ProcessTable(directory)
        assert len(table.names()) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert table.names() == []
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_port_in_use_is_named_and_nothing_starts(directory: Path) -> None:
    reported: list[str] = []
    up = cluster.up(
        directory, replicas=1, namesrv_port=0, base_port=0, detach=True, report=reported.append
    )
    taken = int(up.nodes[0].address.rpartition(":")[2])
    other = directory.parent / "other"
    with pytest.raises(PortInUseError, match=rf"{taken}.*broker-a-n0"):
        cluster.up(other, replicas=1, namesrv_port=0, base_port=taken, report=reported.append)
    assert ProcessTable(other).names() == []


def test_no_cluster_is_said(tmp_path: Path) -> None:
    with pytest.raises(cluster.ClusterError, match="holds no cluster"):
        cluster.status(tmp_path)
    with pytest.raises(LayoutError, match="groups must be"):
        cluster.up(tmp_path, groups=0)
