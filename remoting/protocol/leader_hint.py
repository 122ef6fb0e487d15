"""The remark by which a broker that does not lead its group names the node that does; pure.

Place in the data path: a node refuses with code 14 and this remark. Followers that forward a
request recognise it; clients read from it where to ask next. It is ledgermq's own: RocketMQ's
clients ignore it.

Format: `not the leader; leader is HOST:PORT`, or `... leader is unknown`.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_not_leader", "leader_of", "not_leader_remark"]

_NOT_LEADER: Final = "not the leader"
_LEADER: Final = re.compile(r"leader is (\S+:\d{1,5})\s*$")


def not_leader_remark(address: str | None) -> str:
    """Return the remark; `address` is the leader's, None where it is unknown."""
    return f"{_NOT_LEADER}; leader is {address or 'unknown'}"


def is_not_leader(remark: str | None) -> bool:
    """Return whether the remark of a code 14 says that another node leads; there are other 14s."""
    return (remark or "").startswith(_NOT_LEADER)


def leader_of(remark: str | None) -> str | None:
    """Return the leader's address that the remark of a code 14 names, or None."""
    found = _LEADER.search(remark or "")
    return found[1] if found else None
