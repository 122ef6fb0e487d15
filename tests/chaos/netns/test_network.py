"""Links between real network namespaces: what is cut, lost, delayed, healed, and left behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from campaigns.rig.waiting import await_until
from chaos.cluster.layout import ClusterLayout, fixed_ports, lay_out
from chaos.experiment.experiment import run_experiment
from chaos.experiment.world_catalogue import WORLDS
from chaos.links.base import Link, LinkEffect, LinksError, LinkShape, Shaping, both_ways
from chaos.links.netns import NetnsLinks
from chaos.netns import host_probe
from chaos.netns.plan import at_namespace_addresses
from chaos.scenario.scenario import parse_scenario
from verify.run import verify_run
from verify.verdict import Outcome

pytestmark = pytest.mark.cluster
missing = functools.cache(host_probe.missing)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if missing() is not None:
        pytest.skip(f"no network namespaces here: {missing()}")


N0, N1 = "broker-a-n0", "broker-a-n1"
THERE, BACK = Link(who=N0, whom=N1), Link(who=N1, whom=N0)
CLIENTS = both_ways(["client-0"], [N0])


def _layout() -> ClusterLayout:
    ports = fixed_ports(
        groups=1, replicas=2, name_servers=1, name_server_port=9876, base_port=10911
    )
    return at_namespace_addresses(lay_out(groups=1, replicas=2, name_servers=1, ports=ports))


class Answering(asyncio.Protocol):
    """Answers anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"answer")


@pytest.fixture
async def links() -> AsyncIterator[NetnsLinks]:
    """Links of a cluster in whose places servers stand that answer anything."""
    layout = _layout()
    made = NetnsLinks(
        layout, ["client-0", "client-1"], process_state=lambda _: "S", rng=random.Random(1)
    )
    addresses = {place.name: (place.address, place.raft_address) for place in layout.brokers}
    addresses |= {server.name: (server.address,) for server in layout.name_servers}
    async with contextlib.AsyncExitStack() as stack:
        await made.start()
        stack.push_async_callback(made.abort)
        for name, each in addresses.items():
            for address in each:
                listener = made._network.tcp_socket(name)
                listener.bind(("", int(address.rpartition(":")[2])))
                loop = asyncio.get_running_loop()
                server = await loop.create_server(Answering, sock=listener)
                await stack.enter_async_context(server)
        yield made


async def _passes(links: NetnsLinks, *some: Link) -> list[bool | None]:
    return [probe.passes for probe in await links.probe(list(some), timeout_s=1.0)]


async def test_a_cut_swallows_one_direction_and_is_healed_by_its_tag(links: NetnsLinks) -> None:
    assert await _passes(links, THERE, BACK, *CLIENTS) == [True] * 4
    held = await links.open(CLIENTS[0])
    await links.cut([THERE], "one")
    await links.cut(CLIENTS, "other")
    assert await _passes(links, THERE, BACK, *CLIENTS) == [False] * 4, "an answer needs both ways"
    assert await held.passes() is False, "open connections are cut as well"
    ours = links._plan.dialled("laboratory", _layout().broker(N0).address)
    assert await asyncio.to_thread(_connects, ours), "the laboratory's own requests pass"
    other_slot = Link(who="client-1", whom=N0)
    assert await _passes(links, other_slot) == [True], "each slot has links of its own"
    await links.heal("other")
    await links.heal("none of ours")
    assert await _passes(links, THERE, *CLIENTS) == [False, True, True]
    await links.heal("one")
    assert await _passes(links, THERE, BACK) == [True, True]
    await held.close()


async def test_a_cut_packet_counts_in_its_direction_only(links: NetnsLinks) -> None:
    """UDP needs no answer: what n1 sends arrives while what n0 sends does not."""
    with _udp(links, N0) as one, _udp(links, N1) as other:
        await links.cut([THERE], "fault")
        one.sendto(b"lost", ("10.88.0.2", 7000))
        other.sendto(b"arrives", ("10.88.0.1", 7000))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            assert await loop.sock_recv(one, 100) == b"arrives"
        with pytest.raises(BlockingIOError):
            other.recv(100)


async def test_no_syn_arrives_while_open_connections_go_on(links: NetnsLinks) -> None:
    held = await links.open(CLIENTS[0])
    shaping = Shaping(effect=LinkEffect.PACKETS, name="drop_syn", attributes={})
    await links.shape(CLIENTS, shaping, "fault")
    assert await held.passes() is True
    assert await _passes(links, CLIENTS[0]) == [False]
    with pytest.raises(LinksError, match=r"client-0->broker-a-n0"):
        await links.open(CLIENTS[0])
    await links.heal("fault")
    assert await _passes(links, CLIENTS[0]) == [True]
    await held.close()


async def test_loss_is_seen_by_packets_that_nobody_sends_again(links: NetnsLinks) -> None:
    before = await links.packets(THERE)
    assert before is not None
    assert before.answered == before.sent
    shaping = Shaping(effect=LinkEffect.PACKETS, name="loss", attributes={"percent": 30})
    await links.shape([THERE], shaping, "fault")
    during = await links.packets(THERE)
    assert during is not None
    assert 0.5 < during.answered / during.sent < 0.9
    await links.heal("fault")
    after = await links.packets(THERE)
    assert after == before
    for percent in (0, 101):
        wrong = Shaping(effect=LinkEffect.PACKETS, name="loss", attributes={"percent": percent})
        with pytest.raises(LinksError, match="percent"):
            await links.shape([THERE], wrong, "fault")
    with pytest.raises(LinksError, match="reset_peer"):
        await links.shape(
            [THERE], Shaping(effect=LinkEffect.STREAM, name="reset_peer", attributes={}), "fault"
        )


async def test_packets_are_delayed_on_connections_that_are_there(links: NetnsLinks) -> None:
    if links.delays_missing is not None:
        assert LinkEffect.SLOW not in links.effects
        pytest.skip(f"no delays here: {links.delays_missing}")
    held = await links.open(CLIENTS[0])
    loop = asyncio.get_running_loop()
    shape = LinkShape(latency_ms=150, jitter_ms=0, rate_kb_s=0)
    await links.slow(CLIENTS, shape, "fault")
    begin = loop.time()
    assert await held.passes() is True
    assert loop.time() - begin >= 0.299, "both directions take their time"
    (probe,) = await links.probe([CLIENTS[0]], timeout_s=5)
    assert probe.round_trip_ms is not None
    assert probe.round_trip_ms >= 590, "a handshake takes as long again"
    await links.heal("fault")
    (probe,) = await links.probe([CLIENTS[0]], timeout_s=5)
    assert probe.passes
    await held.close()


async def test_nothing_is_left_and_the_thread_is_back(links: NetnsLinks) -> None:
    def interfaces() -> set[str]:
        return {name for _, name in socket.if_nameindex()}

    assert interfaces() == {"lo", "eth0"}, "the laboratory's namespace has one way out"
    path = Path("/proc/thread-self/ns/net")
    inside = path.readlink()
    await links.stop()
    assert path.readlink() != inside
    assert not _users(str(inside))
    await links.abort()  # is safe at any time


def test_nothing_is_left_of_a_laboratory_that_was_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import asyncio, os, random, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from chaos.experiment.world_catalogue import WORLDS
        from chaos.links.netns import NetnsLinks
        from chaos.cluster.cluster import name_server_process, write_directory
        from chaos.cluster.layout import fixed_ports, lay_out
        from chaos.cluster.processes import ProcessTable
        from chaos.netns.plan import at_namespace_addresses

        async def main():
            ports = fixed_ports(groups=1, replicas=1, name_servers=1, name_server_port=9876,
                                base_port=10911)
            layout = at_namespace_addresses(
                lay_out(groups=1, replicas=1, name_servers=1, ports=ports))
            links = NetnsLinks(layout, [], process_state=str, rng=random.Random(1))
            await links.start()
            run = Path({str(tmp_path)!r})
            write_directory(run, layout)
            table = ProcessTable(run, ends_with_us=True)
            argv = links.inside("namesrv-0", name_server_process(run, "namesrv-0"))
            process = table.start("namesrv-0", argv)
            while "listening" not in table.output_tail("namesrv-0"):
                await asyncio.sleep(0.05)
            print(os.readlink(f"/proc/{{process.pid}}/ns/net"), flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as laboratory:
        assert laboratory.stdout is not None
        namespace = laboratory.stdout.readline().decode().strip()
        try:
            assert namespace.startswith("net:")
            assert _users(namespace)
        finally:
            laboratory.send_signal(signal.SIGKILL)
    await_until(lambda: not _users(namespace), "nobody is left in its namespaces")


TINY = """
name = "tiny"
[cluster]
name_servers = 1
[load]
seconds = 9
heal_seconds_max = 40
[workload]
topics = ["orders"]
queues = 2
plain_clients = 1
plain_processes = 2
send_rate = 20
transaction_clients = 1
transaction_processes = 1
transaction_rate = 5
undecided_share = 0
push_clients = 1
[transactions]
timeout_ms = 3000
check_interval_ms = 1500
[[faults]]
name = "packet-loss"
at_s = 0.5
duration_s = 1
[[faults]]
name = "half-open-syn"
at_s = 3
duration_s = 1
[[faults]]
name = "partition-leader"
at_s = 5.5
duration_s = 1.5
[[faults]]
name = "reset-connections"
at_s = 8.5
duration_s = 0.3
"""


def test_an_experiment_in_namespaces(tmp_path: Path) -> None:
    scenario = parse_scenario(TINY, name="tiny")
    run = run_experiment(scenario, world="netns", seed=1, out=tmp_path / "run")
    faults = pq.read_table(run / "faults").to_pylist()
    effects = {fault["name"]: fault["effect"] for fault in faults}
    healed = {fault["name"]: fault["t_healed"] is not None for fault in faults}
    assert effects.pop("reset-connections") == "not_taken", "no proxy stands in the path"
    healed.pop("reset-connections")
    assert set(effects.values()) == {"taken"}, effects
    assert all(healed.values()), healed
    assert verify_run(run, engine="duckdb").outcome is Outcome.PASS


def test_the_row_says_what_the_links_have() -> None:
    assert WORLDS["netns"].missing() is None
    assert {LinkEffect.CUT, LinkEffect.PACKETS} <= WORLDS["netns"].effects


def _connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return True


@contextlib.contextmanager
def _udp(links: NetnsLinks, place: str):
    with links._network._namespace(place).socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.bind(("", 7000))
        yield udp


def _users(namespace: str) -> list[str]:
    """Return the processes in the network namespace."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if str(path.readlink()) == namespace:
                found.append(path.parts[2])
    return found
