"""Garbled frames: what is done to them no decoder takes for a frame."""

from __future__ import annotations

import random

import pytest

from chaos.sim.machine.garbling import garbled
from raft.messages import NodeId, TimeoutNow
from raft.peers.wire import FrameReader, WireError, decode_message, encode_message
from remoting.errors import FrameError
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode

ROUNDS = 400
VOTE = b"".join(encode_message(TimeoutNow(sender=NodeId("a"), receiver=NodeId("b"), term=1)))
SEND = encode(RemotingCommand(code=10, ext_fields={"topic": "T"}, body=b"v1 xxx"))


def read_raft(data: bytes) -> int:
    reader = FrameReader()
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    return len([decode_message(frame) for frame in reader.received(len(data))])


@pytest.mark.parametrize("data", [VOTE, VOTE * 3, SEND, SEND * 3])
def test_a_garbled_frame_is_none(data: bytes) -> None:
    """It is refused where it stands, or the connection breaks behind it, before it was whole."""
    rng = random.Random(1)
    kinds = set()
    is_raft = data.startswith(VOTE)
    for _ in range(ROUNDS):
        changed = garbled(data, rng)
        assert changed is not None
        kinds.add(changed.kind)
        if changed.is_cut:
            assert data.startswith(changed.data)
            assert len(changed.data) < len(data)
            continue
        with pytest.raises(WireError if is_raft else FrameError):
            read_raft(changed.data) if is_raft else FrameDecoder().feed(changed.data)
    assert kinds == {"flip", "cut", "huge"}


def test_what_is_no_whole_frame_is_left_alone() -> None:
    rng = random.Random(1)
    for data in (VOTE[:-1], SEND[:-1], SEND[3:], b"", b"\0\0"):
        assert garbled(data, rng) is None
