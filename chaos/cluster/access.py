"""How clients reach the nodes of a local cluster: with or without TLS, and with which account.

Place in the data path: `chaos.cluster.cluster` and `chaos.cluster.members` request status and
membership changes from brokers; these requests meet the brokers' demands on any client.

Invariant: follows the brokers' own settings, so a running cluster can always be queried.
"""

from __future__ import annotations

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

__all__ = ["PLAIN", "Access", "access_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """TLS and account of the requests. `hint` is added to reports of nodes without an answer."""

    tls: ssl.SSLContext | None = None
    sign: Callable[[RemotingCommand], None] | None = None
    hint: str = ""

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
        sign=_signer(Path(str(settings.get("acl_file", ""))), key)
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


def _signer(acl_file: Path, key: str) -> Callable[[RemotingCommand], None]:
    try:
        account = parse_table(acl_file.read_text(encoding="utf-8")).accounts.get(key)
    except (OSError, UnicodeDecodeError, AclFileError) as error:
        raise LayoutError(f"acl_file: {acl_file}: {error}") from error
    if account is None:
        raise LayoutError(f"acl_inner_access_key: {acl_file} has no account {key!r}")
    return Signer(key, account.secret).sign
