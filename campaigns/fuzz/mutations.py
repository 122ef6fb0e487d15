"""Frames that real clients sent, changed: as bytes, as headers, as bodies. Pure, by seed.

`Mutator.next()` gives what one connection is to send, and whether that is one request that has to
be answered: whole, not oneway, and of a kind that is not held. A third are no recorded frames, but
what `structures.py` makes; `garbage()` is for a port that speaks another protocol.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgpack

from campaigns.fuzz.structures import Structures
from raft.peers.frame_reader import frame_prefix
from remoting.errors import FrameError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, SerializeType
from remoting.protocol.frame import FrameDecoder, decode_frame, encode

RECORDINGS = Path(__file__).resolve().parents[1] / "interop" / "testdata"
# Requests that the broker may hold for as long as their fields ask.
HELD = {
    *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE),
    *(RequestCode.NOTIFICATION, RequestCode.PEEK_MESSAGE),
    # Passed on to clients, which here never answer.
    *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    *(RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY),
    *(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET),
}
CODES = [*map(int, RequestCode), -1, 0, 32_767, -32_768, 99_999, 2**31 - 1]
TEXTS = [
    *("", "0", "1", "-1", " 7 ", "٣", "1e3", "9" * 30, "true", "NaN", "null", "*", "a||b"),
    *("2147483648", "-2147483649", "9223372036854775807", "-9223372036854775808"),
    *("%RETRY%", "%RETRY%G", "%DLQ%G", "../../etc", "a\x01b\x02", "é" * 300, "\x00", "x" * 70_000),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "TBW102"),
    *("UNIQ_KEY\x01k\x02", "DELAY\x0118\x02", "TIMER_DELAY_MS\x019999999999999\x02", "\x01\x02"),
    "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "strange\x01a\x01b\x02DELAY\x011\x02",  # found by this fuzzer: it ended every leader
]
PREFIXES = [
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    b"PROXY " + b"A" * 200,
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x00\x00\x00",
    b"\x01\x00\x00\x00\x00\xff\xff\xff",
]


@cache
def recorded_frames() -> tuple[bytes, ...]:
    frames = tuple(
        bytes.fromhex(line.split()[1])
        for file in sorted(RECORDINGS.glob("*.txt"))
        for line in file.read_text(encoding="ascii").splitlines()
    )
    assert len(frames) > 60
    return frames


@dataclass(frozen=True, slots=True)
class Attempt:
    """What to send, cut into pieces, and whether one whole request stands in it."""

    pieces: tuple[bytes, ...]
    is_answered: bool
    what: str


class Mutator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._frames = recorded_frames()
        self._structures = Structures(seed)

    def next(
        self,
        *,
        for_name_server: bool = False,
        sign: Callable[[RemotingCommand], None] | None = None,
    ) -> Attempt:
        """`sign` is done to half of what is made of structures."""
        rng = self._random
        if rng.random() < 0.35:
            kind = "structure"
            data = self._structures.next(for_name_server=for_name_server)
            if sign is not None and rng.random() < 0.5:
                kind, data = "signed structure", _signed(data, sign)
        else:
            frame = rng.choice(self._frames)
            kind = rng.choice(("bytes", "header", "header", "header", "body", "code", "stream"))
            data = getattr(self, f"_{kind}")(frame)
        return self._cut(data, kind)

    def garbage(self) -> Attempt:
        """For the port on which brokers talk to each other: sizes that lie, and MessagePack."""
        rng = self._random
        handshake = msgpack.packb(
            [
                rng.choice(("ledgermq-raft-3", "ledgermq-raft-2", "", 7)),
                rng.choice(("HELLO", "PROOF", "WELCOME", None)),
                *rng.choices(("broker-a", "n0", "n1", bytes(32), 2**63, [], "x" * 600), k=6),
            ]
        )
        shuffled = bytes(rng.sample(handshake, len(handshake)))
        data = rng.choice(
            (
                frame_prefix([handshake]) + handshake,
                frame_prefix([shuffled]) + shuffled,
                frame_prefix([handshake]) + shuffled,
                struct.pack(">I", rng.choice((0, 1, 2_048, 2_049, 64 << 20, 2**32 - 1))) + bytes(9),
                rng.randbytes(rng.choice((1, 4, 5, 300, 70_000))),
                rng.choice(self._frames),
            )
        )
        made = self._cut(data, "raft")
        return Attempt(made.pieces, False, "raft")

    def _cut(self, data: bytes, kind: str) -> Attempt:
        rng = self._random
        pieces = [data]
        if rng.random() < 0.2 and len(data) > 2:
            cuts = sorted(rng.randrange(1, len(data)) for _ in range(rng.randrange(1, 4)))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        return Attempt(tuple(filter(None, pieces)), is_answered(data), kind)

    # Each takes a sound frame.

    def _bytes(self, frame: bytes) -> bytes:
        rng, data = self._random, bytearray(frame)
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            at = rng.randrange(len(data)) if rng.random() < 0.7 else rng.randrange(8)
            match rng.randrange(5):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 2:
                    del data[at : at + rng.randrange(1, 9)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randrange(1, 9))
                case _:
                    data[at:at] = data[at : at + rng.randrange(1, 64)]
            if len(data) < 9:
                return bytes(data)
        return bytes(data)

    def _header(self, frame: bytes) -> bytes:
        rng, command = self._random, decode_frame(frame)
        fields = dict(command.ext_fields)
        for _ in range(rng.randrange(1, 4)):
            names = list(fields)
            match rng.randrange(4):
                case 0 if names:
                    del fields[rng.choice(names)]
                case 1 if names:
                    fields[rng.choice(names)] = rng.choice(list(fields.values()))
                case 2:
                    fields[rng.choice(TEXTS)] = rng.choice(TEXTS)
                case _:
                    name = rng.choice(names) if names else "topic"
                    fields[name] = rng.choice(TEXTS)
        command.ext_fields = fields
        command.flag = rng.choice((command.flag, 0, 0, FLAG_ONEWAY, FLAG_RESPONSE))
        return self._encoded(command, frame)

    def _body(self, frame: bytes) -> bytes:
        rng, command = self._random, decode_frame(frame)
        body = bytearray(command.body or rng.choice((b"{}", b"[", b"null", bytes(40))))
        match rng.randrange(5):
            case 0:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
            case 1:
                del body[rng.randrange(len(body)) :]
            case 2:
                body *= rng.randrange(2, 50)
            case 3:
                body = bytearray(self._odd_json(bytes(body)))
            case _:
                body = bytearray(rng.randbytes(rng.choice((1, 100, 100_000))))
        command.body = bytes(body)
        return self._encoded(command, frame)

    def _code(self, frame: bytes) -> bytes:
        """Another request with the fields and body of this one."""
        command = decode_frame(frame)
        command.code = self._random.choice(CODES)
        if self._random.random() < 0.3:
            command.body = self._random.choice((b"", b"{}", b"[]", b"a=b\n", b"\x00" * 32))
        return self._encoded(command, frame)

    def _stream(self, frame: bytes) -> bytes:
        """Several frames, the middle of one, or another protocol's beginning."""
        rng = self._random
        match rng.randrange(4):
            case 0:
                return b"".join(rng.choices(self._frames, k=rng.randrange(2, 20)))
            case 1:
                return frame[: rng.randrange(1, len(frame))]
            case 2:
                return rng.choice(PREFIXES) + frame
            case _:
                length = rng.choice((0, 3, 4, 0x7FFFFFFF, 0xFFFFFFFF, 16 << 20, len(frame)))
                word = rng.randrange(4) << 24 | rng.choice((0, 1, 0xFFFFFF, len(frame)))
                return struct.pack(">II", length, word) + frame[8:]

    def _odd_json(self, body: bytes) -> bytes:
        rng = self._random
        try:
            value = json.loads(body)
        except ValueError:
            return body + body
        if isinstance(value, dict) and value:
            key = rng.choice(list(value))
            value[key] = rng.choice((None, [], {}, -1, 1e308, "x" * 300, [[[]]], True, 2**70))
        else:
            value = [value] * rng.randrange(1, 500)
        return json.dumps(value).encode()

    def _encoded(self, command: RemotingCommand, otherwise: bytes) -> bytes:
        command.serialize_type = self._random.choice(tuple(SerializeType))
        command.opaque = self._random.choice((command.opaque, 0, -1, 2**31 - 1))
        try:
            return encode(command)
        except (FrameError, struct.error):  # too long for the binary header
            return otherwise


def _signed(data: bytes, sign: Callable[[RemotingCommand], None]) -> bytes:
    """As it was where it can't be signed."""
    try:
        command = decode_frame(data)
        sign(command)
        return encode(command)
    except FrameError:
        return data


def is_answered(data: bytes) -> bool:
    """Whether these bytes are one or more whole requests of which the last must be answered."""
    decoder = FrameDecoder()
    try:
        commands = decoder.feed(data)
    except FrameError:
        return False
    if not commands or decoder.pending_size:
        return False
    last = commands[-1]
    return not last.is_oneway and not last.is_response and last.code not in HELD
