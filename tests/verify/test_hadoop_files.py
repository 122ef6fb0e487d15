"""A run that Hadoop reaches by a URI is judged as the same run that lies in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.verify.plants import PLANTS
from tests.verify.store_writer import write_stores
from tests.verify.synthetic import SyntheticRun, listed_file, write_manifest
from verify.run import Rules, load_rules, main, verify_run
from verify.sources import manifest as manifest_module
from verify.sources.format_tables import TableError
from verify.sources.run_files import LocalFiles
from verify.sources.run_uri import RunUri
from verify.spark.hadoop_files import HadoopFiles, UnreachedError, hadoop_files
from verify.spark.tables import read_table
from verify.verdict import Outcome

pytestmark = pytest.mark.spark

ASKED = ("A4", "R9", "S2", "T6")
OPS = "history/part-0.parquet"


def some_rules() -> Rules:
    known = load_rules()
    return replace(known, rules=[rule for rule in known.rules if rule.id in ASKED])


def uri_of(run: Path) -> RunUri:
    return RunUri(run.as_uri())


def told_of(run: Path, place: Path | RunUri) -> dict[str, object]:
    """The verdict.json that a verification leaves."""
    (run / "verdict.json").unlink(missing_ok=True)
    verdict = verify_run(place, engine="spark", rules=some_rules())
    told: dict[str, object] = json.loads((run / "verdict.json").read_text())
    assert told == json.loads(verdict.as_text())
    return told


def edit(run: Path, change: Callable[[dict[str, object]], object]) -> None:
    told = json.loads((run / "run.json").read_text())
    change(told)
    write_manifest(run, told)


# Whole runs ------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_one_session")
@pytest.mark.parametrize("check", [pytest.param("", marks=pytest.mark.nightly), "A4"])
def test_uri_is_judged_as_its_folder(check: str, tmp_path: Path) -> None:
    planted = next((one for one in PLANTS if one.check == check), None)
    run = tmp_path / "a run, 100 % [1]"  # no character of a URI means another
    (SyntheticRun() if planted is None else planted.run()).write(run, files=2)
    uri = RunUri(f"file://{run}")
    by_uri = told_of(run, uri)
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["run.json", "verdict.json", "history", "faults", "raft", "log", "cq"]
    )
    assert by_uri == told_of(run, run)
    assert by_uri["verdict"] == ("fail" if check else "pass")
    assert by_uri["engines"] == ["spark"]


# Damaged runs ----------------------------------------------------------------------------------


def change_a_byte(run: Path) -> None:
    content = bytearray((run / OPS).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (run / OPS).write_bytes(content)


def leave_unlisted(run: Path) -> None:
    edit(
        run,
        lambda told: told["tables"]["nodes"].update(  # type: ignore[index]
            files=[
                file
                for file in told["tables"]["nodes"]["files"]  # type: ignore[index]
                if "n1/commitlog" not in file["name"]
            ]
        ),
    )


def no_parquet(run: Path) -> None:
    (run / OPS).write_bytes(b"PAR1, it says")
    file = listed_file(run, run / OPS, 7)
    edit(run, lambda told: told["tables"]["ops"].update(files=[file]))  # type: ignore[index]


def another_count(run: Path) -> None:
    edit(run, lambda told: told["tables"]["ops"]["files"][0].update(rows=7))  # type: ignore[index]


def pipe_for(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)


def link_out(run: Path) -> None:
    (run / OPS).rename(run.parent / "elsewhere")
    (run / OPS).symlink_to(run.parent / "elsewhere")


def manifest_folder(run: Path) -> None:
    (run / "run.json").unlink()
    (run / "run.json").mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed byte": (
        change_a_byte,
        f"table ops: {OPS} is not the file that was listed: its sha256",
    ),
    "missing file": (
        lambda run: (run / OPS).unlink(),
        f"{OPS} can't be read: No such file or directory",
    ),
    "folder for a file": (
        lambda run: ((run / OPS).unlink(), (run / OPS).mkdir()),
        "it is no plain file",
    ),
    "other row count": (another_count, "7 are listed"),
    "no Parquet": (no_parquet, "is not readable Parquet"),
    "unlisted part of a store": (leave_unlisted, "lies in a store of the run and is not listed"),
    "no run.json": (lambda run: (run / "run.json").unlink(), "there is no run.json"),
    "broken run.json": (lambda run: (run / "run.json").write_text('{"format": 1'), "can't be read"),
    "no text in run.json": (lambda run: (run / "run.json").write_bytes(b"\xff"), "can't be read"),
    "folder for run.json": (manifest_folder, "run.json is no plain file"),
    "pipe for run.json": (lambda run: pipe_for(run, "run.json"), "run.json is no plain file"),
    "pipe for a file": (lambda run: pipe_for(run, OPS), "it is no plain file"),
    "link to elsewhere": (link_out, "lies outside the run directory"),
    "name of elsewhere": (
        lambda run: edit(
            run,
            lambda told: told["tables"]["ops"]["files"][0].update(name="../x"),  # type: ignore[index]
        ),
        "no relative path",
    ),
}
OF_DISKS = ("pipe", "link")


def run_with_stores(folder: Path) -> Path:
    run = folder / "run"
    synthetic = SyntheticRun()
    write_stores(synthetic, run)
    synthetic.write(run)
    return run


@pytest.mark.usefixtures("_one_session")
@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_told_as_of_a_folder(case: str, tmp_path: Path) -> None:
    harm, reason = DAMAGE[case]
    run = run_with_stores(tmp_path)
    harm(run)
    by_uri = told_of(run, uri_of(run))
    assert by_uri == told_of(run, run)
    assert by_uri["verdict"] == "unknown"
    assert reason in str(by_uri["not_shown"])


@pytest.mark.usefixtures("_one_session")
@pytest.mark.parametrize("case", [case for case in DAMAGE if not case.startswith(OF_DISKS)])
def test_damage_is_told_where_there_is_no_disk(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere than on this machine Hadoop's own word is all that there is of a file's kind."""
    monkeypatch.setattr(HadoopFiles, "_disk_below", lambda _, root: None)
    harm, reason = DAMAGE[case]
    run = run_with_stores(tmp_path)
    harm(run)
    assert reason in str(told_of(run, uri_of(run))["not_shown"])


@pytest.mark.usefixtures("_one_session")
def test_manifest_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SyntheticRun().write(tmp_path)
    monkeypatch.setattr(manifest_module, "_MANIFEST_SIZE_BYTES_MAX", 100)
    by_uri = told_of(run, uri_of(run))
    assert "run.json is larger than 100 bytes" in str(by_uri["not_shown"])
    assert by_uri == told_of(run, run)


@pytest.mark.usefixtures("_one_session")
def test_folder_in_place_of_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = SyntheticRun().write(tmp_path)
    (run / "verdict.json").mkdir()
    told = []
    for place in (run, uri_of(run)):
        assert main(place, engine="spark", master=None, rules=some_rules(), as_json=True) == 2
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    assert "verdict.json can't be written: Is a directory" in told[1]["not_shown"][0]


@pytest.mark.usefixtures("_one_session")
def test_verdict_is_replaced_and_its_place_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = SyntheticRun().write(tmp_path)
    (run / "run.json").unlink()
    (run / "verdict.json").write_text("of an earlier one")
    main(uri_of(run), engine="spark", master=None, rules=some_rules(), as_json=False)
    assert f"{run.as_uri()}/verdict.json is written" in capsys.readouterr().err
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "unknown"
    assert not any("verdict.json." in path.name for path in run.iterdir())  # no draft, no checksum


@pytest.mark.usefixtures("_one_session")
def test_run_that_is_not_exported_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    synthetic = SyntheticRun()
    write_stores(synthetic, run)
    synthetic.write(run, tables=("ops", "faults", "raft"))
    told = told_of(run, uri_of(run))
    assert told["verdict"] == "unknown"
    assert "no table log and no table cq" in str(told["not_shown"])
    assert "export it first (`ledgermq export RUN`)" in str(told["not_shown"])


# File systems ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_one_session")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nosuch://host/x", 'No FileSystem for scheme "nosuch"'),
        ("hdfs:///x", "Incomplete HDFS URI, no host: hdfs:///x"),
        ("file:///no/such/folder", "file:///no/such/folder is no run directory"),
        ("file:///dev/null", "file:///dev/null is no run directory"),
    ],
)
def test_run_that_can_not_be_reached_is_unknown(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(RunUri(text), engine="spark", master=None, rules=some_rules(), as_json=True)
    said = capsys.readouterr()
    assert code == 2
    told = json.loads(said.out)["not_shown"][0]
    assert told == f"Nothing at all: the run can't be reached: {reason}."
    assert "is written" not in said.err
    assert "\tat " not in said.err


def test_what_is_listed_is_what_lies_there(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that leads back to itself is entered once."""
    run = run_with_stores(tmp_path)
    (run / "nodes" / "again").symlink_to(run / "nodes")
    with hadoop_files(spark, uri_of(run)) as files:
        assert sorted(files.below("nodes")) == sorted(LocalFiles(run).below("nodes"))
        assert list(files.below("nowhere")) == []


def test_an_empty_file_has_the_digest_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with hadoop_files(spark, uri_of(tmp_path)) as files:
        assert files.sha256("empty") == LocalFiles(tmp_path).sha256("empty")


def test_a_file_system_without_file_contexts_is_written_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The file that is in the way is deleted, since a plain rename replaces none."""
    (tmp_path / "verdict.json").write_text("before")
    with hadoop_files(spark, uri_of(tmp_path)) as files:
        files._settings.unset("fs.AbstractFileSystem.file.impl")
        files.replace("verdict.json", "after")
    assert (tmp_path / "verdict.json").read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]


def test_no_folder_is_no_run(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(UnreachedError, match="is no run directory"),
        hadoop_files(spark, uri_of(tmp_path / "x")),
    ):
        pass


@pytest.mark.parametrize("name", ["_ops.parquet", ".ops.parquet", "ops.parquet._COPYING_"])
def test_a_file_that_spark_hides_is_refused(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Its rows would be missing without a word."""
    run = SyntheticRun().write(tmp_path)
    (run / OPS).rename(run / name)
    assert pq.read_metadata(run / name).num_rows > 0
    schema = spark.createDataFrame([(1,)], "op long").schema
    with pytest.raises(TableError, match="Spark reads nothing of"):
        read_table(spark, [LocalFiles(run).table_file(name)], schema)


# Another scheme, and Hadoop's settings ---------------------------------------------------------

CORE_SITE = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://nowhere.invalid:8020</value></property>
<property><name>fs.viewfs.mounttable.all.link./runs</name><value>{folder}</value></property>
</configuration>
"""
# Both places by one session: a second JVM takes half a minute.
JUDGE = """
import json, sys
from contextlib import contextmanager
from dataclasses import replace
import verify.run
from verify.sources.run_uri import run_place
from verify.spark.session import spark_session
known = verify.run.load_rules()
rules = replace(known, rules=[rule for rule in known.rules if rule.id in ("A4", "R9")])
with spark_session(rows=None) as session:
    verify.run.spark_session = contextmanager(lambda **_: iter([session]))
    for place in sys.argv[1:]:
        verdict = verify.run.verify_run(run_place(place), engine="spark", rules=rules)
        print(json.dumps(verdict.as_json()))
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_hadoop_is_set_up_by_its_own_files(tmp_path: Path) -> None:
    """core-site.xml mounts the runs under another scheme; a path stays one of this machine."""
    run = SyntheticRun().write(tmp_path / "runs" / "x", files=2)
    settings = tmp_path / "conf"
    settings.mkdir()
    site = CORE_SITE.format(folder=(tmp_path / "runs").as_uri())
    (settings / "core-site.xml").write_text(site)
    judged = subprocess.run(
        [sys.executable, "-c", JUDGE, "viewfs://all/runs/x", str(run)],
        env={**os.environ, "HADOOP_CONF_DIR": str(settings)},
        stdout=subprocess.PIPE,
        check=True,
    )
    told = [json.loads(line) for line in judged.stdout.splitlines()]
    assert json.loads((run / "verdict.json").read_text()) == told[1]
    assert told[0]["verdict"] == Outcome.PASS.value, told[0]["not_shown"]
    assert told[0] == told[1]
    assert sorted(path.name for path in run.iterdir() if path.is_file()) == [
        "run.json",
        "verdict.json",
    ]
