"""The errors between two remoting peers.

Place in the data path: raised by the codec, `remoting.connections.connection` and
`remoting.connections.rpc`; callers tell by the error's attribute `definite`, and never by a list of
classes, whether the request may have been carried out.

`definite` means: it is certain that the peer did not carry out the request. Every other outcome is
unknown, and a caller must not call it a failure (a timeout is not a failure).
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BodyError",
    "ConnectError",
    "ConnectionLostError",
    "FrameError",
    "HeaderError",
    "OverloadedError",
    "RecordError",
    "RemotingError",
    "RequestTimeoutError",
    "UnencodableError",
]


class RemotingError(Exception):
    """Base class. Subclasses say whether the outcome is known."""

    definite: ClassVar[bool] = False


class ConnectError(RemotingError):
    """No connection to the peer: definite, nothing was sent."""

    definite = True


class OverloadedError(RemotingError):
    """Too many requests are open on this connection already: definite, nothing was sent."""

    definite = True


class RequestTimeoutError(RemotingError):
    """The deadline passed after the request was passed to the transport: outcome unknown."""


class ConnectionLostError(RemotingError):
    """The connection ended while an answer was awaited: outcome unknown."""


class FrameError(RemotingError):
    """Bytes that are not a RocketMQ frame.

    The rest of the stream can't be decoded, the connection must be closed. Requests open on it have
    an unknown outcome.
    """


class UnencodableError(FrameError):
    """A command that does not fit into a frame: definite, nothing was sent."""

    definite = True


class HeaderError(RemotingError):
    """A header field is missing or does not match its type; the text names the field."""


class RecordError(RemotingError):
    """Bytes that are not a message record, properties block or batch body."""


class BodyError(RemotingError):
    """A command's body does not match its code; the text says where."""
