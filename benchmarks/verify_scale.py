"""The cost of verifying a run of any size: seconds, CPU and memory, by phase, stage and rule.

    python -m benchmarks.verify_scale --messages 1000000 --out DIR [--loss] [--skew]
        [--engine duckdb|spark|both|none] [--memory GIB] [--output figures.json]

Writes a run as a sound cluster would have left it (three replicas' logs and traces, retries,
transactions, a killed leader in every fourth term), unless DIR holds one of that size already, and
has each engine judge it, in a process of its own. `--loss`: one acknowledged message is in no log
and in no read; exit code 1 if an engine does not find that, or accuses a run without it. `--skew`:
one queue has half of all messages. `--memory`: DuckDB's limit; the rest goes to a folder.

CPU seconds are those of all threads of the process (DuckDB) or of the JVM and the process (Spark),
memory is the peak of what they held. Rules that Spark runs at the same time share its CPU, so that
of those only the wall time is meaningful.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.scale.tables import write_run
from verify.catalogue.rule_files import Rule, Stage
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import Engine, Findings, TableFiles
from verify.extent import COVERAGE, extent
from verify.judge import judge_run
from verify.run import load_rules
from verify.sources.manifest import damage, load_manifest
from verify.sources.run_files import LocalFiles
from verify.spark.engine import SparkEngine
from verify.spark.session import spark_session
from verify.verdict import Verdict

_ENGINES = ("duckdb", "spark")


class Clock:
    """Wall and CPU seconds of named steps."""

    def __init__(self, cpu_seconds: Callable[[], float]) -> None:
        self.steps: list[dict[str, Any]] = []
        self._cpu_seconds = cpu_seconds

    @contextmanager
    def step(self, kind: str, name: str) -> Iterator[None]:
        began, used = time.perf_counter(), self._cpu_seconds()
        yield
        wall, cpu = time.perf_counter() - began, self._cpu_seconds() - used
        self.steps.append({"kind": kind, "name": name, "wall": wall, "cpu": cpu})


class TimedDuckDB(DuckDBEngine):
    """DuckDB's engine with a clock, which can tell steps apart that run one after the other."""

    clock: Clock

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        with self.clock.step("phase", "load"):
            super().load(tables, relations)

    def _make(self, stage: Stage) -> None:
        with self.clock.step("stage", stage.name):
            super()._make(stage)

    def findings(self, rule: Rule) -> Findings:
        with self.clock.step("rule", rule.id):
            return super().findings(rule)


class TimedSpark(SparkEngine):
    """Spark's engine with a clock. It makes a stage when a rule first reads it."""

    clock: Clock

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        with self.clock.step("phase", "load"):
            super().load(tables, relations)

    def findings(self, rule: Rule) -> Findings:
        with self.clock.step("rule", rule.id):
            return super().findings(rule)


def judge(engine: Engine, clock: Clock, run: Path) -> dict[str, Any]:
    """Judge a run by one engine; return the verdict and the cost of the steps."""
    manifest, rules = load_manifest(LocalFiles(run)), load_rules()
    with clock.step("phase", "digests"):
        reason = damage(LocalFiles(run), manifest)
    assert reason is None, reason

    def print_line(text: str) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    with clock.step("phase", "all"):
        judged = judge_run(
            engine,
            LocalFiles(run),
            manifest,
            rules=rules.rules,
            stages=rules.stages,
            report=print_line,
            retain=COVERAGE,
        )
        with clock.step("phase", "coverage"):
            result = extent(
                engine, judged, manifest, stages=rules.stages, listed=frozenset(manifest.tables)
            )
    verdict = Verdict(
        checks=judged.results, coverage=result.coverage, not_shown=(), engines=(engine.name,)
    )
    accused = {
        check.id: {
            "verdict": check.verdict.value,
            "violations": check.violations,
            "reason": check.reason,
            "first": dict(check.witnesses[0]) if check.witnesses else None,
        }
        for check in judged.results
        if check.verdict.value != "pass"
    }
    return {"verdict": verdict.outcome.value, "accused": accused, "steps": clock.steps}


def by_duckdb(run: Path, memory_gib: float | None) -> dict[str, Any]:
    clock = Clock(time.process_time)
    with tempfile.TemporaryDirectory(prefix="ledgermq-scale-") as spill:
        limit_bytes = None if memory_gib is None else int(memory_gib * 2**30)
        engine = TimedDuckDB(Path(spill), memory_limit_bytes=limit_bytes, small_rows_max=0)
        engine.clock = clock
        result = judge(engine, clock, run)
        engine.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result | {"cpu": time.process_time(), "peak_mib": round(peak)}


def by_spark(run: Path) -> dict[str, Any]:
    began = time.perf_counter()
    with spark_session(master=None, rows=load_manifest(LocalFiles(run)).rows()) as session:
        started = time.perf_counter() - began
        java = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        clock = Clock(lambda: time.process_time() + cpu_seconds_of(java))
        engine = TimedSpark(session)
        engine.clock = clock
        result = judge(engine, clock, run)
        engine.close()
        result["steps"].append({"kind": "phase", "name": "start", "wall": started, "cpu": 0.0})
        peak = peak_mib_of(java) + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return result | {"cpu": time.process_time() + cpu_seconds_of(java), "peak_mib": round(peak)}


def generator_digest() -> str:
    """Return a digest of the generator, so that runs of another version of it are not reused."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "scale").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def is_judged_rightly(result: Mapping[str, Any], *, loss: bool) -> bool:
    """Return whether A4 found the one lost message, or, without a loss, the verdict is pass."""
    accused = result["accused"].get("A4", {})
    if loss:
        return bool(accused.get("verdict") == "fail" and accused["violations"] == 1)
    return bool(result["verdict"] == "pass")


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def show(name: str, result: Mapping[str, Any]) -> None:
    steps = result["steps"]
    print(
        f"{name}: {result['verdict']}, {result['cpu']:.1f} CPU s, {result['peak_mib']} MiB at most"
    )
    for kind in ("phase", "stage", "rule"):
        some = sorted((s for s in steps if s["kind"] == kind), key=lambda s: -s["cpu"])
        wall, cpu = sum(s["wall"] for s in some), sum(s["cpu"] for s in some)
        if kind != "phase":
            print(f"  {kind}s: {wall:.1f} s, {cpu:.1f} CPU s")
        for step in some[:24]:
            print(f"    {step['name']:<24}{step['wall']:8.2f} s {step['cpu']:8.2f} CPU s")
    for check, found in result["accused"].items():
        print(f"  {check} {found['verdict']}, {found['violations']}: {found['first']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where runs are written")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", action="store_true")
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--engine", choices=(*_ENGINES, "both", "none"), default="duckdb")
    parser.add_argument("--memory", type=float, metavar="GIB")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--judge", choices=_ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = "".join(f"-{kind}" for kind in ("loss", "skew") if getattr(options, kind))
    run = options.out / f"scale-{options.messages}-{options.seed}{kinds}-{generator_digest()}"
    if options.judge:
        result = by_duckdb(run, options.memory) if options.judge == "duckdb" else by_spark(run)
        print(json.dumps(result))
        return
    figures: dict[str, Any] = {"messages": options.messages, "skew": options.skew}
    if not (run / "run.json").exists():
        began, used = time.perf_counter(), time.process_time()
        figures["lost"] = write_run(
            run, options.messages, seed=options.seed, skewed=options.skew, loss=options.loss
        )
        wall, cpu = time.perf_counter() - began, time.process_time() - used
        figures["write"] = {"wall": wall, "cpu": cpu}
        print(f"written in {wall:.1f} s, {cpu:.1f} CPU s: {run}")
    figures["rows"] = {
        name: sum(file.rows or 0 for file in files)
        for name, files in load_manifest(LocalFiles(run)).tables.items()
    }
    print(", ".join(f"{name} {rows:,}" for name, rows in figures["rows"].items()))
    is_seen = True
    wanted = _ENGINES if options.engine == "both" else (options.engine,)
    for engine in _ENGINES:
        if engine not in wanted:
            continue
        command = [sys.executable, "-m", "benchmarks.verify_scale", *sys.argv[1:]]
        child = subprocess.run(
            [*command, "--judge", engine], check=True, stdout=subprocess.PIPE, text=True
        )
        figures[engine] = json.loads(child.stdout.splitlines()[-1])
        show(engine, figures[engine])
        is_seen = is_seen and is_judged_rightly(figures[engine], loss=options.loss)
    figures["python"] = platform.python_version()
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    if not is_seen:
        sys.exit("a verdict is not what the run deserves")


if __name__ == "__main__":
    main()
