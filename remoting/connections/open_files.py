"""How many files a process may hold open, and how many of them may be connections.

Place in the data path: brokers and name servers ask at their start. The usual soft limit (1024)
is far below what the hard one allows, and a process that has spent all of it on strangers'
connections can't open its own files any more: so connections get a share, and the store the rest.
"""

from __future__ import annotations

import resource

__all__ = ["connections_share", "open_files_max", "raise_open_files_limit"]

_UNLIMITED = 1 << 20  # in place of "infinity", which nothing here needs


def raise_open_files_limit() -> int:
    """Raise the soft limit to the hard one, for this process; returns what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_max()


def open_files_max() -> int:
    """The limit in force."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connections_share(wanted: int) -> int:
    """`wanted`, or half of the limit in force where that is less."""
    return max(1, min(wanted, open_files_max() // 2))
