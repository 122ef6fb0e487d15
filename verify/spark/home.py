"""The folder that stands in for SPARK_HOME: one per installation, so that its paths stay the same.

Place in the data path: `verify.spark.session` creates it before it starts a JVM, whose class
path then is the same from run to run. A class-data-sharing archive depends on that: the classes
that a session loads are mapped from it, instead of being read, verified and linked anew.

    jars/*.jar          links to pyspark's jars, except those that no session needs
    python              link to pyspark's own
    bin/spark-submit    runs `verify/spark/submit.py`, which also makes and names the archive
    launcher-answer     the command that Spark's launcher composed once
    classes.jsa         the archive; exists once a first session has ended well
    no-archive          this Java could not make one; it is not tried again

Invariants: a folder is named by a digest of everything that determines its content; it appears
complete, by a rename, so that sessions that start together share it, and is deleted once its
installation is gone and another folder is created. An incomplete folder is not used, nor is a cache
that can't be written: the session then has a folder of its own.
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

from verify.engines.machine import cache_folder
from verify.spark import submit as spark_submit
from verify.spark.java import Java

__all__ = ["installed_home", "lay_out", "needed_jars"]

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
"""Prefixes of jars for other services and libraries: Hive, Kubernetes, YARN, machine learning."""


def installed_home(java: Java, master: str, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of this installation, creating it if needed; None if that fails."""
    try:
        home = cache_folder(environment) / f"spark-{_digest(java, master)}"
        if not _is_whole(home, master):
            home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone_in(home.parent):
                if not _is_whole(home, master):  # another process may have created it meanwhile
                    _put_in_place(home, master)
        return home if _is_whole(home, master) else None
    except (OSError, RuntimeError):  # no home folder is a RuntimeError
        return None


def lay_out(home: Path, master: str) -> None:
    """Fill the empty folder `home`."""
    (home / "python").symlink_to(_PACKAGE / "python", target_is_directory=True)
    (home / "jars").mkdir()
    for name in needed_jars(master):
        (home / "jars" / name).symlink_to(_PACKAGE / "jars" / name)
    script = home / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(_script())
    script.chmod(0o700)


def needed_jars(master: str) -> list[str]:
    """Return the names of pyspark's jars whose classes a session on `master` may load, in order.

    The list is reduced only for masters whose needs are known; others get all jars.
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
    """Compute the digest of all that determines the folder's content and the archive's validity."""
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
    """Hold the lock on creating folders in `folder` within the block."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_what_nobody_uses(cache: Path) -> None:
    """Remove folders of installations that are gone, and unfinished ones of crashed processes."""
    for folder in cache.iterdir():
        is_gone = folder.name.startswith("spark-") and not (folder / "python").exists()
        if is_gone or folder.name.startswith(".new-"):
            shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(home: Path, master: str) -> None:
    _remove_what_nobody_uses(home.parent)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
    try:
        lay_out(made, master)
        if home.exists():  # it exists, but is not whole
            home.rename(made / "replaced")
        made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(home / "replaced", ignore_errors=True)
