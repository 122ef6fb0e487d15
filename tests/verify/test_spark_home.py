"""The folder of an installation: the same for each session, whole, and shared."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verify.java import Java, find_java
from verify.spark_home import cache_folder, installed_home, lay_out, needed_jars

JAVA = Java(home=Path("/nowhere"), version=17, found_by="test", build="one")
TRIAL = """
from verify.session import spark_session
with spark_session(rows=1) as session:
    print(session.sql("select sum(id) from range(5)").collect()[0][0])
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
@pytest.mark.timeout(600)
def test_damaged_archive_costs_nothing_but_time(tmp_path: Path) -> None:
    """A session that has no archive leaves one; one that is damaged is not used."""
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
