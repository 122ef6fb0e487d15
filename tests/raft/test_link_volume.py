"""A link carries any number of times what may wait for it: what has left is not counted on."""

from __future__ import annotations

import logging

import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from raft.messages import AppendEntries, Entry, EntryKind
from raft.peers.transport import TransportLimits
from tests.raft.sides import A, B, Side, identity, running, timeout_now

_BOUND = 256 * 1024
_PAYLOAD = 50_000


def _pair() -> tuple[Side, Side]:
    limits = TransportLimits(write_queue_size_bytes_max=_BOUND)
    port_a, port_b = free_port(), free_port()
    return (
        Side(identity(A), port_a, {B: f"127.0.0.1:{port_b}"}, limits),
        Side(identity(B), port_b, {A: f"127.0.0.1:{port_a}"}, limits),
    )


def _append(number: int) -> AppendEntries:
    entry = Entry(index=number + 1, term=1, kind=EntryKind.DATA, payload=bytes(_PAYLOAD))
    return AppendEntries(
        sender=A, receiver=B, term=1, prev_log_index=number, prev_log_term=1,
        entries=(entry,), leader_commit=0, read_round=0,
    )  # fmt: skip


async def test_a_link_carries_many_times_what_may_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "raft.peers.transport")
    a, b = _pair()
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        await b.send_until(timeout_now(B, A), a)
        caplog.clear()
        count = 8 * _BOUND // _PAYLOAD
        for number in range(count):
            message = _append(number)
            a.transport.send(message)
            a.transport.flush()
            await until(lambda m=message: m in b.messages, f"message {number}")  # type: ignore[misc]
        assert sum(isinstance(message, AppendEntries) for message in b.messages) == count
        assert "too slowly" not in caplog.text


async def test_what_a_lost_connection_had_queued_is_not_counted_on() -> None:
    a, b = _pair()
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        for number in range(4):
            a.transport.send(_append(100 + 2 * number))  # never flushed
            a.transport.send(_append(101 + 2 * number))
            connection = a.transport._links[B].connection
            assert connection is not None
            connection.close("the test wants it")
            await until(
                lambda old=connection: a.transport._links[B].connection not in {None, old},  # type: ignore[misc]
                "the next connection",
            )
        # As much as may wait has room at once.
        rest = [_append(number) for number in range(_BOUND // _PAYLOAD)]
        for message in rest:
            a.transport.send(message)
        a.transport.flush()
        await until(lambda: rest[-1] in b.messages, "all that may wait")
        assert [m for m in b.messages if isinstance(m, AppendEntries)] == rest
