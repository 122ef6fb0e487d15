"""`ledgermq tx`: halves of transactions as an operator lists, shows, discards and resumes them.

Place in the data path: `ledgermq.tx_commands` declares the commands; the requests are those of
`client.administer.admin`. A list comes page by page and is never held as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from client.administer.admin import Admin, AdminSettings
from client.administer.halves import ShownHalf
from client.connection.instance import InstanceSettings
from client.errors import ClientError

__all__ = ["TransactionError", "discard_halves", "list_halves", "resume_halves", "show_half"]

_PAGE_MAX = 256
_BODY_SHOWN_MAX = 1_024


class TransactionError(Exception):
    """A request that failed; the message is for a person to read."""


async def list_halves(
    name_servers: list[str],
    *,
    state: str,
    topic: str | None,
    group: str | None,
    broker: str | None,
    first: int,
    count: int,
    as_json: bool,
    instance: InstanceSettings,
) -> None:
    """Print up to `count` halves, one a line, and on stderr where the list goes on.

    Raises TransactionError.
    """
    async with _admin(name_servers, instance) as admin:
        try:
            names = [broker] if broker else sorted((await admin.cluster_info()).broker_addr_table)
            if not names:
                raise TransactionError("no broker is registered")
            if first and len(names) > 1:
                raise TransactionError("--from: an offset is one of a broker group: name it, too")
            left = count
            for name in names:
                wanted = _Wanted(name, state, topic, group)
                left = await _print_list(admin, wanted, left, first, as_json=as_json)
        except ClientError as error:
            raise TransactionError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Halves of one broker group."""

    broker: str
    state: str
    topic: str | None
    group: str | None


async def _print_list(
    admin: Admin, wanted: _Wanted, left: int, offset: int, *, as_json: bool
) -> int:
    """Print halves of one broker group; return how many more may be printed."""
    name = wanted.broker
    while True:
        page = await admin.list_halves(
            name,
            state=wanted.state,
            offset=offset,
            count_max=max(1, min(left, _PAGE_MAX)),
            topic=wanted.topic,
            group=wanted.group,
        )
        if left == 0:
            if page.halves:
                sys.stderr.write(f"there is more: --broker {name} --from {offset}\n")
            return 0
        for half in page.halves:
            sys.stdout.write(f"{_json(half, name) if as_json else _line(half, name)}\n")
        left -= len(page.halves)
        offset = page.next_offset
        if page.is_end:
            return left


async def show_half(
    name_servers: list[str],
    message_id: str,
    *,
    broker: str | None,
    as_json: bool,
    instance: InstanceSettings,
) -> None:
    """Print all that is known of a half. Raises TransactionError."""
    async with _admin(name_servers, instance) as admin:
        try:
            half = await admin.show_half(message_id, broker)
            body = None
            if not as_json and half.body_size:
                body = (await admin.view_message(message_id)).body
        except ClientError as error:
            raise TransactionError(str(error)) from error
    if as_json:
        sys.stdout.write(f"{_json(half, broker)}\n")
        return
    for key, value in _fields(half, broker).items():
        if key != "properties":
            sys.stdout.write(f"{key}: {value}\n")
    for key, value in sorted((half.properties or {}).items()):
        sys.stdout.write(f"property {key}: {value}\n")
    if body is not None:
        text = body[:_BODY_SHOWN_MAX].decode(errors="replace")
        cut = " ..." if len(body) > _BODY_SHOWN_MAX else ""
        sys.stdout.write(f"body: {text}{cut}\n")


async def discard_halves(
    name_servers: list[str],
    message_ids: Iterable[str],
    *,
    broker: str | None,
    as_json: bool,
    instance: InstanceSettings,
) -> None:
    """Discard each half, and print the id of its copy. Raises TransactionError at the first that
    is refused."""
    async with _admin(name_servers, instance) as admin:
        for message_id in message_ids:
            try:
                copy = await admin.discard_half(message_id, broker)
            except ClientError as error:
                raise _failed(message_id, error) from error
            if as_json:
                _print_json({"msgId": message_id, "discarded": True, "copy": copy})
            elif copy is None:
                sys.stdout.write(f"{message_id} was discarded already\n")
            else:
                sys.stdout.write(f"{message_id} is discarded; its copy is {copy}\n")


async def resume_halves(
    name_servers: list[str],
    message_ids: Iterable[str],
    *,
    broker: str | None,
    as_json: bool,
    instance: InstanceSettings,
) -> None:
    """Make each discarded half undecided again. Raises TransactionError at the first refused."""
    async with _admin(name_servers, instance) as admin:
        for message_id in message_ids:
            try:
                half = await admin.show_half(message_id, broker)
                if half.resumed is None:
                    raise TransactionError(
                        f"{message_id} is {half.state}: what can be resumed is a copy among"
                        " `ledgermq tx list --discarded`"
                    )
                if half.resumed:
                    raise TransactionError(f"{message_id} was resumed before: a half is, once")
                await admin.resume_half(message_id, broker)
            except ClientError as error:
                raise _failed(message_id, error) from error
            if as_json:
                _print_json({"msgId": message_id, "resumed": True})
            else:
                sys.stdout.write(f"{message_id} is undecided again, and will be checked\n")


def _admin(name_servers: list[str], instance: InstanceSettings) -> Admin:
    return Admin(name_servers, settings=AdminSettings(instance=instance))


def _failed(message_id: str, error: ClientError) -> TransactionError:
    certain = "nothing was changed" if error.definite else "outcome unknown"
    return TransactionError(f"{message_id}: {certain}: {error}")


def _line(half: ShownHalf, broker: str) -> str:
    if half.unreadable is not None:
        return f"{half.msg_id} {broker}@{half.offset} can't be read now: {half.unreadable}"
    parts = [
        half.msg_id,
        f"{broker}@{half.offset}",
        f"topic {half.topic}/{half.queue_id}",
        f"group {half.producer_group}",
        f"age {_age(half.age_ms)}",
    ]
    if half.checks is not None:
        parts.append(f"checks {half.checks}")
    if half.keys:
        parts.append(f"keys {half.keys}")
    if half.resumed:
        parts.append("resumed")
    return " ".join(parts)


def _age(age_ms: int) -> str:
    """Return a duration in its two largest units."""
    seconds = age_ms // 1_000
    for length, unit, part, part_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if seconds >= length:
            return f"{seconds // length}{unit}{seconds % length // part}{part_unit}"
    return f"{seconds // 60}min{seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def _fields(half: ShownHalf, broker: str | None) -> dict[str, Any]:
    named = {} if broker is None else {"broker": broker}
    fields: dict[str, Any] = named | msgspec.to_builtins(half)
    return {key: value for key, value in fields.items() if value is not None}


def _json(half: ShownHalf, broker: str | None) -> str:
    return msgspec.json.encode(_fields(half, broker)).decode()


def _print_json(row: dict[str, Any]) -> None:
    sys.stdout.write(f"{msgspec.json.encode(row).decode()}\n")
