"""Message records as the leader writes them.

Place in the data path: a processor makes a `PendingRecord` from a request, `broker.proposer` gives
it its queue offset, and `encode_at` its bytes once the log position is known. Replicas get the
bytes; nothing is filled in later, so the logs of all replicas are identical (promise G3).

The layout is RocketMQ's CommitLog record, magic V1 (V2 for topics over 127 bytes), drawn field by
field in `remoting/message.py`. Written here by one `struct` call per record, since this is the
leader's hottest loop.
"""

from __future__ import annotations

import socket
import struct
import zlib

__all__ = ["MAGIC_V1", "PendingRecord", "host_bytes"]

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
_HOST_V6_SIZE = 20

# total, magic, body CRC, queue id, flag, queue offset, position, sysFlag, born timestamp,
# born host, store timestamp, store host, reconsume times, prepared offset, body length
_FIXED = {
    (born, store): struct.Struct(f">iIIiiqqiq{born}sq{store}siqi")
    for born in (8, _HOST_V6_SIZE)
    for store in (8, _HOST_V6_SIZE)
}
assert _FIXED[8, 8].size == 88
_PROPERTIES_SIZE = struct.Struct(">H")


class PendingRecord:
    """A record on its way into the log. `queue_offset` and `position` are -1 until it is placed."""

    __slots__ = (
        "body",
        "born_host",
        "born_ms",
        "dedupe_key",
        "flag",
        "position",
        "prepared_position",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "sys_flag",
        "tags_code",
        "topic",
        "topic_bytes",
    )

    def __init__(
        self,
        *,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_host_size: int,
        reconsume_times: int = 0,
        prepared_position: int = 0,
        dedupe_key: str | None = None,
    ) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.flag = flag
        sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        if len(born_host) == _HOST_V6_SIZE:
            sys_flag |= BORN_HOST_V6
        if store_host_size == _HOST_V6_SIZE:
            sys_flag |= STORE_HOST_V6
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_position = prepared_position
        self.dedupe_key = dedupe_key
        self.queue_offset = -1
        self.position = -1
        topic_size = len(self.topic_bytes)
        self.size = (
            _FIXED[len(born_host), store_host_size].size
            + len(body)
            + (1 if topic_size <= 127 else 2)
            + topic_size
            + 2
            + len(properties)
        )

    def encode_at(self, position: int, store_ms: int, store_host: bytes) -> tuple[bytes, ...]:
        """The record's bytes, in pieces. Caller's duty: `queue_offset` is set."""
        assert self.queue_offset >= 0
        self.position = position
        body, topic = self.body, self.topic_bytes
        short = len(topic) <= 127
        fixed = _FIXED[len(self.born_host), len(store_host)].pack(
            self.size,
            MAGIC_V1 if short else MAGIC_V2,
            zlib.crc32(body) & 0x7FFFFFFF,
            self.queue_id,
            self.flag,
            self.queue_offset,
            position,
            self.sys_flag,
            self.born_ms,
            self.born_host,
            store_ms,
            store_host,
            self.reconsume_times,
            self.prepared_position,
            len(body),
        )
        topic_size = len(topic).to_bytes(1 if short else 2, "big")
        properties = self.properties
        return fixed, body, topic_size, topic, _PROPERTIES_SIZE.pack(len(properties)), properties


def host_bytes(address: str) -> bytes:
    """An "ip:port" as a record holds it: 4 or 16 bytes of address, 4 of port.

    Raises ValueError for what is no numeric address.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host) + int(port).to_bytes(4, "big")
    except (OSError, OverflowError) as error:
        raise ValueError(f"{address!r} is no numeric ip:port") from error
