"""One Spark session for all tests of the verifier: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

import verify.run as run_module
from verify.spark.session import OpenedSession, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(master="local[2]") as session:
        yield session


@pytest.fixture
def _one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifications use the tests' session: a second one in a process ends the first."""

    @contextmanager
    def same(
        *, master: str | None, rows: int | None, opened: OpenedSession | None = None
    ) -> Iterator[SparkSession]:
        del master, rows, opened
        yield spark

    monkeypatch.setattr(run_module, "spark_session", same)
