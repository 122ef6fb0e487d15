"""RocketMQ's Java clients against brokers behind accounts and TLS.

    python -m tests.interop.security [--client 4.9.8|5.3.3] [--output FILE]

A name server and a broker with `plain_acl.yml`, in plain text and on ports that take TLS only, with
a certificate that the clients check. Signed sends within their permissions are stored and consumed;
unsigned ones, wrong secrets, unknown accounts and topics without permission are refused with 16,
told in the broker's log, and leave nothing behind.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.rig import await_until, free_port
from tests.interop.programs import java_command
from tests.interop.run import say
from tests.interop.toolchain import MissingToolError, Toolchain
from tests.remoting.certificates import Authority

READY_S = 120.0
CLIENTS = ("4.9.8", "5.3.3")
ACCOUNTS = """\
accounts:
  - {accessKey: producer1, secretKey: secret-of-producer, topicPerms: [orders=PUB]}
  - accessKey: consumer1
    secretKey: secret-of-consumer
    topicPerms: [orders=SUB]
    groupPerms: [CG=SUB]
"""
EXPECTED = {
    "good": "SEND_OK",
    "unsigned": "code 16",
    "wrong secret": "code 16",
    "unknown account": "code 16",
    "no permission": "code 16",
    "consumed": "good",
}
REMARKS = (
    "No accessKey is configured",
    "Check signature failed for accessKey=producer1",
    "No acl config for nobody01",
    "No default permission for topic:payments",
)


class Secured:
    """A name server and a broker, up until `stop`."""

    def __init__(self, directory: Path, *, tls: bool) -> None:
        self.authority = Authority(directory)
        certificate = self.authority.issue("server")
        self.name_server = f"127.0.0.1:{free_port()}"
        raft = f"127.0.0.1:{free_port()}"
        settings = (
            f'tls_mode = "enforcing"\ntls_cert_file = "{certificate.cert}"\n'
            f'tls_key_file = "{certificate.key}"\n'
            if tls
            else ""
        )
        accounts = directory / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        name_server, broker = directory / "namesrv.toml", directory / "broker.toml"
        name_server.write_text(f'listen = "{self.name_server}"\n{settings}')
        dialling = f'tls_dial = true\ntls_dial_ca_file = "{self.authority.own.cert}"\n'
        broker.write_text(
            f'group = "broker-a"\nnode = "n0"\nlisten = "127.0.0.1:{free_port()}"\n'
            f'raft_listen = "{raft}"\nstore = "{directory / "store"}"\n'
            f'name_servers = ["{self.name_server}"]\n[peers]\nn0 = "{raft}"\n'
            f'[broker]\nacl_enable = true\nacl_file = "{accounts}"\n'
            f"{settings}{dialling if tls else ''}"
        )
        program = [sys.executable, "-m", "ledgermq"]
        self._processes = [
            subprocess.Popen(
                [*program, kind, "--config", str(file)],
                stdout=subprocess.DEVNULL,
                stderr=(directory / f"{kind}.log").open("wb"),
            )
            for kind, file in (("namesrv", name_server), ("broker", broker))
        ]
        self._log = directory / "broker.log"

    def await_ready(self) -> None:
        await_until(lambda: ", ready" in self.log(), "the broker leads", READY_S)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(20)


def run(client: str, *, tls: bool, tools: Toolchain) -> dict[str, str]:
    """What is wrong, by case; nothing where all is as it should be."""
    java, built = tools.require_java(), tools.java_client(client)
    with tempfile.TemporaryDirectory(prefix="ledgermq-secured-") as name:
        directory = Path(name)
        secured = Secured(directory, tls=tls)
        try:
            secured.await_ready()
            command = java_command(java, built, directory / "home")
            trust = f"-Dtls.client.trustCertPath={secured.authority.own.cert}"
            command[-3:-3] = ["-Dtls.client.authServer=true", trust]
            command[-1] = "interop.Secured"
            done = subprocess.run(
                [*command, secured.name_server, "tls" if tls else "plain"],
                capture_output=True,
                text=True,
                check=False,
                timeout=180,
            )
        finally:
            secured.stop()
        told = dict(re.findall(r"^@@([^=]+)=(.*)$", done.stdout, re.MULTILINE))
        wrong = {
            case: f"{told.get(case)} instead of {expected}"
            for case, expected in EXPECTED.items()
            if told.get(case) != expected
        }
        log = secured.log()
        wrong |= {remark: "not in the broker's log" for remark in REMARKS if remark not in log}
        if "secret-of" in log:
            wrong["secrets"] = "in the broker's log"
        return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, action="append")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    tools = Toolchain.look_up()
    figures: dict[str, object] = {}
    failed = False
    for client in arguments.client or CLIENTS:
        for tls in (False, True):
            name = f"{client} {'TLS' if tls else 'plain text'}"
            try:
                wrong = run(client, tls=tls, tools=tools)
            except MissingToolError as error:
                say(f"skipped {name}: {error}")
                figures[name] = f"skipped: {error}"
                continue
            failed |= bool(wrong)
            figures[name] = wrong or "ok"
            say(f"{'FAIL' if wrong else 'ok':4} {name} {wrong or ''}")
    if arguments.output is not None:
        arguments.output.write_text(f"{json.dumps(figures, indent=2)}\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
