"""Brokers behind accounts, in plain text or on ports that take TLS only.

    ledgermq-acl, ledgermq-tls    our name server and broker, with `plain_acl.yml`
    rocketmq-acl, rocketmq-tls    RocketMQ 5.2.0, the last whose brokers read `plain_acl.yml`

RocketMQ 5.3.3 has no ACL 1.0: its accounts are users and policies that an administrator writes.
What its clients sign is the same.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from campaigns.interop.rocketmq import Rocketmq
from campaigns.interop.toolchain import MissingToolError, Toolchain
from campaigns.rig.certificates import Authority
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import await_until
from remoting.connections.tls import client_context

__all__ = ["SECURED_TARGETS", "SecuredTarget", "ledgermq_process", "secured"]

SECURED_TARGETS = ("ledgermq-acl", "ledgermq-tls", "rocketmq-acl", "rocketmq-tls")
ACL_VERSION = "5.2.0"
READY_S = 120.0
ACCOUNTS = """\
accounts:
  - accessKey: producer1
    secretKey: secret-of-producer
    whiteRemoteAddress: ""
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB]
  - accessKey: consumer1
    secretKey: secret-of-consumer
    whiteRemoteAddress: ""
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=SUB]
    groupPerms: [CG=SUB]
"""
_REMARKS = (
    "No accessKey is configured",
    "Check signature failed for accessKey=producer1",
    "No acl config for nobody01",
    "No default permission for topic:payments",
)


class SecuredTarget:
    """A name server and a broker, ready. `authority` is None where all is plain text."""

    breaks = False

    def __init__(self, name: str, name_server: str, authority: Authority | None) -> None:
        self.name = name
        self.name_servers = [name_server]
        self.authority = authority
        self.log: Path | None = None  # ours, in which refusals must be told

    def break_something(self) -> None:
        raise AssertionError("nothing is broken where accounts are tried")

    def wrong_in_log(self) -> list[str]:
        """What our broker's log should tell of refusals and doesn't, or tells and must not."""
        if self.log is None:
            return []
        text = self.log.read_text(encoding="utf-8")
        wrong = [f"not in the broker's log: {remark}" for remark in _REMARKS if remark not in text]
        return wrong + (["a secret in the broker's log"] if "secret-of" in text else [])


@contextlib.contextmanager
def secured(name: str, directory: Path, tools: Toolchain) -> Iterator[SecuredTarget]:
    """The target called `name`, ready; `directory` is there and kept. Raises MissingToolError."""
    if name.endswith("-tls") and shutil.which("openssl") is None:
        raise MissingToolError("openssl is not on this machine")
    authority = Authority(directory) if name.endswith("-tls") else None
    make = _ledgermq if name.startswith("ledgermq") else _rocketmq
    with make(name, directory, authority, tools) as target:
        yield target


@contextlib.contextmanager
def _rocketmq(
    name: str, directory: Path, authority: Authority | None, tools: Toolchain
) -> Iterator[SecuredTarget]:
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    flags = ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    flags.append("--add-opens=java.base/java.nio=ALL-UNNAMED")
    if authority is not None:
        certificate = authority.issue("server")
        flags += [
            "-Dtls.enable=true",
            "-Dtls.server.mode=enforcing",
            "-Dtls.client.authServer=true",
        ]
        flags.append(f"-Dtls.client.trustCertPath={authority.own.cert}")
        flags.append("-Dtls.test.mode.enable=false")
        flags.append(f"-Dtls.server.certPath={certificate.cert}")
        flags.append(f"-Dtls.server.keyPath={certificate.key}")
    real = Rocketmq(
        directory,
        tools,
        version=ACL_VERSION,
        settings="aclEnable=true\n",
        flags=flags,
        tls=None if authority is None else client_context(ca_file=authority.own.cert),
    )
    try:
        real.start()
        yield SecuredTarget(name, real.name_servers[0], authority)
    finally:
        real.stop()


@contextlib.contextmanager
def _ledgermq(
    name: str, directory: Path, authority: Authority | None, _: Toolchain
) -> Iterator[SecuredTarget]:
    name_server, raft = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    listening = dialling = ""
    if authority is not None:
        certificate = authority.issue("server")
        listening = (
            f'tls_mode = "enforcing"\ntls_cert_file = "{certificate.cert}"\n'
            f'tls_key_file = "{certificate.key}"\n'
        )
        dialling = f'tls_dial = true\ntls_dial_ca_file = "{authority.own.cert}"\n'
    accounts = directory / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    (directory / "namesrv.toml").write_text(f'listen = "{name_server}"\n{listening}')
    (directory / "broker.toml").write_text(
        f'group = "broker-a"\nnode = "n0"\nlisten = "127.0.0.1:{free_port()}"\n'
        f'raft_listen = "{raft}"\nstore = "{directory / "store"}"\n'
        f'name_servers = ["{name_server}"]\n[peers]\nn0 = "{raft}"\n'
        f'[broker]\nacl_enable = true\nacl_file = "{accounts}"\n{listening}{dialling}'
    )
    target = SecuredTarget(name, name_server, authority)
    target.log = directory / "broker.log"
    with contextlib.ExitStack() as running:
        for kind in ("namesrv", "broker"):
            running.enter_context(ledgermq_process(directory, kind))
        log = target.log
        await_until(lambda: ", ready" in log.read_text(encoding="utf-8"), "a leader", READY_S)
        yield target


@contextlib.contextmanager
def ledgermq_process(directory: Path, kind: str) -> Iterator[None]:
    """A broker or a name server by the `kind`.toml in `directory`, until the end."""
    with (directory / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ledgermq", kind, "--config", str(directory / f"{kind}.toml")],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)
