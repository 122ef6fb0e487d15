"""The values that applications pass to a producer and receive from a consumer.

Place in the data path: `Message` enters at the producer, `SendResult` comes back;
`DeliveredMessage` is a stored record as a consumer receives it, with its queue and its body
decompressed, as far as that is possible.

Invariants:
- A `Message` gets its UNIQ_KEY and bornTimestamp at its first send and keeps them in every later
  one, so that sending the same object again after an unknown outcome is a retry, which ledgermq's
  brokers store once; the time only as long as it may be stored. A request gives it neither.
- `DeliveredMessage.queue` is the queue the record was read from. For a message redelivered through
  `%RETRY%group`, `topic` is the original topic and `queue` the retry queue.

Source: RocketMQ Message, MessageExt, SendResult; property names of its message store.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remoting.records.property_names import PropertyName

__all__ = [
    "DeliveredMessage",
    "Message",
    "MessageQueue",
    "PropertyName",
    "SendResult",
    "SendStatus",
]


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic. The order (topic, broker, queue) is that of RocketMQ's rebalance."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True, kw_only=True)
class Message:
    """A message to send.

    `tags`, `keys` and `shard` become properties; `properties` are the user's own and must not use
    those names, nor be empty. A key is one word. The first send fills `uniq_key` and
    `born_timestamp_ms` where they are None; a caller that sets `uniq_key` must make it unique.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    shard: str | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    uniq_key: str | None = None
    born_timestamp_ms: int | None = None


class SendStatus(enum.Enum):
    """The four answers by which a broker confirms that it has the message.

    With the Raft engine only SEND_OK occurs and means: fsynced on a majority. The others come from
    master-slave replication: stored on the master, but not flushed or replicated in time.
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True, kw_only=True)
class SendResult:
    """The place where a message was stored.

    `msg_id` is the UNIQ_KEY; of a batch, those of its messages joined by commas, as are the
    `offset_msg_id`s. `queue_offset` is the place in the queue (of a batch, the first message's; of
    a half message, that in the half topic). `attempts` counts the requests it took, and `address`
    is the table address of the node that answered. Not frozen: one is made per send, and freezing
    doubles its cost.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None
    attempts: int
    address: str
    region: str = "DefaultRegion"
    is_traced: bool = True
    """Whether the broker wants this message traced."""
    recall_handle: str | None = None
    """Handle of a timer message, for `Producer.recall`."""


@dataclass(slots=True, kw_only=True)
class DeliveredMessage:
    """A message as a consumer receives it. Not frozen: one is made per message read.

    `body_error` is None unless the system flag says that the body is compressed and it can't be
    decompressed: it says why then, and `body` is what the producer sent.
    """

    topic: str
    queue: MessageQueue
    queue_offset: int
    body: bytes
    properties: dict[str, str]
    uniq_key: str
    offset_msg_id: str
    physical_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_error: str | None = None

    @property
    def tags(self) -> str | None:
        return self.properties.get(PropertyName.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(PropertyName.KEYS, "").split()

    @property
    def shard(self) -> str | None:
        return self.properties.get(PropertyName.SHARDING_KEY)
