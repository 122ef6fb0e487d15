"""Three groups behind one name server: what RocketMQ's own tests expect. Of one broker each, or on
the engines `async` and `sync` of a master and a slave.

Their ports take plain text and TLS, as RocketMQ's do by default.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from campaigns.interop.secured import ledgermq_process
from campaigns.interop.toolchain import MissingToolError
from campaigns.rig.certificates import Authority
from campaigns.rig.ports import free_port
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
def three_groups(
    name: str, directory: Path, *, engine: str = "raft", flush: str = ""
) -> Iterator[Groups]:
    """Ready; `directory` is there and kept. Raises MissingToolError."""
    if shutil.which("openssl") is None:
        raise MissingToolError("openssl is not on this machine")
    certificate = Authority(directory).issue("server")
    listening = (
        f'tls_mode = "permissive"\ntls_cert_file = "{certificate.cert}"\n'
        f'tls_key_file = "{certificate.key}"\n'
    )
    name_server = f"127.0.0.1:{free_port()}"
    (directory / "namesrv").mkdir()
    (directory / "namesrv" / "namesrv.toml").write_text(
        f'listen = "{name_server}"\n{listening}', encoding="utf-8"
    )
    nodes = ("n0", "n1") if flush else ("n0",)
    with contextlib.ExitStack() as running:
        running.enter_context(ledgermq_process(directory / "namesrv", "namesrv"))
        places = []
        for group in NAMES:
            addresses = {node: f"127.0.0.1:{free_port()}" for node in nodes}
            peers = {node: f"127.0.0.1:{free_port()}" for node in nodes}
            for node in nodes:
                place = directory / (f"{group}-{node}" if flush else group)
                place.mkdir()
                text = (
                    f'group = "{group}"\nnode = "{node}"\nlisten = "{addresses[node]}"\n'
                    f'raft_listen = "{peers[node]}"\nstore = "{place / "store"}"\n'
                    f'name_servers = ["{name_server}"]\nengine = "{engine}"\n'
                    f"[peers]\n{_table(peers)}[brokers]\n{_table(addresses)}"
                    f"[broker]\n{listening}" + (f'flush = "{flush}"\n' if flush else "")
                )
                (place / "broker.toml").write_text(text, encoding="utf-8")
                running.enter_context(ledgermq_process(place, "broker"))
                places.append(place)
        for place in places:
            await_until(partial(_is_ready, place / "broker.log"), place.name, READY_S)
        yield Groups(name, name_server)


def _table(values: Mapping[str, str]) -> str:
    return "".join(f'{key} = "{value}"\n' for key, value in values.items())


def _is_ready(log: Path) -> bool:
    """Whether a node leads, or follows a master that it has reached."""
    return re.search(r", ready|follower .* leader n0", log.read_text("utf-8")) is not None
