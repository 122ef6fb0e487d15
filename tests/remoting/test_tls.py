"""TLS and PROXY preambles on the port of plain connections, over real sockets, on both loops."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from campaigns.rig.certificates import Authority, Certificate
from campaigns.rig.waiting import until
from remoting.connections.connection import Connection
from remoting.connections.greeting import Greeting, parse_networks
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.connections.tls import (
    ClientAuth,
    ServerTls,
    TlsError,
    TlsMode,
    TlsOptions,
    client_context,
)
from remoting.errors import ConnectError, ConnectionLostError, RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode

V1 = b"PROXY TCP4 10.9.8.7 127.0.0.1 4321 10911\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_certificate(authority):
    return authority.issue("server")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request) -> Callable[[Coroutine[None, None, None]], None]:
    def run_it(work: Coroutine[None, None, None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await work

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return run_it


def tls(
    certificate: Certificate, mode: TlsMode = TlsMode.PERMISSIVE, **options: object
) -> ServerTls:
    return ServerTls(
        TlsOptions(mode=mode, cert_file=certificate.cert, key_file=certificate.key, **options)  # type: ignore[arg-type]
    )


@asynccontextmanager
async def serving(
    greeting: Greeting, **options: object
) -> AsyncIterator[tuple[RemotingServer, list[str]]]:
    """Echoes; the list is of the peers that asked."""
    peers: list[str] = []

    def on_request(connection: Connection, command: RemotingCommand) -> None:
        peers.append(connection.peer)
        connection.send(command.response(0, None, command.ext_fields, command.body))

    server = RemotingServer("127.0.0.1", 0, on_request, greeting=greeting, **options)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server, peers
    finally:
        await server.stop()
        assert not server.connections


async def ask(
    server: RemotingServer, context: ssl.SSLContext | None, body: bytes = b"hello"
) -> RemotingCommand | RemotingError:
    client = RemotingClient(tls=context)
    try:
        return await client.request(server.address, RemotingCommand(code=1, body=body), 5_000)
    except RemotingError as error:
        return error
    finally:
        await client.close()


def body_of(answer: RemotingCommand | RemotingError) -> bytes:
    assert isinstance(answer, RemotingCommand), answer
    assert answer.code == 0, answer.remark
    return answer.body


async def raw(server: RemotingServer, *pieces: bytes) -> bytes:
    """What a peer that sends these pieces hears until the end, or until it has one frame."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    decoder, heard = FrameDecoder(), b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)  # so that pieces arrive apart
        while data := await reader.read(65_536):
            heard += data
            if decoder.feed(data):
                break
    except ConnectionError:
        return heard
    finally:
        writer.close()
    return heard


def test_a_permissive_port_takes_both(run, authority, server_certificate):
    async def work() -> None:
        async with serving(Greeting(tls=tls(server_certificate))) as (server, peers):
            verified = client_context(ca_file=authority.own.cert)
            large = bytes(range(256)) * 20_000
            assert body_of(await ask(server, verified, large)) == large
            assert body_of(await ask(server, None, large)) == large
            assert body_of(await ask(server, client_context())) == b"hello"
            assert all(peer.startswith("127.0.0.1:") for peer in peers)

    run(work())


def test_many_requests_over_one_tls_connection(run, server_certificate):
    async def work() -> None:
        async with serving(Greeting(tls=tls(server_certificate))) as (server, _):
            client = RemotingClient(tls=client_context())
            commands = [RemotingCommand(code=1, body=bytes([n]) * 5_000) for n in range(200)]
            answers = await asyncio.gather(
                *(client.request(server.address, command, 10_000) for command in commands)
            )
            assert [answer.body[0] for answer in answers] == list(range(200))
            await client.close()

    run(work())


def test_an_enforcing_port_answers_plain_text_with_a_refusal(run, server_certificate, caplog):
    async def work() -> None:
        greeting = Greeting(tls=tls(server_certificate, TlsMode.ENFORCING))
        async with serving(greeting) as (server, peers):
            answer = await ask(server, None)
            assert isinstance(answer, RemotingCommand)
            assert answer.code == 16
            assert "TLS connections only" in (answer.remark or "")
            assert not peers  # nothing was handled
            assert "plain text, and this port takes TLS only" in caplog.text
            assert body_of(await ask(server, client_context())) == b"hello"
            assert await raw(server, b"GET / HTTP/1.1\r\n\r\n") == b""

    run(work())


def test_certificates_of_clients(run, authority, server_certificate, tmp_path, caplog):
    good, expired = authority.issue("good"), authority.issue("expired", expired=True)
    stranger = Authority(tmp_path, "strangers").issue("stranger")

    def context(shown: Certificate | None) -> ssl.SSLContext:
        if shown is None:
            return client_context(ca_file=authority.own.cert)
        return client_context(ca_file=authority.own.cert, cert_file=shown.cert, key_file=shown.key)

    async def work() -> None:
        for auth, nobody_may in ((ClientAuth.REQUIRED, False), (ClientAuth.OPTIONAL, True)):
            made = tls(server_certificate, ca_file=authority.own.cert, client_auth=auth)
            async with serving(Greeting(tls=made)) as (server, peers):
                assert body_of(await ask(server, context(good))) == b"hello"
                for shown in (expired, stranger, *([] if nobody_may else [None])):
                    caplog.clear()
                    assert isinstance(
                        await ask(server, context(shown)), ConnectError | ConnectionLostError
                    )
                    assert "TLS handshake failed" in caplog.text
                assert len(peers) == 1
                if nobody_may:
                    assert body_of(await ask(server, context(None))) == b"hello"

    run(work())


def test_a_client_refuses_an_expired_or_unknown_certificate(run, authority, tmp_path, caplog):
    expired = authority.issue("expired-server", expired=True)
    stranger = Authority(tmp_path, "strangers").issue("stranger-server")

    async def work() -> None:
        for shown, why in ((expired, "expired"), (stranger, "verify failed")):
            async with serving(Greeting(tls=tls(shown))) as (server, peers):
                answer = await ask(server, client_context(ca_file=authority.own.cert))
                assert isinstance(answer, ConnectError)
                assert answer.definite
                assert why in str(answer)
                assert not peers
                await until(lambda: "its TLS handshake failed: " in caplog.text)
                assert "failed: \n" not in caplog.text, "it says why"
                caplog.clear()

    run(work())


def test_a_new_certificate_is_taken_up_and_a_broken_one_is_not(run, authority, tmp_path, caplog):
    others = Authority(tmp_path, "others")
    first, second = authority.issue("first"), others.issue("second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(certificate: Certificate) -> None:
        for source, target in ((certificate.cert, cert), (certificate.key, key)):
            new = Path(f"{target}.new")
            new.write_bytes(source.read_bytes())
            new.replace(target)

    async def work() -> None:
        install(first)
        made = tls(Certificate(cert, key))
        async with serving(Greeting(tls=made)) as (server, _):
            old = client_context(ca_file=authority.own.cert)
            new = client_context(ca_file=others.own.cert)
            assert body_of(await ask(server, old)) == b"hello"
            cert.write_text("no certificate")
            made.poll()
            assert "stays in force" in caplog.text
            assert body_of(await ask(server, old)) == b"hello"
            install(second)
            made.poll()
            assert isinstance(await ask(server, old), ConnectError)
            assert body_of(await ask(server, new)) == b"hello"

    run(work())


def test_new_authorities_of_clients_are_taken_up(run, authority, tmp_path):
    others = Authority(tmp_path, "others")
    server, first, second = (made.issue("x") for made in (authority, authority, others))
    authorities = tmp_path / "authorities.pem"

    async def work() -> None:
        authorities.write_bytes(authority.own.cert.read_bytes())
        made = tls(server, ca_file=authorities, client_auth=ClientAuth.REQUIRED)
        async with serving(Greeting(tls=made)) as (port, _):
            old, new = (
                client_context(ca_file=authority.own.cert, cert_file=c.cert, key_file=c.key)
                for c in (first, second)
            )
            assert body_of(await ask(port, old)) == b"hello"
            assert isinstance(await ask(port, new), ConnectError | ConnectionLostError)
            renewed = tmp_path / "authorities.new"
            renewed.write_bytes(others.own.cert.read_bytes())
            renewed.replace(authorities)
            made.poll()
            assert body_of(await ask(port, new)) == b"hello"
            assert isinstance(await ask(port, old), ConnectError | ConnectionLostError)

    run(work())


def test_files_that_can_not_be_used_are_named(tmp_path, server_certificate):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with pytest.raises(TlsError, match=r"wrong\.pem"):
        tls(Certificate(wrong, server_certificate.key))
    with pytest.raises(TlsError, match=r"none\.pem"):
        tls(Certificate(tmp_path / "none.pem", server_certificate.key))
    with pytest.raises(TlsError, match=r"wrong\.pem"):
        client_context(ca_file=wrong)
    with pytest.raises(TlsError, match="needs a certificate"):
        TlsOptions(mode=TlsMode.ENFORCING)
    with pytest.raises(TlsError, match="without authorities"):
        tls(server_certificate, client_auth=ClientAuth.REQUIRED)


def test_a_trusted_proxy_tells_who_asks(run, server_certificate):
    greeting_of = {
        "plain": Greeting(proxies=parse_networks(("127.0.0.0/8",))),
        "tls": Greeting(tls=tls(server_certificate), proxies=parse_networks(("127.0.0.1",))),
    }
    frame = encode(RemotingCommand(code=1, opaque=3, body=b"x"))

    async def through_tls(server: RemotingServer) -> None:
        """The preamble in plain text, then the handshake on the same socket."""
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.sendall(V1)
        peer.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=peer, ssl=client_context(), server_hostname="any"
        )
        writer.write(frame)
        assert FrameDecoder().feed(await reader.read(65_536))[0].body == b"x"
        writer.close()

    async def work() -> None:
        async with serving(greeting_of["plain"]) as (server, peers):
            assert await raw(server, V1 + frame)
            assert await raw(server, V1[:1], V1[1:9], V1[9:] + frame[:5], frame[5:])
            assert peers == ["10.9.8.7:4321"] * 2
            assert await raw(server, frame)
            assert peers[2].startswith("127.0.0.1:")
        async with serving(greeting_of["tls"]) as (server, peers):
            await through_tls(server)
            assert peers == ["10.9.8.7:4321"]

    run(work())


def test_nobody_else_is_believed(run, caplog, server_certificate):
    frame = encode(RemotingCommand(code=1, opaque=3, body=b"x"))

    async def work() -> None:
        proxies = parse_networks(("10.0.0.0/8", "::1"))
        for greeting in (Greeting(proxies=proxies), Greeting(tls=tls(server_certificate))):
            caplog.clear()
            async with serving(greeting) as (server, peers):
                assert await raw(server, V1 + frame) == b""
                assert not peers
                assert "not taken from there" in caplog.text

    run(work())


def test_garbage_and_half_a_preamble_are_closed(run, caplog, monkeypatch):
    monkeypatch.setattr("remoting.connections.greeting._BEGIN_TIMEOUT_S", 0.2)

    async def work() -> None:
        greeting = Greeting(proxies=parse_networks(("127.0.0.1",)))
        async with serving(greeting, idle_timeout_ms=400) as (server, _):
            assert await raw(server, b"PROXY nonsense\r\n") == b""
            assert "is no PROXY line" in caplog.text
            assert await raw(server, b"PROXY TCP4 ") == b""
            assert "took too long" in caplog.text
            assert await raw(server) == b""  # says nothing at all
            assert body_of(await ask(server, None)) == b"hello"

    with caplog.at_level(logging.INFO):
        run(work())


def test_connections_that_only_begin_are_bounded(run, caplog, server_certificate):
    async def work() -> None:
        greeting = Greeting(tls=tls(server_certificate))
        async with serving(greeting, connections_max=5) as (server, _):
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
            closed = 0
            for reader, _ in silent[:3]:  # the oldest go: who says nothing keeps nobody out
                async with asyncio.timeout(5):
                    closed += await reader.read(1) == b""
            assert closed == 3
            assert "ending the oldest of 5 connections that begin" in caplog.text
            assert body_of(await ask(server, None)) == b"hello"
            for _, writer in silent:
                writer.close()

    run(work())


def test_a_stopped_server_lets_go_of_what_begins(run, server_certificate):
    async def work() -> None:
        async with serving(Greeting(tls=tls(server_certificate))) as (server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            port = server.port
        async with asyncio.timeout(5):
            assert await reader.read(1) == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(work())
