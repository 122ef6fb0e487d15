"""The Spark session of one verification.

Place in the data path: between the run directory and the checks. Local by default (2 threads, no
UI, loopback only, bounded memory); any Spark master by `master`, whose workers must see the run
directory under the same path, or URI, and have this project installed.

Invariants: the process environment is restored once the JVM is up; a session writes to a folder of
its own that is deleted at its end, except for the archive of classes, which the first session of an
installation leaves in `verify.spark.home`'s folder, after its end and in the background; one
session per process at a time, which is Spark's own rule.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from verify.engines.machine import memory_bytes
from verify.spark import home as spark_home
from verify.spark import submit as spark_submit
from verify.spark.java import Java, find_java

__all__ = [
    "DEFAULT_MASTER",
    "LOG_CONFIGURATION",
    "LOOPBACK",
    "SMALL_ROWS_MAX",
    "OpenedSession",
    "SessionError",
    "fit_session",
    "is_small",
    "open_session",
    "spark_session",
]

DEFAULT_MASTER = "local[2]"
LOOPBACK = "127.0.0.1"
_MEMORY_BYTES_MIN = 2 * 1024**3
_MEMORY_BYTES_PER_ROW = 400
_MEMORY_SHARE = 3  # at most a third of the machine's memory
SMALL_ROWS_MAX = 1_500_000
_SINGLE_TASK_ROWS_MAX = 5_000_000
_ROWS_UNTOLD = 1 << 40
_ROWS_PER_PARTITION = 250_000
_PARTITIONS_MAX = 512
_SHORT_RUN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Optimise only code that runs ten times as often as the JVM's default thresholds require.
_MIDDLE_RUN_OPTIONS = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_ARCHIVE = spark_submit.ARCHIVE_VARIABLE
_ARCHIVE_S = 2.0
_END_S = 5.0
LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
# With one compiler tier the JVM reserves only 48 MB for code by default. A session of many checks
# fills that, and a JVM without room for an adapter fails a query with an InternalError.
# Compiled expressions are classes: by default the whole heap is collected each time that those have
# outgrown a mark that begins at 21 MB.
_JAVA_OPTIONS = (
    f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()} -XX:ReservedCodeCacheSize=240m "
    "-XX:MetaspaceSize=512m"
)


class SessionError(Exception):
    """Spark did not start; the message names the Java and the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSession:
    """A running session; `archive` is the path for its JVM's archive of classes, if wanted."""

    session: SparkSession
    folder: tempfile.TemporaryDirectory[str]
    archive: Path | None

    def close(self, *, ended_well: bool) -> None:
        """End session and JVM; if the session did not end well, discard its archive of classes."""
        # A query has reported it if the JVM died under it; stopping fails then, which is no news.
        with self.folder, suppress(Py4JError, OSError):
            self.session.stop()
            _close_gateway(self.archive if ended_well else None)


@contextmanager
def spark_session(
    *, master: str | None = None, rows: int | None = 0, opened: OpenedSession | None = None
) -> Iterator[SparkSession]:
    """Yield a session that ends with the block, tuned for a run of about `rows` rows.

    `rows` None: not known yet; `fit_session` later sets what can still be changed. `opened`: a
    running session, to be used instead of a new one.

    Raises:
        JavaError: no Java here can run Spark.
        SessionError: the JVM did not come up.
    """
    opened = open_session(master, rows=rows) if opened is None else opened
    ended_well = False
    try:
        yield opened.session
        ended_well = True
    finally:
        opened.close(ended_well=ended_well)


def open_session(master: str | None, *, rows: int | None) -> OpenedSession:
    """Start a session, which the caller must close.

    Raises:
        JavaError, SessionError: as `spark_session`.
    """
    java = find_java(os.environ)
    with ExitStack() as undo:
        folder = tempfile.TemporaryDirectory(prefix="ledgermq-spark-")
        undo.push(folder)
        session, archive = _start(Path(folder.name), java, master or DEFAULT_MASTER, rows)
        undo.pop_all()
    return OpenedSession(session=session, folder=folder, archive=archive)


def is_small(rows: int) -> bool:
    """Return whether a run of `rows` rows ends before the settings for longer runs would pay."""
    return rows <= SMALL_ROWS_MAX


def _start(
    folder: Path, java: Java, master: str, rows: int | None
) -> tuple[SparkSession, Path | None]:
    """Start the session; return it with the path for its JVM's archive of classes, if wanted."""
    builder = SparkSession.Builder().master(master).appName("ledgermq verify")
    settings = _settings(rows)
    (folder / "scratch").mkdir()
    if _is_here(master):
        settings |= _local_settings(folder)
    for key, value in settings.items():
        builder = builder.config(key, value)
    home = spark_home.installed_home(java, master, os.environ)
    archive = None if home is None else home / spark_submit.ARCHIVE
    if rows is None and archive is not None and not archive.exists():
        archive = None  # it may end before it has loaded what an archive is for
    variables = {} if archive is None else {_ARCHIVE: str(archive)}
    if home is None:
        home = folder / "home"
        home.mkdir()
        spark_home.lay_out(home, master)
    variables |= {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if _is_here(master):
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    with _environment(variables):
        try:
            return builder.getOrCreate(), archive
        except (PySparkRuntimeError, OSError) as error:
            raise SessionError(
                f"Spark did not start on master {master} with Java {java.version} "
                f"({java.found_by}: {java.home}): {error}"
            ) from error


def fit_session(session: SparkSession, rows: int) -> None:
    """Tune the queries of a session that was started without a known size for one of `rows` rows.

    The JVM's own options stay: it compiles as for a long run, and may grow as for a large one.
    """
    for key, value in _query_settings(rows).items():
        session.conf.set(key, value)


def _settings(rows: int | None) -> dict[str, str]:
    """Return the settings for a run of `rows` rows.

    A short run is over before fused stages and optimised code have paid for their compilation.
    Measured with six checks on a few dozen operations: 19 s of CPU in place of 41 s. In a run of
    1e5 messages (1.8 million rows) rare optimisation pays, fused stages and many tasks do not: 102
    s and 177 s of CPU; as a small run 118 and 183, as a large one 129 and 249.
    """
    speed = _query_settings(_ROWS_UNTOLD if rows is None else rows)
    single = rows is not None and _is_single_task(rows)
    if rows is None or single:
        # By default Spark takes 32 MiB for each sort and each broadcast table, most of it empty: a
        # gigabyte was held, kept stages went to disk, and a tenth of all time was GC. A task has
        # 8,192 pages at most, which a large run may need at 1 MiB.
        speed["spark.buffer.pageSize"] = "1m" if single else "4m"
    return speed | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_driver_memory_bytes(rows) // 1024**2}m",
        "spark.driver.extraJavaOptions": " ".join(_java_options(rows)),
        "spark.executor.extraJavaOptions": " ".join(_executor_options(rows)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Nobody reads the descriptions of plans that Spark makes for its web pages.
        "spark.sql.debug.maxToStringFields": "8",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.lightweightPlanChangeValidation": "false",  # of Spark's own rules
        # Of 100 compiled expressions, the default, a hundred rules evict each other's.
        "spark.sql.codegen.cache.maxEntries": "4096",
    }


def _java_options(rows: int | None) -> list[str]:
    if rows is None or not _is_single_task(rows):
        return [_JAVA_OPTIONS]
    # Half of the memory at once, and half of that for what is new: else a tenth of a small run's
    # time goes into collecting a heap that begins with a few MiB.
    heap = f"-Xms{_driver_memory_bytes(rows) // 2 // 1024**2}m -XX:NewRatio=1"
    return [_JAVA_OPTIONS, _SHORT_RUN_OPTIONS if is_small(rows) else _MIDDLE_RUN_OPTIONS, heap]


def _executor_options(rows: int | None) -> list[str]:
    """Return the options of a cluster's executors; a local session has none."""
    return [_SHORT_RUN_OPTIONS] if rows is not None and is_small(rows) else []


def _query_settings(rows: int) -> dict[str, str]:
    """Return the settings that may change while a session runs."""
    single = _is_single_task(rows)
    return {
        "spark.sql.shuffle.partitions": "1" if single else str(_partitions(rows)),
        "spark.sql.adaptive.enabled": "false" if single else "true",
        "spark.sql.codegen.wholeStage": "false" if single else "true",
        # What a plan could gain by these costs more than a query on a small run.
        "spark.sql.constraintPropagation.enabled": "false" if single else "true",
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false" if single else "true",
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false" if single else "true",
    }


def _is_single_task(rows: int) -> bool:
    """Return whether dividing a query's work costs more than it saves."""
    return rows <= _SINGLE_TASK_ROWS_MAX


def _driver_memory_bytes(rows: int | None) -> int:
    """Return the memory for a run of `rows`; the rest is spilled to the session's folder."""
    memory = memory_bytes()
    rows = _ROWS_UNTOLD if rows is None else rows
    wanted = _MEMORY_BYTES_MIN + rows * _MEMORY_BYTES_PER_ROW
    least = min(_MEMORY_BYTES_MIN, memory * 3 // 4)
    return max(least, min(wanted, memory // _MEMORY_SHARE))


def _is_here(master: str) -> bool:
    """Return whether nothing of the session leaves the machine."""
    return master.startswith(("local", f"spark://{LOOPBACK}:"))


def _partitions(rows: int) -> int:
    return max(2, min(_PARTITIONS_MAX, rows // _ROWS_PER_PARTITION))


def _local_settings(folder: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.local.dir": str(folder / "scratch"),
        # With its scheme: Hadoop's default file system may be another one.
        "spark.sql.warehouse.dir": f"file:{folder / 'warehouse'}",
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _close_gateway(archive: Path | None) -> None:
    """End the JVM, which pyspark would reuse for the next session with this one's settings.

    A JVM that leaves an archive of classes takes seconds more for that; these are not waited for.
    `archive`: the path for one; None if the session did not end well, or has no place for it.
    """
    context = pyspark.SparkContext
    gateway = context._gateway
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        if process is not None and archive is not None:
            # Without this marker the JVM's starter keeps the archive (`submit._run_for_archive`).
            with suppress(OSError):
                spark_submit.unproven(archive, process.pid).unlink(missing_ok=True)
        gateway.shutdown()
        if process is not None:
            # A driver's JVM ends when its standard input does.
            process.stdin.close()
            _await_end(process, ended_well=archive is not None)
    context._gateway = None
    context._jvm = None


def _await_end(process: subprocess.Popen[bytes], *, ended_well: bool) -> None:
    """Wait for the JVM's end. One that ended well may take its time for its archive; another one
    has nothing to save, and is killed where it does not end: it may be amid a long query."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_ARCHIVE_S if ended_well else _END_S)
        return
    if ended_well:
        return
    process.terminate()  # one that waits for its JVM kills that
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
