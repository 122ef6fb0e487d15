"""The folder that stands in for SPARK_HOME: one per installation, so that its paths stay.

Place in the data path: `verify.spark.session` has it laid out before it starts a JVM, whose class
path then is the same from run to run. That is what a class-data-sharing archive is bound to:
classes that a session loads are mapped from it, in place of being read, checked and linked anew.

    jars/*.jar          links to pyspark's jars, but for those that no session needs
    python              link to pyspark's own
    bin/spark-submit    runs `verify/spark/submit.py`, which also makes and names the archive
    launcher-answer     the command that Spark's launcher composed once
    classes.jsa         the archive; there once a first session has ended well
    no-archive          this Java could not make one; it is not asked again

Invariants: a folder is named after all that its content follows from, and appears whole, by a
rename, so that sessions that start together share it, and goes once its installation is gone and
another is laid out; one that is not as it should be is not
used, and neither is a cache that can't be written: the session then has a folder of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark

from verify.spark import submit as spark_submit
from verify.spark.java import Java

__all__ = ["cache_folder", "installed_home", "lay_out", "needed_jars"]

_PACKAGE: Final = Path(pyspark.__file__).parent
_LEAN_MASTERS: Final = ("local", "spark://")
_UNNEEDED: Final = (
    *("algebra_", "arpack", "avro-ipc", "avro-mapred", "blas-", "breeze", "cats-kernel"),
    *("connect-repl", "curator-", "datanucleus", "derby", "hive-", "HikariCP", "javax.jdo"),
    *("jdo-api", "jjwt-", "jline", "JLargeArrays", "JTransforms", "jpam", "kubernetes-", "lapack"),
    *("libfb303", "libthrift", "rocksdbjni", "scala-compiler", "spark-connect_", "spark-graphx_"),
    *("spark-hive", "spark-kubernetes_", "spark-mllib", "spark-pipelines_", "spark-repl_"),
    *("spark-yarn_", "spire", "vertx-", "volcano-", "zookeeper", "zjsonpatch"),
)
"""How the names of jars begin that are for other services: Hive, Kubernetes, YARN, learning."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where folders of installations lie; it may not be there yet."""
    told = environment.get("XDG_CACHE_HOME", "")
    base = Path(told) if Path(told).is_absolute() else Path.home() / ".cache"
    return base / "ledgermq"


def installed_home(java: Java, master: str, environment: Mapping[str, str]) -> Path | None:
    """The folder of this installation; None where it can't be had."""
    try:
        home = cache_folder(environment) / f"spark-{_digest(java, master)}"
        if not _is_whole(home, master):
            home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone_in(home.parent):
                if not _is_whole(home, master):  # nobody else was quicker
                    _put_in_place(home, master)
        return home if _is_whole(home, master) else None
    except (OSError, RuntimeError):  # no home folder is a RuntimeError
        return None


def lay_out(home: Path, master: str) -> None:
    """Fills the empty folder `home`."""
    (home / "python").symlink_to(_PACKAGE / "python", target_is_directory=True)
    (home / "jars").mkdir()
    for name in needed_jars(master):
        (home / "jars" / name).symlink_to(_PACKAGE / "jars" / name)
    script = home / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(_script())
    script.chmod(0o700)


def needed_jars(master: str) -> list[str]:
    """The names of pyspark's jars that a session on `master` may load a class of, in order.

    Only for masters of which that is known: others get all.
    """
    is_lean = master.startswith(_LEAN_MASTERS)
    return sorted(
        path.name
        for path in (_PACKAGE / "jars").glob("*.jar")
        if not (is_lean and path.name.startswith(_UNNEEDED))
    )


def _script() -> str:
    return f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", spark_submit.__file__])} "$@"\n'


def _digest(java: Java, master: str) -> str:
    """Of all that the folder's content follows from, and of what a Java's archive is bound to."""
    digest = hashlib.sha256()
    for part in _origins(java, master):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _origins(java: Java, master: str) -> Iterable[str]:
    yield from (_script(), Path(spark_submit.__file__).read_text())
    yield from (str(_PACKAGE), pyspark.__version__, str(java.home), java.build)
    for name in needed_jars(master):
        stat = (_PACKAGE / "jars" / name).stat()
        yield f"{name} {stat.st_size} {stat.st_mtime_ns}"


def _is_whole(home: Path, master: str) -> bool:
    try:
        jars = sorted(path.name for path in (home / "jars").iterdir())
        script = (home / "bin" / "spark-submit").read_text()
    except OSError:
        return False
    return jars == needed_jars(master) and script == _script() and (home / "python").is_symlink()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Within the block no other session lays out a folder here."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_what_nobody_uses(cache: Path) -> None:
    """Folders of installations that are gone, and what was left of one being laid out."""
    for folder in cache.iterdir():
        is_gone = folder.name.startswith("spark-") and not (folder / "python").exists()
        if is_gone or folder.name.startswith(".new-"):
            shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(home: Path, master: str) -> None:
    _remove_what_nobody_uses(home.parent)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
    try:
        lay_out(made, master)
        if home.exists():  # and is not whole
            home.rename(made / "replaced")
        made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(home / "replaced", ignore_errors=True)
