"""The Spark session of one verification.

Place in the data path: between the run directory and the checks. Local by default (2 threads, no
UI, loopback only, bounded memory); any Spark master by `master`, whose workers must see the run
directory under the same path and have this project installed.

Invariants: the process environment is what it was once the JVM is up; the folder that stands in
for SPARK_HOME lives as long as the session; one session per process at a time, which is Spark's
own rule.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from verify import spark_submit
from verify.java import Java, find_java

__all__ = ["DEFAULT_MASTER", "SessionError", "spark_session"]

DEFAULT_MASTER = "local[2]"
_DRIVER_MEMORY = "2g"
_SMALL_ROWS_MAX = 1_500_000
_ROWS_PER_PARTITION = 250_000
_PARTITIONS_MAX = 512
_SHORT_RUN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
# With one compiler tier the JVM reserves 48 MB for code by itself. A session of many checks fills
# that, and a JVM with no room for an adapter fails a query with an InternalError.
_JAVA_OPTIONS = (
    f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} -XX:ReservedCodeCacheSize=240m"
)


class SessionError(Exception):
    """Spark did not start; the text says with which Java and master."""


@contextmanager
def spark_session(*, master: str | None = None, rows: int = 0) -> Iterator[SparkSession]:
    """A session that ends with the block, tuned for a run of about `rows` rows.

    Raises:
        JavaError: no Java here can run Spark.
        SessionError: the JVM did not come up.
    """
    java = find_java(os.environ)
    with tempfile.TemporaryDirectory(prefix="ledgermq-spark-") as folder:
        home = Path(folder)
        _lay_out_spark_home(home)
        session = _start(home, java, master or DEFAULT_MASTER, rows)
        try:
            yield session
        finally:
            # A JVM that died is found by the query that it died under; it can't be stopped again.
            with suppress(Py4JError, OSError):
                session.stop()
                _close_gateway()


def _start(home: Path, java: Java, master: str, rows: int) -> SparkSession:
    builder = SparkSession.Builder().master(master).appName("ledgermq verify")
    settings = _settings(rows)
    if master.startswith("local"):
        settings |= _local_settings(home)
    for key, value in settings.items():
        builder = builder.config(key, value)
    variables = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if master.startswith("local"):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _environment(variables):
        try:
            return builder.getOrCreate()
        except (PySparkRuntimeError, OSError) as error:
            raise SessionError(
                f"Spark did not start on master {master} with Java {java.version} "
                f"({java.found_by}: {java.home}): {error}"
            ) from error


def _settings(rows: int) -> dict[str, str]:
    """A short run is over before fused stages and optimised code have paid for their compilation.

    Measured with six checks on a few dozen operations: 19 s of CPU in place of 41 s.
    """
    small = rows < _SMALL_ROWS_MAX
    java_options = f"{_JAVA_OPTIONS} {_SHORT_RUN_OPTIONS}" if small else _JAVA_OPTIONS
    speed = {
        "spark.sql.shuffle.partitions": "2" if small else str(_partitions(rows)),
        "spark.sql.adaptive.enabled": "false" if small else "true",
        "spark.sql.codegen.wholeStage": "false" if small else "true",
    }
    return speed | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.debug.maxToStringFields": "200",
    }


def _partitions(rows: int) -> int:
    return max(2, min(_PARTITIONS_MAX, rows // _ROWS_PER_PARTITION))


def _local_settings(home: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(home / "scratch"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }


def _lay_out_spark_home(home: Path) -> None:
    package = Path(pyspark.__file__).parent
    for name in ("jars", "python"):
        (home / name).symlink_to(package / name, target_is_directory=True)
    (home / "scratch").mkdir()
    script = home / "bin" / "spark-submit"
    script.parent.mkdir()
    command = shlex.join([sys.executable, spark_submit.__file__])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)


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


def _close_gateway() -> None:
    """Ends the JVM, which pyspark would keep for the next session with this one's settings."""
    context = pyspark.SparkContext
    gateway = context._gateway
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(timeout=30)
    context._gateway = None
    context._jvm = None
