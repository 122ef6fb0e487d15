"""half_open silences open connections and serves new ones, or the reverse; it closes none."""

import pytest

from tests.chaos.toxiproxy.peers import connect, make_proxy, upstream
from toxiproxy.client import ToxicSpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyApiError

pytestmark = pytest.mark.usefixtures("ours_only")


@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize("stream", ["upstream", "downstream"])
async def test_one_kind_of_connections_is_silent(
    client: ToxiproxyClient, new: int, stream: str
) -> None:
    async with upstream() as server:
        address = await make_proxy(client, server)
        async with connect(address) as before:
            await before.round_trip(b"hello")
            spec = ToxicSpec(
                type_name="half_open", stream=stream, name="half", attributes={"new": new}
            )
            await client.add_toxic("link", spec)
            async with connect(address) as after:
                silent, served = (after, before) if new else (before, after)
                silent.writer.write(b"lost")
                await served.round_trip(b"served")
                assert await silent.silent(0.1), "neither an answer nor an end"
                await client.delete_toxic("link", "half")
                assert await silent.end() in {(b"", "fin"), (b"", "rst")}, "bytes are missing"
                await served.round_trip(b"still")
            async with connect(address) as later:
                await later.round_trip(b"all is well")


async def test_another_value_is_refused(client: ToxiproxyClient) -> None:
    async with upstream() as server:
        await make_proxy(client, server)
        spec = ToxicSpec(type_name="half_open", attributes={"new": 2})
        with pytest.raises(ToxiproxyApiError, match="new must be 0"):
            await client.add_toxic("link", spec)
