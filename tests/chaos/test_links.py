"""Which streams of which proxies carry the bytes of a link, and no others."""

from __future__ import annotations

import asyncio

import pytest

from chaos.cluster.layout import ClusterLayout, fixed_ports, lay_out
from chaos.cluster.masters import with_master
from chaos.links.base import Link, both_ways
from chaos.links.link_probe import probe_proxy
from chaos.links.proxy_plan import Protocol, Stream, in_use, plan_proxies, streams_of


def _proxies():
    ports = fixed_ports(
        groups=2, replicas=3, name_servers=2, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=2, replicas=3, name_servers=2, ports=ports)
    return plan_proxies(layout, ["client-0", "client-1"])


def test_one_proxy_per_dialer_and_target() -> None:
    proxies = _proxies()
    raft = [p for p in proxies if p.protocol is Protocol.RAFT]
    assert len(raft) == 2 * 3 * 2, "peers dial each other within their group only"
    assert len([p for p in proxies if p.protocol is Protocol.NAME_SERVER]) == (6 + 2) * 2
    assert len([p for p in proxies if p.protocol is Protocol.BROKER]) == 2 * 6
    assert len({p.name for p in proxies}) == len(proxies)
    assert len({(p.dialer, p.address) for p in proxies}) == len(proxies)


def test_replicas_are_reached_where_their_master_is_now() -> None:
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports, engine="sync")
    proxies = plan_proxies(layout, [])

    def dialled(layout: ClusterLayout) -> set[tuple[str, str]]:
        return {
            (proxy.dialer[-2:], proxy.target[-2:])
            for proxy in in_use(proxies, layout)
            if proxy.protocol is Protocol.ROCKETMQ_HA
        }

    assert dialled(layout) == {("n1", "n0"), ("n2", "n0")}
    assert dialled(with_master(layout, "broker-a", "n2")) == {("n0", "n2"), ("n1", "n2")}


def test_a_cut_swallows_both_streams_that_carry_the_link() -> None:
    link = Link(who="broker-a-n1", whom="broker-a-n2")
    streams = {(p.dialer, p.target, s) for p, s in streams_of([link], _proxies())}
    assert streams == {
        ("broker-a-n1", "broker-a-n2", Stream.UPSTREAM),
        ("broker-a-n2", "broker-a-n1", Stream.DOWNSTREAM),
    }


def test_clients_are_never_dialled() -> None:
    links = both_ways(["client-0"], ["broker-a-n0"])
    streams = [(p.dialer, s) for p, s in streams_of(links, _proxies())]
    assert sorted(streams, key=str) == [
        ("client-0", Stream.DOWNSTREAM),
        ("client-0", Stream.UPSTREAM),
    ]


def test_a_stream_is_named_once_however_often_its_link_is() -> None:
    link = Link(who="broker-a-n1", whom="broker-a-n2")
    assert len(streams_of([link, link], _proxies())) == 2


@pytest.mark.parametrize(
    ("behaviour", "reacted", "says"),
    [
        ("answer", True, "answered 5 bytes"),
        ("close", False, "closed without an answer"),
        ("silence", False, "silent for 200 ms"),
    ],
)
async def test_only_an_answer_is_a_reaction(behaviour: str, reacted: bool, says: str) -> None:
    released = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if behaviour == "answer":
            writer.write(b"hello")
            await writer.drain()
        elif behaviour == "silence":
            await released.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        probe = await probe_proxy("127.0.0.1", port, Protocol.RAFT, timeout_s=0.2)
        released.set()
        assert probe.reacted is reacted
        assert says in probe.evidence


async def test_no_connection_says_nothing() -> None:
    async with await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
    probe = await probe_proxy("127.0.0.1", port, Protocol.BROKER, timeout_s=0.2)
    assert probe.reacted is None


def test_nodes_on_pysyncobj_are_probed_in_its_words() -> None:
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports, engine="pysyncobj")
    protocols = [proxy.protocol for proxy in plan_proxies(layout, [])]
    assert protocols.count(Protocol.PYSYNCOBJ) == 6
    assert Protocol.RAFT not in protocols
