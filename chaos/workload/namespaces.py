"""Names of topics and groups in a namespace, as applications and as brokers know them.

Place in the data path: the history of a part whose clients are in a namespace is recorded under the
brokers' names, which are made here and not by the client under test. Pure.

Invariants: nothing is taken from `client.namespace`, whose mistakes the runs are to show; a part's
topics and groups begin with the name of its namespace, so that a name that merely begins with it
is told apart from one that is in it.

Source: RocketMQ NamespaceUtil.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WireName", "application_name", "namespace_name", "wire_name"]

_SEPARATOR: Final = "%"
_PREFIXES: Final = ("%RETRY%", "%DLQ%")


class WireName(str):
    """A name that is the brokers' already, and recorded as it is."""

    __slots__ = ()


def namespace_name(part: str) -> str:
    """Return the namespace in which a part's clients work: the first half of the part's name."""
    return part[: (len(part) + 1) // 2]


def wire_name(namespace: str, name: str) -> str:
    """Return the brokers' name of an application's topic or group; without a namespace its own.

    A name that has the namespace already gets it twice: a client that shows one shows it wrongly.
    """
    if not namespace:
        return name
    prefix, bare = _split(name)
    return f"{prefix}{namespace}{_SEPARATOR}{bare}"


def application_name(namespace: str, name: str) -> str:
    """Return the application's name of a topic or group; one of no namespace, or another, stays."""
    prefix, bare = _split(name)
    own = f"{namespace}{_SEPARATOR}"
    return prefix + bare.removeprefix(own) if namespace and bare.startswith(own) else name


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
