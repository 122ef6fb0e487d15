"""Errors of the Toxiproxy API, on both of its sides.

The server raises `ApiError` where a request is rejected; the HTTP surface turns it into the answer.
The client raises a `ToxiproxyError`: `definite` says whether the request certainly had no effect,
`retriable` whether the same request may succeed later. Source: Toxiproxy 2.12's HTTP API, whose
error texts are part of the contract.
"""

from typing import ClassVar

__all__ = [
    "ApiError",
    "ToxiproxyApiError",
    "ToxiproxyConflictError",
    "ToxiproxyError",
    "ToxiproxyNotFoundError",
    "ToxiproxyUnreachableError",
]


class ApiError(Exception):
    """A request that the server rejects; `status` and text are the answer to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ToxiproxyError(Exception):
    """Any reason why a client's request was not answered with success."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = False


class ToxiproxyUnreachableError(ToxiproxyError):
    """No complete answer came: whether the request took effect is not known."""

    retriable = True


class ToxiproxyApiError(ToxiproxyError):
    """The server answered that the request is rejected."""

    definite = True

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"toxiproxy answered {status}: {message}")
        self.status = status
        self.message = message


class ToxiproxyNotFoundError(ToxiproxyApiError):
    """404: no such proxy or toxic."""


class ToxiproxyConflictError(ToxiproxyApiError):
    """409: a proxy or toxic of that name exists already."""
