"""A lean load generator for SEND_MESSAGE_V2: keeps a number of sends in flight on one connection.

Frames are made from a template (only opaque and UNIQ_KEY change), answers are split by their length
and parsed for code and opaque alone, so that the generator takes as little as possible of the cores
that it shares with the brokers. The client library's own cost: benchmarks/client_send.py.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from dataclasses import dataclass, field
from typing import cast

from remoting.protocol.codes import RequestCode

_OPAQUE_BASE = 1_000_000_000
_KEY_SIZE = 32
_PREFIX = struct.Struct(">II")


@dataclass
class LoadResult:
    """`latencies_s` of every answered send; `elapsed_s` from the first send to the last answer."""

    sends: int = 0
    messages: int = 0
    refused: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    def quantile_ms(self, q: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1000 if ordered else 0.0


def _template(topic: str, queue: int, body: bytes, code: int) -> tuple[bytes, bytes, bytes]:
    """Return the frame before its opaque, between opaque and UNIQ_KEY, and after that."""
    key = "K" * _KEY_SIZE
    fields = {
        "a": "bench",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    header = json.dumps(
        {
            "code": int(code),
            "language": "PYTHON",
            "version": 479,
            "opaque": _OPAQUE_BASE,
            "flag": 0,
            "extFields": fields,
        },
        separators=(",", ":"),
    ).encode()
    frame = _PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body
    head, rest = frame.split(str(_OPAQUE_BASE).encode(), 1)
    middle, tail = rest.split(key.encode(), 1)
    return head, middle, tail


class SendLoad(asyncio.Protocol):
    """Sends for `seconds`, then waits for the answers that are still missing."""

    def __init__(
        self, *, topic: str, queues: int, body_size: int, in_flight: int, batch: int, seconds: float
    ) -> None:
        self._in_flight = in_flight
        self._batch = batch
        self._seconds = seconds
        body = b"x" * body_size
        code = RequestCode.SEND_MESSAGE_V2
        if batch > 1:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = _batch_body(body, batch)
        self._templates = [_template(topic, queue, body, code) for queue in range(queues)]
        self._run_id = time.time_ns() & 0xFFFF_FFFF_FFFF
        self._count = 0
        self._began: dict[int, float] = {}
        self._buffer = bytearray()
        self.result = LoadResult()
        self.done: asyncio.Future[LoadResult] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own class
        self._start = time.perf_counter()
        self._end = self._start + self._seconds
        self._transport.write(b"".join([self._next() for _ in range(self._in_flight)]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, now = 0, time.perf_counter()
        frames: list[bytes] = []
        while len(buffer) - at >= 8:
            size, header_size = _PREFIX.unpack_from(buffer, at)
            if len(buffer) - at < 4 + size:
                break
            header = json.loads(bytes(buffer[at + 8 : at + 8 + (header_size & 0xFFFFFF)]))
            at += 4 + size
            self._answered(header, now)
            if now < self._end:
                frames.append(self._next())
        del buffer[:at]
        if frames:
            self._transport.write(b"".join(frames))
        elif not self._began and not self.done.done():
            self.result.elapsed_s = now - self._start
            self.done.set_result(self.result)
            self._transport.close()

    def _answered(self, header: dict[str, object], now: float) -> None:
        opaque = header["opaque"]
        assert isinstance(opaque, int)
        began = self._began.pop(opaque)
        if header["code"] == 0:
            self.result.sends += 1
            self.result.messages += self._batch
            self.result.latencies_s.append(now - began)
        else:
            self.result.refused += 1
            if self.result.refused == 1:
                print("first refusal:", header.get("remark"))

    def _next(self) -> bytes:
        count = self._count = self._count + 1
        head, middle, tail = self._templates[count % len(self._templates)]
        opaque = _OPAQUE_BASE + count
        self._began[opaque] = time.perf_counter()
        key = b"%012X%020X" % (self._run_id, count)
        if self._batch > 1:
            prefix = b"%012X%016X" % (self._run_id, count)
            parts = tail.split(b"J" * _KEY_SIZE)
            pieces = [parts[0]]
            for number, part in enumerate(parts[1:]):
                pieces += (prefix, b"%04X" % number, part)
            tail = b"".join(pieces)
        return b"".join((head, b"%d" % opaque, middle, key, tail))


def _batch_body(body: bytes, count: int) -> bytes:
    properties = b"UNIQ_KEY\x01" + b"J" * _KEY_SIZE + b"\x02WAIT\x01true\x02"
    item = (
        struct.pack(
            f">IIIiI{len(body)}sH",
            20 + len(body) + 2 + len(properties),
            0,
            0,
            0,
            len(body),
            body,
            len(properties),
        )
        + properties
    )
    return item * count
