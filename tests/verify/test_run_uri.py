"""What on a command line is a URI, and who takes one."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ledgermq.exit_codes import EXIT_USAGE
from ledgermq.laboratory import verify_to_verdict
from ledgermq.options import local_run
from verify.run import verify_run
from verify.sources.run_uri import RunUri, run_place

URIS = ("hdfs://host:8020/runs/x", "s3a://bucket/x", "file:///runs/x", "file:/runs/x", "hdfs:///x")
PATHS = ("runs/x", "/runs/x", "runs/a:/b", "./a:/b", "x", "a:b", ".")


@pytest.mark.parametrize("text", URIS)
def test_a_scheme_and_a_slash_make_a_uri(text: str) -> None:
    assert run_place(text) == RunUri(text)
    with pytest.raises(typer.BadParameter, match="--engine spark"):
        local_run(text)


@pytest.mark.parametrize("text", PATHS)
def test_anything_else_is_a_path(text: str) -> None:
    assert run_place(text) == local_run(text) == Path(text)


def test_names_stand_below_the_folder() -> None:
    assert RunUri("hdfs://host/x/").of("raft/a:b") == RunUri("hdfs://host/x").of("raft/a:b")
    assert RunUri("hdfs://host/").of("run.json") == "hdfs://host/run.json"
    assert RunUri("file:///").of("run.json") == "file:/run.json"


@pytest.mark.parametrize("engine", ["both", "duckdb"])
def test_duckdb_is_asked_for_no_uri(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    uri = RunUri("hdfs://host/x")
    code = verify_to_verdict(uri, engine=engine, master=None, rules=None, as_json=False)
    assert code == EXIT_USAGE
    assert "`ledgermq verify hdfs://host/x --engine spark`" in capsys.readouterr().err
    with pytest.raises(ValueError, match="spark does"):
        verify_run(uri, engine="both" if engine == "both" else "duckdb")
