"""Tables by queue: JSON objects whose field names are MessageQueues.

Place in the data path: bodies of statistics, progress and offset resets, between brokers, consumers
and administrators, and the offsets file of a broadcasting consumer.

Such a name is written as the bare object, `{{"brokerName":"a","queueId":0,"topic":"T"}:{...}}`,
which is not standard JSON: it is what fastjson writes, and the one form that all of RocketMQ's
clients read (4.9.8 and 5.3.3 accept a string that holds the object too, 5.4.0 and 5.5.0 don't).
`remoting.protocol.fastjson` decodes both forms and turns the bare object into its text;
`parse_queue_name` parses that text.

Source: RocketMQ MessageQueue as a map's key in TopicStatsTable, ConsumeStats, ResetOffsetBody,
GetConsumerStatusBody, ConsumerRunningInfo and OffsetSerializeWrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from remoting.protocol import fastjson

__all__ = ["QueueName", "encode_queue_table", "parse_queue_name"]


class QueueName(msgspec.Struct, frozen=True, rename="camel"):
    """RocketMQ's MessageQueue, as a JSON value and as a field's name."""

    broker_name: str
    queue_id: int
    topic: str


def encode_queue_table(rows: Iterable[tuple[QueueName, Any]]) -> msgspec.Raw:
    """Encode a JSON object by queue, for use in a body that `fastjson.encode` writes."""
    encode = fastjson.encode
    return msgspec.Raw(
        b"{" + b",".join(encode(name) + b":" + encode(value) for name, value in rows) + b"}"
    )


def parse_queue_name(text: str) -> QueueName:
    """Parse the queue in a field's name. Raises BodyError."""
    return fastjson.decode(text.encode(), QueueName)
