"""Users of RocketMQ 5.x and their permissions.

Place in the data path: AUTH_CREATE_USER and the like propose changes,
`broker.access.access_control` looks up users whom `plain_acl.yml` does not name. Pure part of the
replicated state.

Invariants: permissions belong to a user that exists, and go with it; a command carries the whole
of what it sets, so that it means the same wherever it stands in the log.

Source: RocketMQ 5.3 LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider, which
keep both in a store of one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from broker.entry.payload import DeleteUserCommand, GrantCommand, UserCommand
from broker.entry.policies import PolicyEntry, User, UserKind, UserStatus
from broker.entry.state_part import Row, text

__all__ = ["ENTRIES_MAX", "ENTRIES_PER_USER_MAX", "USERS_MAX", "UserTable"]

USERS_MAX: Final = 10_000
ENTRIES_PER_USER_MAX: Final = 500
ENTRIES_MAX: Final = 50_000  # of all users; the leader takes no more
_USER: Final = "user"
_ENTRY: Final = "entry"


class UserTable:
    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self._entries: dict[str, tuple[PolicyEntry, ...]] = {}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UserTable)
            and self._users == other._users
            and self._entries == other._entries
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def users(self) -> Mapping[str, User]:
        return self._users

    @property
    def entry_count(self) -> int:
        return sum(map(len, self._entries.values()))

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def entries(self, name: str) -> tuple[PolicyEntry, ...]:
        """Return a user's permissions in the order of their creation."""
        return self._entries.get(name, ())

    def apply(self, command: UserCommand | DeleteUserCommand | GrantCommand) -> None:
        match command:
            case UserCommand():
                self._set(command.name, command.password, command.kind, command.status)
            case DeleteUserCommand():
                self._users.pop(command.name, None)
                self._entries.pop(command.name, None)
            case GrantCommand():
                self._grant(command.user, command.entries)
            case _:
                assert_never(command)

    def _set(self, name: str, password: str, kind: str, status: str) -> None:
        self._users[name] = User(
            name=name, password=password, kind=UserKind(kind), status=UserStatus(status)
        )

    def _grant(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Replace a user's permissions; no effect on a user that was deleted."""
        if name not in self._users:
            return
        entries = tuple(PolicyEntry.read(*row) for row in rows)
        if entries:
            self._entries[name] = entries
        else:
            self._entries.pop(name, None)

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return _Captured(dict(self._users), dict(self._entries))

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._users, self._entries = {}, {}
        granted: dict[str, list[PolicyEntry]] = {}
        for kind, name, *values in rows:
            if kind == _USER:
                self._set(text(name), *map(text, values))
            elif kind == _ENTRY and name in self._users:
                granted.setdefault(name, []).append(PolicyEntry.read(*values))
            else:
                raise ValueError(f"{kind!r:.40} is no row of a user that is known")
        self._entries = {name: tuple(entries) for name, entries in granted.items()}


@dataclass(frozen=True, slots=True)
class _Captured:
    """Captured table; rows are made on the snapshot's thread, since values never change."""

    users: Mapping[str, User]
    granted: Mapping[str, tuple[PolicyEntry, ...]]

    def __iter__(self) -> Iterator[Row]:
        for user in self.users.values():
            yield [_USER, user.name, user.password, str(user.kind), str(user.status)]
        for name, entries in self.granted.items():
            for entry in entries:
                yield [_ENTRY, name, *entry.texts()]
