"""What happens to bytes: black-box, against our server or the one that TOXIPROXY_URL names.

Times have lower bounds only, since the machine may be busy; `test_stages.py` has both, exact, in a
time of its own.
"""

import asyncio
import socket
import struct
import time

import pytest

from campaigns.rig.ports import free_port
from tests.chaos.toxiproxy.peers import DEADLINE_S, connect, flood, make_proxy, upstream
from toxiproxy.client import ProxySpec, ToxicSpec, ToxiproxyClient


async def add(
    client: ToxiproxyClient,
    type_name: str,
    stream: str = "downstream",
    toxicity: float = 1.0,
    **attributes: int,
) -> str:
    spec = ToxicSpec(type_name=type_name, stream=stream, toxicity=toxicity, attributes=attributes)
    return (await client.add_toxic("link", spec)).name


class TestPlain:
    async def test_bytes_arrive_whole_and_in_order(self, client: ToxiproxyClient) -> None:
        payload = b"".join(struct.pack(">I", number) for number in range(1_000_000))
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            peer.writer.write(payload)
            assert await peer.read(len(payload)) == payload
        assert server.received == payload

    async def test_early_bytes_wait_for_the_upstream(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            for _ in range(20):
                async with connect(address) as peer:
                    await peer.round_trip(b"at once")

    async def test_upstream_that_speaks_first(self, client: ToxiproxyClient) -> None:
        async with (
            upstream(greeting=b"welcome") as server,
            connect(await make_proxy(client, server)) as peer,
        ):
            assert await peer.read(7) == b"welcome"

    async def test_an_upstream_that_speaks_first_goes_on(self, client: ToxiproxyClient) -> None:
        async with upstream(greeting=b"welcome") as server:
            address = await make_proxy(client, server)

            async def talk() -> None:
                async with connect(address) as peer:
                    assert await peer.read(7) == b"welcome"
                    await peer.round_trip(b"and then")

            for _ in range(20):  # a wave of clients is what makes the greeting overtake the dial
                await asyncio.gather(*(talk() for _ in range(50)))

    @pytest.mark.parametrize("slow", ["client", "upstream"])
    async def test_a_long_greeting_to_a_slow_reader(
        self, client: ToxiproxyClient, slow: str
    ) -> None:
        greeting = b"".join(struct.pack(">I", number) for number in range(2_000_000))
        async with (
            upstream(echo=False, greeting=greeting if slow == "client" else b"") as server,
            connect(await make_proxy(client, server)) as peer,
        ):
            await server.until(lambda state: len(state.writers) == 1)
            if slow == "client":
                got = bytearray()
                while len(got) < len(greeting):
                    got += await peer.read(100_000)
                assert got == greeting
            else:
                server.writers[0].transport.pause_reading()  # type: ignore[attr-defined]
                peer.writer.write(greeting)
                await peer.silent(0.1)
                server.writers[0].transport.resume_reading()  # type: ignore[attr-defined]
                await server.until(lambda state: len(state.received) == len(greeting))
                assert server.received == greeting

    async def test_no_upstream_closes_the_client(self, client: ToxiproxyClient) -> None:
        spec = ProxySpec(name="link", upstream=f"127.0.0.1:{free_port()}")
        async with connect((await client.create_proxy(spec)).listen) as peer:
            assert (await peer.end())[0] == b""

    async def test_end_of_the_client_reaches_the_upstream(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            async with connect(await make_proxy(client, server)) as peer:
                await peer.round_trip(b"x")
            await server.until(lambda state: state.ended == [None])

    async def test_end_of_the_upstream_reaches_the_client(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            server.writers[0].write(b"last words")
            server.writers[0].close()
            assert await peer.end() == (b"last words", "fin")

    async def test_a_half_close_closes_both_directions(self, client: ToxiproxyClient) -> None:
        async with upstream(echo=False) as server:
            async with connect(await make_proxy(client, server)) as peer:
                peer.writer.write(b"the whole request")
                peer.writer.write_eof()
                assert await peer.end() == (b"", "fin")
            await server.until(lambda state: state.ended == [None])
            assert server.received == b"the whole request"

    async def test_a_reset_of_one_end_is_a_plain_end_at_the_other(
        self, client: ToxiproxyClient
    ) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            raw = peer.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.writer.transport.abort()
            await server.until(lambda state: state.ended == [None])

    async def test_a_reader_that_stops_stops_the_writer(self, client: ToxiproxyClient) -> None:
        async with (
            upstream(echo=False) as server,
            connect(await make_proxy(client, server)) as peer,
        ):
            await server.until(lambda state: len(state.writers) == 1)
            sent = await flood(server.writers[0], 1 << 20, 1.0)
            assert sent < 200 << 20
            assert len(await peer.read(sent)) == sent


class TestControl:
    async def test_disable_refuses_and_drops(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            async with connect(address) as peer:
                await peer.round_trip(b"x")
                await client.update_proxy("link", enabled=False)
                assert (await peer.end())[0] == b""
                await server.until(lambda state: len(state.ended) == 1)
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection(*address.rsplit(":", 1))
            assert (await client.update_proxy("link", enabled=True)).listen == address
            async with connect(address) as peer:
                await peer.round_trip(b"x")

    async def test_delete_drops(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            await client.delete_proxy("link")
            assert (await peer.end())[0] == b""

    async def test_another_upstream_drops_and_redirects(self, client: ToxiproxyClient) -> None:
        async with upstream(greeting=b"a") as first, upstream(greeting=b"b") as second:
            address = await make_proxy(client, first)
            async with connect(address) as peer:
                assert await peer.read(1) == b"a"
                await client.update_proxy("link", upstream=second.address)
                assert (await peer.end())[0] == b""
            async with connect(address) as peer:
                assert await peer.read(1) == b"b"

    async def test_an_update_that_changes_nothing_drops_nothing(
        self, client: ToxiproxyClient
    ) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            async with connect(address) as peer:
                await peer.round_trip(b"x")
                await client.update_proxy("link", upstream=server.address, listen=address)
                spec = ProxySpec(name="link", listen=address, upstream=server.address)
                await client.populate([spec])
                await client.reset()
                await peer.round_trip(b"x")

    async def test_toxics_survive_a_disable(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "latency", latency=60)
            await client.update_proxy("link", enabled=False)
            await client.update_proxy("link", enabled=True)
            async with connect(address) as peer:
                assert await peer.round_trip(b"x") >= 0.06

    async def test_reset_enables_and_takes_toxics_away(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "timeout")
            await client.update_proxy("link", enabled=False)
            await client.reset()
            async with connect(address) as peer:
                await peer.round_trip(b"x")

    async def test_many_connections_at_once(self, client: ToxiproxyClient) -> None:
        async def talk(address: str, number: int) -> None:
            payload = struct.pack(">I", number) * 5000
            async with connect(address) as peer:
                await peer.round_trip(payload)

        async with upstream() as server:
            address = await make_proxy(client, server)
            async with asyncio.TaskGroup() as tasks:
                for number in range(100):
                    tasks.create_task(talk(address, number))
            assert len(server.writers) == 100


class TestLatency:
    @pytest.mark.parametrize("stream", ["upstream", "downstream"])
    async def test_delays(self, client: ToxiproxyClient, stream: str) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            await add(client, "latency", stream, latency=100)
            assert await peer.round_trip(b"x") >= 0.1

    async def test_adds_up_over_both_directions(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "latency", "upstream", latency=50)
            await add(client, "latency", "downstream", latency=70)
            assert await peer.round_trip(b"x") >= 0.12

    async def test_is_a_pipeline(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "latency", latency=1_500)
            begun = time.monotonic()
            for number in range(10):
                peer.writer.write(bytes([number]))
                await asyncio.sleep(0.02)
            # One after the other they would be late for the deadline.
            assert await peer.read(10) == bytes(range(10))
            assert time.monotonic() - begun >= 1.68

    async def test_jitter_stays_in_its_bounds_and_keeps_order(
        self, client: ToxiproxyClient
    ) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "latency", latency=50, jitter=40)
            times = [await peer.round_trip(bytes([number])) for number in range(12)]
            assert min(times) >= 0.01
            assert max(times) - min(times) > 0.005

    async def test_the_end_comes_after_the_data(self, client: ToxiproxyClient) -> None:
        async with upstream(greeting=b"late") as server:
            address = await make_proxy(client, server)
            await add(client, "latency", latency=150)
            async with connect(address) as peer:
                await server.until(lambda state: len(state.writers) == 1)
                server.writers[0].close()
                begun = time.monotonic()
                assert await peer.end() == (b"late", "fin")
                assert time.monotonic() - begun >= 0.1

    async def test_removal_lets_all_go_at_once(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            name = await add(client, "latency", latency=60_000)
            peer.writer.write(b"held ")
            await server.until(lambda state: len(state.received) == 5)
            peer.writer.write(b"back")
            await server.until(lambda state: len(state.received) == 9)
            assert await peer.silent(0.1)
            await client.delete_toxic("link", name)
            assert await peer.read(9) == b"held back"
            await peer.round_trip(b"x")

    async def test_update_holds_at_once(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            name = await add(client, "latency", latency=60_000)
            peer.writer.write(b"x")
            await server.until(lambda state: len(state.received) == 1)
            await client.update_toxic("link", name, attributes={"latency": 80})
            assert await peer.read(1) == b"x"
            assert await peer.round_trip(b"y") >= 0.08


class TestBandwidth:
    async def test_rate_is_in_thousands_of_bytes(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "bandwidth", rate=1000)
            took = await peer.round_trip(bytes(500_000))
            assert took >= 0.45

    async def test_small_rates_trickle(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "bandwidth", rate=10)
            begun = time.monotonic()
            peer.writer.write(bytes(4000))
            await peer.read(1000)
            assert time.monotonic() - begun >= 0.08
            await peer.read(3000)
            assert time.monotonic() - begun >= 0.36

    async def test_zero_stalls_until_changed(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            name = await add(client, "bandwidth", "upstream", rate=0)
            peer.writer.write(b"stuck")
            assert await peer.silent(0.2)
            assert not server.received
            await client.update_toxic("link", name, attributes={"rate": 1000})
            assert await peer.read(5) == b"stuck"

    async def test_holds_the_sender_back(self, client: ToxiproxyClient) -> None:
        async with (
            upstream(echo=False) as server,
            connect(await make_proxy(client, server)) as peer,
        ):
            await add(client, "bandwidth", "upstream", rate=100)
            sent = await flood(peer.writer, 1 << 18, 0.8)
            assert sent < 60 << 20
            assert len(server.received) < 250_000


class TestTimeout:
    async def test_zero_is_a_black_hole(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            await add(client, "timeout", "upstream", timeout=0)
            peer.writer.write(b"lost")
            assert await peer.silent(0.3)
            assert server.received == b"x"
            server.writers[0].write(b"other way")
            assert await peer.read(9) == b"other way"

    async def test_zero_never_blocks_the_sender(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "timeout", "upstream", timeout=0)
            async with asyncio.timeout(DEADLINE_S):
                for _ in range(32):
                    peer.writer.write(bytes(1 << 20))
                    await peer.writer.drain()
            assert not server.received

    async def test_removal_closes(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            name = await add(client, "timeout", timeout=0)
            peer.writer.write(b"x")
            await server.until(lambda state: len(state.received) == 1)
            await client.delete_toxic("link", name)
            assert (await peer.end())[0] == b""
            await server.until(lambda state: len(state.ended) == 1)

    async def test_closes_after_silence(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            begun = time.monotonic()
            await add(client, "timeout", "upstream", timeout=200)
            peer.writer.write(b"x")
            assert (await peer.end())[0] == b""
            assert time.monotonic() - begun >= 0.2
            assert server.received == b"x"

    async def test_each_dropped_chunk_starts_the_clock_anew(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            await add(client, "timeout", "upstream", timeout=300)
            for _ in range(6):
                peer.writer.write(b"x")
                assert await peer.silent(0.1)
            last = time.monotonic()
            assert (await peer.end())[0] == b""
            assert time.monotonic() - last >= 0.15
            assert len(server.received) == 1

    async def test_the_end_of_the_stream_goes_through(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            async with connect(await make_proxy(client, server)) as peer:
                await peer.round_trip(b"x")
                await add(client, "timeout", "upstream", timeout=0)
                peer.writer.write(b"lost")
            await server.until(lambda state: len(state.ended) == 1)
            assert server.received == b"x"


class TestResetPeer:
    @pytest.mark.parametrize("stream", ["upstream", "downstream"])
    async def test_resets_a_new_connection(self, client: ToxiproxyClient, stream: str) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "reset_peer", stream, timeout=0)
            async with connect(address) as peer:
                peer.writer.write(b"x")
                assert await peer.end() == (b"", "rst")
            await server.until(lambda state: len(state.ended) == 1)
            assert isinstance(server.ended[0], ConnectionResetError)

    async def test_waits_for_its_timeout(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "reset_peer", "upstream", timeout=150)
            async with connect(address) as peer:
                assert await peer.silent(0.3)
                begun = time.monotonic()
                peer.writer.write(b"x")
                assert await peer.end() == (b"", "rst")
                assert time.monotonic() - begun >= 0.15
            assert not server.received

    @pytest.mark.usefixtures("ours_only")
    async def test_resets_a_connection_that_was_open(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"x")
            await add(client, "reset_peer", "upstream", timeout=0)
            peer.writer.write(b"x")
            assert await peer.end() == (b"", "rst")

    @pytest.mark.usefixtures("ours_only")
    async def test_spared_connections_end_plainly(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "reset_peer", "upstream", toxicity=0.0, timeout=0)
            async with connect(address) as peer:
                await peer.round_trip(b"x")
                server.writers[0].close()
                assert await peer.end() == (b"", "fin")


class TestOtherToxics:
    async def test_noop(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "noop", "upstream")
            await add(client, "noop", "downstream")
            await peer.round_trip(bytes(300_000))

    async def test_slow_close_delays_the_end(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "slow_close", "downstream", delay=200)
            await peer.round_trip(b"x")
            begun = time.monotonic()
            server.writers[0].close()
            assert await peer.end() == (b"", "fin")
            assert time.monotonic() - begun >= 0.2

    async def test_limit_data_closes_at_its_limit(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await peer.round_trip(b"before")
            await add(client, "limit_data", "downstream", bytes=10)
            peer.writer.write(bytes(100))
            assert await peer.end() == (bytes(10), "fin")

    async def test_limit_data_counts_over_chunks(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            name = await add(client, "limit_data", "downstream", bytes=10)
            await peer.round_trip(b"12345678")
            await client.update_toxic("link", name, attributes={"bytes": 12})
            peer.writer.write(b"12345678")
            assert await peer.end() == (b"1234", "fin")

    async def test_slicer_cuts(self, client: ToxiproxyClient) -> None:
        payload = bytes(range(256)) * 4
        async with (
            upstream(echo=False) as server,
            connect(await make_proxy(client, server)) as peer,
        ):
            await add(client, "slicer", average_size=64, size_variation=16, delay=10_000)
            await server.until(lambda state: len(state.writers) == 1)
            begun = time.monotonic()
            server.writers[0].write(payload)
            got: list[bytes] = []
            async with asyncio.timeout(DEADLINE_S):
                while sum(map(len, got)) < len(payload):
                    got.append(await peer.reader.read(1 << 16))
            assert b"".join(got) == payload
            assert len(got) > 5
            assert time.monotonic() - begun > 0.08

    async def test_chain_of_toxics_in_order(self, client: ToxiproxyClient) -> None:
        async with upstream() as server, connect(await make_proxy(client, server)) as peer:
            await add(client, "latency", latency=100)
            await add(client, "bandwidth", rate=1000)
            took = await peer.round_trip(bytes(200_000))
            assert took >= 0.27


class TestToxicity:
    async def test_zero_hits_nobody_and_one_everybody(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            name = await add(client, "latency", toxicity=0.0, latency=60_000)
            for _ in range(10):
                async with connect(address) as peer:
                    await peer.round_trip(b"x")
            await client.update_toxic("link", name, toxicity=1.0)
            async with connect(address) as peer:
                peer.writer.write(b"x")
                assert await peer.silent(0.1)

    async def test_a_share_of_the_connections(self, client: ToxiproxyClient) -> None:
        async with upstream() as server:
            address = await make_proxy(client, server)
            await add(client, "limit_data", toxicity=0.5, bytes=0)
            assert 10 <= sum(await _hits(address, 60)) <= 50

    @pytest.mark.usefixtures("ours_only")
    async def test_the_seed_decides(self, client: ToxiproxyClient) -> None:
        rounds = []
        for _ in range(2):
            async with upstream() as server:
                address = await make_proxy(client, server)
                await add(client, "limit_data", toxicity=0.5, bytes=0)
                rounds.append(await _hits(address, 30))
                await client.delete_proxy("link")
        assert rounds[0] == rounds[1]


async def _hits(address: str, count: int) -> list[bool]:
    """Which of so many connections, one after another, were closed at the first byte."""
    hits = []
    for _ in range(count):
        async with connect(address) as peer:
            peer.writer.write(b"x")
            async with asyncio.timeout(DEADLINE_S):
                hits.append(await peer.reader.read(1) == b"")
    return hits
