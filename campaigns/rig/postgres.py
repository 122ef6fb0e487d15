"""A PostgreSQL server of one's own: Debian's, in a temporary folder, on loopback.

Place in the data path: `campaigns.drills.outbox` runs the example against it. The server refuses to
run as root, so a root user starts it as `postgres`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from campaigns.rig.ports import free_port

__all__ = ["PostgresMissingError", "postgres"]

SERVER_ACCOUNT: Final = "postgres"


class PostgresMissingError(Exception):
    """This machine has no PostgreSQL server."""


@contextmanager
def postgres(databases: Sequence[str]) -> Iterator[list[str]]:
    """Run a server with these databases, and yield their URLs. Raises PostgresMissingError."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        root = Path(folder)
        if os.geteuid() == 0:
            shutil.chown(root, SERVER_ACCOUNT)
        port = free_port()
        data = root / "data"
        _run(programs / "initdb", "-D", data, "-A", "trust", "-U", SERVER_ACCOUNT, "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={root}"
        log = root / "log"
        _run(programs / "pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
        try:
            for name in databases:
                address = ("-h", "127.0.0.1", "-p", port, "-U", SERVER_ACCOUNT)
                _run(programs / "createdb", *address, name)
            yield [f"postgresql://{SERVER_ACCOUNT}@127.0.0.1:{port}/{name}" for name in databases]
        finally:
            _run(programs / "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")


def _programs() -> Path:
    """Return the folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise PostgresMissingError("no PostgreSQL server here: apt-get install postgresql")
    return found[-1].parent


def _run(*argv: object) -> None:
    """Raises CalledProcessError, with what the program said on stderr."""
    as_server = ["runuser", "-u", SERVER_ACCOUNT, "--"] if os.geteuid() == 0 else []
    subprocess.run(
        [*as_server, *map(str, argv)], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120
    )
