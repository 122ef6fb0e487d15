"""How clients reach the nodes of a local cluster: with or without TLS, and with which account.

Place in the data path: `chaos.cluster.cluster` and `chaos.cluster.members` request status and
membership changes from brokers; these requests meet the brokers' demands on any client.

The laboratory's own secured clusters have one account in their file, an administrator's: it is
the brokers' among themselves and that of all the laboratory's clients.

Invariant: follows the brokers' own settings, so a running cluster can always be queried.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.access.accounts import AclFileError, parse_table
from chaos.cluster.layout import ClusterLayout, LayoutError
from remoting.connections.rpc import RemotingClient
from remoting.connections.tls import TlsError, client_context
from remoting.protocol.acl_signature import Signer
from remoting.protocol.command import RemotingCommand

__all__ = ["LABORATORY_KEY", "PLAIN", "Access", "access_of", "secured_settings", "write_accounts"]

LABORATORY_KEY: Final = "laboratory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """TLS and account of the requests. `hint` is added to reports of nodes without an answer."""

    tls: ssl.SSLContext | None = None
    signer: Signer | None = None
    hint: str = ""

    @property
    def sign(self) -> Callable[[RemotingCommand], None] | None:
        return None if self.signer is None else self.signer.sign

    def client(self) -> RemotingClient:
        return RemotingClient(tls=self.tls, sign=self.sign)


PLAIN: Final = Access()


def access_of(layout: ClusterLayout) -> Access:
    """Return the access to a cluster.

    Raises LayoutError where a file in the settings can't be used.
    """
    settings = layout.broker_settings
    key = str(settings.get("acl_inner_access_key", ""))
    wants_account = settings.get("acl_enable") is True
    return Access(
        tls=_tls(layout) if settings.get("tls_mode") == "enforcing" else None,
        signer=_signer(Path(str(settings.get("acl_file", ""))), key)
        if wants_account and key
        else None,
        hint="; access control is on, and acl_inner_access_key names no account to ask with"
        if wants_account and not key
        else "",
    )


def _tls(layout: ClusterLayout) -> ssl.SSLContext:
    settings = layout.broker_settings

    def file(key: str) -> Path | None:
        return Path(str(settings[key])) if key in settings else None

    try:
        return client_context(
            ca_file=file("tls_dial_ca_file"),
            cert_file=file("tls_dial_cert_file"),
            key_file=file("tls_dial_key_file"),
        )
    except TlsError as error:
        raise LayoutError(str(error)) from error


def _signer(acl_file: Path, key: str) -> Signer:
    try:
        account = parse_table(acl_file.read_text(encoding="utf-8")).accounts.get(key)
    except (OSError, UnicodeDecodeError, AclFileError) as error:
        raise LayoutError(f"acl_file: {acl_file}: {error}") from error
    if account is None:
        raise LayoutError(f"acl_inner_access_key: {acl_file} has no account {key!r}")
    return Signer(key, account.secret)


def secured_settings(acl_file: Path) -> dict[str, bool | str]:
    """Return the settings of brokers that obey the accounts which `write_accounts` wrote."""
    return {
        "acl_enable": True,
        "acl_file": str(acl_file),
        "acl_inner_access_key": LABORATORY_KEY,
    }


def write_accounts(acl_file: Path, secret: str) -> None:
    """Write a plain_acl.yml with the laboratory's account. Raises FileExistsError."""
    accounts = [{"accessKey": LABORATORY_KEY, "secretKey": secret, "admin": "true"}]
    acl_file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(acl_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"accounts": accounts}, file)  # JSON is YAML too
