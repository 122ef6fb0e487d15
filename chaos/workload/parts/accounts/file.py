"""The file of accounts, rewritten as an operator edits it, and who may send and pull by it.

Place in the data path: plain_acl.yml, which all brokers of the cluster read again within a second;
the part `accounts`, once its users have ended, since an address that everybody is allowed from
would be theirs, too.

Invariants: every version of the file has the laboratory's own account; it is replaced as a whole;
nobody is asked before brokers have had the time to read it; nothing of the brokers' own code is
used.

Source: the run format (set, get; M14); RocketMQ 4.9 PlainPermissionManager, plain_acl.yml.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.parts.accounts.model import READERS, TOPIC
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.settings_record import NotSureError, SettingsRecord
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["PULL_ANSWERS", "AccountFile", "FileAccount", "next_accounts", "pull_command"]

READ_S: Final = 2.2  # within which brokers have read a changed file: they look every second
VERSIONS: Final = 6
TIMEOUT_MS: Final = 2_000
UNSIGNED: Final = "nobody"
PULL_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS.value,
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.PULL_OFFSET_MOVED.value,
        ResponseCode.NO_PERMISSION.value,
    }
)
_WITH_SUBSCRIPTION: Final = 4  # of a pull's sysFlag
_NAMES: Final = tuple(f"file-account-{letter}" for letter in "abcdef")
_RIGHT: Final = "the-right-secret"
_WRONG: Final = "another-secret"
_EVERYBODY: Final = ("0-255.*.*.*", "*.*.*.*")
_ELSEWHERE: Final = ("192.0.2.{7,8}", "198.51.100.*", "203.0.113.5,203.0.113.6", "")
_PERMISSIONS: Final = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccount:
    """One account of the file. `by_name`, `group_by_name`: its permission on the topic and on the
    group; None: it names none. `default`, `group_default`: on others; None: the file has none."""

    white: str
    default: str | None
    by_name: str | None
    group_default: str | None = "SUB"
    group_by_name: str | None = None
    secret: str = _RIGHT
    admin: bool = False

    def may_send(self) -> bool:
        """Return whether it may send to the topic, signing with the right secret."""
        return self._may("PUB", self.by_name or self.default)

    def may_pull(self) -> bool:
        """Return whether it may pull from the topic as a member of the group."""
        return self._may(
            "SUB", self.by_name or self.default, self.group_by_name or self.group_default
        )

    def _may(self, word: str, *permissions: str | None) -> bool:
        """Return whether all of the permissions have the word."""
        if self.white in _EVERYBODY:
            return True
        if self.secret != _RIGHT:
            return False
        if self.admin and self.by_name is None and self.group_by_name is None:
            return True
        return all(word in (permission or "DENY") for permission in permissions)

    def row(self, name: str) -> dict[str, Any]:
        """Return the account as the file has it."""
        row: dict[str, Any] = {
            "accessKey": name,
            "secretKey": self.secret,
            "whiteRemoteAddress": self.white,
            "admin": str(self.admin).lower(),
        }
        if self.default is not None:
            row["defaultTopicPerm"] = self.default
        if self.group_default is not None:
            row["defaultGroupPerm"] = self.group_default
        if self.group_by_name is not None:
            row["groupPerms"] = [f"{READERS}-other=PUB|SUB", f"{READERS}={self.group_by_name}"]
        if self.by_name is not None:
            row["topicPerms"] = [f"{TOPIC}-other=DENY", f"{TOPIC}={self.by_name}"]
        return row


def next_accounts(rng: random.Random) -> dict[str, FileAccount]:
    """Draw the accounts of the next version; some are left out."""
    return {
        name: FileAccount(
            white=rng.choice(_EVERYBODY if rng.random() < 0.1 else _ELSEWHERE),
            default=rng.choice((*_PERMISSIONS, None)),
            by_name=rng.choice(_PERMISSIONS) if rng.random() < 0.4 else None,
            group_default=rng.choice((*_PERMISSIONS, None)),
            group_by_name=rng.choice(_PERMISSIONS) if rng.random() < 0.3 else None,
            secret=_WRONG if rng.random() < 0.1 else _RIGHT,
            admin=rng.random() < 0.1,
        )
        for name in _NAMES
        if rng.random() < 0.85
    }


class AccountFile:
    """Rewrites the file some times, and has each account send after each, and a client without."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        record: SettingsRecord,
        *,
        queues: Sequence[MessageQueue],
        rng: random.Random,
    ) -> None:
        self._context = context
        self._slot = slot
        self._record = record
        self._queues = queues
        self._rng = rng

    async def work(self) -> None:
        """Rewrite it until all versions have been there; the last one is as it was at first."""
        path = Path(str(self._context.world.layout.broker_settings.get("acl_file", "")))
        first = _read(path)
        if first is None:
            return  # the cluster's machines have files of their own
        own = json.loads(first)["accounts"]
        for number in range(VERSIONS):
            # An address that is let in by all means goes out again, and comes in again.
            is_white = number % 3 == 0
            accounts = next_accounts(self._rng)
            white = self._rng.choice(_EVERYBODY if is_white else _ELSEWHERE[:3])
            rows = [*own, *(each.row(name) for name, each in accounts.items())]
            text = json.dumps({"globalWhiteRemoteAddresses": [white], "accounts": rows})
            names = (*_NAMES, UNSIGNED)
            rights = {key(name): is_white for key in (_sends, _pulls) for name in names}
            for name, account in accounts.items():
                rights[_sends(name)] |= account.may_send()
                rights[_pulls(name)] |= account.may_pull()
            await self._change(path, text.encode(), rights)
            for name in names:
                await self._probe(name)
        _replace(path, first)

    async def _change(self, path: Path, text: bytes, rights: Mapping[str, bool]) -> None:
        async def send() -> str:
            _replace(path, text)
            return path.name

        values = {key: _word(may) for key, may in rights.items()}
        await self._record.change(values, send, how="file of accounts")
        await asyncio.sleep(READ_S)

    async def _probe(self, name: str) -> None:
        """Have it send, and pull by the same connections."""
        sender, queue = self._sender(name), self._rng.choice(self._queues)
        async with sender:
            await self._probe_send(name, sender, queue)
            await self._probe_pull(name, sender, queue)

    async def _probe_send(self, name: str, sender: Producer, queue: MessageQueue) -> None:
        async def send() -> tuple[Mapping[str, str], str]:
            part = PartSender(
                self._context, sender, root=sender.instance.client_id, ref=name, rng=self._rng
            )
            acked = await part.send(part.make(queue.topic), queue)
            if not acked and part.refused_with != ResponseCode.NO_PERMISSION:
                raise NotSureError("the send ended otherwise")
            return {_sends(name): _word(acked)}, queue.broker_name

        await self._record.query([_sends(name)], send, how="send", broker_group=queue.broker_name)

    async def _probe_pull(self, name: str, sender: Producer, queue: MessageQueue) -> None:
        async def send() -> tuple[Mapping[str, str], str]:
            answer, _ = await request_leader(
                sender.instance,
                queue.broker_name,
                lambda: pull_command(queue.topic, READERS),
                timeout_ms=TIMEOUT_MS,
                accept=PULL_ANSWERS,
            )
            may = answer.code != ResponseCode.NO_PERMISSION
            return {_pulls(name): _word(may)}, queue.broker_name

        await self._record.query([_pulls(name)], send, how="pull", broker_group=queue.broker_name)

    def _sender(self, name: str) -> Producer:
        signer = None if name == UNSIGNED else Signer(name, _RIGHT)
        instance = dataclasses.replace(self._slot.instance_settings(), signer=signer)
        return Producer(
            "accounts-of-file",
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(timeout_ms=TIMEOUT_MS, instance=instance),
        )


def _sends(name: str) -> str:
    return f"right to send {name}"


def _pulls(name: str) -> str:
    return f"right to pull {name}"


def pull_command(topic: str, group: str) -> RemotingCommand:
    """Return a pull of one message, answered at once whether there is one or not."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": str(_WITH_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
    }
    return RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields)


def _word(may: bool) -> str:
    return "yes" if may else "no"


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _replace(path: Path, text: bytes) -> None:
    """Put a new file in the place of the old one, readable by its owner alone."""
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    fresh.replace(path)
