"""The body of a batch acknowledgement: popped messages as bits behind the start of their pop; pure.

Place in the data path: `client.consume.pop_consumer` sends it with BATCH_ACK_MESSAGE.

Invariants: messages of one pop and queue share a row; bit n of byte m stands for the offset
start + 8 m + n. Source: RocketMQ BatchAckMessageRequestBody, BatchAck (short names).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from remoting.protocol.pop_handle import PopHandle

__all__ = ["batch_ack_body"]

_RowKey: TypeAlias = tuple[str, str, int, int, int, int, int]


def batch_ack_body(broker_name: str, group: str, popped: Sequence[tuple[str, PopHandle]]) -> bytes:
    """Encode the acknowledgement of messages, each with the topic that it was popped from."""
    rows: dict[_RowKey, int] = {}
    for topic, handle in popped:
        assert handle.start_offset <= handle.offset
        key = (
            topic,
            handle.retry_flag,
            handle.start_offset,
            handle.queue_id,
            handle.revive_queue,
            handle.pop_ms,
            handle.invisible_ms,
        )
        rows[key] = rows.get(key, 0) | 1 << (handle.offset - handle.start_offset)
    acks = [
        {
            "c": group,
            "t": topic,
            "r": retry,
            "so": start,
            "q": queue_id,
            "rq": revive_queue,
            "pt": pop_ms,
            "it": invisible_ms,
            "b": _bit_set(bits),
        }
        for (topic, retry, start, queue_id, revive_queue, pop_ms, invisible_ms), bits in (
            rows.items()
        )
    ]
    return msgspec.json.encode({"brokerName": broker_name, "acks": acks})


def _bit_set(bits: int) -> str:
    """Encode the bits as java.util.BitSet does: little-endian, without trailing zero bytes."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode("ascii")
