"""The folder of an installation: the same for each session, whole, and shared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from campaigns.rig.waiting import await_until
from verify.engines.machine import cache_folder
from verify.spark import submit as spark_submit
from verify.spark.home import installed_home, lay_out, needed_jars
from verify.spark.java import Java, find_java

JAVA = Java(home=Path("/nowhere"), version=17, found_by="test", build="one")
TRIAL = """
from verify.spark.session import spark_session
with spark_session(rows=1) as session:
    print(session.sql("select sum(id) from range(5)").collect()[0][0])
"""
MAPPED = """
import os
from pathlib import Path
from verify.spark.session import spark_session
with spark_session(rows=1) as session:
    java = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    mapped = Path(f"/proc/{{java}}/maps").read_text().split()
    print(os.environ["LEDGERMQ_TEST_ARCHIVE"] in mapped)
    {end}
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_folder_stays(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = installed_home(JAVA, "local[2]", environment)
    assert home is not None
    assert home.parent == cache_folder(environment) == tmp_path / "ledgermq"
    assert names(home / "jars") == needed_jars("local")
    assert all(path.is_file() for path in (home / "jars").iterdir())
    (home / "classes.jsa").touch()
    assert installed_home(JAVA, "local[1]", environment) == home
    assert (home / "classes.jsa").exists()


@pytest.mark.spark
def test_what_large_runs_exchange_can_be_serialised(spark: SparkSession) -> None:
    """Kryo loads classes by their names: one whose superclass lies in a jar that was left out ends
    each query that exchanges rows by it, and small runs have none."""
    context = spark.sparkContext
    serializer = context._jvm.org.apache.spark.serializer.KryoSerializer(context._jsc.sc().conf())
    assert serializer.newKryo() is not None


def test_another_java_has_another_folder(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    other = Java(home=JAVA.home, version=17, found_by="test", build="two")
    one = installed_home(JAVA, "local", environment)
    assert installed_home(other, "local", environment) != one


def test_folder_that_is_not_whole_is_laid_out_anew(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = installed_home(JAVA, "local", environment)
    assert home is not None
    (home / "jars" / needed_jars("local")[0]).unlink()
    assert installed_home(JAVA, "local", environment) == home
    assert names(home / "jars") == needed_jars("local")
    assert names(home) == ["bin", "jars", "python"]
    assert names(home.parent) == [home.name]


def test_cache_that_cannot_be_had_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "ledgermq").write_text("in the way")
    assert installed_home(JAVA, "local", {"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_sessions_that_start_together_share_it(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    with ThreadPoolExecutor(max_workers=8) as threads:
        homes = list(threads.map(lambda _: installed_home(JAVA, "local", environment), range(8)))
    assert len(set(homes)) == 1
    assert homes[0] is not None
    assert names(tmp_path / "ledgermq") == [homes[0].name]


def test_only_known_masters_do_without_jars() -> None:
    every = needed_jars("k8s://https://127.0.0.1")
    assert set(needed_jars("local[2]")) < set(every)
    assert any(name.startswith("spark-kubernetes_") for name in every)


def test_own_folder_serves_too(tmp_path: Path) -> None:
    lay_out(tmp_path, "local")
    assert (tmp_path / "bin" / "spark-submit").stat().st_mode & 0o100


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_damaged_archive_costs_nothing_but_time(tmp_path: Path) -> None:
    """One that is damaged is not used, and neither is a cache that can't be."""
    home = installed_home(find_java(os.environ), "local[2]", {"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    (home / "classes.jsa").write_bytes(b"\x5a" * 70_000)
    for variables in ({"XDG_CACHE_HOME": str(tmp_path)}, {"XDG_CACHE_HOME": "/dev/null"}):
        answer = subprocess.run(
            [sys.executable, "-c", TRIAL],
            env={**os.environ, **variables},
            capture_output=True,
            check=True,
            text=True,
        )
        assert answer.stdout == "10\n"
        assert answer.stderr == ""


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_session_that_ends_well_leaves_an_archive_that_the_next_maps(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = installed_home(find_java(os.environ), "local[2]", environment)
    assert home is not None

    def run(end: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", MAPPED.format(end=end)],
            env={
                **{key: told for key, told in os.environ.items() if key[:6] != "SPARK_"},
                **environment,
                "LEDGERMQ_TEST_ARCHIVE": str(home / "classes.jsa"),
            },
            capture_output=True,
            check=False,
            text=True,
        )
        return done.stdout

    def await_true(condition: Callable[[], bool]) -> None:
        # Whatever becomes of an archive is done once nobody waits for the JVM any more.
        await_until(condition, "the JVM has ended", 120)

    assert run(end="raise SystemExit('broken off')") == "False\n"
    await_true(lambda: not list(home.glob(".unproven.*")))
    assert not (home / "classes.jsa").exists()
    assert run(end="") == "False\n"
    await_true((home / "classes.jsa").exists)
    assert (home / "classes.jsa").stat().st_size > 10_000_000
    assert run(end="") == "True\n"
    assert sorted(names(home)) == ["bin", "classes.jsa", "jars", "launcher-answer", "python"]


def test_what_is_left_of_installations_that_are_gone_is_removed(tmp_path: Path) -> None:
    cache = tmp_path / "ledgermq"
    for name in ("spark-gone", ".new-half"):
        (cache / name / "jars").mkdir(parents=True)
    (cache / "spark-gone" / "python").symlink_to(tmp_path / "no-such-folder")
    (cache / "spark-there").mkdir()
    (cache / "spark-there" / "python").symlink_to(tmp_path)
    home = installed_home(JAVA, "local", {"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert names(cache) == sorted([home.name, "spark-there"])


@pytest.mark.parametrize(
    ("variables", "is_configured"),
    [
        ({"SPARK_HOME": "x", "SPARK_LOCAL_IP": "127.0.0.1"}, False),
        ({"SPARK_DAEMON_MEMORY": "1g"}, True),
        ({"HADOOP_CONF_DIR": "/etc/hadoop"}, True),
        ({"YARN_CONF_DIR": "/etc/hadoop"}, True),
    ],
)
def test_an_environment_that_configures_spark(
    variables: dict[str, str], is_configured: bool
) -> None:
    assert spark_submit._is_configured(variables) is is_configured
