"""`ledgermq verify RUN`: from a run directory to its verdict.

Place in the data path: the laboratory leaves a run directory; this reads it and nothing else,
runs every check that applies, and writes verdict.json beside it.

The way: manifest, digests, tables of the stores where none are listed, Spark, counts, all checks
as one query, verdict. What goes wrong on the way (a damaged run, no Java, an error of Spark's) is
unknown with its reason, never fail and never pass.

Each step is told on stderr as it begins, since a large run takes minutes.

Exit codes: 0 pass, 1 fail, 2 unknown.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from verify.catalogue import CHECKS, OWN_SYSTEM
from verify.checks.finding import Check, finding_rows
from verify.counts import Counts, count
from verify.coverage import coverage, not_shown
from verify.engines.engine import EngineError, TableFiles
from verify.engines.spark import SparkEngine
from verify.export.stand_in import with_exports
from verify.export.tables import ExportError
from verify.format_tables import TABLES
from verify.frames import Frames
from verify.java import JavaError
from verify.manifest import Manifest, ManifestError, damage, load_manifest
from verify.session import SessionError, spark_session
from verify.sources.loading import load_tables
from verify.sources.tables import TableError
from verify.verdict import WITNESSES_MAX, CheckResult, Outcome, Verdict
from verify.vocabulary import VOCABULARY, HarnessError, refuse_unknown_words

__all__ = ["main", "verify_in", "verify_run"]

_JOBS_AT_A_TIME = 2

Say = Callable[[str], None]


def _silent(text: str) -> None:
    """For callers that show no progress."""


def verify_run(run: Path, master: str | None = None, *, say: Say = _silent) -> Verdict:
    """The verdict of `run`, also left in `run`/verdict.json.

    `master`: any Spark master whose workers see the run under the same path; None: this machine.
    `say` is called with each step as it begins.

    Raises:
        OSError: verdict.json can't be written.
    """
    if (run / "verdict.json").is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), "verdict.json")
    try:
        manifest = _sound_manifest(run, say)
        # What other machines read has to lie where they see it.
        beside = None if master is None or master.startswith("local") else run
        with with_exports(run, manifest, beside=beside, say=say) as whole:
            say(f"starting Spark for {whole.rows():,} rows")
            with spark_session(master=master, rows=whole.rows()) as session:
                verdict = verify_in(session, run, whole, say=say)
    except (ManifestError, ExportError, JavaError, SessionError) as error:
        verdict = _nothing_proven(str(error))
    verdict.write(run / "verdict.json")
    return verdict


def verify_in(
    session: SparkSession, run: Path, manifest: Manifest | None = None, *, say: Say = _silent
) -> Verdict:
    """As `verify_run`, in a session that is there already; writes nothing."""
    try:
        known = manifest if manifest is not None else _sound_manifest(run, say)
        with with_exports(run, known, beside=None, say=say) as whole:
            say("reading the tables")
            frames = Frames(session, whole, load_tables(session, run, whole))
            _refuse_unknown_words(session, run, whole)
            verdict = _judge(frames, say)
            session.catalog.clearCache()
    except (ManifestError, ExportError, TableError, HarnessError) as error:
        return _nothing_proven(str(error))
    except (EngineError, PySparkException, Py4JError, pa.ArrowException, OSError) as error:
        return _nothing_proven(f"the verification itself failed: {_first_line(error)}")
    return verdict


def main(run: Path, master: str | None, *, as_json: bool) -> int:
    """Verifies, tells the verdict on stdout, and answers with the exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"ledgermq: {time.monotonic() - began:6.1f} s  {text}\n")
        sys.stderr.flush()

    try:
        verdict = verify_run(run, master, say=say)
        say(f"done; {run / 'verdict.json'} is written")
    except OSError as error:
        verdict = _nothing_proven(f"verdict.json can't be written: {error.strerror or error}")
    if as_json:
        sys.stdout.write(json.dumps(verdict.as_json(), indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(_summary(verdict)) + "\n")
    return verdict.outcome.exit_code


def _sound_manifest(run: Path, say: Say) -> Manifest:
    manifest = load_manifest(run)
    say("comparing the files with their digests")
    reason = damage(run, manifest)
    if reason is not None:
        raise ManifestError(f"the run is damaged, so nothing is proven: {reason}")
    return manifest


def _refuse_unknown_words(session: SparkSession, run: Path, manifest: Manifest) -> None:
    engine = SparkEngine(session)
    tables = {
        name: TableFiles(
            files=tuple(run / file.name for file in manifest.tables.get(name, ())),
            schema=TABLES[name],
        )
        for name in VOCABULARY.wants
    }
    try:
        engine.load(tables, {})
        refuse_unknown_words(engine)
    finally:
        engine.close()


def _nothing_proven(reason: str) -> Verdict:
    return Verdict(
        checks=[
            CheckResult(
                id=check.id,
                name=check.name,
                promise=check.promise,
                verdict=Outcome.UNKNOWN,
                reason=reason,
            )
            for check in CHECKS
        ],
        not_shown=[f"Nothing at all: {reason}."],
    )


def _judge(frames: Frames, say: Say) -> Verdict:
    say("counting what there is to look at")
    counts = count(frames)
    rows = {
        "ops": counts.ops(),
        "log": counts.records(),
        "cq": counts.units,
        "raft": counts.events(),
        "faults": 1,  # a run may have none
    }
    own = frames.manifest.system == OWN_SYSTEM
    applying = [
        check
        for check in CHECKS
        if check.applies(frames.manifest, counts) and (own or frames.has(*check.needs))
    ]
    runnable = [
        check
        for check in applying
        if frames.has(*check.needs) and all(rows[name] for name in check.needs)
    ]
    found = _collect(runnable, frames, say)
    say("summing up")
    results = [
        _result(check, counts, found, _gaps(frames, check, rows, own=own)) for check in applying
    ]
    left_out = [check for check in CHECKS if check not in applying]
    return Verdict(
        checks=results,
        coverage=coverage(frames, counts),
        not_shown=not_shown(frames, counts, left_out=left_out),
    )


def _gaps(frames: Frames, check: Check, rows: Mapping[str, int], *, own: bool) -> list[str]:
    """What the check should have been given and was not.

    Only a run of our own must list every table; one that is empty proves nothing in any run.
    """
    wanted = (*check.needs, *check.wants)
    missing = [f"the run lists no table {name}" for name in wanted if own and not frames.has(name)]
    empty = [f"table {name} is empty" for name in wanted if frames.has(name) and not rows[name]]
    return missing + empty


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the checks found, and for those that could not be run, why."""

    rows: Sequence[Row]
    errors: Mapping[str, str]


def _collect(checks: Sequence[Check], frames: Frames, say: Say) -> _Found:
    """Per check and verdict: how many findings, and the smallest of them.

    One Spark job per family (A, S, T, R), whose checks share what they shuffle; a union of all
    would be planned for longer than it runs. Two families run at a time, and an error of one is
    the unknown of its own checks only.
    """
    families = [list(members) for _, members in groupby(checks, key=lambda check: check.id[0])]
    rows: list[Row] = []
    errors: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=_JOBS_AT_A_TIME) as pool:
        jobs = {
            pool.submit(_ranked(_family(members, frames)).collect): members for members in families
        }
        say(f"running {len(checks)} checks: {', '.join(map(_names, families))}")
        for number, job in enumerate(as_completed(jobs), start=1):
            members = jobs[job]
            say(f"{number} of {len(families)}: {_names(members)} done")
            try:
                rows.extend(job.result())
            except (PySparkException, Py4JError, OSError) as error:
                reason = f"the verification itself failed: {_first_line(error)}"
                errors |= {check.id: reason for check in members}
    return _Found(rows=rows, errors=errors)


def _names(checks: Sequence[Check]) -> str:
    return checks[0].id if len(checks) == 1 else f"{checks[0].id} to {checks[-1].id}"


def _family(checks: Sequence[Check], frames: Frames) -> DataFrame:
    return finding_rows([check.find(frames) for check in checks])


def _ranked(rows: DataFrame) -> DataFrame:
    kind = Window.partitionBy("check", "verdict")
    return (
        rows.select(
            "*",
            F.count("*").over(kind).alias("total"),
            F.row_number().over(kind.orderBy("rank", "witness")).alias("place"),
        )
        .where(F.col("place") <= WITNESSES_MAX)
        .orderBy("check", "verdict", "place")
    )


def _result(check: Check, counts: Counts, found: _Found, gaps: Sequence[str]) -> CheckResult:
    rows = [row for row in found.rows if row["check"] == check.id]
    failures = [row for row in rows if row["verdict"] == "fail"]
    doubts = [row for row in rows if row["verdict"] == "unknown"]
    examined = check.examined(counts)
    verdict, reason, shown = Outcome.PASS, None, failures
    if failures:
        verdict = Outcome.FAIL
    elif check.id in found.errors:
        verdict, reason = Outcome.UNKNOWN, found.errors[check.id]
    elif gaps:
        verdict, reason = Outcome.UNKNOWN, "; ".join(gaps)
    elif doubts:
        verdict, shown = Outcome.UNKNOWN, doubts
        reason = f"{doubts[0]['total']} rows can't be judged; the first: {doubts[0]['reason']}"
    elif examined == 0:
        verdict, reason = Outcome.UNKNOWN, check.nothing
    return CheckResult(
        id=check.id,
        name=check.name,
        promise=check.promise,
        verdict=verdict,
        reason=reason,
        examined=examined,
        violations=failures[0]["total"] if failures else 0,
        witnesses=[json.loads(row["witness"]) for row in shown],
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _summary(verdict: Verdict) -> list[str]:
    lines = [f"verdict: {verdict.outcome.value}"]
    lines += [f"  {name} {outcome.value}" for name, outcome in verdict.promises.items()]
    reasons = {check.reason for check in verdict.checks}
    # What kept every check from being made stands once, in what is not shown.
    told = verdict.checks if len(reasons) > 1 or None in reasons else []
    for check in told:
        line = f"  {check.id:<4}{check.verdict.value:<8}{check.name}, {check.examined} examined"
        if check.violations:
            line += f", {check.violations} violations, the first: {json.dumps(check.witnesses[0])}"
        if check.reason is not None:
            line += f" ({check.reason})"
        lines.append(line)
    return [*lines, *(f"not shown: {sentence}" for sentence in verdict.not_shown)]
