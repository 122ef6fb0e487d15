"""Clients with accounts and TLS, as cases of the matrix: what is refused, and what is stored.

Signed sends within their permissions are stored and consumed; unsigned ones, wrong secrets,
unknown accounts, topics without permission, and plain text where TLS is wanted, are refused and
leave nothing behind: the consumer reads the one good message. What a client's program does is
told in lines `@@CASE=HOW IT ENDED`; ours also tells of each refusal in the broker's log.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from campaigns.interop.matrix import MARK, Outcome
from campaigns.interop.programs import java_command
from campaigns.interop.secured import SecuredTarget
from campaigns.interop.toolchain import MissingToolError, Toolchain

__all__ = ["SECURED_CASES", "run_secured"]

PROGRAM_S_MAX = 180
_EXPECTED = {
    "good": "SEND_OK",
    "unsigned": "refused",
    "wrong-secret": "refused",
    "unknown-account": "refused",
    "no-permission": "refused",
    "plain-text": "failed",
    "consumed": "good",
}
_TLS_ONLY = ("plain-text",)
SECURED_CASES = tuple(f"secured-{case}" for case in (*_EXPECTED, "log"))


def run_secured(
    client: str, target: SecuredTarget, tools: Toolchain, directory: Path
) -> list[Outcome]:
    """How every case ended. Raises MissingToolError."""
    authority = target.authority
    if authority is not None and client.startswith("go"):
        raise MissingToolError("this version of the Go client speaks no TLS")
    command = _command(client, target, tools, directory)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROGRAM_S_MAX
    )
    (directory / f"{client}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    endings = dict(re.findall(rf"^{MARK}([^=]+)=(.*)$", done.stdout, re.MULTILINE))

    def ended(case: str, found: str, expected: str) -> Outcome:
        good = found.partition(" ")[0] == expected
        return Outcome(
            case=f"secured-{case}",
            client=client,
            target=target.name,
            outcome="pass" if good else "fail",
            took_ms=0,
            detail=found if good else f"{found or 'nothing'} instead of {expected}",
        )

    outcomes = [
        ended(case, endings.get(case, ""), expected)
        for case, expected in _EXPECTED.items()
        if authority is not None or case not in _TLS_ONLY
    ]
    if target.log is not None:
        outcomes.append(ended("log", "; ".join(target.wrong_in_log()) or "complete", "complete"))
    return outcomes


def _command(client: str, target: SecuredTarget, tools: Toolchain, directory: Path) -> list[str]:
    (name_server,) = target.name_servers
    certificate = None if target.authority is None else target.authority.own.cert
    mode = "plain" if certificate is None else "tls"
    if client.startswith("go"):
        return [str(tools.go_client()), "secured", name_server]
    if client == "python":
        module = "campaigns.interop.python_secured"
        return [sys.executable, "-m", module, name_server, *([str(certificate)] * (mode == "tls"))]
    built = tools.java_client(client.removeprefix("java-"))
    command = java_command(tools.require_java(), built, directory / f"home-{client}")
    if certificate is not None:
        trust = f"-Dtls.client.trustCertPath={certificate}"
        command[-3:-3] = ["-Dtls.client.authServer=true", trust]
    command[-1] = "interop.Secured"
    return [*command, name_server, mode]
