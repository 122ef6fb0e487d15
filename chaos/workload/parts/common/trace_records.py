"""The texts of RocketMQ's message traces, as the dashboard reads them; pure.

Place in the data path: the part `calls` reads what its clients have traced, and holds it against
what they did.

Invariant: nothing is shared with `client.trace`, whose texts these are.

Source: RocketMQ TraceDataEncoder.decoderFromTraceDataString: fields end with \\x01, records with
\\x02.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Trace", "Traced", "traces_of"]

Trace = dict[str, str]

_PUB: Final = [
    "kind",
    "time",
    "region",
    "group",
    "topic",
    "msg_id",
    "tags",
    "keys",
    "store_host",
    "body_size",
    "cost",
    "type",
    "offset_msg_id",
    "success",
]
_BEFORE: Final = ["kind", "time", "region", "group", "request", "msg_id", "retries", "keys"]
_AFTER: Final = ["kind", "request", "msg_id", "cost", "success", "keys", "code", "time"]
_END: Final = [
    *("kind", "time", "region", "group", "topic", "msg_id", "tags", "keys", "store_host", "type"),
    *("transaction_id", "state", "from_check"),
]
_NAMES: Final = {
    "Pub": _PUB,
    "SubBefore": _BEFORE,
    "SubAfter": _AFTER,
    "EndTransaction": _END,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a client did that stopped in good order: a message, by UNIQ_KEY, was sent, or given to a
    listener that took it or refused it. `began_ns`: when, by CLOCK_MONOTONIC."""

    uniq_key: str
    began_ns: int
    is_taken: bool | None = None  # None: it was sent


def traces_of(body: bytes) -> Iterator[Trace]:
    """Yield the records of a trace message by field; those of other kinds have their kind only."""
    for text in body.decode().split("\x02"):
        fields = text.split("\x01")
        if not text.strip("\x01"):
            continue
        names = _NAMES.get(fields[0], ["kind"])
        yield dict(zip(names, fields, strict=False))
