"""The tools that the clients' programs are built with, looked up; what is missing is named.

Builds go to a directory outside the sources and are made again when a source is newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUILD", "MissingToolError", "Toolchain"]

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "runs" / "interop" / "build"
JAVA_VERSION_MIN = 17
BUILD_TIMEOUT_S = 900


class MissingToolError(Exception):
    """A tool is not on this machine, or could not build; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Paths of what was found."""

    java: str | None
    maven: str | None
    go: str | None

    @classmethod
    def look_up(cls) -> Toolchain:
        home = os.environ.get("JAVA_HOME")
        java = shutil.which("java", path=f"{home}/bin") if home else None
        return cls(
            java=java or shutil.which("java"), maven=shutil.which("mvn"), go=shutil.which("go")
        )

    def require_java(self) -> str:
        """Raises MissingToolError without a Java runtime of version 17 or later."""
        if self.java is None:
            raise MissingToolError(f"Java {JAVA_VERSION_MIN} or later is not on this machine")
        printed = subprocess.run(
            [self.java, "-version"], capture_output=True, text=True, check=False
        )
        version = re.search(r'version "(\d+)', printed.stderr)
        if version is None or int(version[1]) < JAVA_VERSION_MIN:
            raise MissingToolError(
                f"Java {JAVA_VERSION_MIN} or later is needed, not {printed.stderr}"
            )
        return self.java

    def java_client(self, version: str) -> Path:
        """Directory with classes/ and lib/ of our programs for that client."""
        sources = HERE / "java"
        return self._maven(sources, f"client-{version}", "process-classes", f"client-{version}")

    def rocketmq(self, version: str) -> Path:
        """Directory with lib/ of Apache RocketMQ's name server and broker."""
        flags = (f"-Drocketmq.version={version}",)
        return self._maven(HERE / "server", None, "package", f"rocketmq-{version}", *flags)

    def grpc_client(self) -> Path:
        """Directory with classes/ and lib/ of our programs for the client with gRPC."""
        return self._maven(HERE / "java", "client-grpc", "process-classes", "client-grpc")

    def proxy(self, version: str) -> Path:
        """Directory with lib/ of RocketMQ's proxy."""
        flags = (f"-Drocketmq.version={version}",)
        return self._maven(HERE / "proxy", None, "package", f"proxy-{version}", *flags)

    def suite(self) -> Path:
        """Directory with classes/ and lib/ of RocketMQ's integration tests."""
        return self._maven(HERE / "suite", None, "process-classes", "suite")

    def go_client(self) -> Path:
        """The Go program."""
        if self.go is None:
            raise MissingToolError("Go is not on this machine")
        sources = HERE / "go"
        program = BUILD / "go-client" / "interop"
        if _is_older(program, sources):
            _run([self.go, "build", "-o", str(program), "."], sources)
        return program

    def _maven(
        self, sources: Path, profile: str | None, phase: str, name: str, *flags: str
    ) -> Path:
        output = BUILD / name
        stamp = output / "built"
        if _is_older(stamp, sources):
            if self.maven is None:
                raise MissingToolError("Maven is not on this machine")
            self.require_java()
            command = [self.maven, "-q", "-B", f"-Doutput={output}", *flags]
            command += ["-P", profile] if profile else []
            _run([*command, phase], sources)
            stamp.touch()
        return output


def _is_older(built: Path, sources: Path) -> bool:
    if not built.exists():
        return True
    newest = max(path.stat().st_mtime for path in sources.rglob("*") if path.is_file())
    return built.stat().st_mtime < newest


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-3_000:]
        raise MissingToolError(
            f"{Path(command[0]).name} could not build {directory.name}:\n{output}"
        )
