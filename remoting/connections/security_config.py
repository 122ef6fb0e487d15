"""TLS and PROXY settings by their names in a process's configuration file.

Place in the data path: read once by brokers and name servers, which make of them the arguments of
`remoting.connections.server` and `remoting.connections.rpc`.

Invariant: an invalid value is refused by its key, before anything is started.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remoting.connections.config_values import section
from remoting.connections.greeting import Greeting, parse_networks
from remoting.connections.tls import (
    ClientAuth,
    ServerTls,
    TlsError,
    TlsMode,
    TlsOptions,
    client_context,
)

__all__ = ["SECURITY_KEYS", "SecurityConfig", "SecurityConfigError"]


class SecurityConfigError(ValueError):
    """The setting can't be used; names the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """TLS and PROXY settings. Paths are of PEM files; only a port's are read again when changed."""

    tls_mode: TlsMode = TlsMode.DISABLED
    """"disabled", "permissive" (TLS and plain text on one port) or "enforcing"."""
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_ca_file: Path | None = None
    """Certificate authorities for clients' certificates."""
    tls_client_auth: ClientAuth = ClientAuth.NONE
    """"none", "optional" or "require"."""
    tls_dial: bool = False
    """Whether connections to name servers and members of the group use TLS."""
    tls_dial_ca_file: Path | None = None
    """Certificate authorities for these connections; None: any certificate is accepted."""
    tls_dial_cert_file: Path | None = None
    tls_dial_key_file: Path | None = None
    proxy_protocol_from: tuple[str, ...] = ()
    """Addresses or networks of load balancers whose PROXY preambles are accepted."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> SecurityConfig:
        """Make settings of a file's values, keys of `SECURITY_KEYS`. Raises SecurityConfigError."""
        return section(cls, "", values, SecurityConfigError)

    def __post_init__(self) -> None:
        try:
            parse_networks(self.proxy_protocol_from)
        except ValueError as error:
            raise SecurityConfigError(f"proxy_protocol_from: {error}") from error
        try:
            self._options()
        except TlsError as error:
            raise SecurityConfigError(f"tls_mode: {error}") from error

    def greeting(self) -> Greeting:
        """Return what the port accepts. Raises SecurityConfigError where files can't be used."""
        options = self._options()
        try:
            tls = None if options.mode is TlsMode.DISABLED else ServerTls(options)
        except TlsError as error:
            raise SecurityConfigError(f"tls: {error}") from error
        return Greeting(tls=tls, proxies=parse_networks(self.proxy_protocol_from))

    def dial_context(self) -> ssl.SSLContext | None:
        """Return the context to connect with; None: plain text. Raises SecurityConfigError."""
        if not self.tls_dial:
            return None
        try:
            return client_context(
                ca_file=self.tls_dial_ca_file,
                cert_file=self.tls_dial_cert_file,
                key_file=self.tls_dial_key_file,
            )
        except TlsError as error:
            raise SecurityConfigError(f"tls_dial: {error}") from error

    def _options(self) -> TlsOptions:
        return TlsOptions(
            mode=self.tls_mode,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            ca_file=self.tls_ca_file,
            client_auth=self.tls_client_auth,
        )


SECURITY_KEYS = frozenset(field.name for field in dataclasses.fields(SecurityConfig))
