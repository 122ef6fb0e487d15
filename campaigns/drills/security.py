"""Who must not get in does not: what each one hears, what the log says, and that nothing moved.

    python -m campaigns.drills.security [--output FILE]

One broker at a time, a process of its own: behind accounts in plain text; behind accounts on a port
that takes TLS only; the same where clients must show certificates; with an expired certificate.
Each case is one request (or one connection) of somebody; before and after it an administrator asks
how far log and queues are. The good ones between them show that the refusals are not the broker's
being shut. At the end the accounts are changed, broken and repaired in the file while ten producers
send: what is refused and when, and that exactly what was acknowledged is stored.

Not part of `make test`; `make security` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from campaigns.rig.certificates import Authority, Certificate
from campaigns.rig.ports import free_port
from campaigns.rig.processes import print_line, send_command
from campaigns.rig.waiting import await_until
from remoting.connections.rpc import RemotingClient
from remoting.connections.tls import client_context
from remoting.errors import RemotingError
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode

READY_S: Final = 60.0
ANSWER_MS: Final = 5_000
LOG_S: Final = 3.0
PRODUCERS: Final = 10
PHASE_S: Final = 3.0
ACCOUNTS: Final = """\
accounts:
  - accessKey: producer1
    secretKey: secret-of-producer
    topicPerms: [orders={permission}]
  - accessKey: consumer1
    secretKey: secret-of-consumer
    topicPerms: [orders=SUB]
    groupPerms: [CG=SUB]
  - {{accessKey: admin001, secretKey: secret-of-admin, admin: true}}
"""
PRODUCER: Final = Signer("producer1", "secret-of-producer")
CONSUMER: Final = Signer("consumer1", "secret-of-consumer")
ADMIN: Final = Signer("admin001", "secret-of-admin")


@dataclass(slots=True, kw_only=True)
class Row:
    """One case. `seen`: code and remark, or the error; `wrong`: empty where all is as it must."""

    case: str
    seen: str
    logged: str = ""
    moved: bool = False
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Secured:
    """A broker and how its administrator reaches it."""

    address: str
    log_file: Path
    accounts: Path
    admin_tls: ssl.SSLContext | None
    rows: list[Row] = field(default_factory=list)

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8")

    async def position(self) -> tuple[int, int, list[Any]]:
        """(last index, end of the log, queue ends), as the broker itself reports."""
        client = RemotingClient(sign=ADMIN.sign, tls=self.admin_tls)
        try:
            command = RemotingCommand(
                code=RequestCode.LEDGERMQ_STATUS, ext_fields={"queues": "true"}
            )
            answer = await client.request(self.address, command, ANSWER_MS)
        finally:
            await client.close()
        assert answer.code == 0, answer.remark
        status = json.loads(answer.body)
        return status["last_index"], status["end_position"], status["queues"]

    async def refuse(
        self, case: str, act: Callable[[], Any], *, seen: str, logged: str | None
    ) -> None:
        """`act` must come to `seen` (a part of it), be reported in the log, and move nothing."""
        before, mark = await self.position(), len(self.log())
        row = Row(case=case, seen=await act())
        if seen not in row.seen:
            row.wrong.append(f"instead of {seen}")
        if logged is not None:
            deadline = time.monotonic() + LOG_S
            while not row.logged and time.monotonic() < deadline:
                lines = [line for line in self.log()[mark:].splitlines() if logged in line]
                row.logged = lines[0] if lines else ""
                await asyncio.sleep(0.02)
            if not row.logged:
                row.wrong.append(f"not in the log: {logged}")
        row.moved = await self.position() != before
        if row.moved:
            row.wrong.append("something was stored")
        self._note(row)

    async def accept(self, case: str, act: Callable[[], Any]) -> None:
        """A send of which one message must come."""
        before = await self.position()
        row = Row(case=case, seen=await act())
        row.moved = await self.position() != before
        if row.seen != "0" or not row.moved:
            row.wrong.append("must be stored")
        self._note(row)

    def _note(self, row: Row) -> None:
        self.rows.append(row)
        print_line(f"{'FAIL' if row.wrong else 'ok':4} {row.case}: {row.seen} {row.wrong or ''}")


async def request(
    secured: Secured,
    command: RemotingCommand,
    *,
    sign: Signer | None = None,
    tls: ssl.SSLContext | None = None,
    spoil: Callable[[RemotingCommand], None] | None = None,
) -> str:
    """What the client sees: "code remark", or the error's name and text."""

    def complete(outgoing: RemotingCommand) -> None:
        if sign is not None:
            sign.sign(outgoing)
        if spoil is not None:
            spoil(outgoing)

    client = RemotingClient(sign=complete, tls=tls)
    try:
        answer = await client.request(secured.address, command, ANSWER_MS)
    except RemotingError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await client.close()
    return f"{answer.code} {answer.remark or ''}".strip()


async def send_bytes(secured: Secured, first: bytes) -> str:
    """Bytes over a bare connection: what comes back, and that it is closed."""

    def talk() -> str:
        host, _, port = secured.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as peer:
            peer.sendall(first)
            received = bytearray()
            try:
                while data := peer.recv(65_536):
                    received += data
            except ConnectionError as error:
                return f"closed: {error}"
        answers = FrameDecoder().feed(bytes(received))
        text = "; ".join(f"{answer.code} {answer.remark}" for answer in answers)
        return f"{text or 'nothing'}, then closed"

    return await asyncio.to_thread(talk)


def orders(key: str = "K", topic: str = "orders") -> RemotingCommand:
    return send_command(topic, b"order", key)


# Cases -----------------------------------------------------------------------------------------


async def accounts(broker: Secured, tls: ssl.SSLContext | None = None) -> None:
    """Signatures and permissions."""
    sent = iter(range(1_000))

    async def good() -> str:
        return await request(
            broker, orders(f"G{next(sent)}{time.monotonic()}"), sign=PRODUCER, tls=tls
        )

    def body(command: RemotingCommand) -> None:
        command.body = b"0rder"

    pull = {
        "consumerGroup": "CG", "topic": "orders", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    cases: list[tuple[str, RemotingCommand, Signer | None, Any, str]] = [
        ("no signature", orders(), None, None, "No accessKey is configured"),
        ("wrong secret", orders(), Signer("producer1", "another-secret"), None,
         "Check signature failed for accessKey=producer1"),
        ("body changed after it was signed", orders(), PRODUCER, body,
         "Check signature failed for accessKey=producer1"),
        ("unknown account", orders(), Signer("nobody01", "x" * 9), None,
         "No acl config for nobody01"),
        ("topic without permission", orders(topic="payments"), PRODUCER, None,
         "No default permission for topic:payments"),
        ("send with the right to read", orders(), CONSUMER, None,
         "No default permission for topic:orders"),
        ("pull with the right to send",
         RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=pull), PRODUCER, None,
         "No default permission for"),
        ("pull by a group without permission",
         RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields={**pull, "consumerGroup": "X"}),
         CONSUMER, None, "No default permission for group:X"),
        ("an administrator's request",
         RemotingCommand(code=RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "orders"}),
         PRODUCER, None, "Need admin permission for request code=215"),
    ]  # fmt: skip
    await broker.accept("signed, within its permissions", good)
    for case, command, signer, spoil, remark in cases:
        await broker.refuse(
            case,
            partial(request, broker, command, sign=signer, tls=tls, spoil=spoil),
            seen=f"16 {remark}",
            logged=remark,
        )
    await broker.accept("signed, after all that", good)


async def transport(broker: Secured, trusted: ssl.SSLContext, stranger: Authority) -> None:
    """A port that takes TLS only."""

    async def send(tls: ssl.SSLContext | None) -> str:
        return await request(broker, orders(f"T{time.monotonic()}"), sign=PRODUCER, tls=tls)

    await broker.accept("TLS, signed", lambda: send(trusted))
    plain = orders()
    PRODUCER.sign(plain)
    await broker.refuse(
        "plain text, well signed, to a port that takes TLS only",
        lambda: send_bytes(broker, encode(plain)),
        seen="16 this port takes TLS connections only, then closed",
        logged="plain text, and this port takes TLS only",
    )
    await broker.refuse(
        "half a TLS hello, then garbage",
        lambda: send_bytes(broker, b"\x16\x03\x01\x02\x00" + b"x" * 600),
        seen="closed",
        logged="its TLS handshake failed",
    )
    await broker.refuse(
        "a PROXY preamble of nobody who is trusted",
        lambda: send_bytes(broker, b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + encode(plain)),
        seen="closed",
        logged="a PROXY preamble is not taken from there",
    )
    await broker.refuse(
        "a client that trusts another authority",
        lambda: send(client_context(ca_file=stranger.own.cert)),
        seen="certificate verify failed",
        logged="its TLS handshake failed",
    )


async def certificates(
    broker: Secured, own: Authority, client: Certificate, stranger: Authority
) -> None:
    """Clients must show one."""

    def context(shown: Certificate | None) -> ssl.SSLContext:
        if shown is None:
            return client_context(ca_file=own.own.cert)
        return client_context(ca_file=own.own.cert, cert_file=shown.cert, key_file=shown.key)

    async def send(shown: Certificate | None) -> str:
        return await request(
            broker, orders(f"C{time.monotonic()}"), sign=PRODUCER, tls=context(shown)
        )

    await broker.accept("certificate of the authority", lambda: send(client))
    expired = own.issue("expired-client", expired=True)
    for case, shown in (
        ("no certificate", None),
        ("an expired certificate", expired),
        ("a certificate of another authority", stranger.issue("stranger-client")),
    ):
        await broker.refuse(
            f"client with {case}",
            partial(send, shown),
            seen="Error: ",
            logged="its TLS handshake failed",
        )
    await broker.accept("certificate of the authority, after all that", lambda: send(client))


async def expired(broker: Secured, own: Authority) -> None:
    await broker.refuse(
        "the broker's certificate has expired",
        lambda: request(broker, orders(), sign=PRODUCER, tls=client_context(ca_file=own.own.cert)),
        seen="certificate has expired",
        logged="its TLS handshake failed",
    )


async def reload(broker: Secured) -> dict[str, object]:
    """The accounts change while ten producers send."""
    phases: dict[str, Counter[str]] = {}
    phase = "may send"
    ended = asyncio.Event()
    acked = 0

    async def produce(number: int) -> None:
        nonlocal acked
        client = RemotingClient(sign=PRODUCER.sign)
        at = 0
        while not ended.is_set():
            at += 1
            answer = await client.request(broker.address, orders(f"R{number}-{at}"), ANSWER_MS)
            acked += answer.code == 0
            phases.setdefault(phase, Counter())[f"{answer.code} {answer.remark or ''}".strip()] += 1
            await asyncio.sleep(0.002)
        await client.close()

    before = sum(row["max_offset"] for row in (await broker.position())[2])
    producers = [asyncio.create_task(produce(number)) for number in range(PRODUCERS)]
    changes = (
        ("taken away", ACCOUNTS.format(permission="DENY")),
        ("broken file", "accounts: {this is: [no list"),
        ("given back", ACCOUNTS.format(permission="PUB")),
    )
    await asyncio.sleep(PHASE_S)
    for name, content in changes:
        phase = f"{name}, the first 2 s"
        broker.accounts.write_text(content)
        await asyncio.sleep(2)
        phase = name
        await asyncio.sleep(PHASE_S)
    ended.set()
    await asyncio.gather(*producers)
    after = sum(row["max_offset"] for row in (await broker.position())[2])
    row = Row(case="accounts changed under load", seen=f"{acked} acknowledged", moved=True)
    denied = {"16 No default permission for topic:orders"}
    for name, allowed in (
        ("may send", {"0"}), ("taken away", denied), ("broken file", denied), ("given back", {"0"})
    ):  # fmt: skip
        if phases[name].keys() != allowed:
            row.wrong.append(f"{name}: {dict(phases[name])}")
    if after - before != acked:
        row.wrong.append(f"{after - before} stored")
    if "what it said before stays in force" not in broker.log():
        row.wrong.append("the broken file is not told")
    broker._note(row)
    return {"phases": {name: dict(codes) for name, codes in phases.items()}, "acknowledged": acked,
            "stored": after - before}  # fmt: skip


# Brokers ---------------------------------------------------------------------------------------


@asynccontextmanager
async def secured(
    directory: Path, settings: dict[str, object], admin_tls: ssl.SSLContext | None = None
) -> AsyncIterator[Secured]:
    """A broker, up and leading."""
    directory.mkdir()
    address, raft = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    accounts_file, config = directory / "plain_acl.yml", directory / "broker.toml"
    accounts_file.write_text(ACCOUNTS.format(permission="PUB"))
    lines = "".join(f'{key} = "{value}"\n' for key, value in settings.items())
    config.write_text(
        f'group = "broker-a"\nnode = "n0"\nlisten = "{address}"\nraft_listen = "{raft}"\n'
        f'store = "{directory / "store"}"\n[peers]\nn0 = "{raft}"\n[broker]\n'
        f'acl_enable = true\nacl_file = "{accounts_file}"\n{lines}'
    )
    log = directory / "broker.log"
    process = _broker_process(config, log)
    broker = Secured(address=address, log_file=log, accounts=accounts_file, admin_tls=admin_tls)
    try:
        await_until(lambda: ", ready" in broker.log(), "the broker leads", READY_S)
        yield broker
        assert process.poll() is None, f"the broker has ended: {broker.log()[-2_000:]}"
        assert "secret-of" not in broker.log(), "a secret is in the log"
        assert "Traceback" not in broker.log(), broker.log()[-3_000:]
    finally:
        process.terminate()
        process.wait(20)


def _broker_process(config: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "ledgermq", "broker", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=output,
        )


async def run(directory: Path) -> dict[str, object]:
    own, stranger = Authority(directory), Authority(directory, "stranger")
    server, client = own.issue("server"), own.issue("client")
    trusted = client_context(ca_file=own.own.cert)
    shown = client_context(ca_file=own.own.cert, cert_file=client.cert, key_file=client.key)
    blind = client_context()
    tls = {"tls_mode": "enforcing", "tls_cert_file": server.cert, "tls_key_file": server.key}
    mutual = {**tls, "tls_ca_file": own.own.cert, "tls_client_auth": "require"}
    old = own.issue("expired-server", expired=True)
    rows: dict[str, list[Row]] = {}
    async with secured(directory / "plain", {}) as broker:
        await accounts(broker)
        changed = await reload(broker)
        rows["accounts, plain text"] = broker.rows
    async with secured(directory / "tls", tls, trusted) as broker:
        await transport(broker, trusted, stranger)
        await accounts(broker, trusted)
        rows["accounts, TLS only"] = broker.rows
    async with secured(directory / "mutual", mutual, shown) as broker:
        await certificates(broker, own, client, stranger)
        rows["certificates of clients"] = broker.rows
    expired_files = {**tls, "tls_cert_file": old.cert, "tls_key_file": old.key}
    async with secured(directory / "expired", expired_files, blind) as broker:
        await expired(broker, own)
        rows["an expired certificate"] = broker.rows
    return {
        "rows": {
            name: [
                {"case": row.case, "seen": row.seen, "logged": row.logged[-300:],
                 "stored": row.moved, "wrong": row.wrong}
                for row in each
            ]
            for name, each in rows.items()
        },
        "reload": changed,
        "cases": sum(map(len, rows.values())),
        "wrong": sum(bool(row.wrong) for each in rows.values() for row in each),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ledgermq-security-") as directory:
        figures = asyncio.run(run(Path(directory)))
    print_line(f"{figures['cases']} cases, {figures['wrong']} of them wrong")
    print_line(json.dumps(figures["reload"], indent=2))
    if arguments.output is not None:
        arguments.output.write_text(f"{json.dumps(figures, indent=2)}\n", encoding="utf-8")
    return int(bool(figures["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
