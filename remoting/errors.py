"""What can go wrong between two remoting peers.

Place in the data path: raised by the codec, `remoting.connections.connection` and
`remoting.connections.rpc`; retry loops ask the error itself (`retriable`, `definite`) and never a
list of classes.

`definite` means: the request surely was not carried out by the peer. Everything else is unknown,
and a caller must not call it a failure (a timeout is not a failure).
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
]


class RemotingError(Exception):
    """The family. Classes say whether a retry may help and whether the outcome is known."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = False


class ConnectError(RemotingError):
    """No connection to the peer: definite, nothing was sent."""

    retriable = True
    definite = True


class OverloadedError(RemotingError):
    """Too much is under way on this connection already: definite, nothing was sent."""

    retriable = True
    definite = True


class RequestTimeoutError(RemotingError):
    """The deadline passed after the request was handed to the transport: outcome unknown."""

    retriable = True


class ConnectionLostError(RemotingError):
    """The connection ended while an answer was awaited: outcome unknown."""

    retriable = True


class FrameError(RemotingError):
    """Bytes that are no RocketMQ frame, or a command that does not fit into one.

    From the decoder: the stream can't be read on, the connection must be closed. What was asked
    over it has an unknown outcome.
    """


class HeaderError(RemotingError):
    """A header field is missing or is not what its type says; the text names the field."""


class RecordError(RemotingError):
    """Bytes that are no message record, properties block or batch body."""


class BodyError(RemotingError):
    """A command's body is not what its code asks for; the text says where."""
