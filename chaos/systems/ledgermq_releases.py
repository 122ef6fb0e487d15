"""An older release of this project, which single brokers of a cluster are started with.

Place in the data path: a part of `chaos.systems.ledgermq`, where the world was given a release
(`--set release=...`): a folder with the source, or a commit or tag of this project's own
repository, which is unpacked into the run directory. The broker runs on the same interpreter and
libraries.

Invariant: a node runs what it was told to at its last start, and says so itself.

Source: mixed-version tests of CockroachDB and etcd.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.cluster.broker_status import query
from chaos.cluster.layout import ClusterLayout
from chaos.systems.base import SystemFailedError
from remoting.connections.rpc import RemotingClient

__all__ = ["LedgermqReleases", "release_problem", "unpack", "unpack_release"]

UNNAMED: Final = "unnamed"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_GIT_S: Final = 60.0
_STATUS_TIMEOUT_MS: Final = 500


class LedgermqReleases:
    """The older release of one cluster, in `source`; `name` as it was asked for."""

    def __init__(
        self,
        name: str,
        source: Path,
        layout: Callable[[], ClusterLayout],
        client: Callable[[], RemotingClient],
    ) -> None:
        self.older: Final = name
        self._source = source
        self._layout = layout
        self._client = client
        self._with_older: set[str] = set()

    def at_next_start(self, node: str, *, older: bool) -> None:
        if older:
            self._with_older.add(node)
        else:
            self._with_older.discard(node)

    async def answered(self, node: str) -> str | None:
        address = self._layout().broker(node).address
        status = await query(self._client(), address, timeout_ms=_STATUS_TIMEOUT_MS)
        return None if status is None else status.release or UNNAMED

    def command(self, node: str, argv: list[str]) -> list[str]:
        """Return the command line that runs the node's program with the release it is to have."""
        if node not in self._with_older:
            return argv
        # Before the installed one on Python's path; -P keeps the current folder from being first.
        interpreter, *arguments = argv
        return ["/usr/bin/env", f"PYTHONPATH={self._source}", interpreter, "-P", *arguments]


def release_problem(name: str) -> str | None:
    """Return why no release can be taken from `name`; None: it can."""
    if Path(name).is_dir():
        is_source = (Path(name) / "ledgermq" / "__main__.py").is_file()
        return None if is_source else f"{name} holds no source of ledgermq"
    found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if found is None or found.returncode:
        return f"{name!r} is no folder, and no commit or tag of {_REPOSITORY}"
    return None


def unpack_release(name: str, folder: Path) -> Path:
    """Return the folder with the release's source; that of a commit is unpacked into `folder`.

    Raises SystemFailedError.
    """
    problem = release_problem(name)
    if problem is not None:
        raise SystemFailedError(problem)
    if Path(name).is_dir():
        return Path(name).resolve()
    archive = _git("archive", "--format=tar", name)
    if archive is None or archive.returncode:
        text = "" if archive is None else archive.stderr.decode(errors="replace").strip()
        raise SystemFailedError(f"git archive {name}: {text or 'it did not end'}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        unpack(files, folder)
    return folder


def unpack(files: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive that this project has made itself: nothing in it is a stranger's."""
    if hasattr(tarfile, "data_filter"):
        files.extractall(folder, filter="data")
    else:  # Python before 3.11.4 has no filters
        files.extractall(folder)  # noqa: S202 - this project made it


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """Return what git did in this project's repository; None where there is no git, or no end."""
    command = ["git", "-C", str(_REPOSITORY), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_GIT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
