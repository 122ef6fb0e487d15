"""Message records as the leader writes them.

Place in the data path: a processor makes a `PendingRecord` from a request, `broker.leader.proposer`
gives it its queue offset, and `encode_at` its bytes once the log position is known. Replicas get
the bytes; nothing is filled in later, so the logs of all replicas are identical (promise G3).

The layout is RocketMQ's CommitLog record, magic V1 (V2 for topics over 127 bytes), drawn field by
field in `remoting/records/message.py`. Written here by one `struct` call per record, since this is
the leader's hottest loop.
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache

from isal.isal_zlib import crc32

__all__ = ["PendingRecord", "RecordTemplate", "host_bytes"]

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
_HOST_V6_SIZE = 20
_TOPIC_SIZE_MAX_V1 = 127
_RECONSUME_TIMES_MAX = (1 << 31) - 1

# total, magic, body CRC, queue id, flag, queue offset, position, sysFlag, born timestamp,
# born host, store timestamp, store host, reconsume times, prepared offset, body length
_FIXED = {
    (born, store): struct.Struct(f">iIIiiqqiq{born}sq{store}siqi")
    for born in (8, _HOST_V6_SIZE)
    for store in (8, _HOST_V6_SIZE)
}
assert _FIXED[8, 8].size == 88
_PROPERTIES_SIZE = struct.Struct(">H")


class RecordTemplate:
    """Fields that the records of one request share: topic, queue, hosts, times and flags."""

    __slots__ = (
        "born_host",
        "born_ms",
        "fixed",
        "magic",
        "overhead",
        "prepared_position",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "topic_field",
    )

    def __init__(
        self,
        *,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_host_size: int,
        reconsume_times: int = 0,
        prepared_position: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        if len(born_host) == _HOST_V6_SIZE:
            sys_flag |= BORN_HOST_V6
        if store_host_size == _HOST_V6_SIZE:
            sys_flag |= STORE_HOST_V6
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.born_host = born_host
        # One more than the most would fit no record, and end every leader that had to write it.
        self.reconsume_times = min(reconsume_times, _RECONSUME_TIMES_MAX)
        self.prepared_position = prepared_position
        self.fixed = _FIXED[len(born_host), store_host_size]
        encoded = topic.encode()
        short = len(encoded) <= _TOPIC_SIZE_MAX_V1
        self.magic = MAGIC_V1 if short else MAGIC_V2
        self.topic_field = len(encoded).to_bytes(1 if short else 2, "big") + encoded
        self.overhead = self.fixed.size + len(self.topic_field) + _PROPERTIES_SIZE.size

    def born_at(self, born_ms: int) -> RecordTemplate:
        """Return the template of a request that differs in its time of birth alone."""
        other = object.__new__(RecordTemplate)
        other.topic = self.topic
        other.sys_flag = self.sys_flag
        other.queue_id = self.queue_id
        other.born_ms = born_ms
        other.born_host = self.born_host
        other.reconsume_times = self.reconsume_times
        other.prepared_position = self.prepared_position
        other.fixed = self.fixed
        other.magic = self.magic
        other.topic_field = self.topic_field
        other.overhead = self.overhead
        return other


class PendingRecord:
    """Record to be stored; `queue_offset` and `position` are -1 until it is placed.

    `dedupe_key`: the UNIQ_KEY where the topic dedupes, else None.
    """

    __slots__ = (
        "body",
        "dedupe_key",
        "flag",
        "position",
        "properties",
        "queue_offset",
        "size",
        "tags_code",
        "template",
    )

    def __init__(
        self,
        template: RecordTemplate,
        body: bytes,
        properties: bytes,
        *,
        tags_code: int,
        flag: int,
        dedupe_key: str | None = None,
    ) -> None:
        self.template = template
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.flag = flag
        self.dedupe_key = dedupe_key
        self.queue_offset = -1
        self.position = -1
        self.size = template.overhead + len(body) + len(properties)

    @property
    def topic(self) -> str:
        return self.template.topic

    @property
    def queue_id(self) -> int:
        return self.template.queue_id

    def encode_at(self, position: int, store_ms: int, store_host: bytes) -> tuple[bytes, ...]:
        """Return the record's bytes, in pieces. Caller's duty: `queue_offset` is set."""
        self.position = position
        template, body, properties = self.template, self.body, self.properties
        fixed = template.fixed.pack(
            self.size,
            template.magic,
            crc32(body) & 0x7FFFFFFF,
            template.queue_id,
            self.flag,
            self.queue_offset,
            position,
            template.sys_flag,
            template.born_ms,
            template.born_host,
            store_ms,
            store_host,
            template.reconsume_times,
            template.prepared_position,
            len(body),
        )
        properties_size = _PROPERTIES_SIZE.pack(len(properties))
        return fixed, body, template.topic_field, properties_size, properties


@lru_cache(maxsize=4_096)
def host_bytes(address: str) -> bytes:
    """Return "ip:port" as a record holds it: 4 or 16 bytes of address, 4 of port.

    Raises ValueError if it is no numeric address.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host) + int(port).to_bytes(4, "big")
    except (OSError, OverflowError) as error:
        raise ValueError(f"{address!r} is no numeric ip:port") from error
