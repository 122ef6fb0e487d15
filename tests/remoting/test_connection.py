"""Connections, server and client over real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import uvloop

from campaigns.rig.waiting import DEADLINE_S, turns, until
from remoting.connections.connection import Connection, ConnectionLimits
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.errors import (
    ConnectError,
    ConnectionLostError,
    OverloadedError,
    RequestTimeoutError,
    UnencodableError,
)
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from remoting.protocol.frame import FrameDecoder, encode
from tests.remoting.echo import Echo


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    await echo.server.start()
    yield echo
    await echo.server.stop()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_request_and_answer(echo: Echo, client: RemotingClient, kind: SerializeType) -> None:
    request = RemotingCommand(
        code=1, ext_fields={"k": "v"}, body=bytes(100_000), serialize_type=kind
    )
    answer = await client.request(echo.server.address, request, 3000)
    assert (answer.code, answer.remark, answer.ext_fields) == (0, "ok", {"k": "v"})
    assert answer.body == bytes(100_000)
    assert answer.opaque == request.opaque
    assert answer.serialize_type is kind


async def test_a_client_has_one_encoding_for_all_that_it_sends(echo: Echo) -> None:
    client = RemotingClient(serialize_type=SerializeType.ROCKETMQ)
    try:
        answer = await client.request(echo.server.address, RemotingCommand(code=1), 3000)
        await client.oneway(echo.server.address, RemotingCommand(code=2))
        await until(lambda: len(echo.seen) == 2)
    finally:
        await client.close()
    assert answer.serialize_type is SerializeType.ROCKETMQ
    assert {command.serialize_type for command in echo.seen} == {SerializeType.ROCKETMQ}


async def test_many_requests_share_one_connection(echo: Echo, client: RemotingClient) -> None:
    async def ask(number: int) -> None:
        body = str(number).encode()
        answer = await client.request(echo.server.address, RemotingCommand(code=1, body=body), 3000)
        assert answer.body == body

    await asyncio.gather(*[ask(number) for number in range(200)])
    assert len(echo.server.connections) == 1
    ours = client.connection(echo.server.address)
    assert ours is not None
    assert ours.peer == echo.server.address


async def test_the_server_asks_the_client_over_the_same_connection(echo: Echo) -> None:
    def on_request(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.response(0, body=b"from the client"))

    client = RemotingClient(on_request=on_request)
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    (connection,) = echo.server.connections
    answer = await connection.request(RemotingCommand(code=307), 3000)
    assert answer.body == b"from the client"
    await client.close()


async def test_requests_that_nobody_hears_are_answered_with_code_3(
    echo: Echo, client: RemotingClient
) -> None:
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    (connection,) = echo.server.connections
    connection.oneway(RemotingCommand(code=40))  # must not be answered
    answer = await connection.request(RemotingCommand(code=307), 3000)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "request code 307 is not supported here"


async def test_oneway(echo: Echo, client: RemotingClient) -> None:
    await client.oneway(echo.server.address, RemotingCommand(code=RequestCode.END_TRANSACTION))
    await until(lambda: len(echo.seen) == 1)
    assert echo.seen[0].is_oneway
    assert echo.seen[0].flag == FLAG_ONEWAY


async def test_a_deadline_is_an_unknown_outcome_and_late_answers_are_dropped(
    echo: Echo, client: RemotingClient
) -> None:
    await client.connect(echo.server.address)  # which takes none of the deadline
    with pytest.raises(RequestTimeoutError, match=r"no answer from .* to request 2 within \d+ ms"):
        await client.request(echo.server.address, RemotingCommand(code=2), 50)
    assert not RequestTimeoutError.definite
    await until(lambda: echo.seen)
    (connection,) = echo.server.connections
    connection.send(echo.seen[0].response(0, "late"))
    answer = await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"


async def test_a_lost_connection_is_an_unknown_outcome_and_the_next_request_dials_anew(
    echo: Echo, client: RemotingClient
) -> None:
    waiting = asyncio.create_task(
        client.request(echo.server.address, RemotingCommand(code=2), 10_000)
    )
    await until(lambda: len(echo.seen) == 1)
    with pytest.raises(ConnectionLostError, match="closed by the peer"):
        await client.request(echo.server.address, RemotingCommand(code=4), 3000)
    with pytest.raises(ConnectionLostError):
        await waiting
    assert not ConnectionLostError.definite
    assert len(echo.closed) == 1
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert len(echo.server.connections) == 1


async def test_nobody_listening_is_a_definite_failure(client: RemotingClient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        results = await asyncio.gather(
            *[client.request(address, RemotingCommand(code=1), 3000) for _ in range(20)],
            return_exceptions=True,
        )
    assert all(isinstance(result, ConnectError) for result in results)
    assert str(results[0]).startswith(f"can't connect to {address}")
    assert ConnectError.definite


async def test_a_dial_that_hangs_ends_with_the_deadline(client: RemotingClient) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.socket() as first, socket.socket() as second:
            for filler in (first, second):  # the backlog is full now: a dial gets no answer
                filler.setblocking(False)
                filler.connect_ex(address)
            with pytest.raises(ConnectError, match="took too long"):
                await client.request(f"127.0.0.1:{address[1]}", RemotingCommand(code=1), 100)


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "broker-b..svc.local:10911",  # of a template whose variable was empty
        f"{'x' * 64}.local:10911",
        ".:1",
        "a\0b:1",
        "\udcff:1",
    ],
)
async def test_what_is_no_address_is_a_definite_failure(
    client: RemotingClient, address: str
) -> None:
    with pytest.raises(ConnectError, match="is not ip:port"):
        await client.request(address, RemotingCommand(code=1), 1000)


async def test_a_table_address_is_dialled_through_its_proxy(echo: Echo) -> None:
    client = RemotingClient({"10.1.2.3:10911": echo.server.address})
    answer = await client.request("10.1.2.3:10911", RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"
    await client.close()
    with pytest.raises(ConnectError, match="client is closed"):
        await client.request("10.1.2.3:10911", RemotingCommand(code=1), 3000)


async def test_a_cancelled_request_leaves_nothing_behind(
    echo: Echo, client: RemotingClient
) -> None:
    waiting = asyncio.create_task(
        client.request(echo.server.address, RemotingCommand(code=2), 10_000)
    )
    await until(lambda: len(echo.seen) == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    connection = client.connection(echo.server.address)
    assert connection is not None
    assert connection._pending == {}


async def test_open_requests_are_bounded(echo: Echo) -> None:
    client = RemotingClient(limits=ConnectionLimits(pending_requests_max=2))
    await client.connect(echo.server.address)
    waiting = [
        asyncio.create_task(client.request(echo.server.address, RemotingCommand(code=2), 10_000))
        for _ in range(2)
    ]
    await until(lambda: len(echo.seen) == 2)
    with pytest.raises(OverloadedError, match=r"2 requests .* are open already"):
        await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert OverloadedError.definite
    await client.close()
    for task in waiting:
        with pytest.raises(ConnectionLostError, match="closed here"):
            await task


async def test_a_command_too_large_is_refused_before_it_is_sent(
    echo: Echo, client: RemotingClient
) -> None:
    large = RemotingCommand(code=1, body=bytes(16_777_216))
    with pytest.raises(UnencodableError, match="needs a frame"):
        await client.request(echo.server.address, large, 3000)
    answer = await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 16_777_213), b"\x00\x00\x00\x00"]
)
async def test_garbage_closes_that_connection_only(
    echo: Echo, client: RemotingClient, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.server.port)
    writer.write(garbage)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    assert "frame length" in caplog.text
    answer = await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"
    assert len(echo.closed) == 1


async def test_a_bug_in_a_handler_is_loud_and_closes_the_connection(
    client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    def on_request(connection: Connection, command: RemotingCommand) -> None:
        raise ZeroDivisionError("a bug")

    server = RemotingServer("127.0.0.1", 0, on_request)
    await server.start()
    with pytest.raises(ConnectionLostError):
        await client.request(server.address, RemotingCommand(code=1), 3000)
    assert "ZeroDivisionError" in caplog.text
    await server.stop()


async def test_frames_sent_in_one_turn_leave_in_one_write(echo: Echo) -> None:
    client = RemotingClient()
    connection = await client.connect(echo.server.address)
    transport = connection._transport
    assert transport is not None
    writes: list[bytes] = []

    class Recorder:
        """Stands between the connection and its transport and counts writes."""

        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

        def write(self, data: bytes) -> None:
            writes.append(data)
            transport.write(data)

        def writelines(self, parts: list[bytes]) -> None:
            self.write(b"".join(parts))

    connection._transport = Recorder()  # type: ignore[assignment]  # only what is used is there
    for _ in range(5):
        connection.oneway(RemotingCommand(code=2))
    assert writes == []
    await until(lambda: len(echo.seen) == 5)
    assert len(writes) == 1
    await client.close()


async def test_a_peer_that_does_not_read_is_not_read_from_and_in_the_end_closed() -> None:
    limits = ConnectionLimits(write_buffer_size_high=1_000_000, write_buffer_size_max=8_000_000)
    echo = Echo(limits=limits)
    await echo.server.start()
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    peer.connect(("127.0.0.1", echo.server.port))
    peer.setblocking(False)
    # Each small request is answered with 1 MB that the peer does not read.
    ask = encode(RemotingCommand(code=3))
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(peer, ask)
    seen = -1
    while seen != len(echo.seen):  # until no more requests are read, however many are sent
        seen = len(echo.seen)
        await loop.sock_sendall(peer, ask)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await until(lambda more=seen + 100: len(echo.seen) > more)
    (connection,) = echo.server.connections
    transport = connection._transport
    assert transport is not None
    assert 1_000_000 < transport.get_write_buffer_size() < 4_000_000
    # Reading resumes once the peer reads.
    decoder = FrameDecoder()
    answers = 0
    while answers <= seen:
        data = await loop.sock_recv(peer, 1_000_000)
        answers += len(decoder.feed(data))
    # What the server sends by itself to a peer that never reads ends at the hard limit.
    while not connection.closed:
        connection.send(RemotingCommand(code=39, body=bytes(500_000)))
        await turns(1)
    await until(lambda: echo.closed == [connection])
    peer.close()
    await echo.server.stop()


async def test_answers_that_nobody_reads_are_bounded_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_request(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.response(0, body=bytes(12_000_000)))

    server = RemotingServer(
        "127.0.0.1",
        0,
        on_request,
        unsent_size_max=20_000_000,
        limits=ConnectionLimits(write_buffer_size_high=100_000),
    )
    await server.start()
    peers = [socket.socket() for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.connect(("127.0.0.1", server.port))
        peer.sendall(encode(RemotingCommand(code=1, opaque=number)))
    await until(lambda: "for all slow ones together" in caplog.text)
    await until(
        lambda: sum(connection.unsent_size for connection in server.connections) <= 20_000_000
    )
    await until(lambda: len(server.connections) < 5, "some are closed")
    assert server.connections, "the others wait on"
    for peer in peers:
        peer.close()
    await server.stop()


async def test_a_flood_of_requests_leaves_turns_to_others() -> None:
    seen: list[int] = []
    by_turn: list[int] = []  # requests handed on in each turn of the loop

    def on_request(connection: Connection, command: RemotingCommand) -> None:
        seen.append(command.opaque)
        if not command.is_oneway:
            connection.send(command.response(0))

    server = RemotingServer("127.0.0.1", 0, on_request)
    await server.start()
    loop = asyncio.get_running_loop()
    flood = b"".join(
        encode(RemotingCommand(code=1, opaque=number, flag=FLAG_ONEWAY)) for number in range(20_000)
    )
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.setblocking(False)
        writing = asyncio.create_task(loop.sock_sendall(peer, flood))
        before = 0
        async with asyncio.timeout(DEADLINE_S):
            while len(seen) < 20_000:
                await turns(1)
                by_turn.append(len(seen) - before)
                before = len(seen)
        await writing
    assert seen == list(range(20_000)), "in their order, none lost"
    assert max(by_turn) <= 2 * 256, "one more may have been due from the socket"
    await server.stop()


async def test_requests_that_take_long_leave_turns_to_others_too() -> None:
    seen: list[int] = []

    def on_request(_: Connection, command: RemotingCommand) -> None:
        seen.append(command.opaque)
        end = time.perf_counter() + 0.004
        while time.perf_counter() < end:
            continue

    server = RemotingServer("127.0.0.1", 0, on_request)
    await server.start()
    requests = b"".join(
        encode(RemotingCommand(code=1, opaque=number, flag=FLAG_ONEWAY)) for number in range(60)
    )
    most = before = 0
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(requests)
        async with asyncio.timeout(DEADLINE_S):
            while len(seen) < 60:
                await turns(1)
                most = max(most, len(seen) - before)
                before = len(seen)
    assert seen == list(range(60))
    assert most <= 6, "three or so per turn, and one turn more from the socket"
    await server.stop()


async def test_a_client_whose_sends_are_stuck_goes_on_reading() -> None:
    # Both ends send much at once; were both to stop reading, neither request would end. The
    # requests together are far above the hard limit, so they must wait for their turn.
    limits = ConnectionLimits(write_buffer_size_high=100_000, write_buffer_size_max=2_000_000)
    echo = Echo(limits=limits)
    await echo.server.start()
    client = RemotingClient(limits=limits)
    requests = [
        client.request(echo.server.address, RemotingCommand(code=1, body=bytes(400_000)), 10_000)
        for _ in range(50)
    ]
    answers = await asyncio.gather(*requests)
    assert all(len(answer.body) == 400_000 for answer in answers)
    await client.close()
    await echo.server.stop()


async def test_a_request_that_gets_no_turn_is_definitely_not_sent() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        limits = ConnectionLimits(write_buffer_size_high=100_000)
        client = RemotingClient(limits=limits)
        connection = await client.connect(address)  # nobody reads at the other end
        transport = connection._transport
        assert transport is not None
        while transport.get_write_buffer_size() <= 100_000:
            connection.oneway(RemotingCommand(code=1, body=bytes(1_000_000)))
            await turns(1)
        with pytest.raises(OverloadedError, match="took no bytes for 50 ms"):
            await client.request(address, RemotingCommand(code=1), 50)
        waiting = asyncio.create_task(client.request(address, RemotingCommand(code=1), 10_000))
        await until(lambda: len(connection._waiting_for_turn) == 2)  # the expired one and this
        connection.abort("the test ends")
        with pytest.raises(ConnectError, match="is closed"):
            await waiting
        await client.close()


async def test_connections_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo(connections_max=2)
    await echo.server.start()
    clients = [RemotingClient() for _ in range(3)]
    for client in clients[:2]:
        await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    with pytest.raises((ConnectionLostError, ConnectError)):
        await clients[2].request(echo.server.address, RemotingCommand(code=1), 3000)
    assert "2 connections are open already" in caplog.text
    await clients[0].close()
    await until(lambda: len(echo.server.connections) == 1)
    answer = await clients[2].request(echo.server.address, RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"
    for client in clients:
        await client.close()
    await echo.server.stop()


async def test_who_only_connects_keeps_nobody_out() -> None:
    echo = Echo(connections_max=20)
    await echo.server.start()
    port = echo.server.port
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    await until(lambda: len(echo.server.connections) == 20)
    await asyncio.sleep(1.0)  # so long a connection may take to its first request
    client = RemotingClient()
    answer = await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert answer.remark == "ok"
    assert await asyncio.wait_for(silent[0][0].read(1), 5) == b"", "the oldest made room"
    await client.close()
    for _, writer in silent:
        writer.close()
    await echo.server.stop()


async def test_operators_are_served_beside_a_full_house() -> None:
    echo = Echo(connections_max=3, reserved_max=2, reserved_codes={3})
    await echo.server.start()
    address = echo.server.address
    guests = [RemotingClient() for _ in range(3)]
    for guest in guests:
        await guest.request(address, RemotingCommand(code=1), 3000)
    others = [RemotingClient() for _ in range(5)]
    for other in others:  # one after the other takes a place of the reserve
        refused = await other.request(address, RemotingCommand(code=1), 3000)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "only operators and members" in (refused.remark or "")
    operator = RemotingClient()
    assert (await operator.request(address, RemotingCommand(code=3), 3000)).code == 0
    late = RemotingClient()
    await late.request(address, RemotingCommand(code=1), 3000)
    assert len(echo.server.connections) == 5
    assert (await operator.request(address, RemotingCommand(code=3), 3000)).code == 0
    await guests[0].close()  # a place is free: the oldest of the reserve is an ordinary one now
    await until(lambda: len(echo.server.connections) == 4)
    assert (await operator.request(address, RemotingCommand(code=1), 3000)).remark == "ok"
    for client in (*guests, *others, operator, late):
        await client.close()
    await echo.server.stop()


async def test_idle_connections_are_closed() -> None:
    echo = Echo(idle_timeout_ms=1_000)
    await echo.server.start()
    idle, busy = RemotingClient(), RemotingClient()
    await idle.request(echo.server.address, RemotingCommand(code=1), 3000)
    began = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while not echo.closed:
            await busy.request(echo.server.address, RemotingCommand(code=1), 3000)
    assert time.monotonic() - began > 0.15
    assert len(echo.server.connections) == 1
    assert busy.connection(echo.server.address) is not None
    await idle.close()
    await busy.close()
    await echo.server.stop()


async def test_a_process_that_stood_still_reads_before_it_closes_idle_connections() -> None:
    def stand_still() -> None:
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            pass

    echo = Echo(idle_timeout_ms=600)
    await echo.server.start()
    client = RemotingClient()
    for _ in range(2):
        await client.request(echo.server.address, RemotingCommand(code=1), 3000)
        with socket.create_connection(("127.0.0.1", echo.server.port)) as silent:
            await until(lambda: len(echo.server.connections) == 2)
            request = asyncio.create_task(
                client.request(echo.server.address, RemotingCommand(code=1), 3000)
            )
            asyncio.get_running_loop().call_soon(stand_still)
            await request
            await until(lambda: len(echo.server.connections) < 2)
            assert silent.recv(1) == b""
    await client.close()
    await echo.server.stop()


async def test_an_idle_connection_whose_peer_does_not_read_is_closed_too() -> None:
    echo = Echo(idle_timeout_ms=200)
    await echo.server.start()
    with socket.socket() as peer:
        peer.connect(("127.0.0.1", echo.server.port))
        await until(lambda: len(echo.server.connections) == 1)
        (connection,) = echo.server.connections
        for _ in range(10):
            connection.send(RemotingCommand(code=39, body=bytes(1_000_000)))
        await until(lambda: echo.closed == [connection])
    await echo.server.stop()


async def test_stop_closes_all_and_frees_the_port(client: RemotingClient) -> None:
    echo = Echo()
    await echo.server.start()
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    await echo.server.stop()
    assert len(echo.closed) == 1
    assert echo.server.connections == frozenset()
    await until(lambda: client.connection(echo.server.address) is None)
    with pytest.raises(ConnectError):
        await client.request(echo.server.address, RemotingCommand(code=1), 1000)
    again = RemotingServer("127.0.0.1", echo.server.port, echo.on_request)
    await again.start()
    await again.stop()


async def test_stop_does_not_wait_for_ever_for_a_peer_that_does_not_read() -> None:
    echo = Echo()
    await echo.server.start()
    with socket.socket() as peer:
        peer.connect(("127.0.0.1", echo.server.port))
        await until(lambda: len(echo.server.connections) == 1)
        (connection,) = echo.server.connections
        for _ in range(10):
            connection.send(RemotingCommand(code=39, body=bytes(1_000_000)))
        async with asyncio.timeout(DEADLINE_S):
            await echo.server.stop()
        assert echo.closed == [connection]


async def test_a_client_closes_although_its_peer_does_not_read() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        closed: list[Connection] = []
        client = RemotingClient(on_close=closed.append)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connection = await client.connect(address)
        for _ in range(10):
            connection.oneway(RemotingCommand(code=1, body=bytes(1_000_000)))
        await client.close()
        assert closed == [connection]


async def test_a_port_in_use_is_an_os_error(echo: Echo) -> None:
    second = RemotingServer("127.0.0.1", echo.server.port, echo.on_request)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.stop()


async def test_a_request_opens_anew_what_was_closed(echo: Echo, client: RemotingClient) -> None:
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)
    connection = client.connection(echo.server.address)
    assert connection is not None
    connection.close()
    assert client.connection(echo.server.address) is None
    await until(lambda: len(echo.closed) == 1)
    await client.request(echo.server.address, RemotingCommand(code=1), 3000)


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="frame_size_max"):
        ConnectionLimits(frame_size_max=7)
    with pytest.raises(ValueError, match="pending_requests_max"):
        ConnectionLimits(pending_requests_max=0)
    with pytest.raises(ValueError, match="write_buffer_size_high"):
        ConnectionLimits(write_buffer_size_high=2, write_buffer_size_max=1)


@pytest.mark.parametrize(
    "scenario",
    [
        test_a_flood_of_requests_leaves_turns_to_others,
        test_a_client_whose_sends_are_stuck_goes_on_reading,
        test_a_request_that_gets_no_turn_is_definitely_not_sent,
        test_a_peer_that_does_not_read_is_not_read_from_and_in_the_end_closed,
        test_idle_connections_are_closed,
        test_a_process_that_stood_still_reads_before_it_closes_idle_connections,
        test_an_idle_connection_whose_peer_does_not_read_is_closed_too,
        test_stop_does_not_wait_for_ever_for_a_peer_that_does_not_read,
        test_a_client_closes_although_its_peer_does_not_read,
    ],
)
def test_the_same_on_uvloop(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    # What leans on the transport's own behaviour; brokers run on uvloop.
    uvloop.run(scenario())


def test_both_directions_on_uvloop() -> None:
    async def scenario() -> None:
        echo = Echo()
        await echo.server.start()
        client = RemotingClient(on_request=lambda c, command: c.send(command.response(7)))
        answer = await client.request(
            echo.server.address, RemotingCommand(code=1, body=bytes(300_000)), 3000
        )
        assert len(answer.body) == 300_000
        (connection,) = echo.server.connections
        assert (await connection.request(RemotingCommand(code=307), 3000)).code == 7
        with pytest.raises(ConnectionLostError):
            await client.request(echo.server.address, RemotingCommand(code=4), 3000)
        await client.close()
        await echo.server.stop()

    uvloop.run(scenario())
