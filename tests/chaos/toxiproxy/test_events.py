"""The event log of a proxy: what happened, in order, and which connections a toxic hit."""

import aiohttp
import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from tests.chaos.toxiproxy.peers import connect, make_proxy, upstream
from toxiproxy.client import ProxySpec, ToxicSpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyNotFoundError
from toxiproxy.event_log import EventLog

pytestmark = pytest.mark.usefixtures("ours_only")


async def test_the_life_of_a_proxy_and_its_connections(client: ToxiproxyClient) -> None:
    async def is_closed() -> bool:
        return (await client.events("link"))[-1].kind == "closed"

    async with upstream() as server:
        address = await make_proxy(client, server)
        async with connect(address) as peer:
            await peer.round_trip(b"GET / HTTP/1.1")
            await client.add_toxic("link", ToxicSpec(type_name="noop", toxicity=0.0))
            await client.add_toxic("link", ToxicSpec(type_name="frame_drop", stream="upstream"))
            await client.delete_toxic("link", "noop_downstream")
        await until(is_closed)
        async with connect(address) as peer:
            await peer.round_trip(b"x")
        await until(is_closed)
        await client.update_proxy("link", enabled=False)
    events = await client.events("link")
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.wall_ms for event in events] == sorted(event.wall_ms for event in events)
    assert [(event.kind, event.connection) for event in events] == [
        ("enabled", None),
        ("accepted", 1),
        ("connected", 1),
        ("toxic added", None),
        ("no frames", None),
        ("toxic added", None),
        ("toxic removed", None),
        ("closed", 1),
        ("accepted", 2),
        ("connected", 2),
        ("no frames", None),
        ("closed", 2),
        ("disabled", None),
    ]
    details = [event.details for event in events]
    assert details[0] == {"listen": address, "upstream": server.address}
    assert details[2] == {"hit": []}
    assert (details[3]["hit"], details[3]["connections"]) == (0, 1), "the draw spares it"
    assert details[4] == {"toxic": "frame_drop_upstream", "stream": "upstream"}
    assert (details[5]["hit"], details[5]["connections"]) == (1, 1)
    assert details[9] == {"hit": ["frame_drop_upstream"]}
    assert await client.events("link", since=len(events)) == []
    assert await client.events("link", since=len(events) - 1) == events[-1:]


async def test_a_dial_that_fails_says_why(client: ToxiproxyClient) -> None:
    spec = ProxySpec(name="link", upstream=f"127.0.0.1:{free_port()}")
    proxy = await client.create_proxy(spec)
    async with connect(proxy.listen) as peer:
        assert (await peer.end())[0] == b""
    failed = [event for event in await client.events("link") if event.kind == "dial failed"]
    assert [event.connection for event in failed] == [1]
    assert "refused" in str(failed[0].details["reason"]).lower()


async def test_what_is_no_number_and_who_is_no_proxy(
    client: ToxiproxyClient, toxiproxy_url: str
) -> None:
    with pytest.raises(ToxiproxyNotFoundError, match="proxy not found"):
        await client.events("none")
    await client.create_proxy(ProxySpec(name="a", upstream="x:1"))
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{toxiproxy_url}/proxies/a/events?since=-1") as response,
    ):
        assert response.status == 400
        assert "since is no number of an event: '-1'" in await response.text()


def test_the_oldest_events_go_first() -> None:
    log = EventLog(lambda: 7)
    for number in range(5000):
        log.note("accepted", number)
    assert log.since(0)[0].number == 5000 - 4096 + 1
    assert [event.connection for event in log.since(4998)] == [4998, 4999]
