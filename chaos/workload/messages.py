"""The workload's messages: made with a value each, and turned back into rows when they are read.

Place in the data path: senders make messages here; readers turn delivered messages into the run
format's `messages`.

Invariants: a value names one message of the run and is never used again; a retry carries the same
value and UNIQ_KEY; a message is recorded where it was really read, so one that came through a retry
topic names that topic's queue.

Source: docs/FORMATS.md section 4 (lmq_value, lmq_tx, lmq_seq, __SHARDINGKEY).
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Final

from chaos.recording.history import MessageRow
from chaos.workload.contents_digest import USER_PREFIX, contents_digest
from client.message import DeliveredMessage, Message, PropertyName, SendResult
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = [
    "PROPERTY_NUMBER",
    "PROPERTY_SEQ",
    "PROPERTY_TX",
    "PROPERTY_VALUE",
    "SIZES",
    "MessageMaker",
    "row_of_delivered",
    "row_of_message",
    "row_of_stored",
    "tag_of",
    "wall_ms",
]

PROPERTY_VALUE: Final = "lmq_value"
PROPERTY_TX: Final = "lmq_tx"
PROPERTY_SEQ: Final = "lmq_seq"
PROPERTY_NUMBER: Final = f"{USER_PREFIX}number"
_TEXTS: Final = (
    "plain",
    "größer",
    "\u4e2d\u6587",
    "\U0001f680",
    " begins with a blank",
    "ends with blanks  ",
    "   ",
    "\ttabs and lines\r\n",
    "two  blanks, an = and a \x01 within",
    "long " * 200,
)
_TEXT_NAMES: Final = (f"{USER_PREFIX}text", f"{USER_PREFIX}a name", f"{USER_PREFIX}größe")
_NEAR_SHARE: Final = 0.2  # of the messages have a property whose name is near one of the system's
_SYSTEM_NAMES: Final = (
    *("HASHTAGS", PropertyName.TAGS, PropertyName.KEYS, PropertyName.UNIQ_KEY, PropertyName.WAIT),
    *(PropertyName.DELAY, PropertyName.TIMER_DELAY_SEC, PropertyName.TIMER_DELAY_MS),
    *(PropertyName.TIMER_DELIVER_MS, PropertyName.TRAN_MSG, PropertyName.PGROUP),
    *(PropertyName.REAL_TOPIC, PropertyName.REAL_QUEUE_ID, PropertyName.RETRY_TOPIC),
    *(PropertyName.MSG_TYPE, PropertyName.CORRELATION_ID, PropertyName.POP_CK),
    *(PropertyName.SHARDING_KEY, PropertyName.CLUSTER),
)
_NEAR_VALUES: Final = ("T1", "true", "a tag", "1", "%RETRY%group", "T0 || T1")
_BARE_SHARE: Final = 0.25  # of the messages have no key
_KEYS_SHARE: Final = 0.3  # have several words as keys, one of which they share with others
_NEIGHBOURS: Final = 4  # messages of one process have a key in common
_COMPRESSIBLE_EVERY: Final = 3  # messages, of which one has a body that compression makes smaller
_FLAGS: Final = (0, 0, 1, 0x7FFF_FFFF)
# About the limits of compression here (128) and by default (4,096), and far beyond both.
SIZES: Final = (1, 127, 128, 129, 1_000, 4_095, 4_096, 4_097, 9_000, 40_000, 120_000)
"""Bytes of the bodies that are not of the usual size."""


class MessageMaker:
    """Makes the messages of one sending process. `prefix` is unique to it in the run.

    `sizes_share` of the bodies are of one of `SIZES`, the others of `body_bytes`.
    """

    def __init__(
        self, *, prefix: str, body_bytes: int, rng: random.Random, sizes_share: float = 0.0
    ) -> None:
        self._prefix = prefix
        self._body_bytes = body_bytes
        self._sizes_share = sizes_share
        self._rng = rng
        self._numbers = itertools.count()
        self._seqs: dict[str, int] = {}

    def make(
        self,
        topic: str,
        *,
        uniq_key: str,
        shard: str | None = None,
        transactional: bool = False,
    ) -> Message:
        """Make a new message; with `shard` it gets the next number in that shard."""
        number = next(self._numbers)
        value = f"{self._prefix}-{number}"
        properties = {
            PROPERTY_VALUE: value,
            PROPERTY_NUMBER: str(number),
            self._rng.choice(_TEXT_NAMES): self._rng.choice(_TEXTS),
        }
        if self._rng.random() < _NEAR_SHARE:
            properties[self._near_name()] = self._rng.choice(_NEAR_VALUES)
        if transactional:
            properties[PROPERTY_TX] = f"tx-{value}"
        if shard is not None:
            seq = self._seqs.get(shard, 0)
            self._seqs[shard] = seq + 1
            properties[PROPERTY_SEQ] = str(seq)
        return Message(
            topic=topic,
            body=self._body(value, number),
            tags=tag_of(value),
            keys=self._keys(value, number),
            shard=shard,
            flag=self._rng.choice(_FLAGS),
            properties=properties,
            uniq_key=uniq_key,
        )

    def _body(self, value: str, number: int) -> bytes:
        """Draw the body, which begins with the value as far as there is room for it."""
        size = max(len(value), self._body_bytes)
        if self._sizes_share and self._rng.random() < self._sizes_share:
            size = self._rng.choice(SIZES)
        filler = self._rng.randbytes(max(0, size - len(value)))
        if number % _COMPRESSIBLE_EVERY == 0 and filler:
            filler = filler[:1] * len(filler)
        return (value.encode() + filler)[:size]

    def _near_name(self) -> str:
        """Draw a name that ends, or begins, as one of the system's, or is one in small letters."""
        name = self._rng.choice(_SYSTEM_NAMES)
        return self._rng.choice((f"{USER_PREFIX}{name}", f"{name}_2", name.lower()))

    def _keys(self, value: str, number: int) -> tuple[str, ...]:
        """Draw the keys: none, one, or several words."""
        draw = self._rng.random()
        if draw < _BARE_SHARE:
            return ()
        own = f"key-{value}"
        if draw >= _BARE_SHARE + _KEYS_SHARE:
            return (own,)
        return (f"keys-{self._prefix}-{number // _NEIGHBOURS}", own, f"schlüssel-{value}")


def tag_of(value: str) -> str:
    """Return the tag of the message with this value: T0 to T3 in turn."""
    return f"T{int(value.rpartition('-')[2]) % 4}"


def row_of_message(
    message: Message,
    *,
    broker_group: str | None = None,
    queue: int | None = None,
    offset: int | None = None,
) -> MessageRow:
    """Return the row of a message that is being sent; its place is filled as far as it is known."""
    seq = message.properties.get(PROPERTY_SEQ)
    return MessageRow(
        value=message.properties[PROPERTY_VALUE],
        uniq_key=message.uniq_key,
        keys=tuple(message.keys),
        broker_group=broker_group,
        topic=message.topic,
        queue=queue,
        offset=offset,
        digest=contents_digest(message.body, message.flag, _as_properties(message)),
        shard=message.shard,
        seq=None if seq is None else int(seq),
        tx=message.properties.get(PROPERTY_TX),
    )


def row_of_stored(message: Message, result: SendResult, number: int = 0) -> MessageRow:
    """Return the row of a plain message that the broker reports as stored, at the reported place.

    `number`: of a batch, whose messages stand one behind the other.
    """
    return row_of_message(
        message,
        broker_group=result.queue.broker_name,
        queue=result.queue.queue_id,
        offset=result.queue_offset + number,
    )


def row_of_delivered(message: DeliveredMessage) -> MessageRow:
    """Return the row of a message that was read. Without `lmq_value` its UNIQ_KEY is its value."""
    seq = message.properties.get(PROPERTY_SEQ)
    return MessageRow(
        value=message.properties.get(PROPERTY_VALUE) or message.uniq_key,
        uniq_key=message.uniq_key,
        keys=tuple(message.keys),
        broker_group=message.queue.broker_name,
        topic=message.queue.topic,
        queue=message.queue.queue_id,
        offset=message.queue_offset,
        digest=contents_digest(message.body, message.flag, message.properties),
        shard=message.shard,
        seq=int(seq) if seq is not None and seq.isdecimal() else None,
        tx=message.properties.get(PROPERTY_TX),
        reconsume=message.reconsume_times,
        origin=_origin_of(message),
    )


def _origin_of(message: DeliveredMessage) -> str:
    """Return the topic of which the client, or a dead letter's own property, says the message is.

    A copy that a member made of it has the property of a retry only, as in RocketMQ.
    """
    if not message.queue.topic.startswith(DLQ_PREFIX):
        return message.topic
    again = message.properties.get(PropertyName.RETRY_TOPIC, message.topic)
    return message.properties.get(PropertyName.DLQ_ORIGIN_TOPIC, again)


def _as_properties(message: Message) -> dict[str, str]:
    """Return the properties as the record will have them."""
    properties = dict(message.properties)
    if message.tags:
        properties[PropertyName.TAGS] = message.tags
    if message.keys:
        properties[PropertyName.KEYS] = " ".join(message.keys)
    return properties


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
