"""Users, their permissions, and consumer groups, by the committed log.

Place in the data path: `log_model` hands it the commands that change them, `replicas` compares it
with every broker. It does not read the broker's tables.
"""

from __future__ import annotations

from typing import Any

from broker.entry.payload import (
    DeleteGroupCommand,
    DeleteUserCommand,
    GrantCommand,
    GroupCommand,
    UserCommand,
)

__all__ = ["RegistryModel"]


class RegistryModel:
    """The registry of one broker group."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self._users: dict[str, list[object]] = {}
        self._granted: dict[str, list[list[Any]]] = {}

    def user_rows(self) -> list[list[object]]:
        """Return users, then permissions, as rows of the broker's own table."""
        rows: list[list[object]] = [["user", name, *values] for name, values in self._users.items()]
        rows += [["entry", name, *row] for name, rows in self._granted.items() for row in rows]
        return sorted(rows, key=repr)

    def knows_user(self, name: str) -> bool:
        return name in self._users

    def apply(
        self,
        command: UserCommand | DeleteUserCommand | GrantCommand | GroupCommand | DeleteGroupCommand,
    ) -> None:
        match command:
            case UserCommand():
                self._users[command.name] = [command.password, command.kind, command.status]
            case DeleteUserCommand():
                self._users.pop(command.name, None)
                self._granted.pop(command.name, None)
            case GrantCommand():
                if command.user in self._users:
                    self._granted[command.user] = command.entries
            case GroupCommand():
                self.groups[command.name] = dict(command.config)
            case DeleteGroupCommand():
                self.groups.pop(command.name, None)
