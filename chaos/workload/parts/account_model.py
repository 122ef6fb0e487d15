"""What a user of the access control may do, as its own changes leave it. Pure.

Place in the data path: the part `accounts` draws changes here and records with each what holds for
the user's requests once it has taken effect.

Invariants: a user may send if it exists, is enabled, signs with its password and has been granted
the topic; a deletion takes the permissions with it.

Source: RocketMQ 5.3 AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from dataclasses import dataclass
from typing import Final

__all__ = ["Change", "UserState", "next_change"]


class Change(enum.StrEnum):
    """A change of a user; its value is the history's word."""

    CREATE = "create"
    DELETE = "delete"
    DISABLE = "disable"
    ENABLE = "enable"
    PASSWORD = "password"  # noqa: S105 - to another than the user signs with
    PASSWORD_BACK = "password back"  # noqa: S105
    GRANT = "grant"
    REVOKE = "revoke"


_TAKES: Final = (Change.DELETE, Change.DISABLE, Change.PASSWORD, Change.REVOKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserState:
    """The state of one user at one broker group."""

    exists: bool = False
    enabled: bool = False
    signs_right: bool = False
    granted: bool = False

    @property
    def may_send(self) -> bool:
        return self.exists and self.enabled and self.signs_right and self.granted

    def after(self, change: Change) -> UserState:
        """Return the state once `change` has taken effect."""
        match change:
            case Change.CREATE:
                return UserState(exists=True, enabled=True, signs_right=True)
            case Change.DELETE:
                return UserState()
            case Change.DISABLE | Change.ENABLE:
                return dataclasses.replace(self, enabled=change is Change.ENABLE)
            case Change.PASSWORD | Change.PASSWORD_BACK:
                return dataclasses.replace(self, signs_right=change is Change.PASSWORD_BACK)
            case Change.GRANT | Change.REVOKE:
                return dataclasses.replace(self, granted=change is Change.GRANT)


def next_change(state: UserState, rng: random.Random) -> Change:
    """Draw a change that is legal in `state`: it takes the right to send away, or works towards
    giving it back."""
    if not state.exists:
        return Change.CREATE
    if not state.granted:
        return Change.GRANT
    if not state.enabled:
        return Change.ENABLE
    if not state.signs_right:
        return Change.PASSWORD_BACK
    return rng.choice(_TAKES)
