"""Lists that `split_batches` splits, beside what it promises: batches that brokers take.

Place in the data path: none; the messages are sent nowhere. How large a batch is says the body that
a producer would send for it.

Invariants: texts are of any alphabet, short and long, in every place that a message has for them;
the limit lies about where some messages of the list end, so that one byte or one message
more or less decides.

Source: docs/CLIENT.md (split_batches); RocketMQ's MessageBatch (one topic, nothing delayed).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final

from chaos.workload.expectations import Expectations
from client.connection.send_codec import prepare_batch
from client.message import Message
from client.produce.batches import split_batches
from remoting.records.property_names import PropertyName

__all__ = ["hold_splits"]

LISTS: Final = 60
MESSAGES_MAX: Final = 12
COUNTS: Final = (1, 3, 1_024)
NEAR: Final = 20  # bytes
BODY_MAX: Final = 400
TEXT_MAX: Final = 120
PLACES: Final = ("tags", "keys", "shard", "name", "value")
OTHERS_SHARE: Final = 0.3
DELAYED_SHARE: Final = 0.1
TOPICS: Final = ("calls-split-a", "calls-split-b")
_ALPHABETS: Final = ("abcxyz019", "äßéñ", "\u4e2d\u6587\u5b57", "\U0001f40d\U0001f680")
# A message's size in a batch is estimated from above: by less than this, whatever it holds.
ESTIMATED_MORE: Final = 160


def hold_splits(expectations: Expectations, rng: random.Random) -> None:
    """Split some lists, and hold what comes of each against the rules of a batch."""
    for number in range(LISTS):
        messages = _messages(rng, f"split-{number}")
        count_max = rng.choice(COUNTS)
        size_max = max(
            1, _size(messages[: rng.randint(1, len(messages))]) + rng.randint(-NEAR, NEAR)
        )
        pieces = list(split_batches(messages, size_bytes_max=size_max, count_max=count_max))
        in_order = [  # those of one topic together, topics in the order in which they appear
            each.uniq_key
            for topic in dict.fromkeys(message.topic for message in messages)
            for each in messages
            if each.topic == topic
        ]
        expectations.hold(
            f"batches of list {number}: {len(messages)} messages, at most {size_max} bytes and"
            f" {count_max} messages in each",
            expected={"in order": True, "refused": [], "shorter than need be": []},
            answered={
                "in order": [each.uniq_key for piece in pieces for each in piece] == in_order,
                "refused": [
                    wrong for piece in pieces if (wrong := _wrong(piece, size_max, count_max))
                ],
                "shorter than need be": [
                    f"{len(one)} messages"
                    for one, following in itertools.pairwise(pieces)
                    if _fits([*one, following[0]], size_max, count_max)
                ],
            },
        )


def _wrong(piece: Sequence[Message], size_max: int, count_max: int) -> str | None:
    """Return what is wrong with a batch; None where nothing is. One message alone may be of any
    size, and is sent as it is."""
    if len({each.topic for each in piece}) != 1:
        return f"{len(piece)} messages of several topics, or none"
    if len(piece) == 1:
        return None
    if any(PropertyName.DELAY in each.properties for each in piece):
        return f"a delayed one among {len(piece)}"
    if len(piece) > count_max or _size(piece) > size_max:
        return f"{len(piece)} messages, {_size(piece)} bytes"
    return None


def _fits(piece: Sequence[Message], size_max: int, count_max: int) -> bool:
    """Return whether a batch might have these, however carefully their size is estimated."""
    estimated = _size(piece) + ESTIMATED_MORE * len(piece)
    return _wrong(piece, size_max, count_max) is None and estimated <= size_max


def _size(messages: Sequence[Message]) -> int:
    """Return the size of what would be sent, were they of one topic and not delayed."""
    return sum(
        len(prepare_batch([_at_once(each)], group="calls-producers").body) for each in messages
    )


def _at_once(message: Message) -> Message:
    properties = {
        name: value for name, value in message.properties.items() if name != PropertyName.DELAY
    }
    return Message(
        born_timestamp_ms=0,
        topic=message.topic,
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        shard=message.shard,
        properties=properties,
        uniq_key=message.uniq_key,
    )


def _messages(rng: random.Random, prefix: str) -> list[Message]:
    """Draw messages whose texts are long in one place, and short or none in all others, so that
    each place decides somewhere; the bodies are small enough for that."""
    place, alphabet = rng.choice(PLACES), rng.choice(_ALPHABETS)

    def text(where: str) -> str:
        count = rng.randint(TEXT_MAX // 2, TEXT_MAX) if where == place else rng.randint(1, 8)
        return "".join(rng.choices(alphabet, k=count))

    def has(where: str) -> bool:
        return where == place or rng.random() < OTHERS_SHARE

    messages = []
    for at in range(rng.randint(1, MESSAGES_MAX)):
        properties = {f"u_{text('name')}": text("value")} if has("name") or has("value") else {}
        if rng.random() < DELAYED_SHARE:
            properties[PropertyName.DELAY] = "1"
        messages.append(
            Message(
                topic=rng.choice(TOPICS),
                body=bytes(rng.randint(1, BODY_MAX)),
                tags=text("tags") if has("tags") else None,
                keys=tuple(text("keys") for _ in range(rng.randint(1, 3))) if has("keys") else (),
                shard=text("shard") if has("shard") else None,
                properties=properties,
                uniq_key=f"{prefix}-{at}",
                born_timestamp_ms=0,
            )
        )
    return messages
