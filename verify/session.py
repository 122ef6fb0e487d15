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
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from verify import spark_submit
from verify.java import Java, find_java
from verify.sources import commitlog, consumequeue

__all__ = ["DEFAULT_MASTER", "SessionError", "spark_session"]

DEFAULT_MASTER = "local[2]"
_DRIVER_MEMORY = "2g"
_LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
_JAVA_OPTIONS = f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}"


class SessionError(Exception):
    """Spark did not start; the text says with which Java and master."""


@contextmanager
def spark_session(*, master: str | None = None, partitions: int = 2) -> Iterator[SparkSession]:
    """A session that ends with the block. `partitions` is the number of shuffle partitions.

    Raises:
        JavaError: no Java here can run Spark.
        SessionError: the JVM did not come up.
    """
    java = find_java(os.environ)
    with tempfile.TemporaryDirectory(prefix="ledgermq-spark-") as folder:
        home = Path(folder)
        _lay_out_spark_home(home)
        session = _start(home, java, master or DEFAULT_MASTER, partitions)
        try:
            session.dataSource.register(commitlog.CommitLogSource)
            session.dataSource.register(consumequeue.ConsumeQueueSource)
            yield session
        finally:
            session.stop()
            _close_gateway()


def _start(home: Path, java: Java, master: str, partitions: int) -> SparkSession:
    builder = SparkSession.Builder().master(master).appName("ledgermq verify")
    settings = _settings(partitions) | (_local_settings(home) if master.startswith("local") else {})
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


def _settings(partitions: int) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # The checks are one query of many branches: its code is compiled once and run once, so
        # what compilation costs must be little. Broadcasts are planned by size as usual.
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.debug.maxToStringFields": "200",
    }


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
