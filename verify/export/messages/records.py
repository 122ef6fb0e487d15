"""Message records as columns of the table `log`.

Place in the data path: from the arrays of `verify.export.messages.record_fields` to Arrow
columns; `verify.export.messages.log_rows` adds the columns of the entry.

Invariants: frequent values (topics, tags) are processed once per value, never per record; only op
records are read one by one, since their body names the half message that they resolve.

Source: docs/FORMATS.md sections 4, 5 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from verify.export.messages.digests import digests
from verify.export.messages.properties import KEYS, TAGS, Properties
from verify.export.messages.record_fields import Records
from verify.export.messages.slices import regions, text
from verify.sources.tag_hash import tag_hash

__all__ = ["RecordColumns", "RecordStyle", "record_columns"]

_Ints = npt.NDArray[np.int64]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# Units of delayed messages have the time of delivery in place of a tag hash: the store timestamp
# plus the delay of the level, which is the queue + 1 (RocketMQ's 18 levels).
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
# A timer message has that time in its properties, less one millisecond.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_DELAYS_S: Final = (
    1,
    5,
    10,
    30,
    *(60 * m for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_DELAYS_MS: Final = np.array([1_000 * seconds for seconds in _DELAYS_S], dtype=np.int64)
_TRANSACTION_BITS: Final = 0xC
_TRANSACTION_COMMIT: Final = 0x8
_MESSAGE, _HALF, _OP, _FINAL = range(4)
_KINDS: Final = ("message", "half", "op", "final")
_PLAIN_KEYS: Final = r"^[\x21-\x7e]+( [\x21-\x7e]+)*$"
_INT64_MAX: Final = (1 << 63) - 1


class RecordStyle(Enum):
    """Whose records they are, where the systems differ.

    RocketMQ derives a delayed message's unit from its property DELAY, has the hash of its tags in
    the unit of a timer message, and may name several halves in one op record. COPIED are
    RocketMQ's records in a log of ours, which has its own units for them: as RocketMQ's, but for
    delayed messages, whose queue tells the delay.
    """

    LEDGERMQ = auto()
    ROCKETMQ = auto()
    COPIED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """One value per record. `half_offsets`: per op record, the offsets of the halves it resolves,
    of which there is at least one; None where the body names none."""

    kind: pa.StringArray
    is_op: npt.NDArray[np.bool_]
    is_half: npt.NDArray[np.bool_]
    topics: tuple[str, ...]
    topic_code: _Ints  # index into `topics`
    tag_hash: _Ints
    value: pa.LargeStringArray
    uniq_key: pa.LargeStringArray
    keys: pa.ListArray
    digest: pa.Int64Array
    tx: pa.LargeStringArray
    has_unit: npt.NDArray[np.bool_]
    half_offsets: tuple[tuple[int | None, ...], ...]


def record_columns(
    data: memoryview, records: Records, style: RecordStyle = RecordStyle.LEDGERMQ
) -> RecordColumns:
    """Derive the columns from the properties and bodies of `records`, whose file is `data`."""
    properties = Properties(regions(data, *records.properties))
    found = text(regions(data, *records.topic)).dictionary_encode()
    topics = tuple(found.dictionary.to_pylist())
    code = found.indices.to_numpy().astype(np.int64)
    uniq_key = properties.values(b"UNIQ_KEY")
    kind = _kinds(records, topics, code, uniq_key)
    is_op = kind == _OP
    value = pc.coalesce(properties.values(b"lmq_value"), uniq_key)
    return RecordColumns(
        kind=pa.array(_KINDS).take(pa.array(kind)),
        is_op=is_op,
        is_half=kind == _HALF,
        topics=topics,
        topic_code=code,
        tag_hash=_unit_values(records, topics, code, properties, style),
        value=_without(value, is_op),
        uniq_key=_without(uniq_key, is_op),
        keys=_without(_keys(properties.values(KEYS)), is_op),
        digest=_without(
            digests(data, records.body, records.flag, records.sys_flag, properties), is_op
        ),
        tx=properties.values(b"lmq_tx"),
        has_unit=_has_unit(records, style),
        half_offsets=tuple(
            _half_offsets(bytes(data[start:end]), style)
            for start, end in zip(
                records.body[0][is_op].tolist(), records.body[1][is_op].tolist(), strict=True
            )
        ),
    )


def _kinds(
    records: Records, topics: tuple[str, ...], code: _Ints, uniq_key: pa.LargeStringArray
) -> _Ints:
    committed = records.sys_flag & _TRANSACTION_BITS == _TRANSACTION_COMMIT
    # A delayed final message is stored again when it is due, then without the prepared offset.
    kind = np.where(committed & (records.prepared_offset != 0), _FINAL, _MESSAGE)
    for topic, own in ((HALF_TOPIC, _HALF), (OP_TOPIC, _OP)):
        if topic in topics:
            kind[code == topics.index(topic)] = own
    if len(kind) and kind[0] == _HALF and records.start[0] == 0:
        # The half is the first record of RocketMQ's log: its final names its position, which is 0.
        # A consumer's retry of that final, on a topic with %, names none.
        same = pc.fill_null(pc.equal(uniq_key, uniq_key[0]), False).to_numpy(zero_copy_only=False)
        retried = np.array([topic.startswith("%") for topic in topics])[code]
        kind[committed & same & ~retried & (kind == _MESSAGE)] = _FINAL
    return kind


def _unit_values(
    records: Records,
    topics: tuple[str, ...],
    code: _Ints,
    properties: Properties,
    style: RecordStyle,
) -> _Ints:
    """Compute the last field of each record's ConsumeQueue unit."""
    tags = properties.values(TAGS).dictionary_encode()
    hashes = np.array([0, *(tag_hash(tag) for tag in tags.dictionary.to_pylist())], dtype=np.int64)
    result: _Ints = hashes[tags.indices.fill_null(-1).to_numpy() + 1]
    if style is RecordStyle.ROCKETMQ:
        return _with_delays(result, records, topics, code, properties)
    if SCHEDULE_TOPIC in topics:
        waits = code == topics.index(SCHEDULE_TOPIC)
        waits &= (records.queue >= 0) & (records.queue < len(_DELAYS_MS))
        result[waits] = records.stored_ms[waits] + _DELAYS_MS[records.queue[waits]]
    if TIMER_TOPIC in topics and style is RecordStyle.LEDGERMQ:
        due = properties.values(b"TIMER_OUT_MS").to_pylist()
        for place in np.flatnonzero(code == topics.index(TIMER_TOPIC)).tolist():
            digits = due[place]
            if digits is not None and digits.isdecimal() and int(digits) < _INT64_MAX:
                result[place] = int(digits) + 1
    return result


def _with_delays(
    result: _Ints, records: Records, topics: tuple[str, ...], code: _Ints, properties: Properties
) -> _Ints:
    """Put the time of delivery into the units of what waits in RocketMQ's schedule topic."""
    if SCHEDULE_TOPIC not in topics:
        return result
    delays = properties.values(b"DELAY").to_pylist()
    for place in np.flatnonzero(code == topics.index(SCHEDULE_TOPIC)).tolist():
        level = delays[place]
        if level is not None and level.isdecimal() and int(level[:9]) > 0:
            wait = _DELAYS_MS[min(int(level[:9]), len(_DELAYS_MS)) - 1]
            result[place] = records.stored_ms[place] + wait
    return result


def _keys(joined: pa.LargeStringArray) -> pa.ListArray:
    """Split each KEYS into its words; null where there are none."""
    kind = pa.list_(pa.string())
    plain = pc.match_substring_regex(joined, _PLAIN_KEYS)
    if pc.all(plain.fill_null(True)).as_py():
        return pc.split_pattern(joined, " ").cast(kind)
    words = [None if keys is None else keys.split() or None for keys in joined.to_pylist()]
    return pa.array(words, type=kind)


def _without(column: pa.Array, left_out: npt.NDArray[np.bool_]) -> pa.Array:
    if not left_out.any():
        return column
    places = np.arange(len(column))
    return column.take(pa.array(places, mask=left_out))


def _has_unit(records: Records, style: RecordStyle) -> npt.NDArray[np.bool_]:
    """Return which records are dispatched: in RocketMQ nothing that is prepared or rolled back."""
    if style is RecordStyle.LEDGERMQ:
        return np.ones(len(records.start), dtype=np.bool_)
    kind = records.sys_flag & _TRANSACTION_BITS
    has_unit: npt.NDArray[np.bool_] = (kind == 0) | (kind == _TRANSACTION_COMMIT)
    return has_unit


def _half_offsets(body: bytes, style: RecordStyle) -> tuple[int | None, ...]:
    several = style is not RecordStyle.LEDGERMQ
    # The last offset has a comma behind it, too.
    words = body.removesuffix(b",").split(b",") if several else body.split(b",", 1)[:1]
    return tuple(_half_offset(word) for word in words)


def _half_offset(word: bytes) -> int | None:
    offset = int(word) if word.isdigit() and len(word) < 20 else None
    return offset if offset is None or offset <= _INT64_MAX else None
