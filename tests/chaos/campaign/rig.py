"""A Runner without processes: it writes the verdict that a function of the scenario gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chaos.campaign.plan import Experiment
from chaos.scenario.scenario import Scenario, load_scenario

__all__ = ["FakeRunner", "check", "verdict_of"]

Judge = Callable[[Scenario, Experiment], Mapping[str, Any] | None]


def check(name: str, verdict: str = "fail", **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "name": f"what {name} holds",
        "promise": "G1",
        "verdict": verdict,
        "reason": None,
        "examined": 1,
        "violations": int(verdict == "fail"),
        "witnesses": [{"value": "v"}] if verdict == "fail" else [],
        **more,
    }


def verdict_of(*checks: Mapping[str, Any], **coverage: Any) -> dict[str, Any]:
    words = [each["verdict"] for each in checks]
    worst = next((word for word in ("fail", "unknown") if word in words), "pass")
    return {
        "verdict": worst,
        "checks": list(checks),
        "coverage": coverage,
        "engines": ["duckdb"],
    }


class FakeRunner:
    """`judge` returns what stands in verdict.json; None: the run ended early.

    `runs`, `confirmed`: the folders' names, in order. `before` is called as a run begins.
    """

    def __init__(self, judge: Judge, before: Callable[[Path], None] = lambda _: None) -> None:
        self._judge = judge
        self._before = before
        self.runs: list[str] = []
        self.confirmed: list[str] = []

    async def experiment(self, of: Experiment, out: Path) -> str:
        self.runs.append(out.name)
        out.mkdir(parents=True)
        scenario = load_scenario(of.scenario_file)
        manifest = {
            "system": "ledgermq",
            "engine": of.engine,
            "world": of.world,
            "seed": of.seed,
            "scenario": {"name": scenario.name, "text": scenario.text},
        }
        (out / "nodes").mkdir()
        (out / "nodes" / "store").write_bytes(bytes(5_000))
        self._before(out)
        verdict = self._judge(scenario, of)
        if verdict is None:
            manifest["harness_error"] = "no leader"
            (out / "run.json").write_text(json.dumps(manifest))
            return "exit code 2: the experiment ended early"
        (out / "run.json").write_text(json.dumps(manifest))
        (out / "verdict.json").write_text(json.dumps(verdict))
        (out / "report.html").write_text("<html>")
        return ""

    async def confirm(self, out: Path) -> str:
        self.confirmed.append(out.name)
        path = out / "verdict.json"
        verdict = json.loads(path.read_text())
        path.write_text(json.dumps({**verdict, "engines": ["duckdb", "spark"]}))
        return ""
