"""One tiny campaign end to end, by the command line: real verdicts of simulated runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.rig.processes import running
from campaigns.rig.waiting import await_until

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = """
name = "tiny"
[cluster]
name_servers = 1
[load]
seconds = 2
[workload]
topics = ["orders"]
queues = 1
plain_clients = 1
plain_processes = 1
send_rate = 10
transaction_clients = 0
push_clients = 1
pull_clients = 0
[transactions]
timeout_ms = 300
check_interval_ms = 200
[[faults]]
name = "kill"
at_s = 0.5
duration_s = 0.5
"""


def test_two_seeds_are_run_judged_and_told_of(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SCENARIO)
    file = tmp_path / "campaign.toml"
    file.write_text('worlds = ["sim"]\nscenarios = ["tiny.toml"]\nseeds = "1..2"\n')
    out = tmp_path / "out"
    words = ["chaos", "campaign", str(file), "--out", str(out), "--no-spark"]
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    index = json.loads((out / "index.json").read_text())
    # Without transactions their checks have nothing to look at; nothing may be broken.
    assert index["verdicts"]["fail"] == 0, done.stderr
    assert index["done"] == 2
    assert done.returncode == {"pass": 0, "unknown": 2}[index["verdict"]], done.stderr
    (kill,) = index["faults"]
    cell = kill["cells"]["ledgermq raft, sim"]
    assert (kill["name"], cell["effects"], cell["measured"]) == ("kill", {"taken": 2}, 2)
    assert (out / "index.html").is_file()
    for name in ("tiny-sim-raft-1", "tiny-sim-raft-2"):
        assert (out / "runs" / name / "verdict.json").is_file()


def test_an_interrupted_campaign_leaves_no_process_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SCENARIO.replace("seconds = 2", "seconds = 2000"))
    file = tmp_path / "campaign.toml"
    file.write_text('worlds = ["sim"]\nscenarios = ["tiny.toml"]\nseeds = "1..9"\njobs = 2\n')
    out = tmp_path / "out"
    with running("chaos", "campaign", file, "--out", out) as process:
        await_until(lambda: len(list(out.glob("runs/*/scenario.toml"))) == 2, "two begin", 120)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=120)[1]
        assert process.returncode == 130, told
    assert f"ledgermq chaos campaign {file} --out {out}" in told.splitlines()[-1]
    assert json.loads((out / "index.json").read_text())["done"] == 0
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, str(out))]
    assert not left


def _names(cmdline: Path, text: str) -> bool:
    try:
        return text.encode() in cmdline.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return False


@pytest.mark.parametrize(("text", "told"), [("seeds = 1", "seeds must be text"), ("=", "not TOML")])
def test_a_wrong_file_is_one_line_and_64(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "campaign.toml"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq", "chaos", "campaign", str(file)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 64
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
