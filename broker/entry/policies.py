"""Users of RocketMQ 5.x and their permissions. Pure values.

Place in the data path: `broker.state.user_table` holds them as replicated state, `broker.access.
access_control` calls `decide`, the processors of users and permissions parse and show their texts.

A resource is written `Topic:orders`, `Topic:ord*`, `Topic:*` or `*`; kinds are Cluster, Namespace,
Topic and Group. Custom entries are checked before default ones; of the matching ones the entry with
the most specific resource decides, and a Deny before an Allow. RocketMQ's order of entries depends
on how its sort compares them; there a shorter prefix comes first.

Invariants: text that can't be parsed is an error that names it, never taken for something wider;
sizes are bounded; a password appears in no repr of a user.

Source: RocketMQ 5.3 auth: User, Resource, PolicyEntry, AclAuthorizationHandler.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

__all__ = [
    "NAME_SIZE_MAX",
    "Action",
    "BadPolicyError",
    "Decision",
    "PolicyEntry",
    "PolicyKind",
    "Resource",
    "ResourceKind",
    "User",
    "UserKind",
    "UserStatus",
    "decide",
    "named",
    "subject_name",
]

NAME_SIZE_MAX: Final = 255
_SOURCES_MAX: Final = 64
_SUBJECT_PREFIX: Final = "User:"
_Kind = TypeVar("_Kind", bound=enum.StrEnum)


class BadPolicyError(ValueError):
    """Text that names no user, resource, action or address; the message says which."""


class UserKind(enum.StrEnum):
    NORMAL = "Normal"
    SUPER = "Super"


class UserStatus(enum.StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class ResourceKind(enum.StrEnum):
    ANY = "*"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(enum.StrEnum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class PolicyKind(enum.StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(enum.StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    password: str = field(repr=False)
    kind: UserKind
    status: UserStatus


class Breadth(enum.IntEnum):
    """Kind of match of a resource's name; a greater value is more specific."""

    ANY = 0
    PREFIX = 1
    LITERAL = 2


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceKind
    breadth: Breadth
    name: str

    @classmethod
    def of(cls, text: str) -> Resource:
        """Return the resource that `text` names. Raises BadPolicyError."""
        if text == ResourceKind.ANY:
            return cls(ResourceKind.ANY, Breadth.ANY, "")
        kind_text, colon, name = text.partition(":")
        kind = named(ResourceKind, kind_text)
        if not colon or kind is None or kind is ResourceKind.ANY or not name:
            raise BadPolicyError(f"{text[:80]!r} names no resource")
        if len(name) > NAME_SIZE_MAX or not name.isprintable():
            raise BadPolicyError(
                f"a resource's name has at most {NAME_SIZE_MAX} characters that can be shown"
            )
        if name == "*":
            return cls(kind, Breadth.ANY, "")
        if name.endswith("*"):
            return cls(kind, Breadth.PREFIX, name[:-1])
        return cls(kind, Breadth.LITERAL, name)

    @property
    def key(self) -> str:
        """Return the resource as RocketMQ writes it; `of` parses it."""
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind}:{self.name}{'' if self.breadth is Breadth.LITERAL else '*'}"

    def matches(self, kind: ResourceKind, name: str) -> bool:
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not kind:
            return False
        return name == self.name if self.breadth is Breadth.LITERAL else name.startswith(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    policy: PolicyKind
    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...]  # addresses and networks; none: from anywhere
    decision: Decision

    @classmethod
    def read(
        cls,
        policy: str | None,
        resource: str | None,
        actions: Sequence[str] | None,
        sources: Sequence[str] | None,
        decision: str | None,
    ) -> PolicyEntry:
        """Return the entry in texts of a request, the log or a snapshot. Raises BadPolicyError.

        Whatever was accepted once is in the log, so every later version has to accept it.
        """
        kind = PolicyKind.CUSTOM if not policy else named(PolicyKind, policy)
        if kind is None:
            raise BadPolicyError(f"{str(policy)[:40]!r} is no type of policy")
        if not resource:
            raise BadPolicyError("The resource is null.")
        if not actions:
            raise BadPolicyError("The actions is empty.")
        known = dict.fromkeys(named(Action, text) for text in actions)
        if None in known:
            unknown = next(text for text in actions if named(Action, text) is None)
            raise BadPolicyError(f"{unknown[:40]!r} is no action that can be granted")
        decided = named(Decision, decision or "")
        if decided is None:
            raise BadPolicyError("The decision is null or illegal.")
        given = tuple(sources or ())
        if len(given) > _SOURCES_MAX:
            raise BadPolicyError(f"{len(given)} source addresses, more than {_SOURCES_MAX}")
        for source in given:
            try:
                _network(source)
            except ValueError as error:
                raise BadPolicyError(f"The source ip is invalid: {source[:60]!r}") from error
        return cls(
            policy=kind,
            resource=Resource.of(resource),
            actions=tuple(action for action in known if action is not None),
            sources=given,
            decision=decided,
        )

    def texts(self) -> list[object]:
        """Return the arguments of `read`."""
        return [
            str(self.policy),
            self.resource.key,
            [str(action) for action in self.actions],
            list(self.sources),
            str(self.decision),
        ]

    def matches(self, kind: ResourceKind, name: str, action: Action, ip: str) -> bool:
        return (
            self.resource.matches(kind, name)
            and (action in self.actions or Action.ALL in self.actions)
            and (not self.sources or any(_is_within(ip, source) for source in self.sources))
        )


def decide(
    entries: Iterable[PolicyEntry], kind: ResourceKind, name: str, action: Action, ip: str
) -> Decision | None:
    """Return the entries' decision on an action on one resource, or None if no entry matches."""
    fitting = [entry for entry in entries if entry.matches(kind, name, action, ip)]
    if not fitting:
        return None
    return max(
        fitting,
        key=lambda entry: (
            entry.policy is PolicyKind.CUSTOM,
            entry.resource.kind is not ResourceKind.ANY,
            entry.resource.breadth,
            len(entry.resource.name),
            entry.decision is Decision.DENY,
        ),
    ).decision


def subject_name(text: str) -> str:
    """Return the user that `User:name` names. Raises BadPolicyError."""
    name = text[len(_SUBJECT_PREFIX) :]
    if text[: len(_SUBJECT_PREFIX)].lower() != _SUBJECT_PREFIX.lower() or not name.strip():
        raise BadPolicyError(f"{text[:80]!r} names no subject; a user is User:name")
    return name


def named(kinds: type[_Kind], text: str) -> _Kind | None:
    """Return the member of that name, in any capitalisation, or None."""
    return next((kind for kind in kinds if kind.lower() == text.lower()), None)


@functools.lru_cache(maxsize=1_024)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def _is_within(ip: str, source: str) -> bool:
    try:
        return ipaddress.ip_address(ip) in _network(source)
    except ValueError:  # a peer without an address is from nowhere that has a name
        return False
