"""AUTH_CREATE_USER and the like: the users of RocketMQ 5.x, replicated by the log.

Place in the data path: administration; `broker.access.access_control` obeys what is committed, on
every replica. Passwords are secrets that requests are signed with, so they are stored, and shown
to administrators, in plain text.

Invariants: users and permissions are changed one request at a time, so that each sees the result of
the one before; a super user is created, changed and deleted by super users only, and only by direct
request: what a follower forwards is signed by the broker itself.

Source: RocketMQ 5.3 AdminBrokerProcessor, AuthenticationMetadataManagerImpl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from broker.entry.payload import Command, DeleteUserCommand, UserCommand
from broker.entry.policies import NAME_SIZE_MAX, User, UserKind, UserStatus, named
from broker.request.commit import commit
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.user_table import USERS_MAX
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import ListUsersRequestHeader, UserRequestHeader

__all__ = ["AccessChanges", "UserProcessor", "refusal"]

_BODY_SIZE_MAX = 65_536


class AccessChanges:
    """Guard that lets one change of users or permissions at a time through the log."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._in_flight = False

    def check(self) -> None:
        """Raises RefusedError while another change is in flight."""
        if self._in_flight:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "another change of users or permissions is under way"
            )

    def commit(self, request: Request, commands: Sequence[Command]) -> None:
        """Propose a change; the answer follows. Caller's duty: `check`, without an await between.

        Raises RefusedError where too many proposals wait.
        """
        assert not self._in_flight
        commit(self._leadership, request, commands, ended=lambda _: self._ended())
        self._in_flight = not request.answered

    def _ended(self) -> None:
        self._in_flight = False


class _UserInfo(msgspec.Struct):
    """RocketMQ's UserInfo; fields that are null stay unchanged."""

    username: str | None = None
    password: str | None = None
    userType: str | None = None
    userStatus: str | None = None


class UserProcessor:
    """Requests about users. Handlers raise RefusedError; else the answer follows."""

    def __init__(self, replica: Replica, desk: Desk, changes: AccessChanges) -> None:
        self._replica = replica
        self._desk = desk
        self._changes = changes

    def create(self, header: UserRequestHeader, request: Request) -> None:
        """Create a user (AUTH_CREATE_USER); success if exactly that user exists."""
        name, info, kind, status = self._read(header, request)
        self._changes.check()
        if not info.password or not info.password.strip():
            raise refusal("password can not be blank")
        user = User(
            name=name,
            password=info.password,
            kind=kind or UserKind.NORMAL,
            status=status or UserStatus.ENABLE,
        )
        self._check_super(request, "create", user)
        table = self._replica.state.users
        known = table.get(name)
        # Tools send the same request to every replica. It is proposed again even so: a leader that
        # was deposed without knowing it has not seen the user deleted meanwhile.
        if known not in {None, user}:
            raise refusal("The user is existed")
        if known is None and len(table.users) >= USERS_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, f"there are {USERS_MAX} users already")
        self._changes.commit(request, [_command(user)])

    def update(self, header: UserRequestHeader, request: Request) -> None:
        """Change a user (AUTH_UPDATE_USER), but nothing that the request doesn't name."""
        name, info, kind, status = self._read(header, request)
        self._changes.check()
        known = self._replica.state.users.get(name)
        if known is None:
            raise refusal("The user is not exist")
        user = User(
            name=name,
            password=info.password if info.password and info.password.strip() else known.password,
            kind=kind or known.kind,
            status=status or known.status,
        )
        self._check_super(request, "update", user, known)
        self._changes.commit(request, [_command(user)])

    def delete(self, header: UserRequestHeader, request: Request) -> None:
        """Delete a user and the user's permissions (AUTH_DELETE_USER); success if there is none."""
        name = _checked_name(header.username)
        self._changes.check()
        known = self._replica.state.users.get(name)
        # One that seems to be gone may have been created under another leader, of which a deposed
        # one does not know yet: only a committed entry proves that there is none.
        if known is not None:
            self._check_super(request, "update", known)
        self._changes.commit(request, [DeleteUserCommand(name)])

    def get(self, header: UserRequestHeader, request: Request) -> None:
        """Answer AUTH_GET_USER, without a body if there is no such user."""
        user = self._replica.state.users.get(_checked_name(header.username))
        body = b"" if user is None else msgspec.json.encode(_shown(user))
        request.reply(ResponseCode.SUCCESS, body=body)

    def list_all(self, header: ListUsersRequestHeader, request: Request) -> None:
        """Answer AUTH_LIST_USER with the users whose names contain the filter."""
        wanted = header.name_filter.strip()
        users = [
            _shown(user)
            for name, user in sorted(self._replica.state.users.users.items())
            if wanted in name
        ]
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(users) if users else b"")

    # Parts -------------------------------------------------------------------------------------

    def _read(
        self, header: UserRequestHeader, request: Request
    ) -> tuple[str, _UserInfo, UserKind | None, UserStatus | None]:
        """Return the name and the decoded body. Raises RefusedError where they are illegal."""
        name, body = _checked_name(header.username), request.command.body
        if len(body) > _BODY_SIZE_MAX:
            raise _invalid(f"a user of {len(body)} bytes; at most {_BODY_SIZE_MAX} are allowed")
        try:
            info = fastjson.decode(body, _UserInfo)
        except BodyError as error:
            raise _invalid(f"{error}.") from error
        password = info.password or ""
        if len(password) > NAME_SIZE_MAX or not password.isprintable():
            raise _invalid(
                f"a password has at most {NAME_SIZE_MAX} characters, all of which can be shown"
            )
        kind = named(UserKind, info.userType) if info.userType else None
        if kind is None and info.userType:
            raise _invalid(f"userType: {info.userType[:40]!r} is not one of {', '.join(UserKind)}")
        status = named(UserStatus, info.userStatus) if info.userStatus else None
        if status is None and info.userStatus:
            raise _invalid(
                f"userStatus: {info.userStatus[:40]!r} is not one of {', '.join(UserStatus)}"
            )
        return name, info, kind, status

    def _check_super(self, request: Request, what: str, *users: User) -> None:
        """Raises RefusedError where one of `users` is a super user and the sender is none."""
        if all(user.kind is not UserKind.SUPER for user in users):
            return
        if not self._desk.is_super(request):
            raise refusal(f"The super user can only be {what} by super user")


def refusal(remark: str) -> RefusedError:
    """Return a refusal with the code of RocketMQ's AuthenticationException."""
    return RefusedError(ResponseCode.NO_PERMISSION, remark)


def _invalid(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.INVALID_PARAMETER, remark)


def _checked_name(name: str) -> str:
    """Raises RefusedError where that is no legal name of a user."""
    if not name.strip():
        raise _invalid("The username is blank")
    if len(name) > NAME_SIZE_MAX:
        raise _invalid(f"a username of {len(name)} characters; at most {NAME_SIZE_MAX} are allowed")
    if not name.isprintable():
        raise _invalid(f"username: not all characters of {name!r:.80} can be shown")
    return name


def _command(user: User) -> UserCommand:
    return UserCommand(user.name, user.password, str(user.kind), str(user.status))


def _shown(user: User) -> dict[str, Any]:
    """Return RocketMQ's UserInfo."""
    return {
        "username": user.name,
        "password": user.password,
        "userType": str(user.kind),
        "userStatus": str(user.status),
    }
