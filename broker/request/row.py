"""One row per request: every fact about it that is not code of its handler.

Place in the data path: each room of the broker lists its requests as rows; the table of all is
`broker.process.request_table`, by which the broker decodes, authorises, forwards and dispatches.

Sends read their fields one by one (`fields` without a `header`): they are most of the messages and
need nine of twenty fields. There fields are written as `name:T`, T being S (text), I (32 bits), L
(64 bits) or B (true, false), with a star where they are required.

Source: RocketMQ 5.3 RequestCode and its request headers.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from broker.request.forwarding import Forwarded
from broker.request.leadership import Leadership
from broker.request.needs import Need
from broker.request.request import RefusedError, Request
from remoting.errors import HeaderError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.headers import Header

__all__ = ["Field", "Row", "bound"]

_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a request's header."""

    name: str
    type: str  # S, I, L or B
    required: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The facts about one request.

    `handler` is a path from `Processors`. It is called with the request, or, where there is a
    `header`, with that header and the request; where `leader` is set, only while this node leads
    and may propose. `answer` names header fields of the answer, `body` says what bodies are, where
    any. `needs`: what whoever sends it must be allowed to. `forwarded`: whether a follower forwards
    it to its leader. `by_clients`: clients at work send it, though it needs no permission; all else
    of that kind is sent by operators, for whom connections are reserved."""

    code: RequestCode
    handler: str
    _: KW_ONLY
    needs: Need
    header: type[Header] | None = None
    leader: bool = False
    fields: str = ""
    answer: str = ""
    body: str = ""
    forwarded: Forwarded = Forwarded.NEVER
    by_clients: bool = False

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def by_operators(self) -> bool:
        """Whether operators' tools and members of a group send it, and clients at work do not."""
        return self.needs.rule is None and not self.by_clients

    def header_fields(self) -> list[Field]:
        if self.header is not None:
            return [_described(each) for each in msgspec.structs.fields(self.header)]
        return [
            Field(name=name, type=kind[0], required=kind.endswith("*"))
            for name, _, kind in (item.partition(":") for item in self.fields.split())
        ]


def bound(
    row: Row, handle: Callable[..., None], leadership: Leadership
) -> Callable[[Request], None]:
    """Return a handler that takes the request alone and first checks what its row demands.

    It raises RefusedError: 1 naming the field that is missing or bad, 14 where another node leads.
    """
    header = row.header
    if header is None and not row.leader:
        return handle

    def handler(request: Request) -> None:
        if header is None:
            leadership.require_leader()
            handle(request)
            return
        try:
            fields = header.from_ext_fields(request.fields)
        except HeaderError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if row.leader:
            leadership.require_leader()
        handle(fields, request)

    return handler


def _described(field: msgspec.structs.FieldInfo) -> Field:
    return Field(name=field.encode_name, type=_letter(field.type), required=field.required)


def _letter(hint: Any) -> str:
    if get_origin(hint) in {types.UnionType, Union}:  # Union: of an annotated type
        [hint] = [each for each in get_args(hint) if each is not types.NoneType]
    if hint is str:
        return "S"
    if hint is bool:
        return "B"
    (_, limits) = get_args(hint)
    return "I" if limits.le == _INT_MAX else "L"
