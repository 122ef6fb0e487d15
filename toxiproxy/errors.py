"""Errors of the Toxiproxy API, on both of its sides.

The server raises `ApiError` where a request is refused; the HTTP surface turns it into the
answer. The client raises a `ToxiproxyError`: `definite` tells whether the request certainly had
no effect, `retriable` whether the same request may succeed later. Source: Toxiproxy 2.12's HTTP
API, whose error texts are part of the contract.
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
    """A request that the server refuses; `status` and text are what the client is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ToxiproxyError(Exception):
    """Anything that kept a client's request from being answered with success."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = False


class ToxiproxyUnreachableError(ToxiproxyError):
    """No whole answer came: whether the request took effect is not known."""

    retriable = True


class ToxiproxyApiError(ToxiproxyError):
    """The server answered that the request is refused."""

    definite = True

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"toxiproxy answered {status}: {message}")
        self.status = status
        self.message = message


class ToxiproxyNotFoundError(ToxiproxyApiError):
    """404: no such proxy or toxic."""


class ToxiproxyConflictError(ToxiproxyApiError):
    """409: a proxy or toxic of that name is there already."""
