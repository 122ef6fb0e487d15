"""How far a verdict carries: what was done, what stood in fault windows, what was not read."""

from __future__ import annotations

import math
from pathlib import Path

from tests.verify.synthetic import MS, TOPIC, SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.extent import extent
from verify.judge import judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles


def test_it_tells_what_a_run_did_and_what_it_does_not_show(tmp_path: Path) -> None:
    made = SyntheticRun("a")
    made.manifest["limits"] = None
    queue = next(queue for queue in made.manifest["queues"] if queue["topic"] == TOPIC)
    queue["drained"] = False
    run = made.write(tmp_path / "run")
    manifest = load_manifest(LocalFiles(run))
    stages = read_stages(BUILT_IN_STAGES)
    engine = DuckDBEngine(tmp_path / "spill")
    judged = judge_run(
        engine,
        LocalFiles(run),
        manifest,
        rules=read_rules(BUILT_IN_RULES),
        stages=stages,
        report=lambda text: None,
    )
    told = extent(engine, judged, manifest, stages=stages, listed=frozenset(manifest.tables))
    coverage = told.coverage
    assert coverage["faults"] == {"kill-leader": {"taken": 1}}
    operations = coverage["operations"]
    assert isinstance(operations, dict)
    assert sum(sum(kinds.values()) for kinds in operations.values()) == len(made.ops)
    fault = made.faults[0]
    overlapping = [
        op
        for op in made.ops
        if op["t_invoke"] <= fault["t_healed"]
        and (op["t_complete"] is None or op["t_complete"] >= fault["t_effect"])
    ]
    assert coverage["operations_in_fault_windows"] == len(overlapping) > 0
    assert coverage["queues_not_drained"] == [
        {name: queue[name] for name in ("broker_group", "topic", "queue")}
    ]
    writes = sorted(
        op["t_complete"]
        for op in made.ops
        if op["f"] in {"send", "half", "decide"} and op["type"] == "ok"
    )
    before = max(t for t in writes if t <= fault["t_effect"])
    after = min(t for t in writes if t > fault["t_effect"])
    availability = coverage["availability"]
    assert isinstance(availability, list)
    assert availability[0] == {
        "measure": "recovery",
        "name": "1 kill-leader",
        "took_ms": (after - before) / MS,
        "t_from": before,
        "t_to": after,
    }
    assert {row["measure"] for row in availability[1:]} == {"gap", "reads"}
    answered = sorted(
        op["t_complete"] for op in made.ops if op["f"] in {"poll", "deliver"} and op["type"] == "ok"
    )
    [reads] = [row for row in availability if row["measure"] == "reads"]
    assert reads["t_from"] == max(t for t in answered if t <= fault["t_effect"])
    assert reads["t_to"] == min(t for t in answered if t > fault["t_effect"])
    load_from = manifest.phases["load"][0]
    took = sorted(
        op["t_complete"] - op["t_invoke"]
        for op in made.ops
        if op["f"] == "send"
        and op["type"] == "ok"
        and load_from <= op["t_complete"] <= fault["t_effect"]
    )
    assert coverage["before_faults"] == {
        "sends": len(took),
        "per_second": len(took) / ((fault["t_effect"] - load_from) / (1000 * MS)),
        "p50_ms": took[math.ceil(0.5 * len(took)) - 1] / MS,
        "p99_ms": took[math.ceil(0.99 * len(took)) - 1] / MS,
    }
    assert any("sets no limits" in sentence for sentence in told.not_shown)
    assert any("ended unknown" in sentence for sentence in told.not_shown)
