"""One row per request: every fact about it that is not code of its handler.

Place in the data path: each room of the broker lists its requests as rows; the table of all is
`broker.process.request_table`, by which the broker dispatches, authorises and forwards.

Fields are written as `name:T`, T being S (text), I (32 bits), L (64 bits) or B (true, false), with
a star where they are required. Source: RocketMQ 5.3 RequestCode and its request headers.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from broker.request.forwarding import Forwarded
from broker.request.needs import Need
from remoting.protocol.codes import RequestCode

__all__ = ["Field", "Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a request's header."""

    name: str
    type: str  # S, I, L or B
    required: bool


@dataclass(frozen=True, slots=True)
class Row:
    """`handler` is a path from `Processors`, `fields` and `answer` are header fields, `body` says
    what bodies are, where any. `needs`: what whoever asks must be allowed to. `forwarded`: whether
    a follower asks its leader instead. `by_clients`: clients at work ask it, though it needs no
    permission; all else of that kind is asked by operators, for whom connections are reserved."""

    code: RequestCode
    handler: str
    _: KW_ONLY
    needs: Need
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
        """Whether operators' tools and members of a group ask it, and clients at work do not."""
        return self.needs.rule is None and not self.by_clients

    def header_fields(self) -> list[Field]:
        return [
            Field(name=name, type=kind[0], required=kind.endswith("*"))
            for name, _, kind in (item.partition(":") for item in self.fields.split())
        ]
