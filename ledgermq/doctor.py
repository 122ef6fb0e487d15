"""`ledgermq doctor`: what this machine has, what it lacks, and how to get it. Changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raft.log.kernel_aio import examine as refusal_of_kernel_aio
from verify.spark.java import JavaError, find_java

__all__ = ["Finding", "UnknownFindingError", "examine"]

_DISK_FREE_MIN = 2 << 30
_FILES_MIN = 1_024
_PORTS = {9876: "name server", 10911: "broker", 8474: "toxiproxy"}


class UnknownFindingError(ValueError):
    """Nothing is examined under that name; the text says what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the examination. `fine` None: worth knowing, but not an error."""

    what: str
    fine: bool | None
    text: str


def examine(only: str | None = None) -> bool:
    """Print every finding, or the one about `only`; return whether no finding is an error.

    Raises UnknownFindingError.
    """
    findings = list(_findings())
    if only is not None:
        known = [finding.what for finding in findings]
        if only not in known:
            raise UnknownFindingError(f"--only: {only!r} is none of {', '.join(known)}")
        findings = [finding for finding in findings if finding.what == only]
    for finding in findings:
        sign = {True: "ok  ", False: "LACK", None: "note"}[finding.fine]
        sys.stdout.write(f"{sign} {finding.what}: {finding.text}\n")
    return all(finding.fine is not False for finding in findings)


def _fsync_here() -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd(), prefix=".ledgermq-") as file:
            refusal = refusal_of_kernel_aio(Path(file.name))
    except OSError as error:
        text = f"no file can be made here, and no store: {error.strerror or error}"
        return Finding(what="fsync", fine=False, text=text)
    return Finding(
        what="fsync",
        fine=True if refusal is None else None,
        text="by the kernel beside the event loop, in stores here"
        if refusal is None
        else f"by a thread in stores here, which takes longer: {refusal}",
    )


def _findings() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        what="Python",
        fine=sys.version_info >= (3, 11),
        text=f"{version}, the environment of {Path(sys.executable).resolve()}",
    )
    try:
        java = find_java(os.environ)
        yield Finding(
            what="Java", fine=True, text=f"{java.version} at {java.home} ({java.found_by})"
        )
    except JavaError as error:
        yield Finding(what="Java", fine=False, text=str(error))
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding(
        what="disk",
        fine=free >= _DISK_FREE_MIN,
        text=f"{free >> 20} MiB free here; an experiment wants {_DISK_FREE_MIN >> 20} MiB",
    )
    yield _fsync_here()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Finding(
        what="open files",
        fine=files >= _FILES_MIN,
        text=f"limit {files}; at least {_FILES_MIN} are wanted (ulimit -n)",
    )
    for port, owner in _PORTS.items():
        with socket.socket() as probe:
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        yield Finding(
            what=f"port {port}",
            fine=None if taken else True,
            text=f"in use: pass another port to the {owner}" if taken else f"free for a {owner}",
        )
