"""AUTH_CREATE_ACL and the like: permissions of RocketMQ 5.x users, replicated by the log.

Place in the data path: administration; `broker.access.access_control` decides by what is committed.

Invariants: those of `broker.access.users`; a resource has one entry per kind of policy, and a newer
one replaces it. Create and update are the same, as in RocketMQ. An action, a resource or an address
that can't be parsed is rejected, where RocketMQ ignores it.

Source: RocketMQ 5.3 AdminBrokerProcessor, AuthorizationMetadataManagerImpl, AclConverter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from broker.access.users import AccessChanges, refusal
from broker.entry.payload import GrantCommand
from broker.entry.policies import (
    BadPolicyError,
    PolicyEntry,
    PolicyKind,
    Resource,
    named,
    subject_name,
)
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.user_table import ENTRIES_MAX, ENTRIES_PER_USER_MAX
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
)

__all__ = ["AclAdminProcessor"]

_BODY_SIZE_MAX = 262_144


class _EntryInfo(msgspec.Struct):
    resource: str | None = None
    actions: list[str] | None = None
    sourceIps: list[str] | None = None
    decision: str | None = None


class _PolicyInfo(msgspec.Struct):
    policyType: str | None = None
    entries: list[_EntryInfo] | None = None


class _AclInfo(msgspec.Struct):
    subject: str | None = None
    policies: list[_PolicyInfo] | None = None


class AclAdminProcessor:
    """Requests about permissions. Handlers raise RefusedError; else the answer follows."""

    def __init__(self, replica: Replica, changes: AccessChanges) -> None:
        self._replica = replica
        self._changes = changes

    def create(self, header: AclRequestHeader, request: Request) -> None:
        """Add or replace entries of a user (AUTH_CREATE_ACL, AUTH_UPDATE_ACL)."""
        name, wanted = _checked_subject(header.subject), _read(request)
        self._changes.check()
        table = self._replica.state.users
        if table.get(name) is None:
            raise refusal(f"The subject of User:{name} is not exist.")
        entries = {_key(entry): entry for entry in [*table.entries(name), *wanted]}
        if len(entries) > ENTRIES_PER_USER_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(entries)} entries of User:{name}; at most {ENTRIES_PER_USER_MAX} are kept",
            )
        if table.entry_count - len(table.entries(name)) + len(entries) > ENTRIES_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, f"there are {ENTRIES_MAX} entries already")
        self._grant(request, name, entries.values())

    def delete(self, header: DeleteAclRequestHeader, request: Request) -> None:
        """Delete a user's entry of one resource, or all if none is named (AUTH_DELETE_ACL)."""
        name = _checked_subject(header.subject)
        kind_text, resource_text = header.policy_type.strip(), header.resource.strip()
        kind = named(PolicyKind, kind_text) if kind_text else PolicyKind.CUSTOM
        try:
            resource = Resource.of(resource_text) if resource_text else None
        except BadPolicyError as error:
            raise _invalid(error) from error
        if kind is None:
            raise _invalid(f"policyType: {kind_text[:40]!r} is no type of policy")
        self._changes.check()
        entries = self._entries(name)
        if not entries:
            raise refusal("The acl is not exist.")
        retained = [
            entry for entry in entries if resource is not None and _key(entry) != (kind, resource)
        ]
        self._grant(request, name, retained)

    def get(self, header: AclRequestHeader, request: Request) -> None:
        """Answer AUTH_GET_ACL, without a body if the user has no entry."""
        name = _checked_subject(header.subject)
        entries = self._entries(name)
        body = msgspec.json.encode(_shown(name, entries)) if entries else b""
        request.reply(ResponseCode.SUCCESS, body=body)

    def list_all(self, header: ListAclsRequestHeader, request: Request) -> None:
        """Answer AUTH_LIST_ACL with the entries whose subjects and resources contain the
        filters."""
        subject, resource = header.subject_filter.strip(), header.resource_filter.strip()
        table = self._replica.state.users
        found = []
        for name in sorted(table.users):
            entries = [each for each in table.entries(name) if resource in each.resource.key]
            if entries and subject in f"User:{name}":
                found.append(_shown(name, entries))
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(found) if found else b"")

    # Parts -------------------------------------------------------------------------------------

    def _entries(self, name: str) -> tuple[PolicyEntry, ...]:
        """Return the entries of a user. Raises RefusedError where there is no such user."""
        table = self._replica.state.users
        if table.get(name) is None:
            raise refusal("The subject is not exist.")
        return table.entries(name)

    def _grant(self, request: Request, name: str, entries: Iterable[PolicyEntry]) -> None:
        self._changes.commit(request, [GrantCommand(name, [entry.texts() for entry in entries])])


def _checked_subject(subject: str) -> str:
    """Return the user's name. Raises RefusedError where `subject` is no user."""
    try:
        return subject_name(subject)
    except BadPolicyError as error:
        raise _invalid(error) from error


def _read(request: Request) -> list[PolicyEntry]:
    """Return the entries in the body. Raises RefusedError where there are none or bad ones."""
    body = request.command.body
    if len(body) > _BODY_SIZE_MAX:
        raise _invalid(f"permissions of {len(body)} bytes; at most {_BODY_SIZE_MAX} are allowed")
    try:
        acl = fastjson.decode(body, _AclInfo)
        entries = [
            PolicyEntry.read(
                policy.policyType, entry.resource, entry.actions, entry.sourceIps, entry.decision
            )
            for policy in acl.policies or ()
            for entry in policy.entries or ()
        ]
    except BodyError as error:
        raise _invalid(f"{error}.") from error
    except BadPolicyError as error:
        raise refusal(str(error)) from error
    if not entries:
        raise refusal("The policies is empty.")
    return entries


def _key(entry: PolicyEntry) -> tuple[PolicyKind, Resource]:
    return entry.policy, entry.resource


def _shown(name: str, entries: Iterable[PolicyEntry]) -> dict[str, Any]:
    """Return RocketMQ's AclInfo: entries by kind of policy, in the order of their creation."""
    policies: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        shown: dict[str, Any] = {
            "resource": entry.resource.key,
            "actions": [str(action) for action in entry.actions],
            "decision": str(entry.decision),
        }
        if entry.sources:
            shown["sourceIps"] = list(entry.sources)
        policies.setdefault(str(entry.policy), []).append(shown)
    return {
        "subject": f"User:{name}",
        "policies": [
            {"policyType": policy, "entries": listed} for policy, listed in policies.items()
        ],
    }


def _invalid(why: object) -> RefusedError:
    return RefusedError(ResponseCode.INVALID_PARAMETER, str(why))
