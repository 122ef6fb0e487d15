"""The part `accounts`: users made, changed and removed under load, and requests that they sign.

Place in the data path: AUTH_CREATE_USER and the like at one group's leader, signed by the
laboratory's account; beside them each user's own producer. The cluster needs `access = true`. When
the users have ended, others have many permissions at once (`policies`), and the file of accounts is
rewritten (`chaos.workload.parts.accounts.file`).

Invariants: a user's changes come one after the other, each recorded with what holds after it; after
one of unknown outcome the user is given up and another takes its place, so that what is known of a
user is certain; a change is attempted once.

Source: the run format (account, set, get, ask; M4, M14, M12); decision 20.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import AccountsSection
from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.accounts.checks import PrivateChecks
from chaos.workload.parts.accounts.file import PULL_ANSWERS, AccountFile, pull_command
from chaos.workload.parts.accounts.model import (
    READERS,
    TOPIC,
    Account,
    Change,
    Right,
    UserState,
    next_change,
    shown_text,
)
from chaos.workload.parts.accounts.policies import OverlappingPolicies
from chaos.workload.parts.accounts.rights import requests_of
from chaos.workload.parts.accounts.super_users import SuperUsers
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.common.shown_answers import records_of
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SPEC", "change_command"]

TOOLS: Final = "account-tools"
TIMEOUT_MS: Final = 3_000
CALM_S: Final = 2.5  # behind the load: what is asked within two seconds of a fault is not judged
FILTERED_SHARE: Final = 0.5  # of the questions for all users have an end of the user's name
QUERIED_BEFORE_SHARE: Final = 0.3  # of the changes, behind a question for what was so until then
_RIGHT: Final = "the-right-one"
_WRONG: Final = "another-one"
_TRIED: Final = PULL_ANSWERS | {
    ResponseCode.QUERY_NOT_FOUND.value,
    ResponseCode.INVALID_PARAMETER.value,
}
_REFUSED: Final = ResponseCode.NO_PERMISSION.value
_FILTERS: Final = {"user": "filter", "acl": "subjectFilter"}
_LISTS: Final = {"user": RequestCode.AUTH_LIST_USER, "acl": RequestCode.AUTH_LIST_ACL}


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
        self._at_work = self._section.users
        self._users_ended = asyncio.Event()
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
                tasks.create_task(self._users(number, tool.instance, admin, stop, drained))
            await self._users_ended.wait()
            await asyncio.sleep(CALM_S)
            for group in self._groups:
                policies = OverlappingPolicies(
                    context,
                    tool.instance,
                    self._kit.slots["accounts-users"],
                    Expectations(
                        context.history, client=f"{client}.policies.{group}", client_group=TOOLS
                    ),
                    group=group,
                    rng=random.Random(self._kit.rng.getrandbits(64)),
                )
                await policies.work()
                for name, drill in (("super", SuperUsers), ("checks", PrivateChecks)):
                    own = Expectations(
                        context.history, client=f"{client}.{name}.{group}", client_group=TOOLS
                    )
                    users = self._kit.slots["accounts-users"]
                    await drill(context, tool.instance, users, own, group=group).work()
            await self._rewrite_file(client)
            self._idle.set()

    async def _rewrite_file(self, client: str) -> None:
        context = self._kit.context
        if self._section.file:
            record = SettingsRecord(
                context, root=f"{client}.file", client=client, client_group=TOOLS
            )
            file = AccountFile(
                context,
                self._kit.slots["accounts-users"],
                record,
                queues=context.part_queues[TOPIC],
                rng=random.Random(self._kit.rng.getrandbits(64)),
            )
            await file.work()

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _users(
        self,
        number: int,
        instance: ClientInstance,
        admin: Actor,
        stop: asyncio.Event,
        drained: asyncio.Event,
    ) -> None:
        """Keep one user at work until `stop`, and its successors; query the last one at the end,
        behind whatever restarts there were."""
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
                        stop,
                        given_up,
                    )
                )
                known = await user.change(instance, self._section.change_s, stop)
                if stop.is_set():
                    self._at_work -= 1
                    if not self._at_work:
                        self._users_ended.set()
                    await drained.wait()
                    if known:
                        await user.query_again(instance)
                given_up.set()
            turn += 1


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
        self._position: int | None = None  # of a message that it may be allowed to look at
        self._own: ClientInstance | None = None  # that signs as the user, once it has started
        self._record = SettingsRecord(
            kit.context, root=f"{name}.record", client=name, client_group=TOOLS
        )

    async def change(self, instance: ClientInstance, mean_s: float, stop: asyncio.Event) -> bool:
        """Change the user until `stop`, or until the outcome of a change is not known; return
        whether it is."""
        known = True
        while known and not stop.is_set():
            if self._rng.random() < QUERIED_BEFORE_SHARE:
                await self.query_again(instance)
            known = await self._change_once(instance)
            # A user that may not send yet is of little use: most of its time it may.
            wait_s = mean_s if self._state.may_send else mean_s / 2
            await sleep_until_set(stop, self._rng.expovariate(1 / wait_s))
        return known

    async def query_again(self, instance: ClientInstance) -> None:
        """Query what the last change has made of the user, which may be long ago."""
        await self._query(instance)
        await self._try_rights(instance)

    async def send(
        self,
        queues: Sequence[MessageQueue],
        rate: float,
        stop: asyncio.Event,
        given_up: asyncio.Event,
    ) -> None:
        """Send with the user's signature, whether it may or not, until either is set; the client
        goes on until `given_up`."""
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
            self._own = producer.instance
            sender = PartSender(self._context, producer, root=client, ref=self._name, rng=self._rng)
            while await pace.wait(given_up) and not stop.is_set():
                queue = self._rng.choice(queues)
                await sender.send(sender.make(queue.topic), queue)
            await given_up.wait()
            self._own = None

    async def _change_once(self, instance: ClientInstance) -> bool:
        """Make one change, and query the user; return whether its outcome is known."""
        account = next_change(self._state, self._rng)
        after = account.after
        with self._admin.operation(
            "account",
            broker_group=self._group,
            topic=TOPIC,
            key=self._name,
            ref=account.change.value,
            decision="allow" if after.may_send else "deny",
        ) as operation:

            async def send() -> str:
                command = change_command(self._name, account)
                try:
                    address = (await self._at_leader(instance, command))[1]
                except ClientError as error:
                    operation.failed(error)
                    raise
                operation.complete("ok", node=self._context.node(address))
                return address

            outcome = await self._record.change(
                {
                    self._key("user"): after.user_text(),
                    self._key("acl"): after.entries_text(),
                    **{self._key(right): _word(after.may(right)) for right in Right},
                },
                send,
                how=account.change.value,
                broker_group=self._group,
            )
        if outcome == "ok":
            self._state = after
            await self.query_again(instance)
        return outcome != "info"

    async def _query(self, instance: ClientInstance) -> None:
        """Query the user and its permissions, alone or among those of all users."""
        among_all = self._rng.random() < 0.5
        for what in ("user", "acl"):
            key = self._key(what)
            if among_all:
                code, fields = _LISTS[what], {}
                if self._rng.random() < FILTERED_SHARE:
                    fields = {_FILTERS[what]: self._name[self._rng.randrange(len(TOPIC)) :]}
            elif what == "user":
                code, fields = RequestCode.AUTH_GET_USER, {"username": self._name}
            else:
                code, fields = RequestCode.AUTH_GET_ACL, {"subject": f"User:{self._name}"}
            if what == "acl" and not among_all and not self._state.exists:
                continue  # there is no such subject, which is another answer than no entry
            command = _command(code, None, **fields)

            async def send(
                what: str = what, key: str = key, command: RemotingCommand = command
            ) -> tuple[Mapping[str, str], str]:
                answer, address = await self._at_leader(instance, command)
                text = shown_text(answer.body, self._name, what)
                return {} if text is None else {key: text}, address

            await self._record.query([key], send, how=code.name.lower(), broker_group=self._group)

    async def _try_rights(self, instance: ClientInstance) -> None:
        """Have the user itself ask for what each of its rights is needed for."""
        own = self._own
        if own is None:
            return
        if self._position is None:
            self._position = await self._find_message(instance)
        for right in Right:
            command = self._rng.choice(requests_of(right, self._position))
            key = self._key(right)

            async def send(
                key: str = key, command: RemotingCommand = command
            ) -> tuple[Mapping[str, str], str]:
                answer, address = await request_leader(
                    own, self._group, lambda: command, timeout_ms=TIMEOUT_MS, accept=_TRIED
                )
                return {key: "no" if answer.code == _REFUSED else "yes"}, address

            how = f"{RequestCode(command.code).name.lower()} {sorted(command.ext_fields)}"
            await self._record.query([key], send, how=how, broker_group=self._group)

    async def _find_message(self, instance: ClientInstance) -> int | None:
        """Return where a message of the topic stands in the log; None: there is none as yet."""
        try:
            answer, _ = await request_leader(
                instance,
                self._group,
                lambda: pull_command(TOPIC, READERS),
                timeout_ms=TIMEOUT_MS,
                accept=PULL_ANSWERS,
            )
        except ClientError:
            return None
        return next((record.physical_offset for record in records_of(answer)), None)

    def _key(self, what: str) -> str:
        return f"{what} {self._name} {self._group}"

    async def _at_leader(
        self, instance: ClientInstance, command: RemotingCommand
    ) -> tuple[RemotingCommand, str]:
        return await request_leader(instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS)


def change_command(user: str, account: Account) -> RemotingCommand:
    """Return the request for a change, as mqadmin makes it."""
    entry = account.entry
    match account.change:
        case Change.CREATE:
            body: dict[str, object] = {"username": user, "password": _RIGHT, "userType": "Normal"}
            return _command(RequestCode.AUTH_CREATE_USER, body, username=user)
        case Change.DELETE:
            return _command(RequestCode.AUTH_DELETE_USER, None, username=user)
        case Change.DISABLE | Change.ENABLE:
            status = "enable" if account.change is Change.ENABLE else "disable"
            return _command(RequestCode.AUTH_UPDATE_USER, {"userStatus": status}, username=user)
        case Change.PASSWORD | Change.PASSWORD_BACK:
            password = _RIGHT if account.change is Change.PASSWORD_BACK else _WRONG
            return _command(RequestCode.AUTH_UPDATE_USER, {"password": password}, username=user)
        case Change.GRANT:
            assert entry is not None
            shown = {
                "resource": entry.resource,
                "actions": entry.actions,
                "sourceIps": entry.sources,
                "decision": entry.decision,
            }
            body = {"policies": [{"policyType": entry.policy, "entries": [shown]}]}
            # Either adds the entry, or puts it in the place of the one that is there.
            is_update = zlib.crc32(entry.text().encode()) % 2 == 0
            code = RequestCode.AUTH_UPDATE_ACL if is_update else RequestCode.AUTH_CREATE_ACL
            return _command(code, body, subject=f"User:{user}")
        case Change.REVOKE:
            return _command(RequestCode.AUTH_DELETE_ACL, None, subject=f"User:{user}")
        case Change.REMOVE:
            assert entry is not None
            return _command(
                RequestCode.AUTH_DELETE_ACL,
                None,
                subject=f"User:{user}",
                resource=entry.resource,
                policyType=entry.policy,
            )


def _word(may: bool) -> str:
    return "yes" if may else "no"


def _command(code: RequestCode, body: object, **fields: str) -> RemotingCommand:
    data = b"" if body is None else json.dumps(body).encode()
    return RemotingCommand(code=code, ext_fields=fields, body=data)


SPEC: Final = PartSpec(
    name="accounts",
    summary="users and permissions changed under load, and requests that they sign",
    topics=lambda section: (TOPIC,),
    slots=lambda section: ("accounts-admin", "accounts-users"),
    make=_Accounts,
    judged_by=("M4", "M14", "M12", "A19"),
)
