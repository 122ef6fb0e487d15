"""Splitting of messages into batches that a broker accepts; pure.

Place in the data path: an application passes the batches to `Producer.send_batch`, one after the
other; each is stored as a whole or not at all.

Invariants: a batch has messages of one topic, in the order given; each message is in one batch; no
batch is larger than the limits, unless it is a single message.

Source: RocketMQ's documentation leaves the splitting to applications (its ListSplitter).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from client.message import Message
from remoting.records.property_names import delaying_property

__all__ = ["BATCH_SIZE_BYTES_MAX", "split_batches"]

BATCH_SIZE_BYTES_MAX: Final = 1024 * 1024
BATCH_COUNT_MAX: Final = 1_024
# Fixed fields of a message in a batch, the names and separators of its properties, a UNIQ_KEY.
_OVERHEAD_BYTES: Final = 128


def split_batches(
    messages: Iterable[Message],
    *,
    size_bytes_max: int = BATCH_SIZE_BYTES_MAX,
    count_max: int = BATCH_COUNT_MAX,
) -> Iterator[list[Message]]:
    """Yield the batches; those of one topic together, topics in order of first appearance.

    A delayed message is a batch of its own, to be sent by `send`: brokers refuse it in a batch.
    """
    if size_bytes_max < 1 or count_max < 1:
        raise ValueError(f"size {size_bytes_max} and count {count_max} of a batch must be positive")
    by_topic: dict[str, list[Message]] = {}
    for message in messages:
        by_topic.setdefault(message.topic, []).append(message)
    for topic_messages in by_topic.values():
        piece: list[Message] = []
        size = 0
        for message in topic_messages:
            added = _size(message)
            alone = delaying_property(message.properties) is not None
            if piece and (alone or size + added > size_bytes_max or len(piece) >= count_max):
                yield piece
                piece, size = [], 0
            piece.append(message)
            size += added
            if alone:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece


def _size(message: Message) -> int:
    """Return an upper estimate of the message's size in a batch."""
    texts = [message.tags or "", message.shard or "", *message.keys]
    for name, value in message.properties.items():
        texts += (name, value)
    return _OVERHEAD_BYTES + len(message.body) + sum(_bytes(text) + 2 for text in texts)


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))  # where that is not UTF-8, the send refuses it
