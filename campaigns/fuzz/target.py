"""What the fuzzer is let loose on: one broker, a group of three, or one behind accounts and TLS.

The secured one trusts 127.0.0.1, from which the campaign asks how it stands, and nobody else: the
attempts come from 127.0.0.2, some signed by an account that may do little, some through TLS. What
that account may not touch must be empty in the end.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from campaigns.rig.certificates import Authority
from campaigns.rig.processes import Processes
from remoting.connections.tls import client_context
from remoting.protocol.acl_signature import Signer
from remoting.protocol.command import RemotingCommand

__all__ = ["KINDS", "OPEN_TOPICS", "Target", "started"]

KINDS: Final = ("single", "group", "secured")
OPEN_TOPICS: Final = frozenset({"T0", "FuzzCanary", "RMQ_SYS_TRACE_TOPIC"})
"""Where the account of the secured target, and the canary, may store; any account may trace."""
_STRANGER: Final = "127.0.0.2"
_ACCOUNTS: Final = """\
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
  - accessKey: fuzzer01
    secretKey: secret-of-fuzzer
    topicPerms: [T0=PUB|SUB]
    groupPerms: [G0=SUB]
"""
# So that what is stored is soon delivered, asked about, discarded, and limits are reached.
_SETTINGS: Final[dict[str, int | bool]] = {
    "transaction_timeout_ms": 300,
    "transaction_check_interval_ms": 300,
    "transaction_check_max": 3,
    "topics_max": 600,
    "groups_max": 600,
    "consumer_offsets_max": 20_000,
    "timers_max": 2_000,
    "halves_max": 2_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`local_address`: where attempts come from; `sign`, `tls`: what some of them use."""

    kind: str
    processes: Processes
    local_address: str | None = None
    sign: Callable[[RemotingCommand], None] | None = None
    tls: ssl.SSLContext | None = None

    @property
    def brokers(self) -> list[str]:
        """Addresses."""
        return [self.processes.place(name).address for name in self.processes.brokers]

    @property
    def raft_ports(self) -> list[str]:
        """Addresses on which the members of the group talk to each other."""
        peers = self.processes.config(self.processes.brokers[0]).read_text(encoding="utf-8")
        block = peers.partition("[peers]")[2].partition("[")[0]
        return [line.partition("=")[2].strip(' "') for line in block.split("\n") if "=" in line]


@contextmanager
def started(kind: str, directory: Path) -> Iterator[Target]:
    """Serving and leading; every process ends with it."""
    assert kind in KINDS
    replicas = 3 if kind == "group" else 1
    with Processes(directory, replicas=replicas, broker_settings=_SETTINGS) as processes:
        target = Target(kind=kind, processes=processes)
        if kind == "secured":
            target = _secured(processes, directory)
        processes.start()
        yield target


def _secured(processes: Processes, directory: Path) -> Target:
    authority = Authority(directory)
    certificate = authority.issue("server")
    accounts = directory / "plain_acl.yml"
    accounts.write_text(_ACCOUNTS, encoding="utf-8")
    settings = {
        "acl_file": accounts,
        "tls_mode": "permissive",
        "tls_cert_file": certificate.cert,
        "tls_key_file": certificate.key,
    }
    for name in processes.brokers:
        with processes.config(name).open("a", encoding="utf-8") as config:
            config.write("acl_enable = true\n")
            config.writelines(f'{key} = "{value}"\n' for key, value in settings.items())
    return Target(
        kind="secured",
        processes=processes,
        local_address=_STRANGER,
        sign=Signer("fuzzer01", "secret-of-fuzzer").sign,
        tls=client_context(ca_file=authority.own.cert),
    )
