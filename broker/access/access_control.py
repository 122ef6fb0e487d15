"""Authorisation of requests: the gate before every processor when ACL is on.

Place in the data path: `broker.process.server` calls `authorise` before it dispatches, and `reload`
each second, which reads the file again when it has changed.

Accounts are in `plain_acl.yml`, as with RocketMQ 4.x; an access key that it does not name may be a
user of 5.x, replicated by the log (`broker.state.user_table`).

Invariants: the order of checks is RocketMQ's (white address, account, the account's white address,
signature, permissions); a refusal is code 16, definite, logged without secrets and at most
`_LINES_PER_SECOND_MAX` times a second; a changed file that is invalid leaves the accounts read
before in force.

Source: RocketMQ PlainPermissionManager.validate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.access.accounts import (
    ACL_FILE_SIZE_MAX,
    Account,
    AclFileError,
    AclTable,
    parse_table,
)
from broker.access.addresses import canonical_ip
from broker.access.user_access import TRACE_TOPIC, why_not_on, why_refused
from broker.entry.permission import Permission
from broker.entry.policies import User, UserKind, UserStatus
from broker.entry.topics import RETRY_PREFIX
from broker.request.forwarding import is_forwarded, requester_of
from broker.request.needs import MalformedRequestError, Need
from broker.request.request import RefusedError, Request
from broker.state.user_table import UserTable
from remoting.protocol.acl_signature import (
    ACCESS_KEY_FIELD,
    SIGNATURE_FIELD,
    Signer,
    signature_of,
    signatures_equal,
)
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["AccessControl"]

_log = logging.getLogger(__name__)
_LINES_PER_SECOND_MAX: Final = 20
_REMEMBERED_ADDRESSES_MAX: Final = 4_096
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


class AccessControl:
    """Accounts in force, and the checks of requests against them.

    The constructor raises AclFileError and OSError: a broker does not start without its accounts.
    """

    def __init__(
        self,
        file: Path,
        monotonic_ms: Callable[[], int],
        *,
        users: Callable[[], UserTable] = UserTable,
        cluster: str = "",
        inner_access_key: str = "",
    ) -> None:
        """Read the file. `users` returns the replicated users at the moment of the call;
        `inner_access_key` is the account that this group's brokers sign their requests with."""
        self._file = file
        self._users = users
        self._cluster = cluster
        self._inner_access_key = inner_access_key
        self._monotonic_ms = monotonic_ms
        self._version: tuple[int, int, int] | None = _version(file)  # None: it was deleted
        self._table = _read(file)
        self._log_unknown_keys()
        self._white: dict[str, bool] = {}  # by client address, for the table in force
        self._second = 0
        self._lines = 0

    def authorise(self, request: Request, need: Need) -> None:
        """Raises RefusedError (16) unless the request may be handled."""
        try:
            self._check(request, need)
        except RefusedError as refused:
            self._log_refusal(request, refused.remark)
            raise

    def signer(self, access_key: str) -> Callable[[RemotingCommand], None] | None:
        """Return a function that signs requests with an account of the file, as it is when called;
        None without an access key."""
        if not access_key:
            return None

        def sign(command: RemotingCommand) -> None:
            account = self._table.accounts.get(access_key)
            if account is not None:  # without a signature the peer rejects it, and reports why
                Signer(access_key, account.secret).sign(command)

        return sign

    def may_publish(self, access_key: str | None, peer: str, topic: str) -> bool:
        """Whether a client at `peer` that is authorised under this access key may receive messages
        that others published to the topic; the key is None for a client at a white address."""
        if access_key is None:
            return True
        return self._why_not(access_key, topic, _ip_of(peer), to_write=True) is None

    def is_super(self, request: Request) -> bool:
        """Whether a super user sent this authorised request. Never true of a forwarded one: the
        signature is that of the replica which forwarded it."""
        if is_forwarded(request):
            return False
        access_key = request.fields.get(ACCESS_KEY_FIELD)
        if access_key is None:
            return True  # unsigned requests are authorised only from white addresses
        account = self._table.accounts.get(access_key)
        if account is not None:
            return account.admin
        user = self._users().get(access_key)
        return user is not None and user.kind is UserKind.SUPER

    def reload(self) -> None:
        """Read the file again if it has changed."""
        try:
            version = _version(self._file)
            if version == self._version:
                return
            self._version = version
            table = _read(self._file)
        except FileNotFoundError:
            if self._version is not None:
                _log.error("%s is gone; the accounts it had stay in force", self._file)
                self._version = None
            return
        except (OSError, AclFileError) as error:
            _log.error("%s: %s; the accounts read before stay in force", self._file, error)
            return
        self._table = table
        self._white.clear()
        _log.info("%s: %d accounts are in force", self._file, len(table.accounts))
        self._log_unknown_keys()

    # Internals.

    def _check(self, request: Request, need: Need) -> None:
        """Raises RefusedError unless the request is authorised."""
        command, ip = request.command, _ip_of(request.connection.peer)
        if self._is_white(ip) or need.free:
            return
        access_key = command.ext_fields.get(ACCESS_KEY_FIELD)
        if access_key is None:
            raise _refusal("No accessKey is configured")
        account = self._table.accounts.get(access_key)
        if account is None:
            user = self._users().get(access_key)
            if user is None:
                raise _refusal(f"No acl config for {access_key[:80]}")
            self._check_user(user, request, need, ip)
            self._bind(request, need, user.name, ip)
            return
        if account.white_addresses.matches(ip):
            return
        if not _is_signed_with(account.secret, request):
            raise _refusal(f"Check signature failed for accessKey={access_key}")
        self._check_permissions(account, request, need)
        self._bind(request, need, access_key, ip)

    def _bind(self, request: Request, need: Need, access_key: str, ip: str) -> None:
        """Set the request's account, and authorise with it the topics that its handler finds out.

        A request that another replica has forwarded was authorised there, under the account that
        the replica names. That is trusted only if it is signed with the access key that this
        group's brokers share: anybody can set the field.
        """
        name: str | None = access_key
        if is_forwarded(request) and access_key == self._inner_access_key:
            name, address = requester_of(request)
            ip = _ip_of(address)
        request.account = name
        if name is None or not need.stored:
            return
        known = name

        def permit(topic: str, to_write: bool) -> None:
            why = self._why_not(known, topic, ip, to_write=to_write)
            if why is not None:
                self._log_refusal(request, why)
                raise _refusal(why)

        request.permit = permit

    def _why_not(self, access_key: str, topic: str, ip: str, *, to_write: bool) -> str | None:
        """Return why the account has no permission on the topic, or None if it has."""
        is_group = topic.startswith(RETRY_PREFIX)
        needed = Permission.PUB if to_write and not is_group else Permission.SUB
        account = self._table.accounts.get(access_key)
        if account is not None:
            if account.admin or account.may(topic, needed):
                return None
            return _no_default_permission(topic)
        user = self._users().get(access_key)
        if user is None:
            return f"No acl config for {access_key[:80]}"
        if user.status is UserStatus.DISABLE:  # since it was authorised, or its client was
            return _disabled(user)
        return why_not_on(user, self._users().entries(user.name), topic, needed, ip)

    def _check_user(self, user: User, request: Request, need: Need, ip: str) -> None:
        """Raises RefusedError unless a user of 5.x may send the request."""
        if user.status is UserStatus.DISABLE:
            raise _refusal(_disabled(user))
        if not _is_signed_with(user.password, request):
            raise _refusal(f"Check signature failed for accessKey={user.name}")
        try:
            entries = self._users().entries(user.name)
            why = why_refused(user, entries, request.command, need, cluster=self._cluster, ip=ip)
        except MalformedRequestError as error:
            raise _unknown_needs(request, error) from error
        if why is not None:
            raise _refusal(why)

    def _check_permissions(self, account: Account, request: Request, need: Need) -> None:
        """Raises RefusedError unless an account of 4.x may send the request."""
        if need.admin and not account.admin:
            raise _refusal(
                f"Need admin permission for request code={request.command.code}, "
                f"but accessKey={account.access_key} is not"
            )
        try:
            needs = need.of(request.command)
        except MalformedRequestError as error:
            raise _unknown_needs(request, error) from error
        for resource, needed in needs.items():
            if resource == TRACE_TOPIC and needed == Permission.PUB:
                continue  # every account may trace its messages, as in RocketMQ
            if not account.may(resource, needed):
                raise _refusal(_no_default_permission(resource))

    def _is_white(self, ip: str) -> bool:
        known = self._white.get(ip)
        if known is None:
            if len(self._white) >= _REMEMBERED_ADDRESSES_MAX:
                self._white.clear()
            known = self._white[ip] = self._table.is_white(ip)
        return known

    def _log_refusal(self, request: Request, remark: str) -> None:
        """Log a refusal, unless this second has had its share; then count it."""
        second = self._monotonic_ms() // 1_000
        if second != self._second:
            if self._lines > _LINES_PER_SECOND_MAX:
                _log.warning("%d more requests were refused", self._lines - _LINES_PER_SECOND_MAX)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= _LINES_PER_SECOND_MAX:
            _log.warning(
                "refused request %d of %s: %r",
                request.command.code,
                request.connection.peer,
                remark,
            )

    def _log_unknown_keys(self) -> None:
        if self._table.unknown_keys:
            _log.warning(
                "%s: keys that mean nothing here: %s",
                self._file,
                ", ".join(self._table.unknown_keys[:20]),
            )


def _refusal(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.NO_PERMISSION, remark)


def _disabled(user: User) -> str:
    return f"User:{user.name} is disabled."


def _no_default_permission(resource: str) -> str:
    is_group = resource.startswith(RETRY_PREFIX)
    name = resource.removeprefix(RETRY_PREFIX) if is_group else resource
    return f"No default permission for {'group' if is_group else 'topic'}:{name[:255]}"


def _unknown_needs(request: Request, error: MalformedRequestError) -> RefusedError:
    return _refusal(f"what request {request.command.code} needs is unknown: {error}")


def _is_signed_with(secret: str, request: Request) -> bool:
    fields, body = request.command.ext_fields, request.command.body
    given = fields.get(SIGNATURE_FIELD, "")
    if signatures_equal(given, signature_of(fields, body, secret)):
        return True
    # Clients of some versions add this field after they have signed.
    return _UNIQUE_KEY_QUERY in fields and signatures_equal(
        given, signature_of(fields, body, secret, {_UNIQUE_KEY_QUERY})
    )


def _ip_of(peer: str) -> str:
    """Return the canonical address in "ip:port" or "[ip]:port"."""
    return canonical_ip(peer.rpartition(":")[0].strip("[]"))


def _version(file: Path) -> tuple[int, int, int]:
    """Return a value that changes whenever the file does."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(file: Path) -> AclTable:
    """Raises OSError and AclFileError."""
    with file.open("rb") as stream:
        content = stream.read(ACL_FILE_SIZE_MAX + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise AclFileError(f"not UTF-8 at byte {error.start}") from None
    return parse_table(text)
