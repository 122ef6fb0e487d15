"""Users with many permissions at once, in the part `accounts`: which of those that match decides.

Place in the data path: AUTH_CREATE_USER, AUTH_CREATE_ACL, AUTH_UPDATE_ACL and AUTH_DELETE_ACL at
one group's leader, when the part's own users have ended; behind each change the users themselves
ask for what needs a right to a topic, a group or the cluster. `model` says what each may.

The names are few and begin alike, so that permissions by name, by prefixes of all lengths, for all
of a kind and for everything match the same request, from here or from elsewhere, as custom and as
default ones, some for it and some against.

Invariants: a request that is allowed finds nothing, or names a queue that is not there; where a
change had no answer the users are given up; answers are judged where no fault touches their round.

Source: RocketMQ 5.3 AclAuthorizationHandler (the order of policies); docs/DIVERGENCE.md (of two
prefixes the longer one decides); the run format (ask; M12).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.accounts.changes import (
    PASSWORD,
    TIMEOUT_MS,
    AnyAnswer,
    change_at_leader,
)
from chaos.workload.parts.accounts.model import (
    CLUSTER,
    READERS,
    SOURCES,
    TOPIC,
    Entry,
    UserState,
    shown_text,
)
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["OverlappingPolicies", "draw_entry", "draw_question"]

ROUNDS: Final = 4
USERS: Final = 2  # of a round, so that one has not what the other has
STEPS: Final = 6
QUESTIONS: Final = 16  # behind each change
ENTRIES_MAX: Final = 6  # of one request
NO_QUEUE: Final = 4_711
DRAWN: Final = 4  # requests, of which the one is made that most permissions match
NESTED_SHARE: Final = 0.5  # of the grants bring two prefixes of one name, for it and against it
TWIN_SHARE: Final = 0.5  # and two of both types about one resource
TEXT_MAX: Final = 400
FOREVER_MS: Final = (1 << 62) - 1
_TOPICS: Final = (TOPIC, f"{TOPIC}-a", f"{TOPIC}-ab", f"{TOPIC}-b")
_GROUPS: Final = (READERS, f"{READERS}-a", f"{READERS}-ab")
_ACTIONS: Final = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_REFUSED: Final = ResponseCode.NO_PERMISSION.value
_C: Final = RequestCode


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and the (resource, action) pairs all of which have to be allowed for it."""

    needs: Sequence[tuple[str, str]]
    command: RemotingCommand

    def is_allowed(self, state: UserState) -> bool:
        return state.is_known and all(state.allows(*need) for need in self.needs)

    def matches(self, state: UserState) -> int:
        """Return how many of a user's permissions have a say."""
        return sum(entry.matches(*need) for entry in state.entries.values() for need in self.needs)


def draw_entry(rng: random.Random) -> Entry:
    """Draw one permission, about some of the names or all of them."""
    kind = rng.choice(("Topic", "Topic", "Topic", "Group", "Group", "Cluster", "*"))
    if kind == "*":
        resource = "*"
    else:
        names = {"Topic": _TOPICS, "Group": _GROUPS, "Cluster": (CLUSTER,)}[kind]
        name = rng.choice(names)
        draw = rng.random()
        if draw < 0.6:
            name = f"{name[: rng.randint(1, len(name))]}*"
        elif draw < 0.7:
            name = "*"
        resource = f"{kind}:{name}"
    actions = rng.sample(_ACTIONS, rng.randint(1, 4)) if rng.random() < 0.4 else ["All"]
    return Entry(
        policy=rng.choice(("Custom", "Custom", "Custom", "Default")),
        resource=resource,
        actions=tuple(actions),
        sources=rng.choice(SOURCES),
        decision=rng.choice(("Allow", "Deny")),
    )


def draw_nested(rng: random.Random) -> Sequence[Entry]:
    """Draw two permissions on prefixes of one name, of which the longer one decides."""
    kind, name = rng.choice((("Topic", rng.choice(_TOPICS)), ("Group", rng.choice(_GROUPS))))
    lengths = rng.sample(range(1, len(name) + 1), 2)
    return [
        Entry(resource=f"{kind}:{name[:length]}*", actions=("All",), decision=decision)
        for length, decision in zip(lengths, ("Allow", "Deny"), strict=True)
    ]


def twin_of(entry: Entry) -> Entry:
    """Return the one about the same resource of the other type, which says the contrary."""
    return dataclasses.replace(
        entry,
        policy="Default" if entry.policy == "Custom" else "Custom",
        decision="Deny" if entry.decision == "Allow" else "Allow",
    )


def draw_question(rng: random.Random) -> Question:
    """Draw one request that needs some right, and stores nothing."""
    topic, group = rng.choice(_TOPICS), rng.choice(_GROUPS)
    kinds: tuple[Callable[[str, str], Question], ...] = (_view, _send, _lock, _offset, _delete)
    if rng.random() < 0.1:
        return Question([(f"Cluster:{CLUSTER}", "Update")], _command(_C.CLEAN_UNUSED_TOPIC, {}))
    return rng.choice(kinds)(topic, group)


def _view(topic: str, _: str) -> Question:
    fields: dict[str, object] = {"topic": topic, "key": "no-such-key", "maxNum": 1}
    command = _command(_C.QUERY_MESSAGE, fields | {"beginTimestamp": 0, "endTimestamp": FOREVER_MS})
    return Question([(f"Topic:{topic}", "Sub")], command)


def _send(topic: str, _: str) -> Question:
    # To a queue that is not there, of a topic that nobody makes by the way.
    fields: dict[str, object] = {"a": "accounts-producers", "b": topic, "c": topic, "d": 1}
    more = {"e": NO_QUEUE, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}
    command = _command(_C.SEND_MESSAGE_V2, fields | more, b"nothing")
    return Question([(f"Topic:{topic}", "Pub")], command)


def _lock(_: str, group: str) -> Question:
    queue = {"topic": TOPIC, "brokerName": "", "queueId": NO_QUEUE}
    body = {"consumerGroup": group, "clientId": "nobody", "mqSet": [queue]}
    command = _command(_C.UNLOCK_BATCH_MQ, {}, json.dumps(body).encode())
    return Question([(f"Group:{group}", "Sub")], command)


def _offset(topic: str, group: str) -> Question:
    fields: dict[str, object] = {"topic": topic, "queueId": 0, "consumerGroup": group}
    command = _command(_C.QUERY_CONSUMER_OFFSET, fields)
    return Question([(f"Topic:{topic}", "Sub"), (f"Group:{group}", "Sub")], command)


def _delete(topic: str, group: str) -> Question:
    if topic == TOPIC:
        return _view(topic, group)  # it is there
    command = _command(_C.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    return Question([(f"Topic:{topic}", "Delete")], command)


class OverlappingPolicies:
    """Rounds of users at one broker group. `instance`: of an administrator."""

    def __init__(
        self,
        context: WorkContext,
        instance: ClientInstance,
        slot: Slot,
        expectations: Expectations,
        *,
        group: str,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._instance = instance
        self._slot = slot
        self._expectations = expectations
        self._group = group
        self._rng = rng
        self._began_ns = time.monotonic_ns()

    async def work(self) -> None:
        """Have one round of users after the other."""
        for number in range(ROUNDS):
            self._began_ns = time.monotonic_ns()
            names = [f"{TOPIC}-many-{self._group}-{number}-{n}" for n in range(USERS)]
            try:
                await self._round(names)
            except ClientError:
                continue  # nobody knows what these users may

    async def _round(self, names: Sequence[str]) -> None:
        """Make the users, change their permissions, and have them ask. Raises ClientError."""
        states = {name: UserState(exists=True, enabled=True, signs_right=True) for name in names}
        for name in names:
            body = {"username": name, "password": PASSWORD, "userType": "Normal"}
            await self._change(_C.AUTH_CREATE_USER, body, username=name)
        async with contextlib.AsyncExitStack() as stack:
            clients = {
                name: (await stack.enter_async_context(self._client(name))).instance
                for name in names
            }
            for _ in range(STEPS):
                name = self._rng.choice(names)
                states[name] = await self._change_entries(name, states[name])
                await self._show(name, states[name])
                for _ in range(QUESTIONS):
                    requester = self._rng.choice((name, name, *names))
                    await self._request(requester, states[requester], clients[requester])
        for name in names:
            await self._change(_C.AUTH_DELETE_USER, None, username=name)

    async def _change_entries(self, user: str, state: UserState) -> UserState:
        """Grant some entries by one request, or take one away; return the state behind it. Raises
        ClientError."""
        entries, subject = dict(state.entries), f"User:{user}"
        if entries and self._rng.random() < 0.25:
            # Of two about one resource, as custom and as default one, the other has to stay.
            paired = [place for place in entries if twin_of(entries[place]).place in entries]
            gone = entries.pop(self._rng.choice(sorted(paired or entries)))
            await self._change(
                _C.AUTH_DELETE_ACL,
                None,
                subject=subject,
                resource=gone.resource,
                policyType=gone.policy,
            )
            return dataclasses.replace(state, entries=entries)
        drawn = [draw_entry(self._rng) for _ in range(self._rng.randint(1, ENTRIES_MAX))]
        if self._rng.random() < NESTED_SHARE:
            drawn += draw_nested(self._rng)
        if self._rng.random() < TWIN_SHARE:
            drawn.append(twin_of(self._rng.choice(drawn)))
        fresh = {entry.place: entry for entry in drawn}
        policies = [
            {
                "policyType": policy,
                "entries": [_shown(each) for each in fresh.values() if each.policy == policy],
            }
            for policy in sorted({entry.policy for entry in fresh.values()})
        ]
        code = self._rng.choice((_C.AUTH_CREATE_ACL, _C.AUTH_UPDATE_ACL))
        await self._change(code, {"policies": policies}, subject=subject)
        return dataclasses.replace(state, entries={**entries, **fresh})

    async def _show(self, user: str, state: UserState) -> None:
        """Hold which entries the leader shows. Raises ClientError."""
        command = _command(_C.AUTH_GET_ACL, {"subject": f"User:{user}"})
        answer, _ = await request_leader(
            self._instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS
        )
        self._expectations.hold(
            f"permissions that {user} is shown to have",
            expected=state.entries_text(),
            answered=shown_text(answer.body, user, "acl") or "-",
            topic=TOPIC,
            calm_since=self._began_ns,
        )

    async def _request(self, user: str, state: UserState, instance: ClientInstance) -> None:
        """Have a user send a request, and hold whether it was refused. Raises ClientError."""
        drawn = [draw_question(self._rng) for _ in range(DRAWN)]
        question = max(drawn, key=lambda each: each.matches(state))
        answer, _ = await request_leader(
            instance,
            self._group,
            lambda: dataclasses.replace(question.command),
            timeout_ms=TIMEOUT_MS,
            accept=AnyAnswer(),
        )
        needs = " and ".join(f"{action} on {resource}" for resource, action in question.needs)
        name = RequestCode(question.command.code).name.lower()
        self._expectations.hold(
            f"{name} of {user} by {needs}, by {state.entries_text()[:TEXT_MAX]}",
            expected="allowed" if question.is_allowed(state) else "refused",
            answered="refused" if answer.code == _REFUSED else "allowed",
            topic=TOPIC,
            calm_since=self._began_ns,
        )

    def _client(self, user: str) -> Producer:
        settings = ProducerSettings(
            timeout_ms=TIMEOUT_MS,
            instance=self._slot.instance_settings(Signer(user, PASSWORD)),
        )
        servers = self._context.name_servers
        return Producer("accounts-producers", servers, self._slot.dial, settings=settings)

    async def _change(
        self, code: RequestCode, body: Mapping[str, object] | None, **fields: str
    ) -> None:
        """Have the leader carry a change out. Raises ClientError."""
        await change_at_leader(self._instance, self._group, code, body, **fields)


def _shown(entry: Entry) -> dict[str, object]:
    """Return an entry as requests have it."""
    return {
        "resource": entry.resource,
        "actions": list(entry.actions),
        "sourceIps": list(entry.sources),
        "decision": entry.decision,
    }


def _command(code: RequestCode, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
    texts = {name: str(value) for name, value in fields.items()}
    return RemotingCommand(code=code, ext_fields=texts, body=body)
