"""The decoder of the wire against a second one: random and mutated frames, the same verdicts."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import msgpack
import pytest

from raft.membership import Member, encode_membership, make_membership
from raft.messages import NodeId, PeerMessage
from raft.peers.frame_reader import PREFIX_SIZE
from raft.peers.wire import WireError, decode_message, encode_message
from tests.raft.wire_reference import KINDS, Refusal, reference_decode

_STORE = "0123456789abcdef" * 2
_ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(1.0, float("nan"), "", "a", "x" * 255, "x" * 256, "é" * 128, _STORE, _STORE.upper()),
    *(b"", b"ab", {}, {"a": 1}, {1: [2]}, msgpack.ExtType(5, b"x"), msgpack.Timestamp(2**62, 5)),
    *([], [1], ["a"], [None], [[]], [1, 2, 3], [1, True, 0], [2**64 - 1, 2, 0], [-1, 2, 0]),
    *(["a"] * 21, ["a"] * 24, ["n1", "", ""], ["n1", "h:1", "x"], ["n2", "", "", "n1", "", ""]),
]
"""What some field or other must refuse."""


class _Frames:
    """Draws frames: sound ones, and such as a few changes made of them."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def frame(self) -> bytes:
        rng = self._rng
        kind = rng.choice(list(KINDS))
        payloads = b""
        values = {name: self._value(what) for name, what in KINDS[kind][1]}
        if "entries" in values:
            values["entries"], payloads = self._entries(values.get("prev_log_term", 0))
            values["first_index"] = rng.randint(1, 9) if values["entries"] else 0
        if kind == 3:
            values["term"] = max([values["prev_log_term"], *values["entries"][0::3]])
        if kind in {6, 8}:
            values["learners"] = []
        if kind == 8:
            values["roster"] = [text for text in values["roster"] if text != "h:1"]
        if kind == 6:
            payloads = rng.randbytes(rng.choice([0, 40]))
            values |= {"base_term": 2, "term": 2 + rng.randint(0, 1), "snapshot_size": 50}
            values |= {"base_index": 3, "configuration_index": 4, "snapshot_index": 5, "offset": 9}
        head: Any = [kind, *(values[name] for name, _ in KINDS[kind][1])]
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            head = self._mutated(head)
        packed = msgpack.packb(head)
        if rng.random() < 0.1:
            payloads = rng.choice([payloads[:-1], payloads + b"x"])
        frame = bytearray(struct.pack(">I", len(packed)) + packed + payloads)
        if rng.random() < 0.2:
            place = rng.randrange(len(frame))
            match rng.choice(["flip", "flip", "cut", "insert"]):
                case "flip":
                    frame[place] ^= 1 << rng.randrange(8)
                case "cut":
                    del frame[place:]
                case "insert":
                    frame[place:place] = rng.randbytes(1)
        return bytes(frame)

    def _value(self, what: str) -> Any:
        rng = self._rng
        match what:
            case "number":
                return rng.choice([0, 1, 2, 127, 128, 65_536, 2**32, 2**63 - 1])
            case "crc":
                return rng.choice([0, 2**32 - 1])
            case "flag":
                return rng.random() < 0.5
            case "name":
                return rng.choice(["a", "n1", "x" * 255, "é" * 200])
            case "text":
                return _STORE
            case "index":
                return rng.choice([None, 0, 7])
            case "texts":
                numbers = range(rng.randint(1, 4))
                return [text for number in numbers for text in (f"n{number}", "h:1", _STORE)]
        return []

    def _entries(self, term: int) -> tuple[list[int], bytes]:
        rng = self._rng
        table, payloads = [], b""
        for _ in range(rng.choice([0, 1, 2, 3])):
            kind = rng.randrange(3)
            payload = rng.randbytes(rng.choice([0, 1, 300]))
            if kind == 1:
                payload = encode_membership(make_membership([Member(node_id=NodeId("n1"))]))
            table += [term, kind, len(payload)]
            payloads += payload
            term = min(term + rng.randrange(2), 2**63 - 1)
        return table, payloads

    def _mutated(self, head: list[Any]) -> list[Any]:
        rng = self._rng
        head = list(head)
        place = rng.randrange(len(head))
        lists = [at for at, value in enumerate(head) if type(value) is list and value]
        match rng.choice(["odd", "drop", "insert", "append", "swap", "near", "kind", "inside"]):
            case "odd":
                head[place] = rng.choice(_ODD)
            case "drop" if len(head) > 1:
                del head[place]
            case "insert":
                head.insert(place, rng.choice(_ODD))
            case "append":
                head.append(rng.choice(_ODD))
            case "swap":
                other = rng.randrange(len(head))
                head[place], head[other] = head[other], head[place]
            case "near" if type(head[place]) is int and 0 < head[place] < 2**63:
                head[place] += rng.choice([-1, 1])
            case "kind":
                head[0] = rng.choice([*range(12), True, 1.0, "1", None])
            case "inside" if lists:
                at = rng.choice(lists)
                head[at] = inner = list(head[at])
                first, other = rng.randrange(len(inner)), rng.randrange(len(inner))
                if rng.random() < 0.5:
                    inner[first] = rng.choice(_ODD[:22])
                elif type(inner[first]) is str:
                    inner[first] = rng.choice(["", "x" * 256, "é" * 128])
                elif inner[first] in range(1000) and inner[other] in range(1000):
                    inner[first] -= 1  # two sizes, and the payloads still fit in all
                    inner[other] += 1
        return head


_CLASS_NAMES = {each.__name__ for each, _ in KINDS.values()}
_WHOLES = {"head", *_CLASS_NAMES}  # a refusal of the whole names the message, if it is known


def _decoded(frame: bytes) -> PeerMessage | str:
    """Return the message of a frame, or the text of its refusal."""
    try:
        return decode_message(memoryview(frame))
    except WireError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_both_decoders_accept_and_refuse_the_same(seed: int) -> None:
    frames = _Frames(seed)
    counts: Counter[str] = Counter()
    for _ in range(3_000):
        frame = frames.frame()
        decoded, expected = _decoded(frame), reference_decode(frame)
        case = f"{frame.hex()}: {decoded}, not {expected}"
        if isinstance(decoded, str):
            counts["refused"] += 1
            assert isinstance(expected, Refusal), case
            named = decoded.split(":")[0]
            assert not expected.names or named in expected.names | _WHOLES, case
            continue
        counts[type(decoded).__name__] += 1
        assert decoded == expected, case
        encoded = b"".join(encode_message(decoded))[PREFIX_SIZE:]
        assert reference_decode(encoded) == expected, case
    # Neither verdict is rare, whatever the kind.
    assert counts["refused"] > 1_000
    assert all(counts[name] > 20 for name in _CLASS_NAMES), counts
