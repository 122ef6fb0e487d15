"""The laboratory's commands: experiment, verification, report.

The only place that knows both sides of the run directory: `chaos` writes it, `verify` reads it.
"""

from __future__ import annotations

import random
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ledgermq.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from ledgermq.interrupts import stop_signals_interrupt
from verify.sources.run_uri import RunUri

if TYPE_CHECKING:
    from chaos.scenario.scenario import Scenario
    from verify.spark.early_session import EarlySession

__all__ = [
    "experiment_to_report",
    "export_tables",
    "query_to_rows",
    "serve_spark_cluster",
    "verify_to_verdict",
    "write_report",
]


def _report(text: str) -> None:
    sys.stderr.write(f"ledgermq: {text}\n")


def _command(*words: object) -> str:
    """Quote the words of a command for a person to type."""
    return shlex.join(["ledgermq", *map(str, words)])


def experiment_to_report(
    scenario_file: Path,
    *,
    world: str,
    world_settings: Mapping[str, str],
    seed: int | None,
    engine: str | None,
    toxiproxy_url: str | None,
    out: Path | None,
    master: str | None,
    judge: str,
    verify_after: bool,
) -> int:
    """Run an experiment, verify it, and write its report; return the verdict's exit code."""
    from chaos.experiment.experiment import (  # noqa: PLC0415
        ExperimentError,
        ExperimentInterrupted,
        NothingBegunError,
        run_experiment,
    )
    from verify.spark.early_session import EarlySession  # noqa: PLC0415

    if not _is_judge(judge):  # said before the experiment, not behind it
        return EXIT_USAGE
    scenario = _loaded(scenario_file)
    if scenario is None:
        return EXIT_USAGE
    chosen = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    with EarlySession(master) as early:
        try:
            run = run_experiment(
                scenario,
                world=world,
                world_settings=world_settings,
                seed=chosen,
                engine=engine,
                toxiproxy_url=toxiproxy_url,
                out=out,
                on_whole=early.start if verify_after and judge in {"both", "spark"} else None,
            )
        except NothingBegunError as error:
            _report(str(error))
            return EXIT_USAGE
        except ExperimentInterrupted as stop:
            _report(
                f"interrupted: no process is left; {stop.run} holds what was recorded until then,"
                f" and what each process printed ({stop.run / 'output'}). The run did not end, so"
                f" `{_command('verify', stop.run)}` can only answer unknown"
            )
            return EXIT_INTERRUPTED
        except ExperimentError as error:
            left = f"; what there is of the run lies in {error.run}" if error.run else ""
            _report(f"the experiment ended early, so nothing is known: {error}{left}")
            return EXIT_ERROR
        exported = export_tables(run)
        if not verify_after:
            sys.stdout.write(f"{run}\n")
            return exported
        code = verify_to_verdict(
            run, engine=judge, master=master, rules=None, as_json=False, early=early
        )
    if code == EXIT_INTERRUPTED:
        return code
    write_report(run, run / "report.html")
    again = _again(
        scenario_file, chosen, world, world_settings, engine=engine, toxiproxy_url=toxiproxy_url
    )
    _report(f"again: {again}")
    return code


def _loaded(file: Path) -> Scenario | None:
    """Return the scenario; report why where it can't be read."""
    from chaos.scenario.scenario import ScenarioError, load_scenario  # noqa: PLC0415

    try:
        return load_scenario(file)
    except ScenarioError as error:  # it names the file
        _report(str(error))
    except OSError as error:
        _report(f"{file}: {error.strerror or error}")
    return None


def _is_judge(name: str) -> bool:
    """Return whether it is the name of a judge; report it where it is none."""
    from verify.engine_choice import ENGINES  # noqa: PLC0415

    if name not in ENGINES:
        _report(f"--judge: {name!r} is none of {', '.join(ENGINES)}")
    return name in ENGINES


def _again(
    scenario: Path,
    seed: int,
    world: str,
    settings: Mapping[str, str],
    *,
    engine: str | None,
    toxiproxy_url: str | None,
) -> str:
    """Return the command that repeats an experiment."""
    options = ["--seed", str(seed)]
    options += [] if world == "local" else ["--world", world]
    for name, value in settings.items():
        options += ["--set", f"{name}={value}"]
    options += [] if engine is None else ["--engine", engine]
    options += [] if toxiproxy_url is None else ["--toxiproxy", toxiproxy_url]
    return _command("chaos", "run", scenario, *options)


def export_tables(run: Path) -> int:
    """Export the stores of a run to its tables `log` and `cq`, and list these in run.json."""
    from verify.export.run_export import export_run  # noqa: PLC0415
    from verify.export.tables import ExportError  # noqa: PLC0415

    if not run.is_dir():
        _report(f"{run} is no run directory")
        return EXIT_USAGE
    try:
        rows = export_run(run)
    except ExportError as error:
        _report(f"no tables for {run}: {error}")
        return EXIT_ERROR
    counts = ", ".join(f"{name} {count:,} rows" for name, count in rows.items())
    _report(f"{run}: {counts}")
    return EXIT_OK


def verify_to_verdict(
    run: Path | RunUri,
    *,
    engine: str,
    master: str | None,
    rules: Path | None,
    as_json: bool,
    early: EarlySession | None = None,
) -> int:
    """Verify `run`, print the verdict, and return its exit code. `early` may have started Spark."""
    from verify.catalogue.dialect import DialectError  # noqa: PLC0415
    from verify.catalogue.rule_files import RuleFileError  # noqa: PLC0415
    from verify.engine_choice import ENGINES  # noqa: PLC0415
    from verify.run import load_rules, main  # noqa: PLC0415

    if isinstance(run, Path) and not run.is_dir():
        _report(f"{run} is no run directory")
        return EXIT_USAGE
    chosen = next((name for name in ENGINES if name == engine), None)
    if chosen is None:
        _report(f"{engine!r} is none of {', '.join(ENGINES)}")
        return EXIT_USAGE
    if isinstance(run, RunUri) and chosen != "spark":
        again = _command("verify", run, "--engine", "spark")
        _report(f"DuckDB reads no URI, so Spark alone can judge {run}: `{again}`")
        return EXIT_USAGE
    try:
        known = load_rules(rules)
    except (RuleFileError, DialectError) as error:
        _report(str(error))
        return EXIT_USAGE
    _report(f"verifying {run}")
    before = _changed_ns(run)
    try:
        with stop_signals_interrupt():
            return main(
                run, engine=chosen, master=master, rules=known, as_json=as_json, sessions=early
            )
    except KeyboardInterrupt:
        if isinstance(run, RunUri):
            again = _command("verify", run, "--engine", "spark")
            _report(
                f"interrupted: no process is left; verdict.json, if any, is whole; again: {again}"
            )
            return EXIT_INTERRUPTED
        after = _changed_ns(run)
        left = "the run is as it was"
        if after != before:
            left = "verdict.json is of the first engine alone"
        elif after is not None:
            left += " (verdict.json is of an earlier verification)"
        _report(f"interrupted: no process is left, {left}; again: {_command('verify', run)}")
        return EXIT_INTERRUPTED


def _changed_ns(run: Path | RunUri) -> int | None:
    """Return the mtime of verdict.json in ns; None for a URI or if it is missing."""
    if isinstance(run, RunUri):
        return None
    path = run / "verdict.json"
    return path.stat().st_mtime_ns if path.exists() else None


def serve_spark_cluster(*, workers: int, cores: int, memory: str) -> int:
    """Print the master's address, and keep the cluster up until a signal ends it."""
    from chaos.cluster.stop_signals import heeded_stop_signals  # noqa: PLC0415
    from verify.spark.cluster import ClusterError, spark_cluster  # noqa: PLC0415
    from verify.spark.java import JavaError  # noqa: PLC0415

    stop = threading.Event()
    for number in heeded_stop_signals():
        signal.signal(number, lambda *_: stop.set())
    try:
        with spark_cluster(workers=workers, cores=cores, memory=memory) as master:
            sys.stdout.write(f"{master}\n")
            sys.stdout.flush()
            _report("the cluster runs until Ctrl-C; who reaches its port runs code as you")
            stop.wait()
    except (ClusterError, JavaError) as error:
        _report(str(error))
        return EXIT_ERROR
    return EXIT_OK


def query_to_rows(run: Path, query: str, *, as_json: bool) -> int:
    """Print the rows of a query."""
    from verify.sql import QueryError, main  # noqa: PLC0415

    if not run.is_dir():
        _report(f"{run} is no run directory")
        return EXIT_USAGE
    try:
        main(run, query, as_json=as_json)
    except QueryError as error:
        _report(str(error))
        return EXIT_USAGE
    return EXIT_OK


def write_report(run: Path, output: Path) -> int:
    """Write the HTML report and print its path."""
    from verify.report.build import build_report  # noqa: PLC0415

    if not run.is_dir():
        _report(f"{run} is no run directory")
        return EXIT_USAGE
    try:
        build_report(run, output)
    except OSError as error:
        _report(f"no report of {run}: {error}")
        return EXIT_ERROR
    sys.stdout.write(f"report: {output}\n")
    return EXIT_OK
