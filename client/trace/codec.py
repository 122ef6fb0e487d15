"""The text format of RocketMQ's message traces; pure.

Place in the data path: `client.trace.tracer` collects these records and sends their texts, many in
one message, to the trace topic, where RocketMQ's tools and dashboard read them.

Format: a record is its fields joined by \\x01 and ended by \\x02; nothing is escaped, and an
unknown value is the word `null`.

Source: RocketMQ TraceDataEncoder, TraceBean, ConsumeReturnType, MessageType.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "ConsumeReturn",
    "MessageKind",
    "TraceEnd",
    "TraceRecord",
    "TraceSend",
    "TraceSubAfter",
    "TraceSubBefore",
    "record_keys",
    "record_text",
]

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"


class MessageKind(enum.IntEnum):
    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(enum.IntEnum):
    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSend:
    """A sent message; `time_ms` is when the send started."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: Sequence[str]
    store_host: str
    body_size: int
    cost_ms: int
    kind: MessageKind
    offset_msg_id: str
    is_success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSubBefore:
    """A message about to be delivered to a listener; `request_id` joins it with TraceSubAfter."""

    time_ms: int
    region: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSubAfter:
    """The end of a listener's call."""

    time_ms: int
    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: Sequence[str]
    code: ConsumeReturn


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEnd:
    """A sent decision of a transaction; `state` is RocketMQ's name of it."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: Sequence[str]
    store_host: str
    transaction_id: str
    state: str
    is_from_check: bool


TraceRecord: TypeAlias = TraceSend | TraceSubBefore | TraceSubAfter | TraceEnd


def record_text(record: TraceRecord) -> str:
    """Encode one record, its terminator included."""
    return _FIELD.join(map(_text, _fields(record))) + _RECORD


def record_keys(record: TraceRecord) -> list[str]:
    """Return the keys under which the trace message can be found."""
    ids = record.msg_id.replace(",", " ").split()  # words, whatever another client took for an id
    return [*ids, *record.keys]


def _fields(record: TraceRecord) -> tuple[object, ...]:
    match record:
        case TraceSend():
            return (
                "Pub",
                record.time_ms,
                record.region,
                record.group,
                record.topic,
                record.msg_id,
                record.tags,
                record.keys,
                record.store_host,
                record.body_size,
                record.cost_ms,
                record.kind.value,
                record.offset_msg_id,
                record.is_success,
            )
        case TraceSubBefore():
            return (
                "SubBefore",
                record.time_ms,
                record.region,
                record.group,
                record.request_id,
                record.msg_id,
                record.retry_times,
                record.keys,
            )
        case TraceSubAfter():
            return (
                "SubAfter",
                record.request_id,
                record.msg_id,
                record.cost_ms,
                record.is_success,
                record.keys,
                record.code.value,
                record.time_ms,
            )
        case TraceEnd():
            return (
                "EndTransaction",
                record.time_ms,
                record.region,
                record.group,
                record.topic,
                record.msg_id,
                record.tags,
                record.keys,
                record.store_host,
                MessageKind.COMMIT.value,
                record.transaction_id,
                record.state,
                record.is_from_check,
            )


def _text(field: object) -> str:
    match field:
        case bool():
            return "true" if field else "false"
        case str():
            return field or "null"
        case list() | tuple():
            return " ".join(field) or "null"
        case None:
            return "null"
        case _:
            return str(field)
