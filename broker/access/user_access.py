"""Authorisation of RocketMQ 5.x users. Pure.

Place in the data path: `broker.access.access_control` calls it for users whom `plain_acl.yml` does
not name, after it has verified their signature.

A super user has every permission. Another needs an Allow for each topic (Pub, Sub) and group (Sub)
that the request names, and the action of `Need.administration` where an account of 4.x would have
to be an administrator. Queries that disclose nothing of messages need the signature alone, and
every user may trace, as with accounts of 4.x.

Source: RocketMQ 5.3 UserAuthorizationHandler, AclAuthorizationHandler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.entry.permission import Permission
from broker.entry.policies import (
    Action,
    Decision,
    PolicyEntry,
    ResourceKind,
    User,
    UserKind,
    decide,
)
from broker.entry.topics import RETRY_PREFIX
from broker.request.needs import Need
from remoting.protocol.command import RemotingCommand

__all__ = ["TRACE_TOPIC", "why_not_on", "why_refused"]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def why_refused(
    user: User,
    entries: Sequence[PolicyEntry],
    command: RemotingCommand,
    need: Need,
    *,
    cluster: str,
    ip: str,
) -> str | None:
    """Return why the user may not send a request, or None if the user may. Raises
    MalformedRequestError."""
    return _why_not(user, entries, _wanted(command, need, cluster), ip)


def why_not_on(
    user: User, entries: Sequence[PolicyEntry], resource: str, needed: Permission, ip: str
) -> str | None:
    """Return why the user has no permission on a topic, or on a group named by its retry topic, or
    None if the user has."""
    return _why_not(user, entries, _actions(resource, needed), ip)


def _why_not(
    user: User,
    entries: Sequence[PolicyEntry],
    wanted: Iterator[tuple[ResourceKind, str, Action]],
    ip: str,
) -> str | None:
    if user.kind is UserKind.SUPER:
        return None
    for kind, name, action in wanted:
        decision = decide(entries, kind, name, action, ip)
        if decision is not Decision.ALLOW:
            why = "no matched policies." if decision is None else "the decision is deny."
            return (
                f"User:{user.name} has no permission to access {kind}:{name[:255]} from {ip}, {why}"
            )
    return None


def _wanted(
    command: RemotingCommand, need: Need, cluster: str
) -> Iterator[tuple[ResourceKind, str, Action]]:
    if need.admin:
        yield need.administration(command, cluster)
    for resource, needed in need.of(command).items():
        if resource == TRACE_TOPIC and needed == Permission.PUB:
            continue
        yield from _actions(resource, needed)


def _actions(resource: str, needed: Permission) -> Iterator[tuple[ResourceKind, str, Action]]:
    is_group = resource.startswith(RETRY_PREFIX)
    kind = ResourceKind.GROUP if is_group else ResourceKind.TOPIC
    name = resource.removeprefix(RETRY_PREFIX) if is_group else resource
    if needed & Permission.PUB:
        yield kind, name, Action.PUB
    if needed & Permission.SUB:
        yield kind, name, Action.SUB
