"""Permissions on topics and groups. Pure.

Place in the data path: accounts and users grant it, requests need it.
"""

from __future__ import annotations

import enum

__all__ = ["Permission"]


class Permission(enum.IntFlag):
    """Permissions on a topic or group; NONE is DENY in an account file."""

    NONE = 0
    PUB = 4
    SUB = 8
