"""`ledgermq verify RUN`: from a run directory to its verdict.

Place in the data path: the laboratory leaves a run directory; this module reads only that, has one
engine or both judge every rule that applies, and writes verdict.json into it. If the run is a URI,
Spark judges alone, since its JVM reaches the files; it is started before anything else.

The steps: rules, manifest, digests, tables from the stores if none are listed; DuckDB, whose
verdict is printed at once; Spark, which judges the same tables by the same rules; the agreement of
both. A failure on the way (a damaged run, no Java, an error of an engine) makes the verdict unknown
with the reason, never fail and never pass. So does a kill between the two engines: until the second
one has judged, verdict.json holds no pass.

Each step is reported on stderr as it begins, since a large run takes minutes.

Exit codes: 0 pass, 1 fail, 2 unknown.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from verify.agreement import agreed, coverage_difference, doubted
from verify.catalogue.dialect import DialectError
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Rule,
    RuleFileError,
    Stage,
    read_rules,
    read_stages,
)
from verify.catalogue.translated import remembered
from verify.engine_choice import EngineChoice
from verify.engine_promises import Mode
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import Engine, EngineError
from verify.engines.machine import cache_folder
from verify.export.stand_in import refuse_unexported, with_exports
from verify.export.tables import ExportError
from verify.extent import COVERAGE, Extent, extent, make_missing
from verify.judge import Judged, judge_run
from verify.promised import PROMISE_STAGES, Given, mode_of, promises_given
from verify.sources.format_tables import TableError
from verify.sources.manifest import Manifest, ManifestError, damage, load_manifest
from verify.sources.run_files import LocalFiles, RunFiles
from verify.sources.run_uri import RunUri
from verify.spark.early_session import EarlySession
from verify.spark.java import JavaError
from verify.spark.session import SessionError, fit_session, spark_session
from verify.verdict import CheckResult, Outcome, Verdict
from verify.vocabulary import HarnessError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from verify.spark.shared_session import SharedSession

__all__ = ["Rules", "load_rules", "main", "verify_run"]

_DUCKDB, _SPARK = "duckdb", "spark"
_VERDICT: Final = "verdict.json"
_UNPROVEN: Final = (ManifestError, ExportError, JavaError, SessionError, TableError, HarnessError)
_FAILED: Final = (EngineError, pa.ArrowException, OSError)

Report: TypeAlias = Callable[[str], None]


def _silent(text: str) -> None:
    """Discard a progress message, for callers that show no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a run is judged by, and the stages that they share."""

    rules: Sequence[Rule]
    stages: Mapping[str, Stage]


def load_rules(folder: Path | None = None) -> Rules:
    """Read the built-in rules and, if a folder is given, those in it.

    Raises:
        RuleFileError: a file is not a rule, or has the id of another.
    """
    folders = [BUILT_IN_RULES] if folder is None else [BUILT_IN_RULES, folder]
    return Rules(rules=read_rules(*folders), stages=read_stages(BUILT_IN_STAGES))


def verify_run(
    run: Path | RunUri,
    *,
    engine: EngineChoice = "both",
    master: str | None = None,
    rules: Rules | None = None,
    report: Report = _silent,
    on_first: Callable[[Verdict], None] | None = None,
    sessions: EarlySession | SharedSession | None = None,
) -> Verdict:
    """Judge `run`, write the verdict to its verdict.json, and return it.

    If a URI leads to no run directory, verdict.json is not written. `master`: any Spark master
    whose workers see the run under the same path or URI; None: this machine. `report` is called
    with each step as it begins; `on_first` with the verdict of the first of two engines, of which
    only the failures are in verdict.json by then. `sessions` may have started Spark's session; a
    URI does not use it.

    Raises:
        OSError: verdict.json can't be written.
        RuleFileError, DialectError: a rule can't be used.
        ValueError: the run is a URI, and `engine` is not "spark".
    """
    known = rules if rules is not None else load_rules()
    if isinstance(run, RunUri):
        if engine != _SPARK:
            raise ValueError(f"{engine} judges no run that is named by a URI, spark does")
        return _verify_uri(run, known, master, report)
    files = LocalFiles(run)

    def judged() -> Verdict:
        manifest = _sound_manifest(files, report)
        # Tables for remote workers have to be in a folder that these workers see.
        is_local = master is None or master.startswith("local")
        with with_exports(run, manifest, beside=None if is_local else run, report=report) as whole:
            work = _Work(
                files=files,
                manifest=whole,
                rules=known,
                master=master,
                report=report,
                sessions=sessions,
            )
            return _judged_by(engine, work, on_first)

    return _write_verdict(files, known, judged, report_to=(report, run / _VERDICT))


def _verify_uri(uri: RunUri, rules: Rules, master: str | None, report: Report) -> Verdict:
    """Judge a run that Spark's JVM reaches; if it can't be reached, write no verdict.json."""
    from verify.spark.hadoop_files import UnreachedError, hadoop_files  # noqa: PLC0415 - slow

    report(f"starting Spark, which reaches {uri}")
    try:
        with (
            spark_session(master=master, rows=None) as session,
            hadoop_files(session, uri) as files,
        ):

            def judged() -> Verdict:
                manifest = _sound_manifest(files, report, refuse_unexported)
                fit_session(session, manifest.rows())
                work = _Work(
                    files=files, manifest=manifest, rules=rules, master=master, report=report
                )
                return _judged_in(session, work)

            return _write_verdict(files, rules, judged, report_to=(report, uri.of(_VERDICT)))
    except (JavaError, SessionError, UnreachedError) as error:
        return _nothing_proven(rules, f"the run can't be reached: {error}")


def _write_verdict(
    files: RunFiles,
    rules: Rules,
    judged: Callable[[], Verdict],
    *,
    report_to: tuple[Report, object],
) -> Verdict:
    """Write the verdict of `judged`, or why it failed, to verdict.json, and return it.

    `report_to`: the function that reports the write, and the name by which it refers to the file.
    """
    if files.is_folder(_VERDICT):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), _VERDICT)
    try:
        with remembered(_cache()):
            verdict = judged()
    except _UNPROVEN as error:
        verdict = _nothing_proven(rules, str(error))
    except _FAILED as error:
        verdict = _nothing_proven(rules, f"the verification itself failed: {_first_line(error)}")
    files.replace(_VERDICT, verdict.as_text())
    report, place = report_to
    report(f"done; {place} is written")
    return verdict


def _cache() -> Path | None:
    try:
        return cache_folder(os.environ)
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The inputs of each engine. `suspects`: ids of rules in which a first engine may
    have found something."""

    files: RunFiles
    manifest: Manifest
    rules: Rules
    master: str | None
    report: Report
    sessions: EarlySession | SharedSession | None = None
    suspects: Collection[str] = ()


def _judged_by(
    choice: EngineChoice, work: _Work, on_first: Callable[[Verdict], None] | None
) -> Verdict:
    first = None if choice == _SPARK else _by_duckdb(work)
    if first is not None and choice == _DUCKDB:
        return first
    if first is not None:
        # Written now: Spark takes minutes on a large run, and may be interrupted. A kill must not
        # leave a pass that nobody has confirmed, though two engines were requested.
        awaited = f"{_SPARK} is to judge it too and has not yet"
        work.files.replace(_VERDICT, _unconfirmed(first, awaited).as_text())
        if on_first is not None:
            on_first(first)
    try:
        second = _by_spark(work if first is None else replace(work, suspects=_found_by(first)))
    except (*_UNPROVEN, *_FAILED) as error:
        if first is None:
            raise
        # A single engine can only be believed where it found a violation; all else becomes unknown.
        why = _first_line(error).rstrip(".")
        return _unconfirmed(first, f"only {first.engines[0]} could judge: {why}")
    return second if first is None else _both(first, second)


def _by_duckdb(work: _Work) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="ledgermq-duckdb-") as spill:
        engine = DuckDBEngine(Path(spill))
        try:
            return _verdict_of(engine, work)
        finally:
            engine.close()


def _found_by(verdict: Verdict) -> list[str]:
    """Return the ids of the rules that may have findings."""
    return [check.id for check in verdict.checks if check.verdict is not Outcome.PASS]


def _by_spark(work: _Work) -> Verdict:
    rows = work.manifest.rows()
    work.report(f"starting Spark for {rows:,} rows")
    opened = None if work.sessions is None else work.sessions.take(master=work.master, rows=rows)
    with spark_session(master=work.master, rows=rows, opened=opened) as session:
        return _judged_in(session, work)


def _judged_in(session: SparkSession, work: _Work) -> Verdict:
    from verify.spark.engine import SparkEngine  # noqa: PLC0415  # costs a second by itself

    engine = SparkEngine(session, suspects=work.suspects)
    try:
        return _verdict_of(engine, work)
    finally:
        engine.close()


def _verdict_of(engine: Engine, work: _Work) -> Verdict:
    rules, manifest = work.rules, work.manifest
    mode = mode_of(manifest)
    judged = judge_run(
        engine,
        work.files,
        manifest,
        rules=rules.rules,
        stages=rules.stages,
        report=work.report,
        retain=COVERAGE if mode is None else (*COVERAGE, *PROMISE_STAGES),
    )
    covered = extent(
        engine, judged, manifest, stages=rules.stages, listed=frozenset(manifest.tables)
    )
    given = None if mode is None else _given(mode, engine, judged, covered, work)
    return _verdict(judged, covered, engine.name, given)


def _given(mode: Mode, engine: Engine, judged: Judged, covered: Extent, work: _Work) -> Given:
    """Return what the run's mode promises under what its faults did. Raises EngineError."""
    make_missing(engine, judged, PROMISE_STAGES, work.rules.stages)
    return promises_given(
        mode,
        effects=judged.counts["fault_counts"],
        struck=engine.table("struck_nodes"),
        masters=engine.table("masters"),
        takeovers=engine.table("takeovers"),
        lost=int(str(engine.table("acknowledged_lost")[0]["messages"])),
        in_sync_replicas=work.manifest.in_sync_replicas,
    )


def _verdict(judged: Judged, covered: Extent, engine: str, given: Given | None) -> Verdict:
    checks = judged.results if given is None else given.marked(judged.results)
    return Verdict(
        checks=checks,
        coverage=covered.coverage,
        not_shown=covered.not_shown,
        engines=(engine,),
        mode=None if given is None else given.mode.name,
        lost=None if given is None else given.lost,
        not_promised=() if given is None else given.not_promised(checks),
    )


def _both(first: Verdict, second: Verdict) -> Verdict:
    """Merge both verdicts. Where the coverages differ, the second engine's stands, in doubt."""
    names = (first.engines[0], second.engines[0])
    both = replace(second, checks=agreed(first.checks, second.checks, names=names), engines=names)
    covered = [
        {
            **verdict.coverage,
            "not promised": [each.as_json() for each in verdict.not_promised],
            "acknowledged lost": verdict.lost,
        }
        for verdict in (first, second)
    ]
    reason = coverage_difference(*covered, names=names)
    if reason is None:
        return both
    return replace(
        both,
        checks=doubted(both.checks, reason),
        not_shown=[*both.not_shown, f"What the run covered: {reason}."],
    )


def _unconfirmed(first: Verdict, why: str) -> Verdict:
    """Return the first engine's verdict, reduced to its failures: what of it needs no second."""
    return replace(
        first,
        checks=[
            result
            if result.verdict is Outcome.FAIL
            else replace(result, verdict=Outcome.UNKNOWN, reason=result.reason or why)
            for result in first.checks
        ],
        not_shown=[*first.not_shown, f"What a second engine would say: {why}."],
    )


def main(
    run: Path | RunUri,
    *,
    engine: EngineChoice,
    master: str | None,
    rules: Rules,
    as_json: bool,
    sessions: EarlySession | SharedSession | None = None,
) -> int:
    """Verify `run`, print the verdict on stdout, and return the exit code."""
    began = time.monotonic()

    def report(text: str) -> None:
        sys.stderr.write(f"ledgermq: {time.monotonic() - began:6.1f} s  {text}\n")
        sys.stderr.flush()

    def on_first(verdict: Verdict) -> None:
        report(f"{verdict.engines[0]} says {verdict.outcome.value}; spark is asked too")

    try:
        verdict = verify_run(
            run,
            engine=engine,
            master=master,
            rules=rules,
            report=report,
            on_first=on_first,
            sessions=sessions,
        )
    except (RuleFileError, DialectError) as error:
        verdict = _nothing_proven(rules, str(error))
    except OSError as error:
        reason = f"verdict.json can't be written: {error.strerror or error}"
        verdict = _nothing_proven(rules, reason)
    if as_json:
        sys.stdout.write(json.dumps(verdict.as_json(), indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(_summary(verdict)) + "\n")
    return verdict.outcome.exit_code


def _sound_manifest(
    files: RunFiles, report: Report, refuse: Callable[[Manifest], None] = lambda _: None
) -> Manifest:
    """Load the manifest and compare the files with it; `refuse` may reject it before that."""
    manifest = load_manifest(files)
    refuse(manifest)
    report("comparing the files with their digests")
    reason = damage(files, manifest)
    if reason is not None:
        raise ManifestError(f"the run is damaged, so nothing is proven: {reason}")
    return manifest


def _nothing_proven(rules: Rules, reason: str) -> Verdict:
    return Verdict(
        checks=[
            CheckResult(
                id=rule.id,
                name=rule.name,
                promise=rule.promise,
                verdict=Outcome.UNKNOWN,
                reason=reason,
            )
            for rule in rules.rules
        ],
        not_shown=[f"Nothing at all: {reason}."],
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _summary(verdict: Verdict) -> list[str]:
    judges = f", by {' and '.join(verdict.engines)}" if verdict.engines else ""
    lines = [f"verdict: {verdict.outcome.value}{judges}"]
    lines += [f"  {name} {word}" for name, word in verdict.promises.items()]
    reasons = {check.reason for check in verdict.checks}
    # A reason shared by every check is printed once, under "not shown".
    shown = verdict.checks if len(reasons) > 1 or None in reasons else []
    for check in shown:
        line = f"  {check.id:<4}{check.verdict.value:<8}{check.name}, {check.examined} examined"
        if check.violations:
            line += f", {check.violations} violations, the first: {json.dumps(check.witnesses[0])}"
        if check.reason is not None:
            line += f" ({check.reason})"
        if not check.promised:
            line += ", not promised"
        lines.append(line)
    if verdict.lost:
        lines.append(f"acknowledged messages lost: {verdict.lost}")
    lines += [f"not promised: {each.sentence}" for each in verdict.not_promised]
    return [*lines, *(f"not shown: {sentence}" for sentence in verdict.not_shown)]
