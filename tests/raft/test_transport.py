"""TCP between nodes: who is let in, what closes a connection, how a link comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import struct
from typing import Any

import msgpack
import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from raft.membership import Member
from raft.messages import (
    AppendEntries,
    Entry,
    EntryKind,
    NodeId,
    PeerMessage,
    RequestVoteReply,
    TimeoutNow,
)
from raft.peers.frame_reader import PREFIX_SIZE, frame_prefix
from raft.peers.handshake import NONCE_SIZE, Acceptor, Credentials, Dialler, HandshakeError
from raft.peers.transport import TransportLimits, parse_address
from raft.peers.wire import encode_message
from tests.raft.node_group import SECRET
from tests.raft.sides import A, B, Side, identity, pair, running, timeout_now

STORE_A, STORE_B = "a" * 32, "b" * 32


async def test_messages_travel_both_ways() -> None:
    a, b = pair()
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        await b.send_until(timeout_now(B, A), a)


async def test_order_and_bytes_hold() -> None:
    a, b = pair()
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        sent: list[PeerMessage] = []
        for number in range(40):
            entry = Entry(index=number + 1, term=1, kind=EntryKind.DATA, payload=bytes(100_000))
            sent.append(
                AppendEntries(
                    sender=A,
                    receiver=B,
                    term=1,
                    prev_log_index=number,
                    prev_log_term=1,
                    entries=(entry,),
                    leader_commit=0,
                    read_round=0,
                )
            )
            a.transport.send(sent[-1])
        a.transport.flush()
        await until(lambda: b.messages[-1] == sent[-1], "the last message")
        assert [m for m in b.messages if isinstance(m, AppendEntries)] == sent


async def test_a_lost_connection_is_told_and_mended() -> None:
    a, b = pair()
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        await b.stop()
        await until(lambda: B in a.unreachable, "the hint")
        b2 = Side(identity(B), b.transport._listen[1], {A: f"127.0.0.1:{a.transport.port}"})
        async with running(b2):
            await a.send_until(timeout_now(A, B, 2), b2)


async def test_the_dial_map_leads_through_another_address() -> None:
    port_b = free_port()
    a = Side(
        identity(A),
        free_port(),
        {B: "127.0.0.1:1"},
        dial={"127.0.0.1:1": f"127.0.0.1:{port_b}"},
    )
    b = Side(identity(B), port_b, {A: "127.0.0.1:1"})
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)


def member(name: NodeId, port: int, store_id: str = "") -> Member:
    return Member(node_id=name, address=f"127.0.0.1:{port}", store_id=store_id)


async def test_members_come_and_go() -> None:
    """Who is in the configuration is dialled, who is not any more is not."""
    port_a, port_b = free_port(), free_port()
    a = Side(identity(A), port_a, {})
    b = Side(identity(B), port_b, {})
    async with running(a, b):
        a.transport.set_members([member(A, port_a), member(B, port_b)])
        await a.send_until(timeout_now(A, B), b)
        a.transport.set_members([member(A, port_a)])
        await until(lambda: A in b.unreachable, "the connection is closed")
        a.transport.set_members([member(B, port_b)])
        await a.send_until(timeout_now(A, B, 2), b)


async def test_the_settings_address_comes_before_that_of_the_configuration() -> None:
    a, b = pair()
    async with running(a, b):
        a.transport.set_members([member(B, 1)])
        await a.send_until(timeout_now(A, B), b)


async def test_a_caller_that_is_no_member_is_answered_while_it_is_connected() -> None:
    """This node may not have heard yet that the caller is a member."""
    port_a, port_b = free_port(), free_port()
    a = Side(identity(A, address=f"127.0.0.1:{port_a}"), port_a, {B: f"127.0.0.1:{port_b}"})
    b = Side(identity(B), port_b, {})
    async with running(a, b):
        await a.send_until(timeout_now(A, B), b)
        await b.send_until(timeout_now(B, A), a)
        await a.stop()
        await until(lambda: A not in b.transport._links, "the guest has left")


async def test_guests_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    b = Side(identity(B), free_port(), {}, TransportLimits(guests_count_max=2))
    async with running(b):
        calls = [await shake_hands(b.transport.port, NodeId(f"x{i}")) for i in range(4)]
        await until(lambda: caplog.text.count("is not answered") == 2, "two are too many")
        assert len(b.transport._links) == 2
        for _, writer in calls:
            writer.close()
        await until(lambda: not b.transport._links, "all have left")


async def test_the_votes_of_another_store_under_a_members_name_are_dropped() -> None:
    port_a, port_b = free_port(), free_port()
    a = Side(identity(A, store_id=STORE_A), port_a, {B: f"127.0.0.1:{port_b}"})
    b = Side(identity(B, store_id=STORE_B), port_b, {A: f"127.0.0.1:{port_a}"})
    vote = RequestVoteReply(sender=A, receiver=B, term=1, granted=True, pre_vote=False)
    async with running(a, b):
        b.transport.set_members([member(A, port_a, "c" * 32), member(B, port_b, STORE_B)])
        for term in range(5):
            a.transport.send(vote)
            # What does not count in a majority passes: the caller may lead by now.
            await a.send_until(timeout_now(A, B, term), b)
        assert vote not in b.messages
        b.transport.set_members([member(A, port_a, STORE_A)])
        await a.send_until(vote, b)


@pytest.mark.parametrize(
    ("secret", "group", "text"),
    [
        (b"another secret of 25 byte", "g", "does not hold this group's secret"),
        (SECRET, "h", "group 'g' is not this node's 'h'"),
    ],
)
async def test_a_stranger_is_refused_and_logged(
    secret: bytes, group: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    a, b = pair(secret, group)
    async with running(a, b):
        await until(lambda: text in caplog.text, text)
        for _ in range(20):
            a.transport.send(timeout_now(A, B))
            a.transport.flush()
            await asyncio.sleep(0.001)
    assert b.messages == []
    assert a.messages == []


def test_a_missing_secret_is_refused_before_anything_else() -> None:
    with pytest.raises(ValueError, match="secret: 0 bytes, at least 16 are needed"):
        identity(A, secret=b"")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "frame of 1195725856 bytes, at most 2048"),
        (frame_prefix([b"\xc1zz"]) + b"\xc1zz", "no handshake: "),
        (frame_prefix([b"\xa2hi"]) + b"\xa2hi", "no handshake: not an array"),
        (struct.pack(">III", 3, 0, 0) + b"\xa2hi", "not those that were sent"),
        (b"\xff\xff\xff\xff", "at most 2048 are allowed"),
        (b"".join(encode_message(TimeoutNow(sender=A, receiver=B, term=1))), "refused"),
        (b"", "no handshake within 200 ms"),
    ],
)
async def test_garbage_closes_the_connection(
    sent: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    port = free_port()
    limits = TransportLimits(handshake_timeout_ms=200)
    b = Side(identity(B), port, {A: "127.0.0.1:1"}, limits)
    async with running(b):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        await until(lambda: text in caplog.text, text)
    assert b.messages == []


async def shake_hands(
    port: int, me: NodeId, store_id: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A member's connection by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    caller = identity(me, address="127.0.0.1:1", store_id=store_id)
    dialler = Dialler(caller, B, bytes(NONCE_SIZE))
    writer.write(dialler.hello())
    while not dialler.done:
        size, _, _ = struct.unpack(">III", await reader.readexactly(PREFIX_SIZE))
        writer.write(dialler.receive(memoryview(await reader.readexactly(size))))
    return reader, writer


def a_flip_in(buffers: list[bytes]) -> list[bytes]:
    """The frame with a bit of its last byte flipped."""
    data = bytearray(b"".join(buffers))
    data[-1] ^= 1
    return [bytes(data)]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (encode_message(timeout_now(NodeId("c"), B)), "sender: c on the connection of a"),
        (encode_message(timeout_now(A, NodeId("c"))), "receiver: c, this is b"),
        ([b"\xff\xff\xff\xff"], "frame of 4294967295 bytes"),
        (
            [frame_prefix([b"\0\0\0\x01\x90"]), b"\0\0\0\x01\x90"],
            "head: Expected `array` of at least length 1",
        ),
        ([b"\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\x01\x90"], "prefix of a frame: its bytes"),
        (a_flip_in(encode_message(timeout_now(A, B))), "bytes: they are not those that were sent"),
    ],
)
async def test_a_member_that_breaks_the_protocol_is_closed(
    sent: list[bytes], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    b = Side(identity(B), free_port(), {A: "127.0.0.1:1"})
    async with running(b):
        reader, writer = await shake_hands(b.transport.port, A)
        writer.write(b"".join(encode_message(timeout_now(A, B))))
        await until(lambda: b.messages == [timeout_now(A, B)], "the message before")
        writer.writelines(sent)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        assert text in caplog.text
        await until(lambda: A in b.unreachable, "the hint")
    assert b.messages == [timeout_now(A, B)]


async def test_a_second_connection_replaces_the_first() -> None:
    b = Side(identity(B), free_port(), {A: "127.0.0.1:1"})
    async with running(b):
        first, first_writer = await shake_hands(b.transport.port, A)
        _, second_writer = await shake_hands(b.transport.port, A)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                await first.read()
        second_writer.write(b"".join(encode_message(timeout_now(A, B))))
        await until(lambda: b.messages == [timeout_now(A, B)], "the message")
        assert b.unreachable == []
        first_writer.close()
        second_writer.close()


@pytest.mark.parametrize(
    "order", sorted(set(itertools.permutations(("true", "true", "old", "old", "config"))))
)
async def test_no_other_store_displaces_the_one_that_the_configuration_names(
    order: tuple[str, ...],
) -> None:
    """The old disk of a replaced member runs beside the true one: both call, in any order, before
    and after this node has heard of the configuration."""
    b = Side(identity(B), free_port(), {A: "127.0.0.1:1"})
    calls: dict[str, list[asyncio.StreamWriter]] = {"true": [], "old": []}
    stores = {"true": STORE_A, "old": STORE_B}
    async with running(b):
        for event in order:
            if event == "config":
                b.transport.set_members([member(A, 1, STORE_A)])
                continue
            _, writer = await shake_hands(b.transport.port, A, stores[event])
            calls[event].append(writer)
        vote = RequestVoteReply(sender=A, receiver=B, term=7, granted=True, pre_vote=False)
        writer = calls["true"][-1]
        writer.write(b"".join(encode_message(vote)))
        await until(lambda: vote in b.messages, "the vote of the true one")
        assert b.unreachable == []
        writer.write(b"".join(encode_message(vote)))
        calls["old"][-1].close()
        await until(lambda: len(b.transport._accepted) == 1, "the old one has hung up")
        assert b.unreachable == [], "the member is there"
        calls["true"][-1].close()
        await until(lambda: b.unreachable == [A], "the member has hung up")
        for writer in calls["true"] + calls["old"]:
            writer.close()


async def test_the_stores_that_call_by_one_name_are_bounded() -> None:
    limits = TransportLimits(other_stores_count_max=2)
    b = Side(identity(B), free_port(), {A: "127.0.0.1:1"}, limits)
    async with running(b):
        b.transport.set_members([member(A, 1, STORE_A)])
        writers = []
        for store_id in (STORE_A, *(f"{number:032x}" for number in range(6))):
            _, writer = await shake_hands(b.transport.port, A, store_id)
            writers.append(writer)
        await until(lambda: len(b.transport._accepted) == 3, "two others stay")
        message = timeout_now(A, B)
        writers[0].write(b"".join(encode_message(message)))
        await until(lambda: b.messages == [message], "the member's message")
        assert b.unreachable == []
        for writer in writers:
            writer.close()


async def test_what_is_sent_goes_to_the_store_that_the_configuration_names() -> None:
    """The old disk of a member runs at the address of the settings, the member at its own."""
    old_port, new_port = free_port(), free_port()
    b = Side(identity(B), free_port(), {A: f"127.0.0.1:{old_port}"})
    old = Side(identity(A, store_id=STORE_B), old_port, {})
    new = Side(identity(A, store_id=STORE_A), new_port, {})
    async with running(b, old):
        await b.send_until(timeout_now(B, A), old)
        b.transport.set_members([member(A, new_port, STORE_A)])
        async with running(new):
            new.transport.set_members([member(B, b.transport.port)])
            await b.send_until(timeout_now(B, A, term=2), new)
        await b.send_until(timeout_now(B, A, term=3), old)  # better than nobody


@pytest.mark.parametrize("at_settings_address", [True, False])
async def test_a_replacement_gets_what_is_sent_though_both_stores_run_and_have_called(
    at_settings_address: bool,
) -> None:
    """The new store calls before the configuration here names it, and never again; the connection
    to the old one never breaks by itself."""
    old_port, new_port = free_port(), free_port()
    settings_port = old_port if at_settings_address else free_port()
    b = Side(identity(B), free_port(), {A: f"127.0.0.1:{settings_port}"})
    old = Side(identity(A, store_id=STORE_B), old_port, {})
    new = Side(identity(A, store_id=STORE_A), new_port, {})
    async with running(b, old, new):
        b.transport.set_members([member(A, old_port, STORE_B)])
        await b.send_until(timeout_now(B, A), old)
        new.transport.set_members([member(B, b.transport.port)])
        await new.send_until(timeout_now(A, B), b)
        b.transport.set_members([member(A, new_port, STORE_A)])
        await b.send_until(timeout_now(B, A, term=2), new)
        b.transport.send(timeout_now(B, A, term=3))
        b.transport.flush()
        await b.send_until(timeout_now(B, A, term=4), new)
        assert timeout_now(B, A, term=3) not in old.messages


@pytest.mark.parametrize("at_settings_address", [True, False])
async def test_the_named_store_is_found_again_without_its_call(at_settings_address: bool) -> None:
    """The old disk served while the true store was away; that one comes back, and calls nobody."""
    old_port, new_port = free_port(), free_port()
    settings_port, named_port = (
        (new_port, old_port) if at_settings_address else (old_port, new_port)
    )
    limits = TransportLimits(named_store_interval_ms=100)
    b = Side(identity(B), free_port(), {A: f"127.0.0.1:{settings_port}"}, limits)
    old = Side(identity(A, store_id=STORE_B), old_port, {})
    new = Side(identity(A, store_id=STORE_A), new_port, {})
    b.transport.set_members([member(A, named_port, STORE_A)])
    async with running(b, old):
        await b.send_until(timeout_now(B, A), old)
        async with running(new):
            await b.send_until(timeout_now(B, A, term=2), new)
            assert b.unreachable == [A], "the core begins anew with the true store"


async def test_looking_for_the_named_store_leaves_the_other_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both addresses lead to the old disk: a store keeps the newest connection of a caller only."""
    port = free_port()
    limits = TransportLimits(named_store_interval_ms=20)
    b = Side(identity(B), free_port(), {A: f"127.0.0.1:{port}"}, limits)
    old = Side(identity(A, store_id=STORE_B), port, {})
    named = Member(node_id=A, address=f"localhost:{port}", store_id=STORE_A)
    b.transport.set_members([named])
    dials = 0
    link = b.transport._links[A]
    dial = link.dial

    async def counted(address: str, wanted_store_id: str = "") -> Any:
        nonlocal dials
        dials += 1
        return await dial(address, wanted_store_id)

    link.dial = counted  # type: ignore[method-assign]
    async with running(old, b):
        await b.send_until(timeout_now(B, A), old)
        connection = link.connection
        await until(lambda: dials > 10, "it was looked for")
        assert link.connection is connection is not None
        assert connection.close_reason is None
        assert b.unreachable == []
    assert caplog.text.count("speaks for another store") <= 2, "once for each address"


async def test_a_store_that_is_named_while_it_is_dialled_is_dialled_anew() -> None:
    """Both addresses were being tried for another store: the configuration has changed since."""
    old_port, new_port = free_port(), free_port()
    b = Side(identity(B), free_port(), {A: f"127.0.0.1:{old_port}"})
    old = Side(identity(A, store_id=STORE_B), old_port, {})
    new = Side(identity(A, store_id=STORE_A), new_port, {})
    link = b.transport._links[A]
    dial = link.dial
    dialled: list[str] = []

    async def naming_meanwhile(address: str, wanted_store_id: str = "") -> Any:
        dialled.append(address)
        connection = await dial(address, wanted_store_id)
        if len(dialled) == 2:
            b.transport.set_members([member(A, new_port, STORE_A)])
        return connection

    link.dial = naming_meanwhile  # type: ignore[method-assign]
    async with running(old, new):
        b.transport.set_members([member(A, free_port(), "c" * 32)])
        async with running(b):
            await b.send_until(timeout_now(B, A), new)
        assert old.messages == []


async def test_strangers_do_not_keep_members_out() -> None:
    """The oldest strangers are closed, long before their time for a handshake is over."""
    limits = TransportLimits(accepted_count_max=4, handshake_timeout_ms=600_000)
    b = Side(identity(B), free_port(), {A: "127.0.0.1:1"}, limits)
    async with running(b):
        strangers = [
            await asyncio.open_connection("127.0.0.1", b.transport.port) for _ in range(30)
        ]
        for reader, _ in strangers[:26]:
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()  # to the end: closed
        assert len(b.transport._accepted) == 4
        _, writer = await shake_hands(b.transport.port, A)
        writer.write(b"".join(encode_message(timeout_now(A, B))))
        await until(lambda: b.messages == [timeout_now(A, B)], "the message")
        assert len(b.transport._accepted) == 4
        for _, stranger in [*strangers, (None, writer)]:
            stranger.close()


async def test_a_peer_that_does_not_read_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Its frames are dropped, with one line in the log and a hint, not one per message."""
    stop = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        acceptor = Acceptor(identity(B), bytes(NONCE_SIZE))
        while not acceptor.done:
            size, _, _ = struct.unpack(">III", await reader.readexactly(PREFIX_SIZE))
            writer.write(acceptor.receive(memoryview(await reader.readexactly(size))))
        await stop.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    limits = TransportLimits(write_queue_size_bytes_max=1 << 20)
    a = Side(identity(A), free_port(), {B: f"127.0.0.1:{port}"}, limits)
    entry = Entry(index=1, term=1, kind=EntryKind.DATA, payload=bytes(200_000))
    message = AppendEntries(
        sender=A,
        receiver=B,
        term=1,
        prev_log_index=0,
        prev_log_term=0,
        entries=(entry,),
        leader_commit=0,
        read_round=0,
    )
    async with running(a):

        def full() -> bool:
            a.transport.send(message)
            a.transport.flush()
            return B in a.unreachable

        await until(full, "the queue is full")
        for _ in range(50):
            full()
        link = a.transport._links[B]
        assert link.connection is not None
        assert link.connection.write_buffer_size() <= 1 << 20
        stop.set()
    assert caplog.text.count("reads too slowly") == 1
    server.close()
    await server.wait_closed()


def handshake(dialler: Dialler, acceptor: Acceptor) -> None:
    challenge = acceptor.receive(memoryview(dialler.hello())[PREFIX_SIZE:])
    proof = dialler.receive(memoryview(challenge)[PREFIX_SIZE:])
    dialler.receive(memoryview(acceptor.receive(memoryview(proof)[PREFIX_SIZE:]))[PREFIX_SIZE:])


def test_a_handshake_proves_both() -> None:
    dialler = Dialler(identity(A), B, b"d" * NONCE_SIZE)
    acceptor = Acceptor(identity(B), b"a" * NONCE_SIZE)
    handshake(dialler, acceptor)
    assert dialler.done
    assert acceptor.done
    assert acceptor.peer == A


def test_a_handshake_tells_stores_and_the_address() -> None:
    dialler = Dialler(identity(A, address="h:1", store_id=STORE_A), B, bytes(NONCE_SIZE))
    acceptor = Acceptor(identity(B, store_id=STORE_B), bytes(NONCE_SIZE))
    handshake(dialler, acceptor)
    assert (acceptor.peer_store_id, acceptor.peer_address) == (STORE_A, "h:1")
    assert dialler.peer_store_id == STORE_B


@pytest.mark.parametrize("place", [6, 7])
def test_what_a_hello_says_of_store_and_address_is_proved(place: int) -> None:
    dialler = Dialler(identity(A, address="h:1", store_id=STORE_A), B, bytes(NONCE_SIZE))
    acceptor = Acceptor(identity(B), bytes(NONCE_SIZE))
    fields = msgpack.unpackb(dialler.hello()[PREFIX_SIZE:])
    fields[place] = STORE_B
    challenge = acceptor.receive(memoryview(msgpack.packb(fields)))
    with pytest.raises(HandshakeError, match="does not hold"):
        dialler.receive(memoryview(challenge)[PREFIX_SIZE:])


@pytest.mark.parametrize(
    ("dialler", "acceptor", "text"),
    [
        (Dialler(identity(A), A, bytes(32)), identity(B), "node 'a' was called, this is 'b'"),
        (Dialler(identity(B), B, bytes(32)), identity(B), "node 'b' can't call 'b'"),
        (Dialler(identity(A, "h"), B, bytes(32)), identity(B), "group 'h' is not"),
        (Dialler(identity(A, secret=bytes(16)), B, bytes(32)), identity(B), "b does not hold"),
    ],
)
def test_a_handshake_refuses(dialler: Dialler, acceptor: Credentials, text: str) -> None:
    with pytest.raises(HandshakeError, match=text):
        handshake(dialler, Acceptor(acceptor, bytes(32)))


def test_a_proof_is_not_reflected_nor_replayed() -> None:
    dialler = Dialler(identity(A), B, b"d" * NONCE_SIZE)
    acceptor = Acceptor(identity(B), b"a" * NONCE_SIZE)
    challenge = acceptor.receive(memoryview(dialler.hello())[PREFIX_SIZE:])
    _, _, proof, _ = msgpack.unpackb(challenge[PREFIX_SIZE:])
    reflected = msgpack.packb(["PROOF", proof])
    with pytest.raises(HandshakeError, match="does not hold"):
        acceptor.receive(memoryview(reflected))
    recorded = dialler.receive(memoryview(challenge)[PREFIX_SIZE:])
    fresh = Acceptor(identity(B), b"b" * NONCE_SIZE)
    fresh.receive(memoryview(Dialler(identity(A), B, b"d" * NONCE_SIZE).hello())[PREFIX_SIZE:])
    with pytest.raises(HandshakeError, match="does not hold"):
        fresh.receive(memoryview(recorded)[PREFIX_SIZE:])


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:x", "host:70000"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(address)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
