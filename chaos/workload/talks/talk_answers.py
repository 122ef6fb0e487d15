"""What of an answer two brokers have to agree on: one text for both, without times, places in the
log, versions, and the names of the talk.

Pure. Invariants: a value is left out by its name, or by the kind of its question, never by what it
is; what only RocketMQ or only ledgermq tells is listed here with the reason, and nowhere else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from chaos.workload.talks.talk_desk import Desk, Step
from remoting.errors import RecordError
from remoting.protocol import fastjson
from remoting.records.message import MessageRecord, decode_records
from remoting.records.property_names import PropertyName

__all__ = ["shown"]

_VARIES: Final = "*"
# Times, positions in the log, versions, addresses, figures of a moment: what they are named by.
_VARYING: Final = frozenset(
    {
        *("msgId", "offsetMsgId", "popTime", "reviveQid", "startOffsetInfo", "recallHandle"),
        *("timestamp", "lastTimestamp", "lastUpdateTimestamp", "dataVersion", "clientAddr"),
        *("version", "consumeTps", "physicOffset", "physicSize", "topicPutTps", "subVersion"),
        *("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"),
    }
)
_LEFT_OUT: Final[Mapping[str, str]] = {
    "ledgermqTerm": "ledgermq's own",
    "ledgermqStored": "ledgermq's own",
    "groupSysFlag": "RocketMQ's, of units",
    "topicSysFlag": "RocketMQ's, of units",
    "groupRetryPolicy": "RocketMQ's: retries are by delay level here",
    "IS_SUPPORT_HEART_BEAT_V2": "heartbeats with fingerprints are not asked for here",
    "IS_SUB_CHANGE": "likewise",
    "invisibleTime": "a millisecond less where the broker's clock has gone on",
    "restNum": "RocketMQ counts what others have popped, and below zero",
    "CLUSTER": "with each message of a batch in RocketMQ alone",
    "TRACE_ON": "likewise",
    "MSG_REGION": "likewise",
    "__transactionId__": "the UNIQ_KEY once more, of halves",
}
_PROPERTIES_VARYING: Final = frozenset(
    {
        *(PropertyName.FIRST_POP_TIME, PropertyName.POP_CK, PropertyName.TIMER_OUT_MS),
        *(PropertyName.TIMER_ENQUEUE_MS, "BORN_TIMESTAMP"),
    }
)
_OF_THE_SYSTEM: Final = frozenset({"send later", "send a half", "send a timer"})
_READ: Final = frozenset({0, 19, 20, 21})  # codes with whose answers clients read more
_NOT_FOUND: Final = 22
_HOST_FLAGS: Final = 0x30  # of IPv6
_TEXT_MAX: Final = 300


def shown(desk: Desk, step: Step) -> str:
    """Return what of a step's answer two brokers have to agree on."""
    text = json.dumps(_form(step), sort_keys=True, ensure_ascii=True)
    for own, anyone in (
        (desk.key_part, "<key>"),
        (desk.name, "<talk>"),
        (desk.broker_name, "<broker>"),
    ):
        text = text.replace(own, anyone)
    if len(text) <= _TEXT_MAX:
        return text
    return f"{text[:_TEXT_MAX]} {zlib.crc32(text.encode()):08x}"


def _form(step: Step) -> dict[str, Any]:
    answer, about = step.answer, step.about
    if about == "offset" and answer.code == _NOT_FOUND:
        # A young queue is begun at 0 here, and in RocketMQ once it has a message.
        return {"code": 0, "fields": {"offset": "0"}, "body": None}
    fields, body = dict(answer.ext_fields), _body(answer.body)
    if about == "consume queue" and not (isinstance(body, Mapping) and body.get("queueData")):
        return {}  # RocketMQ has no body then, and knows a queue from its first message on
    form: dict[str, Any] = {"code": answer.code}
    if answer.code not in _READ:
        return form
    if about in _OF_THE_SYSTEM:  # other talks' messages stand in these queues, too
        fields.pop("queueOffset", None)
    if about == "view":
        for record in body or ():
            record.pop("offset")
    if about == "peek":  # where messages stand is told here alone
        fields.pop("msgOffsetInfo", None)
        fields.pop("startOffsetInfo", None)
    if about == "consume stats" and isinstance(body, Mapping):
        # In RocketMQ a pop stores where the group begins, though it finds nothing.
        rows = body.get("offsetTable", {})
        body = {name: row for name, row in rows.items() if row["consumerOffset"]}
    return {**form, "fields": _plain(fields), "body": body}


def _body(body: bytes) -> Any:
    if not body:
        return None
    if body[:1] in (b"{", b"["):
        return _plain(_keyed(fastjson.parse(body)))
    try:
        return [_record(one) for one in decode_records(body)]
    except RecordError:
        return f"{len(body)} bytes"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): _VARIES if name in _VARYING else _plain(one)
            for name, one in value.items()
            if one is not None and name not in _LEFT_OUT
        }
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(
            (_plain(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True)
        )
    return value


def _keyed(value: Any) -> Any:
    """Return JSON with text for keys: FastJSON writes objects for keys."""
    if isinstance(value, Mapping):
        return {_key(key): _keyed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_keyed(one) for one in value]
    return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True, default=str)


def _record(record: MessageRecord) -> dict[str, Any]:
    properties = {
        name: _VARIES if name in _PROPERTIES_VARYING else value
        for name, value in record.property_map().items()
        if name not in _LEFT_OUT
    }
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "flag": record.flag,
        "sys_flag": record.sys_flag & ~_HOST_FLAGS,
        "reconsume_times": record.reconsume_times,
        "body": f"{record.body[:24]!r} {len(record.body)}",
        "properties": properties,
    }
