"""Clients that do not end: the run goes on without them, and says that they should have ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from chaos.experiment.experiment import run_experiment
from chaos.scenario.scenario import parse_scenario
from chaos.workload.parts.consumers.litepull import LitePullPart
from chaos.workload.pull_reader import PullReader
from verify.run import verify_run
from verify.verdict import Outcome

pytestmark = pytest.mark.timeout(180)

SCENARIO = """
[cluster]
name_servers = 1
[load]
seconds = 3
[workload]
topics = ["orders"]
queues = 2
plain_clients = 1
plain_processes = 1
send_rate = 20
transaction_clients = 0
push_clients = 1
pull_clients = 1
[workload.litepull]
rate = 10
"""


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


def _run(out: Path) -> Path:
    return run_experiment(parse_scenario(SCENARIO, name="hung"), world="sim", seed=1, out=out)


def _wrong(run: Path) -> dict[str, list[object]]:
    verdict = verify_run(run, engine="duckdb")
    return {
        check.id: list(check.witnesses) for check in verdict.checks if check.verdict is Outcome.FAIL
    }


def _is_named(client: str, wrong: dict[str, list[object]]) -> bool:
    return set(wrong) == {"M12"} and f"not within 60 s: {client}'" in str(wrong["M12"])


def test_who_hangs_before_the_drain_is_waited_for_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LitePullPart, "idle", _never)
    run = _run(tmp_path / "run")
    assert _is_named("litepull", _wrong(run))
    groups = json.loads((run / "run.json").read_text())["consumer_groups"]
    owed = {name: row["at_least_once"] for name, row in groups.items() if "pull" in name}
    assert owed == {name: not name.startswith("litepull") for name in owed}
    assert len(owed) > 1


def test_who_hangs_behind_the_drain_has_read_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PullReader.run

    async def hang(reader: PullReader, *events: asyncio.Event) -> None:
        await run(reader, *events)
        await _never()

    monkeypatch.setattr(PullReader, "run", hang)
    assert _is_named("pull-0", _wrong(_run(tmp_path / "run")))
