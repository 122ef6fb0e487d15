"""The limit on a process's open files, and the share of it for connections.

Place in the data path: brokers and name servers call it at their start. The usual soft limit (1024)
is far below the hard one, and a process whose limit is used up by connections can't open its own
files any more: so connections get a share, and the store the rest.
"""

from __future__ import annotations

import resource

__all__ = ["connections_share", "open_files_max", "raise_open_files_limit"]

_UNLIMITED = 1 << 20  # in place of "infinity", which nothing here needs


def raise_open_files_limit() -> int:
    """Raise the soft limit to the hard one, for this process; return the limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_max()


def open_files_max() -> int:
    """Return the limit in effect."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connections_share(wanted: int) -> int:
    """Return `wanted`, or half of the limit in effect where that is less."""
    return max(1, min(wanted, open_files_max() // 2))
