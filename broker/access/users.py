"""AUTH_CREATE_USER and its like: the users of RocketMQ 5.x, kept in the log.

Place in the data path: administration; what is committed here `broker.access.access_control` obeys
on every replica. Passwords are secrets that requests are signed with, so they are kept, and told to
administrators, as they are.

Invariants: users and permissions are changed one request at a time, so that each sees what the one
before has done; a super user is made, changed and deleted by super users only, and only where they
are asked for directly: what a follower hands on bears the broker's own signature.

Source: RocketMQ 5.3 AdminBrokerProcessor, AuthenticationMetadataManagerImpl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from broker.entry.payload import Command, DeleteUserCommand, UserCommand
from broker.entry.policies import NAME_SIZE_MAX, User, UserKind, UserStatus, named
from broker.request.commit import commit
from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.state.user_table import USERS_MAX
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode

__all__ = ["AccessChanges", "UserProcessor", "refusal"]

_BODY_SIZE_MAX = 65_536


class AccessChanges:
    """One change of users or permissions at a time, on its way through the log."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._under_way = False

    def check(self) -> None:
        """Raises RefusedError unless this node may change them now."""
        self._context.require_leader()
        if self._under_way:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "another change of users or permissions is under way"
            )

    def commit(self, request: Request, commands: Sequence[Command]) -> None:
        """After `check`, in the same turn of the loop."""
        assert not self._under_way
        commit(self._context, request, commands, settled=self._settled)
        self._under_way = not request.answered

    def _settled(self) -> None:
        self._under_way = False


class _UserInfo(msgspec.Struct):
    """RocketMQ's names; what is null stays as it is."""

    username: str | None = None
    password: str | None = None
    userType: str | None = None
    userStatus: str | None = None


class UserProcessor:
    def __init__(self, context: BrokerContext, changes: AccessChanges) -> None:
        self._context = context
        self._changes = changes

    def create(self, request: Request) -> None:
        """AUTH_CREATE_USER: tools ask every replica, so a user that is there already just as it is
        wanted is success."""
        name, info, kind, status = self._read(request)
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
        table = self._context.state.users
        known = table.get(name)
        if known == user:
            request.reply(ResponseCode.SUCCESS)
            return
        if known is not None:
            raise refusal("The user is existed")
        if len(table.users) >= USERS_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, f"there are {USERS_MAX} users already")
        self._changes.commit(request, [_command(user)])

    def update(self, request: Request) -> None:
        """AUTH_UPDATE_USER: what the request doesn't name stays."""
        name, info, kind, status = self._read(request)
        self._changes.check()
        known = self._context.state.users.get(name)
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

    def delete(self, request: Request) -> None:
        """AUTH_DELETE_USER: with what the user may do; success where there is none."""
        name = _name_of(request)
        self._changes.check()
        known = self._context.state.users.get(name)
        if known is None:
            request.reply(ResponseCode.SUCCESS)
            return
        self._check_super(request, "update", known)
        self._changes.commit(request, [DeleteUserCommand(name)])

    def get(self, request: Request) -> None:
        """AUTH_GET_USER: no body where there is none."""
        user = self._context.state.users.get(_name_of(request))
        body = b"" if user is None else msgspec.json.encode(_told(user))
        request.reply(ResponseCode.SUCCESS, body=body)

    def list_all(self, request: Request) -> None:
        """AUTH_LIST_USER: those whose names contain `filter`."""
        wanted = (request.fields.get("filter") or "").strip()
        users = [
            _told(user)
            for name, user in sorted(self._context.state.users.users.items())
            if wanted in name
        ]
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(users) if users else b"")

    # Parts -------------------------------------------------------------------------------------

    def _read(self, request: Request) -> tuple[str, _UserInfo, UserKind | None, UserStatus | None]:
        name, body = _name_of(request), request.command.body
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
        """Raises RefusedError where a super user is touched by somebody who is none."""
        if all(user.kind is not UserKind.SUPER for user in users):
            return
        if not self._context.is_super(request):
            raise refusal(f"The super user can only be {what} by super user")


def refusal(remark: str) -> RefusedError:
    """With the code that RocketMQ gives an AuthenticationException."""
    return RefusedError(ResponseCode.NO_PERMISSION, remark)


def _invalid(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.INVALID_PARAMETER, remark)


def _name_of(request: Request) -> str:
    name = request.fields.get("username") or ""
    if not name.strip():
        raise _invalid("The username is blank")
    if len(name) > NAME_SIZE_MAX:
        raise _invalid(f"a username of {len(name)} characters; at most {NAME_SIZE_MAX} are allowed")
    if not name.isprintable():
        raise _invalid(f"username: not all characters of {name!r:.80} can be shown")
    return name


def _command(user: User) -> UserCommand:
    return UserCommand(user.name, user.password, str(user.kind), str(user.status))


def _told(user: User) -> dict[str, Any]:
    return {
        "username": user.name,
        "password": user.password,
        "userType": str(user.kind),
        "userStatus": str(user.status),
    }
