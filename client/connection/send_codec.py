"""Codec of send requests: `Message` to RemotingCommand, answer to `SendResult`.

Place in the data path: `client.produce.producer` prepares a message once, makes a command of it for
each attempt, and decodes the answer here. SEND_MESSAGE_V2 (one-letter header fields) for single
messages, SEND_BATCH_MESSAGE for batches; a message whose MSG_TYPE is `reply` goes as
SEND_REPLY_MESSAGE_V2.

Invariants: a prepared send never changes between attempts (UNIQ_KEY, bornTimestamp, body); only
queue and broker name do. A message that every broker would refuse is refused before it is sent.

Source: RocketMQ's request codes 310, 320, 325; limits of DefaultMQProducer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from client.errors import ClientError, MalformedAnswerError
from client.message import Message, MessageQueue, PropertyName, SendResult, SendStatus
from client.namespace import NO_NAMESPACE, Namespace
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records import sys_flag
from remoting.records.message import (
    BODY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    BatchItem,
    compress_body,
    encode_batch_body,
)
from remoting.records.properties import properties_text
from remoting.records.property_names import delaying_property

__all__ = [
    "Compression",
    "CompressionType",
    "MessageRefusedError",
    "PreparedSend",
    "prepare_batch",
    "prepare_message",
    "send_result",
    "send_status",
]

DEFAULT_TOPIC: Final = "TBW102"
DEFAULT_TOPIC_QUEUES: Final = 4
_TOPIC_SIZE_MAX: Final = 127
_INT_END: Final = 2**31  # of Java's int, and of its long
_LONG_END: Final = 2**63
_REPLY: Final = "reply"

_STATUSES: Final = {
    0: SendStatus.SEND_OK,
    10: SendStatus.FLUSH_DISK_TIMEOUT,
    11: SendStatus.SLAVE_NOT_AVAILABLE,
    12: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
_RESERVED: Final = frozenset(
    {
        PropertyName.KEYS,
        PropertyName.TAGS,
        PropertyName.UNIQ_KEY,
        PropertyName.SHARDING_KEY,
        PropertyName.TRAN_MSG,
        PropertyName.PGROUP,
    }
)


class CompressionType(enum.Enum):
    """The compression of large bodies. Clients before 5.0 decompress ZLIB only."""

    ZLIB = sys_flag.COMPRESSION_ZLIB
    LZ4 = sys_flag.COMPRESSION_LZ4
    ZSTD = sys_flag.COMPRESSION_ZSTD


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Bodies of `size_bytes_min` or more are compressed, at `level` where the type has levels."""

    size_bytes_min: int = 4_096
    kind: CompressionType = CompressionType.ZLIB
    level: int = 5


class MessageRefusedError(ClientError):
    """The message breaks a rule or limit and was not sent. The text says which."""


@dataclass(slots=True, kw_only=True)
class PreparedSend:
    """A message or batch ready for its attempts. `fields` lack queue (e) and broker name (n)."""

    code: int
    topic: str
    fields: dict[str, str]
    body: bytes
    msg_id: str
    is_half: bool = False

    def command(self, queue: MessageQueue) -> RemotingCommand:
        """Return the request for one attempt, to `queue`."""
        fields = self.fields.copy()
        fields["e"] = str(queue.queue_id)
        fields["n"] = queue.broker_name
        return RemotingCommand(code=self.code, ext_fields=fields, body=self.body)


def prepare_message(
    message: Message,
    *,
    group: str,
    compression: Compression | None,
    transactional: bool = False,
    extra: Mapping[str, str] | None = None,
    namespace: Namespace = NO_NAMESPACE,
) -> PreparedSend:
    """Prepare a message that has its uniq_key and born timestamp; `group` is wrapped already.

    `extra` are properties besides the message's own. Raises MessageRefusedError.
    """
    _check(message)
    body = message.body
    flags = 0
    if compression is not None and len(body) >= compression.size_bytes_min:
        compressed, compressed_flags = compress_body(
            body, compression.kind.value, level=compression.level
        )
        if len(compressed) < len(body):
            body, flags = compressed, compressed_flags
    extra = dict(extra or {})
    if transactional:
        flags |= sys_flag.TRANSACTION_PREPARED
        extra |= {PropertyName.TRAN_MSG: "true", PropertyName.PGROUP: group}
    is_reply = message.properties.get(PropertyName.MSG_TYPE) == _REPLY
    return PreparedSend(
        code=RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2,
        topic=message.topic,
        fields=_fields(
            message, namespace.wrap(message.topic), group, _properties(message, extra), flags
        ),
        body=body,
        msg_id=message.uniq_key or "",
        is_half=transactional,
    )


def prepare_batch(
    messages: Sequence[Message], *, group: str, namespace: Namespace = NO_NAMESPACE
) -> PreparedSend:
    """Prepare a batch of one topic; every message has its uniq_key. Raises MessageRefusedError."""
    if not messages:
        raise MessageRefusedError("a batch needs at least one message")
    first = messages[0]
    items = []
    for message in messages:
        _check(message)
        if message.topic != first.topic:
            raise MessageRefusedError(
                f"a batch has one topic, not both {first.topic!r} and {message.topic!r}"
            )
        delaying = delaying_property(message.properties)
        if delaying is not None:
            raise MessageRefusedError(f"a batch takes no delayed message (property {delaying})")
        items.append(BatchItem(message.body, _properties(message, {}).encode(), message.flag))
    body = encode_batch_body(items)
    if len(body) > BODY_SIZE_MAX:
        raise MessageRefusedError(f"batch of {len(body)} bytes, more than {BODY_SIZE_MAX}")
    return PreparedSend(
        code=RequestCode.SEND_BATCH_MESSAGE,
        topic=first.topic,
        fields={**_fields(first, namespace.wrap(first.topic), group, "", 0), "m": "true"},
        body=body,
        msg_id=",".join(message.uniq_key or "" for message in messages),
    )


def send_status(code: int) -> SendStatus | None:
    """Return the status that a response code stands for; None where it is an error."""
    return _STATUSES.get(code)


def send_result(
    answer: RemotingCommand,
    *,
    status: SendStatus,
    prepared: PreparedSend,
    queue: MessageQueue,
    attempts: int,
    address: str,
) -> SendResult:
    """Decode the header of a stored message's answer. Raises MalformedAnswerError."""
    fields = answer.ext_fields
    try:
        offset_msg_id = fields["msgId"]
        queue_id = int(fields["queueId"])
        queue_offset = int(fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise MalformedAnswerError(f"send answer of {address} lacks or garbles {error}") from error
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status=status,
        msg_id=prepared.msg_id,
        offset_msg_id=offset_msg_id,
        queue=queue,
        queue_offset=queue_offset,
        transaction_id=fields.get("transactionId"),
        attempts=attempts,
        address=address,
        region=fields.get(PropertyName.MSG_REGION, "DefaultRegion"),
        is_traced=fields.get(PropertyName.TRACE_ON) != "false",
        recall_handle=fields.get("recallHandle"),
    )


def _check(message: Message) -> None:
    assert message.uniq_key is not None, "the producer stamps a message before it prepares it"
    assert message.born_timestamp_ms is not None
    topic_size = _size_in_utf8("topic", message.topic)
    if not 0 < topic_size <= _TOPIC_SIZE_MAX:
        raise MessageRefusedError(f"topic of {topic_size} bytes is not within 1..{_TOPIC_SIZE_MAX}")
    if not isinstance(message.body, bytes):
        raise MessageRefusedError(f"a body is bytes, not {type(message.body).__name__}")
    if not message.body:
        raise MessageRefusedError(f"message for {message.topic!r} has an empty body")
    if len(message.body) > BODY_SIZE_MAX:
        raise MessageRefusedError(f"body of {len(message.body)} bytes, more than {BODY_SIZE_MAX}")
    if not -_INT_END <= message.flag < _INT_END:
        raise MessageRefusedError(f"flag {message.flag} is beyond 32 bits")
    if not -_LONG_END <= message.born_timestamp_ms < _LONG_END:
        raise MessageRefusedError(f"time of birth {message.born_timestamp_ms} is beyond 64 bits")


def _properties(message: Message, extra: dict[str, str]) -> str:
    assert message.uniq_key is not None
    properties = {PropertyName.UNIQ_KEY: message.uniq_key}
    if message.tags:
        properties[PropertyName.TAGS] = message.tags
    if message.keys:
        properties[PropertyName.KEYS] = _keys_text(message.keys)
    if message.shard:
        properties[PropertyName.SHARDING_KEY] = message.shard
    if message.properties:
        if not _RESERVED.isdisjoint(message.properties):
            names = ", ".join(sorted(_RESERVED & message.properties.keys()))
            raise MessageRefusedError(f"properties may not name {names}")
        # Whoever decodes it would drop it; one of blanks, which RocketMQ refuses, arrives.
        if "" in message.properties or "" in message.properties.values():
            raise MessageRefusedError("a property has an empty name or value")
        properties.update(message.properties)
    properties.update(extra)
    try:
        text = properties_text(properties)
    except RecordError as error:
        raise MessageRefusedError(str(error)) from error
    if _size_in_utf8("properties", text) > PROPERTIES_SIZE_MAX:
        raise MessageRefusedError(f"properties take more than {PROPERTIES_SIZE_MAX} bytes")
    return text


def _keys_text(keys: Sequence[str]) -> str:
    if isinstance(keys, str):  # which is a sequence of texts, too: of its letters
        raise MessageRefusedError(f"keys are a sequence of texts, not the text {keys!r:.80}")
    text = " ".join(keys)
    if text.split() != list(keys):
        raise MessageRefusedError(f"a key is empty or has a blank in it: {tuple(keys)!r:.80}")
    return text


def _size_in_utf8(what: str, text: str) -> int:
    """Return how many bytes `text` takes; Python's text may hold what UTF-8 has no form for."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise MessageRefusedError(f"{what}: text that is not UTF-8: {error}") from error


def _fields(
    message: Message, topic: str, group: str, properties: str, flags: int
) -> dict[str, str]:
    return {
        "a": group,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": "4",
        "f": str(flags),
        "g": str(message.born_timestamp_ms),
        "h": str(message.flag),
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


assert DEFAULT_TOPIC_QUEUES == 4, "field d above says the same"
