"""TLS settings of a port and of outgoing connections.

Place in the data path: `remoting.connections.server` takes the context of each connection that
starts with a handshake from a `ServerTls`; `remoting.connections.rpc` connects with the context of
`client_context`.

Invariants: files are read when they are first needed and again when one of them has changed;
unusable files make the start fail, or, later, leave the previous ones in effect, with a line in the
log. A certificate's name or address is not compared with the address connected to, as in RocketMQ:
only its signer counts.

Source: RocketMQ TlsSystemConfig, TlsHelper, FileWatchService.
"""

from __future__ import annotations

import enum
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

__all__ = ["ClientAuth", "ServerTls", "TlsError", "TlsMode", "TlsOptions", "client_context"]

_log = logging.getLogger(__name__)
_Version: TypeAlias = tuple[tuple[int, int, int], ...]


class TlsError(ValueError):
    """Certificate, key or authorities can't be used; names the file."""


class TlsMode(enum.Enum):
    """Connections that a port accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"  # TLS and plain text
    ENFORCING = "enforcing"  # TLS only


class ClientAuth(enum.Enum):
    """Whether a client must present a certificate that `ca_file` signed."""

    NONE = "none"
    OPTIONAL = "optional"  # a certificate that is presented must be valid
    REQUIRED = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS options of a port. PEM files; `cert_file` may hold the whole chain."""

    mode: TlsMode = TlsMode.DISABLED
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    def __post_init__(self) -> None:
        if self.mode is TlsMode.DISABLED:
            return
        if self.cert_file is None or self.key_file is None:
            raise TlsError("TLS needs a certificate and its key")
        if self.client_auth is not ClientAuth.NONE and self.ca_file is None:
            raise TlsError("certificates of clients can't be judged without authorities")

    @property
    def files(self) -> tuple[Path, ...]:
        named = (self.cert_file, self.key_file, self.ca_file)
        return tuple(file for file in named if file is not None)


class ServerTls:
    """The context in effect. The constructor raises TlsError for files that can't be used."""

    def __init__(self, options: TlsOptions) -> None:
        assert options.mode is not TlsMode.DISABLED
        self.options = options
        self._version: _Version | None = _version(options.files)
        self._context = _server_context(options)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context

    @property
    def is_enforcing(self) -> bool:
        return self.options.mode is TlsMode.ENFORCING

    def poll(self) -> None:
        """Read the files again where one has changed; open connections keep their context."""
        version = _version(self.options.files)
        if version == self._version:
            return
        self._version = version
        try:
            self._context = _server_context(self.options)
        except TlsError as error:
            _log.error("%s; the certificate that was read before stays in force", error)
        else:
            _log.info("%s: the certificate in force is a new one", self.options.cert_file)


def client_context(
    *, ca_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """Return a context to connect with. Raises TlsError.

    Without `ca_file` any certificate is accepted: traffic is encrypted, the peer not authenticated.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if ca_file is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        _load_authorities(context, ca_file)
    if cert_file is not None:
        _load_certificate(context, cert_file, key_file)
    return context


def _server_context(options: TlsOptions) -> ssl.SSLContext:
    assert options.cert_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, options.cert_file, options.key_file)
    if options.ca_file is not None:
        _load_authorities(context, options.ca_file)
    match options.client_auth:
        case ClientAuth.NONE:
            context.verify_mode = ssl.CERT_NONE
        case ClientAuth.OPTIONAL:
            context.verify_mode = ssl.CERT_OPTIONAL
        case ClientAuth.REQUIRED:
            context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_certificate(context: ssl.SSLContext, cert_file: Path, key_file: Path | None) -> None:
    try:
        # An empty password, so that an encrypted key fails instead of prompting on a terminal.
        context.load_cert_chain(cert_file, key_file, password="")
    except OSError as error:  # SSLError is one
        raise TlsError(f"certificate {cert_file} with key {key_file}: {error}") from error


def _load_authorities(context: ssl.SSLContext, ca_file: Path) -> None:
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise TlsError(f"authorities {ca_file}: {error}") from error


def _version(files: tuple[Path, ...]) -> _Version | None:
    """Return a value that changes whenever a file does; None while one can't be found: it may be
    about to be replaced, or its folder be out of reach for a moment."""
    try:
        return tuple(
            (status.st_mtime_ns, status.st_size, status.st_ino)
            for status in (file.stat() for file in files)
        )
    except OSError:
        return None
