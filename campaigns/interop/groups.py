"""Three groups of one broker each, behind one name server: what RocketMQ's own tests expect.

Their ports take plain text and TLS, as RocketMQ's do by default.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from campaigns.interop.secured import ledgermq_process
from campaigns.interop.toolchain import MissingToolError
from campaigns.rig.certificates import Authority
from campaigns.rig.processes import free_port
from campaigns.rig.waiting import await_until

__all__ = ["Groups", "three_groups"]

READY_S = 60.0
NAMES = ("broker-a", "broker-b", "broker-c")


class Groups:
    """The target; nothing of it breaks."""

    breaks = False

    def __init__(self, name: str, name_server: str) -> None:
        self.name = name
        self.name_servers = [name_server]

    def break_something(self) -> None:
        raise AssertionError("nothing is broken where RocketMQ's tests run")


@contextlib.contextmanager
def three_groups(name: str, directory: Path) -> Iterator[Groups]:
    """Ready; `directory` is there and kept. Raises MissingToolError."""
    if shutil.which("openssl") is None:
        raise MissingToolError("openssl is not on this machine")
    certificate = Authority(directory).issue("server")
    listening = (
        f'tls_mode = "permissive"\ntls_cert_file = "{certificate.cert}"\n'
        f'tls_key_file = "{certificate.key}"\n'
    )
    name_server = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as running:
        for server in ("namesrv", *NAMES):
            place = directory / server
            place.mkdir()
            kind = "namesrv" if server == "namesrv" else "broker"
            raft = f"127.0.0.1:{free_port()}"
            text = f'listen = "{name_server}"\n{listening}'
            if kind == "broker":
                text = (
                    f'group = "{server}"\nnode = "n0"\nlisten = "127.0.0.1:{free_port()}"\n'
                    f'raft_listen = "{raft}"\nstore = "{place / "store"}"\n'
                    f'name_servers = ["{name_server}"]\n[peers]\nn0 = "{raft}"\n'
                    f"[broker]\n{listening}"
                )
            (place / f"{kind}.toml").write_text(text, encoding="utf-8")
            running.enter_context(ledgermq_process(place, kind))
        for server in NAMES:
            log = directory / server / "broker.log"
            await_until(partial(_is_ready, log), server, READY_S)
        yield Groups(name, name_server)


def _is_ready(log: Path) -> bool:
    return ", ready" in log.read_text("utf-8")
