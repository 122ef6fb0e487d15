"""The part `accounts`: users made, changed and removed under load, and requests that they sign.

Place in the data path: AUTH_CREATE_USER and the like at one group's leader, signed by the
laboratory's account; beside them each user's own producer. The cluster needs `access = true`.

Invariants: a user's changes come one after the other, each recorded with what holds after it; after
one of unknown outcome the user is given up and another takes its place, so that what is known of a
user is certain; a change is attempted once.

Source: the run format (account; M4); decision 20.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import AccountsSection
from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.account_model import Change, UserState, next_change
from chaos.workload.parts.leader_requests import ask_leader
from chaos.workload.parts.part import PartKit, PartSpec
from chaos.workload.parts.part_sender import PartSender
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["ACCOUNTS", "change_command"]

TOPIC: Final = "accounts"
TOOLS: Final = "account-tools"
TIMEOUT_MS: Final = 3_000
_RIGHT: Final = "the-right-one"
_WRONG: Final = "another-one"


class _Accounts:
    def __init__(self, kit: PartKit) -> None:
        section: AccountsSection = kit.section
        self._kit = kit
        self._section = section
        groups = list(kit.context.world.layout.groups)
        queues = kit.context.part_queues["accounts"]
        self._queues = {
            group: [queue for queue in queues if queue.broker_name == group] for group in groups
        }
        self._groups = groups
        self._working = section.users
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        context, slot = self._kit.context, self._kit.slots["accounts-admin"]
        client = slot.next_client()
        async with make_tool(context, slot) as tool, asyncio.TaskGroup() as tasks:
            for number in range(self._section.users):
                admin = Actor(
                    context.history,
                    root=f"{client}.p{number}",
                    client=client,
                    client_group=TOOLS,
                )
                tasks.create_task(self._users(number, tool.instance, admin, stop))

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _users(
        self, number: int, instance: ClientInstance, admin: Actor, stop: asyncio.Event
    ) -> None:
        """Keep one user at work until `stop`, and its successors."""
        group = self._groups[number % len(self._groups)]
        turn = 0
        while not stop.is_set():
            user = _User(self._kit, admin, name=f"{TOPIC}-{number}-{turn}", group=group)
            given_up = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(
                    user.send(
                        self._queues[group],
                        self._section.send_rate / self._section.users,
                        given_up,
                    )
                )
                await user.change(instance, self._section.change_s, stop)
                given_up.set()
            turn += 1
        self._working -= 1
        if not self._working:
            self._idle.set()


class _User:
    """One user at one broker group."""

    def __init__(self, kit: PartKit, admin: Actor, *, name: str, group: str) -> None:
        self._context: WorkContext = kit.context
        self._slot = kit.slots["accounts-users"]
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._admin = admin
        self._name = name
        self._group = group
        self._state = UserState()

    async def change(self, instance: ClientInstance, mean_s: float, stop: asyncio.Event) -> None:
        """Change the user until `stop`, or until the outcome of a change is not known."""
        known = True
        while known and not stop.is_set():
            known = await self._change_once(instance)
            # A user that may not send yet is of little use: most of its time it may.
            wait_s = mean_s if self._state.may_send else mean_s / 2
            await sleep_until_set(stop, self._rng.expovariate(1 / wait_s))

    async def send(
        self, queues: Sequence[MessageQueue], rate: float, given_up: asyncio.Event
    ) -> None:
        """Send with the user's signature, whether it may or not."""
        client = self._slot.next_client()
        settings = ProducerSettings(
            timeout_ms=TIMEOUT_MS,
            instance=self._slot.instance_settings(Signer(self._name, _RIGHT)),
        )
        producer = Producer(
            "accounts-producers", self._context.name_servers, self._slot.dial, settings=settings
        )
        pace = Pace(rate, self._rng)
        async with producer:
            sender = PartSender(self._context, producer, root=client, ref=self._name, rng=self._rng)
            while await pace.wait(given_up):
                queue = self._rng.choice(queues)
                await sender.send(sender.make(queue.topic), queue)

    async def _change_once(self, instance: ClientInstance) -> bool:
        """Make one change; return whether its outcome is known."""
        change = next_change(self._state, self._rng)
        state = self._state.after(change)
        with self._admin.operation(
            "account",
            broker_group=self._group,
            topic=TOPIC,
            key=self._name,
            ref=change.value,
            decision="allow" if state.may_send else "deny",
        ) as operation:
            try:
                _, address = await ask_leader(
                    instance,
                    self._group,
                    lambda: change_command(self._name, change),
                    timeout_ms=TIMEOUT_MS,
                )
            except ClientError as error:
                operation.failed(error)
                return error.definite
            operation.complete("ok", node=self._context.node(address))
        self._state = state
        return True


def change_command(user: str, change: Change) -> RemotingCommand:
    """Return the request for a change, as mqadmin makes it."""
    match change:
        case Change.CREATE:
            body: dict[str, object] = {"username": user, "password": _RIGHT, "userType": "Normal"}
            return _command(RequestCode.AUTH_CREATE_USER, body, username=user)
        case Change.DELETE:
            return _command(RequestCode.AUTH_DELETE_USER, None, username=user)
        case Change.DISABLE | Change.ENABLE:
            status = "enable" if change is Change.ENABLE else "disable"
            return _command(RequestCode.AUTH_UPDATE_USER, {"userStatus": status}, username=user)
        case Change.PASSWORD | Change.PASSWORD_BACK:
            password = _RIGHT if change is Change.PASSWORD_BACK else _WRONG
            return _command(RequestCode.AUTH_UPDATE_USER, {"password": password}, username=user)
        case Change.GRANT:
            entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
            body = {"policies": [{"policyType": "Custom", "entries": [entry]}]}
            return _command(RequestCode.AUTH_CREATE_ACL, body, subject=f"User:{user}")
        case Change.REVOKE:
            return _command(RequestCode.AUTH_DELETE_ACL, None, subject=f"User:{user}")


def _command(code: RequestCode, body: object, **fields: str) -> RemotingCommand:
    data = b"" if body is None else json.dumps(body).encode()
    return RemotingCommand(code=code, ext_fields=fields, body=data)


ACCOUNTS: Final = PartSpec(
    name="accounts",
    summary="users and permissions changed under load, and requests that they sign",
    topics=lambda section: (TOPIC,),
    slots=lambda section: ("accounts-admin", "accounts-users"),
    make=_Accounts,
    judged_by=("M4", "A19"),
)
