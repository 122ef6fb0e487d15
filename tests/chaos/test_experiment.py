"""One real experiment, short: a run directory that keeps the run format's rules."""

from __future__ import annotations

import collections
import errno
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from campaigns.rig.waiting import await_until
from chaos.cluster.layout import layout_from_json
from chaos.cluster.processes import ProcessTable
from chaos.experiment.experiment import ExperimentError, run_experiment
from chaos.experiment.load import PUSH_GROUP
from chaos.scenario.scenario import load_scenario, parse_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
DEFINITE = {"ok", "fail"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiment") / "run"
    wholes: list[bool] = []
    run_experiment(
        load_scenario(SCENARIOS / "smoke.toml"),
        seed=11,
        out=out,
        on_whole=lambda: wholes.append((out / "run.json").exists()),
    )
    assert wholes == [False], "it is told once, before the run has ended"
    return out


@pytest.fixture(scope="module")
def manifest(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


@pytest.fixture(scope="module")
def ops(run: Path) -> list[dict]:
    return pq.read_table(run / "history" / "ops.parquet").to_pylist()


@pytest.mark.cluster
def test_no_process_is_left(run: Path) -> None:
    assert ProcessTable(run).names() == []
    layout = layout_from_json((run / "cluster.json").read_text())
    for place in layout.brokers:
        checkpoint = layout.store_directory(run, place) / "checkpoint"
        assert json.loads(checkpoint.read_text())["clean"] is True


@pytest.mark.cluster
def test_manifest_is_complete_and_true(run: Path, manifest: dict) -> None:
    assert (manifest["format"], manifest["complete"]) == (1, True)
    assert manifest["system"] == "ledgermq"
    assert manifest["groups"] == {"broker-a": ["n0", "n1", "n2"]}
    phases = [manifest["phases"][name] for name in ("load", "heal", "drain")]
    flat = [t for phase in phases for t in phase]
    assert flat == sorted(flat)
    assert set(manifest["tables"]) == {"ops", "faults", "raft", "nodes"}
    for table in manifest["tables"].values():
        assert table["files"]
        for file in table["files"]:
            data = (run / file["name"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file["sha256"]
    for name in ("ops", "faults", "raft"):
        (file,) = manifest["tables"][name]["files"]
        assert pq.read_table(run / file["name"]).num_rows == file["rows"] > 0


@pytest.mark.cluster
def test_it_is_as_large_as_what_was_written(run: Path) -> None:
    """Whoever hashes, copies or packs it meets no gigabyte of zeros, and brokers can go on."""
    files = [path.stat() for path in run.rglob("*") if path.is_file()]
    on_disk = sum(file.st_blocks * 512 for file in files)
    assert sum(file.st_size for file in files) < 2 * on_disk < 128 << 20
    layout = layout_from_json((run / "cluster.json").read_text())
    for place in layout.brokers:
        store = layout.store_directory(run, place)
        done = subprocess.run(
            [sys.executable, "-m", "ledgermq", "store", "check", str(store)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.cluster
def test_every_user_queue_is_drained(manifest: dict) -> None:
    user = [queue for queue in manifest["queues"] if queue["topic"] == "orders"]
    assert len(user) == 2
    assert all(queue["drained"] for queue in user)
    assert sum(queue["max_offset"] for queue in user) > 200
    system = {queue["topic"] for queue in manifest["queues"]} - {"orders"}
    assert {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} <= system


@pytest.mark.cluster
def test_faults_took_effect_and_were_healed(run: Path) -> None:
    rows = pq.read_table(run / "faults" / "faults.parquet").to_pylist()
    assert [row["name"] for row in rows] == ["kill", "partition-leader"]
    for row in rows:
        assert row["effect"] == "taken", row["evidence"]
        assert row["t_start"] <= row["t_effect"] <= row["t_heal"] <= row["t_healed"]


@pytest.mark.cluster
def test_operations_keep_the_rules_of_the_format(ops: list[dict], manifest: dict) -> None:
    assert [op["op"] for op in ops] == list(range(len(ops)))
    assert [op["t_invoke"] for op in ops] == sorted(op["t_invoke"] for op in ops)
    kinds = collections.Counter(op["f"] for op in ops)
    wanted = {"send", "half", "local", "decide", "check", "poll", "deliver", "commit_offset"}
    wanted |= {"fetch_offset", "max_offset", "assign", "query"}
    assert wanted == set(kinds) - {"ask"}, "decisions that have to be refused are rare"
    by_process: dict[str, list[dict]] = collections.defaultdict(list)
    for op in ops:
        by_process[op["process"]].append(op)
        assert op["type"] in {"ok", "fail", "info"}
        assert op["type"] == "info" or op["t_complete"] is not None
        if op["type"] in DEFINITE and op["f"] in {"send", "half"}:
            assert len(op["messages"]) in ({1, 2, 3, 4} if op["f"] == "send" else {1})
    for name, mine in by_process.items():
        for before, after in itertools.pairwise(mine):
            assert before["type"] != "info", f"{name} goes on after an info"
            assert before["t_complete"] <= after["t_invoke"], f"{name} does two things at once"
    readers = {op["client_group"] for op in ops if op["f"] in {"poll", "deliver"}}
    assert readers == set(manifest["consumer_groups"])
    lasts = {op["client"]: op for op in ops if op["f"] == "assign"}
    let_go = [
        op for op in lasts.values() if op["client_group"] == PUSH_GROUP and not op["assigned"]
    ]
    assert len(let_go) >= 2, "members that stayed to the end say when they let go"


@pytest.mark.cluster
def test_what_was_acknowledged_was_read_by_every_group(ops: list[dict], manifest: dict) -> None:
    decided = {op["tx"] for op in ops if op["f"] == "decide" and op["type"] == "ok"}
    committed = {op["tx"] for op in ops if op["f"] == "decide" and op["decision"] == "commit"}
    sends = [op for op in ops if op["f"] == "send" and op["type"] == "ok"]
    acked = {message["value"] for op in sends for message in op["messages"]}
    acked |= {
        op["messages"][0]["value"]
        for op in ops
        if op["f"] == "half" and op["tx"] in decided & committed
    }
    assert len(acked) > 200
    for group in manifest["consumer_groups"]:
        read = {
            message["value"]
            for op in ops
            if op["client_group"] == group and op["f"] in {"poll", "deliver"} and op["type"] == "ok"
            for message in op["messages"]
        }
        assert not acked - read, group


@pytest.mark.cluster
def test_raft_events_are_on_the_clock_of_the_run(run: Path, manifest: dict) -> None:
    rows = pq.read_table(run / "raft" / "raft.parquet").to_pylist()
    end = manifest["phases"]["drain"][1] + 30_000_000_000
    assert all(0 < row["t"] < end for row in rows)
    starts = [row for row in rows if row["event"] == "start"]
    assert len(starts) == 4, "three nodes, one of them restarted"
    assert {row["node"] for row in rows} == {"n0", "n1", "n2"}


@pytest.mark.cluster
def test_interrupted_it_cleans_up_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code = (
        "import sys, pathlib; from chaos.scenario.scenario import load_scenario;"
        "from chaos.experiment.experiment import run_experiment;"
        "run_experiment(load_scenario(pathlib.Path(sys.argv[1])), seed=1,"
        " out=pathlib.Path(sys.argv[2]))"
    )
    with (tmp_path / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(SCENARIOS / "pause-leader.toml"), str(out)],
            stderr=errors,
        )
    try:
        await_until(lambda: list(out.glob("history.msgpack")), "the experiment has begun")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=45) != 0
    finally:
        if process.poll() is None:
            process.kill()
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["complete"] is False
    assert manifest["harness_error"] == "interrupted"
    assert ProcessTable(out).names() == []


def test_what_can_not_begin_is_said(tmp_path: Path) -> None:
    scenario = parse_scenario("[load]\n", name="x")
    with pytest.raises(ExperimentError, match="unknown world 'moon'"):
        run_experiment(scenario, world="moon", seed=1, out=tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match="not empty"):
        run_experiment(scenario, seed=1, out=tmp_path)


@pytest.mark.parametrize(("world", "engine"), [("rocketmq", "dledger"), ("external", "raft")])
def test_rights_are_not_tried_where_nobody_obeys_them(
    tmp_path: Path, world: str, engine: str
) -> None:
    scenario = parse_scenario("[cluster]\naccess = true\n[workload.accounts]\n", name="x")
    with pytest.raises(ExperimentError, match=f"the world {world} has no accounts"):
        run_experiment(scenario, world=world, engine=engine, seed=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("world", ["sim", "external"])
def test_a_toxiproxy_is_refused_where_nothing_would_use_it(tmp_path: Path, world: str) -> None:
    scenario = parse_scenario("[load]\n", name="x")
    with pytest.raises(ExperimentError, match=f"the world {world} has no proxies"):
        run_experiment(
            scenario,
            world=world,
            seed=1,
            toxiproxy_url="http://127.0.0.1:9",
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.cluster
def test_a_toxiproxy_that_does_not_answer_is_a_harness_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.links.proxies.TOXIPROXY_START_S", 0.2)
    scenario = parse_scenario("[load]\n", name="x")
    with pytest.raises(ExperimentError, match="no Toxiproxy answers"):
        run_experiment(scenario, seed=1, toxiproxy_url="http://127.0.0.1:9", out=tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["complete"] is False
    assert "Toxiproxy" in manifest["harness_error"]
    assert os.listdir(tmp_path / "run" / "pids") == []  # noqa: PTH208 - a name list is all it needs


def test_without_room_for_its_manifest_a_run_says_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends a run on a full disk leaves no room for run.json, either."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("chaos.links.proxies.TOXIPROXY_START_S", 0.2)
    monkeypatch.setattr("chaos.experiment.experiment.write_manifest", full)
    scenario = parse_scenario("[load]\n", name="x")
    with pytest.raises(ExperimentError, match="no Toxiproxy answers"):
        run_experiment(scenario, seed=1, toxiproxy_url="http://127.0.0.1:9", out=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
