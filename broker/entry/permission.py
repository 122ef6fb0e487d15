"""What may be done with a topic or a group. Pure.

Place in the data path: accounts and users grant it, requests need it.
"""

from __future__ import annotations

import enum

__all__ = ["Permission"]


class Permission(enum.IntFlag):
    """What may be done with a topic or group; NONE is what an account file calls DENY."""

    NONE = 0
    PUB = 4
    SUB = 8
