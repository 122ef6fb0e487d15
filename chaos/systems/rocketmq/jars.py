"""Apache RocketMQ's jars, as its releases on Maven Central have them, kept for later runs.

Place in the data path: before a cluster is started, `chaos.systems.rocketmq.system` looks them up
here; the first time Maven fetches them.

    $LEDGERMQ_ROCKETMQ_JARS/<version>/lib/*.jar     default: ~/.cache/ledgermq/rocketmq

Invariants: a directory that is there is complete, since it is renamed into place; what is missing
on this machine (Java 17, Maven, the release) is named in the error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["RocketmqJarsError", "require_jars", "require_java"]

_VARIABLE: Final = "LEDGERMQ_ROCKETMQ_JARS"
_JAVA_VERSION_MIN: Final = 17
_FETCH_TIMEOUT_S: Final = 900
_OUTPUT_SIZE_MAX: Final = 2_000
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){2}")
_POM: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ledgermq</groupId>
  <artifactId>rocketmq-under-test</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>rocketmq-broker</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>rocketmq-namesrv</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.7.1</version>
        <executions>
          <execution>
            <phase>package</phase>
            <goals><goal>copy-dependencies</goal></goals>
            <configuration>
              <outputDirectory>${{project.basedir}}/lib</outputDirectory>
              <includeScope>runtime</includeScope>
            </configuration>
          </execution>
        </executions>
      </plugin>
    </plugins>
  </build>
</project>
"""


class RocketmqJarsError(Exception):
    """RocketMQ can't be run on this machine; the text says what is missing."""


def require_java() -> str:
    """Return the path of a Java runtime. Raises RocketmqJarsError without one of version 17 on."""
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")
    if java is None:
        raise RocketmqJarsError(f"Java {_JAVA_VERSION_MIN} or later is not on this machine")
    java_version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', java_version.stderr)
    if version is None or int(version[1]) < _JAVA_VERSION_MIN:
        first = java_version.stderr.splitlines()[0] if java_version.stderr else "no version"
        raise RocketmqJarsError(f"Java {_JAVA_VERSION_MIN} or later is needed, {java} says {first}")
    return java


def require_jars(version: str) -> Path:
    """Return the directory with the jars of that release; fetch them where there is none yet.

    Raises:
        RocketmqJarsError: it is no release, or it can't be fetched.
    """
    if not _VERSION.fullmatch(version):
        raise RocketmqJarsError(f"{version!r} is no release of RocketMQ, such as 5.3.3 or 4.9.8")
    directory = os.environ.get(_VARIABLE)
    root = Path(directory) if directory else Path.home() / ".cache" / "ledgermq" / "rocketmq"
    jars = root / version / "lib"
    if not jars.is_dir():
        _fetch(version, root)
    return jars


def _fetch(version: str, root: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RocketmqJarsError(
            f"RocketMQ {version} is not in {root}, and Maven, which would fetch it, is not on this"
            " machine"
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{version}-", dir=root) as folder:
        (Path(folder) / "pom.xml").write_text(_POM.format(version=version), encoding="utf-8")
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "package"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise RocketmqJarsError(
                f"Maven did not fetch RocketMQ {version} in {_FETCH_TIMEOUT_S} s"
            ) from error
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-_OUTPUT_SIZE_MAX:]
            raise RocketmqJarsError(f"Maven could not fetch RocketMQ {version}:\n{output}")
        (root / version).mkdir(exist_ok=True)
        # Another process may have been first; its directory is as good.
        if not (root / version / "lib").is_dir():
            (Path(folder) / "lib").rename(root / version / "lib")
