"""The file of accounts, rewritten as an operator edits it, and who may send by it.

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
from chaos.workload.parts.account_model import TOPIC
from chaos.workload.parts.part_sender import PartSender
from chaos.workload.parts.settings_record import NotSureError, SettingsRecord
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import ResponseCode

__all__ = ["AccountFile", "FileAccount", "next_accounts"]

READ_S: Final = 2.2  # within which brokers have read a changed file: they look every second
VERSIONS: Final = 6
TIMEOUT_MS: Final = 2_000
UNSIGNED: Final = "nobody"
_NAMES: Final = ("file-account-a", "file-account-b", "file-account-c")
_RIGHT: Final = "the-right-secret"
_WRONG: Final = "another-secret"
_EVERYBODY: Final = ("0-255.*.*.*", "*.*.*.*")
_ELSEWHERE: Final = ("192.0.2.{7,8}", "198.51.100.*", "203.0.113.5,203.0.113.6", "")
_PERMISSIONS: Final = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccount:
    """One account of the file. `by_name`: its permission on the topic; None: it names none."""

    white: str
    default: str
    by_name: str | None
    secret: str = _RIGHT
    admin: bool = False

    def may_send(self) -> bool:
        """Return whether it may send to the topic, signing with the right secret."""
        if self.white in _EVERYBODY:
            return True
        if self.secret != _RIGHT:
            return False
        if self.admin and self.by_name is None:
            return True
        return "PUB" in (self.default if self.by_name is None else self.by_name)

    def row(self, name: str) -> dict[str, Any]:
        """Return the account as the file has it."""
        row: dict[str, Any] = {
            "accessKey": name,
            "secretKey": self.secret,
            "whiteRemoteAddress": self.white,
            "admin": str(self.admin).lower(),
            "defaultTopicPerm": self.default,
            "defaultGroupPerm": "SUB",
        }
        if self.by_name is not None:
            row["topicPerms"] = [f"{TOPIC}-other=DENY", f"{TOPIC}={self.by_name}"]
        return row


def next_accounts(rng: random.Random) -> dict[str, FileAccount]:
    """Draw the accounts of the next version; some are left out."""
    return {
        name: FileAccount(
            white=rng.choice(_EVERYBODY if rng.random() < 0.2 else _ELSEWHERE),
            default=rng.choice(_PERMISSIONS),
            by_name=rng.choice(_PERMISSIONS) if rng.random() < 0.5 else None,
            secret=_WRONG if rng.random() < 0.2 else _RIGHT,
            admin=rng.random() < 0.15,
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
            rights = dict.fromkeys((*_NAMES, UNSIGNED), is_white)
            for name, account in accounts.items():
                rights[name] |= account.may_send()
            await self._change(path, text.encode(), rights)
            for name in rights:
                await self._ask(name)
        _replace(path, first)

    async def _change(self, path: Path, text: bytes, rights: Mapping[str, bool]) -> None:
        async def send() -> str:
            _replace(path, text)
            return path.name

        values = {self._key(name): _word(may) for name, may in rights.items()}
        await self._record.change(values, send, how="file of accounts")
        await asyncio.sleep(READ_S)

    async def _ask(self, name: str) -> None:
        key = self._key(name)
        sender = self._sender(name)
        queue = self._rng.choice(self._queues)

        async def send() -> tuple[Mapping[str, str], str]:
            async with sender:
                part = PartSender(
                    self._context, sender, root=sender.instance.client_id, ref=name, rng=self._rng
                )
                acked = await part.send(part.make(queue.topic), queue)
            if not acked and part.refused_with != ResponseCode.NO_PERMISSION:
                raise NotSureError("the send ended otherwise")
            return {key: _word(acked)}, queue.broker_name

        await self._record.ask([key], send, how="send", broker_group=queue.broker_name)

    def _key(self, name: str) -> str:
        return f"right to send {name}"

    def _sender(self, name: str) -> Producer:
        signer = None if name == UNSIGNED else Signer(name, _RIGHT)
        instance = dataclasses.replace(self._slot.instance_settings(), signer=signer)
        return Producer(
            "accounts-of-file",
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(timeout_ms=TIMEOUT_MS, instance=instance),
        )


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
