"""Payloads as a proposer makes them, and records as a RocketMQ master writes them."""

from __future__ import annotations

from broker.entry.payload import UNIT, Run, encode_header, encode_table
from broker.ha.framing import SLOT_AHEAD
from remoting.records.message import MessageRecord, encode_record

STORED_MS = 1_790_000_000_000


def record(topic: str, queue_offset: int, position: int, body: bytes) -> bytes:
    return encode_record(
        MessageRecord(
            topic=topic,
            queue_id=0,
            body=body,
            properties=b"TAGS\x01a\x02",
            queue_offset=queue_offset,
            physical_offset=position,
            born_timestamp_ms=STORED_MS - 7_000,
            store_timestamp_ms=STORED_MS,
        )
    )


def payload_at(position: int, bodies: list[bytes], *, first: int = 0, topic: str = "T") -> bytes:
    """Return the payload of one run for the slot at `position`; no bodies: no run either."""
    sizes = [len(record(topic, 0, 0, body)) for body in bodies]

    def table(at: int) -> bytes:
        units = []
        for size in sizes:
            units.append(UNIT.pack(at, size, 97))
            at += size
        runs = [Run(topic, 0, first, b"".join(units), None)] if bodies else []
        return encode_table(STORED_MS, runs, [])

    at = position + 8 + len(table(0))
    pieces = [encode_header(len(table(0))), table(at)]
    for number, body in enumerate(bodies):
        pieces.append(record(topic, first + number, at, body))
        at += sizes[number]
    return b"".join(pieces)


def slot(end: int) -> int:
    """Return where a payload begins for its makers, whose entry stands at `end`."""
    return end + SLOT_AHEAD
