"""What a user of the access control may do, as its own changes leave it. Pure.

Place in the data path: the part `accounts` draws changes here and records with each what holds for
the user's requests once it has taken effect, and what answers about the user are to show.

Invariants: a user may send if it exists, is enabled, signs with its password, and the most specific
of its entries that match the request allows it; a deletion takes the permissions with it; nothing
of the brokers' own code is used.

Source: RocketMQ 5.3 AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl,
AclAuthorizationHandler (the order of policies).
"""

from __future__ import annotations

import dataclasses
import enum
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "CLUSTER",
    "READERS",
    "SOURCES",
    "TOPIC",
    "TRACES",
    "Account",
    "Change",
    "Entry",
    "Right",
    "UserState",
    "next_change",
    "shown_text",
]

TOPIC: Final = "accounts"
TRACES: Final = "RMQ_SYS_TRACE_TOPIC"  # anybody may write to it
READERS: Final = "accounts-readers"  # the group that users pull as
CLUSTER: Final = "DefaultCluster"


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
    REMOVE = "remove"


class Right(enum.StrEnum):
    """What a user may; its value is the history's word."""

    SIGN = "sign"  # ask for what anybody may know whose signature is right
    VIEW = "view"
    JOIN = "join"
    PULL = "pull"
    VIEW_TRACES = "view traces"
    PULL_TRACES = "pull traces"
    ADMINISTRATE = "administrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a user's permissions. `sources`: from where it counts; none: from anywhere."""

    policy: str = "Custom"
    resource: str = f"Topic:{TOPIC}"
    actions: tuple[str, ...] = ("Pub",)
    sources: tuple[str, ...] = ()
    decision: str = "Allow"

    @property
    def place(self) -> tuple[str, str]:
        """Return what a user has one entry of at most."""
        return self.policy, self.resource

    def matches(self, resource: str, action: str) -> bool:
        """Return whether it is about an action on a resource from where the clients are."""
        # A client's address is in one half of all of its kind, and in no example's.
        is_from_here = not self.sources or bool(set(self.sources) & set(_HALVES))
        if not is_from_here or not {action, "All"} & set(self.actions):
            return False
        if self.resource.endswith("*"):
            return resource.startswith(self.resource[:-1])
        return self.resource == resource

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Return its place among entries that match: the least one decides."""
        name = self.resource.partition(":")[2]
        breadth = 2 if name in ("", "*") else int(name.endswith("*"))
        return self.policy != "Custom", self.resource == "*", breadth, -len(name)

    def text(self) -> str:
        """Return the entry as the history has it."""
        return (
            f"{self.policy} {self.resource} {'+'.join(self.actions)}"
            f" {'+'.join(self.sources) or 'anywhere'} {self.decision}"
        )


# Any client's address is in exactly one of these networks, which stand together or not at all.
_HALVES: Final = ("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")
_ELSEWHERE: Final = ("192.0.2.7", "198.51.100.0/24", "2001:db8::/32")
_RESOURCES: Final = (
    f"Topic:{TOPIC}",
    f"Topic:{TOPIC}",
    f"Topic:{TOPIC[:4]}*",
    f"Topic:{TRACES}",
    "Topic:a*",
    "Topic:*",
    f"Group:{READERS}",
    f"Group:{READERS[:4]}*",
    "Group:*",
    f"Cluster:{CLUSTER}",
    "Cluster:*",
    "*",
)
SOURCES: Final = ((), _HALVES, _HALVES, (*_HALVES[1:], *_ELSEWHERE, _HALVES[0]), _ELSEWHERE)
_ACTIONS: Final = (("Pub",), ("Pub", "Sub"), ("Sub", "Pub", "Update"), ("All",), ("Sub",))
_WITH_PUB: Final = _ACTIONS[:4]
_REPAIRED_SHARE: Final = 0.5  # of the changes of a disabled user, or of one with another password


@dataclass(frozen=True, slots=True, kw_only=True)
class UserState:
    """The state of one user at one broker group."""

    exists: bool = False
    enabled: bool = False
    signs_right: bool = False
    entries: Mapping[tuple[str, str], Entry] = field(default_factory=dict)

    def allows(self, resource: str, action: str) -> bool:
        """Return whether the most specific of its entries that match allows it."""
        fitting = [entry for entry in self.entries.values() if entry.matches(resource, action)]
        return bool(fitting) and min(fitting, key=lambda each: each.rank).decision == "Allow"

    @property
    def is_granted(self) -> bool:
        """Return whether its entries allow it to send to the topic."""
        return self.allows(f"Topic:{TOPIC}", "Pub")

    @property
    def is_known(self) -> bool:
        """Return whether its requests pass as its own."""
        return self.exists and self.enabled and self.signs_right

    @property
    def may_send(self) -> bool:
        return self.is_known and self.is_granted

    def may(self, right: Right) -> bool:
        topic = self.allows(f"Topic:{TOPIC}", "Sub")
        traces = self.allows(f"Topic:{TRACES}", "Sub")
        group = self.allows(f"Group:{READERS}", "Sub")
        is_granted = {
            Right.SIGN: True,
            Right.VIEW: topic,
            Right.JOIN: group,
            Right.PULL: topic and group,
            Right.VIEW_TRACES: traces,
            Right.PULL_TRACES: traces and group,
            Right.ADMINISTRATE: self.allows(f"Cluster:{CLUSTER}", "Update"),
        }[right]
        return self.is_known and is_granted

    def user_text(self) -> str:
        """Return what an answer about the user shows."""
        return f"Normal {'enable' if self.enabled else 'disable'}" if self.exists else "-"

    def entries_text(self) -> str:
        """Return what an answer about its permissions shows."""
        return ", ".join(sorted(entry.text() for entry in self.entries.values())) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A change, the entry that it is about, and the state once it has taken effect."""

    change: Change
    after: UserState
    entry: Entry | None = None


def next_change(state: UserState, rng: random.Random) -> Account:
    """Draw a change that is legal in `state`: it takes the right to send away, or works towards
    giving it back. What is changed of a user who can't send anyway must not give it back either."""
    if not state.exists:
        return _of_user(state, Change.CREATE)
    if not state.enabled and rng.random() < _REPAIRED_SHARE:
        return _of_user(state, Change.ENABLE)
    if not state.signs_right and rng.random() < _REPAIRED_SHARE:
        return _of_user(state, Change.PASSWORD_BACK)
    if not state.enabled and state.signs_right:
        return _of_user(state, Change.PASSWORD)
    if not state.is_granted and rng.random() < 0.7:
        sources = rng.choice([each for each in SOURCES if each != _ELSEWHERE])
        return _granted(state, Entry(sources=sources, actions=rng.choice(_WITH_PUB)))
    if state.entries and rng.random() < 0.2:
        return _removed(state, rng.choice(list(state.entries.values())))
    if rng.random() < 0.4:
        return _granted(
            state,
            Entry(
                policy=rng.choice(("Custom", "Custom", "Default")),
                resource=rng.choice(_RESOURCES),
                actions=rng.choice(_ACTIONS),
                sources=rng.choice(SOURCES),
                decision=rng.choice(("Allow", "Deny", "Deny")),
            ),
        )
    changes = [
        Change.DELETE,
        Change.DISABLE if state.enabled else Change.ENABLE,
        Change.PASSWORD if state.signs_right else Change.PASSWORD_BACK,
    ]
    if state.entries:
        changes.append(Change.REVOKE)
    return _of_user(state, rng.choice(changes))


def _of_user(state: UserState, change: Change) -> Account:
    after = {
        Change.CREATE: UserState(exists=True, enabled=True, signs_right=True),
        Change.DELETE: UserState(),
        Change.DISABLE: dataclasses.replace(state, enabled=False),
        Change.ENABLE: dataclasses.replace(state, enabled=True),
        Change.PASSWORD: dataclasses.replace(state, signs_right=False),
        Change.PASSWORD_BACK: dataclasses.replace(state, signs_right=True),
        Change.REVOKE: dataclasses.replace(state, entries={}),
    }[change]
    return Account(change=change, after=after)


def _granted(state: UserState, entry: Entry) -> Account:
    after = dataclasses.replace(state, entries={**state.entries, entry.place: entry})
    return Account(change=Change.GRANT, after=after, entry=entry)


def _removed(state: UserState, entry: Entry) -> Account:
    left = {place: each for place, each in state.entries.items() if place != entry.place}
    after = dataclasses.replace(state, entries=left)
    return Account(change=Change.REMOVE, after=after, entry=entry)


def shown_text(body: bytes, user: str, what: str) -> str | None:
    """Return what the answer's body shows of the user, as the model writes it; None: nothing."""
    found = json.loads(body) if body else []
    listed = found if isinstance(found, list) else [found]
    name, field = (user, "username") if what == "user" else (f"User:{user}", "subject")
    shown = next((each for each in listed if each.get(field) == name), None)
    if shown is None:
        return None
    if what == "user":
        return f"{shown.get('userType')} {shown.get('userStatus')}"
    entries = [
        Entry(
            policy=str(policy.get("policyType")),
            resource=str(entry.get("resource")),
            actions=tuple(entry.get("actions", ())),
            sources=tuple(entry.get("sourceIps") or ()),
            decision=str(entry.get("decision")),
        ).text()
        for policy in shown.get("policies", ())
        for entry in policy.get("entries", ())
    ]
    return ", ".join(sorted(entries)) or None
