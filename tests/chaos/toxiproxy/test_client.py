"""The client's values and errors, against the server of the other tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.toxiproxy.peers import free_port
from toxiproxy.client import ProxySpec, ToxicSpec, ToxicState, ToxiproxyClient
from toxiproxy.errors import (
    ToxiproxyApiError,
    ToxiproxyConflictError,
    ToxiproxyError,
    ToxiproxyNotFoundError,
    ToxiproxyUnreachableError,
)


async def test_proxies(client: ToxiproxyClient) -> None:
    made = await client.create_proxy(ProxySpec(name="a ?%b", upstream="x:1", enabled=False))
    assert (made.listen, made.upstream, made.enabled, made.toxics) == (
        "127.0.0.1:0",
        "x:1",
        False,
        (),
    )
    plain = await client.create_proxy(ProxySpec(name="p q", upstream="x:1"))
    assert plain.enabled
    assert await client.proxy("p q") == plain
    assert (await client.update_proxy("p q", upstream="x:2")).upstream == "x:2"
    assert set(await client.proxies()) == {"a ?%b", "p q"}
    await client.delete_proxy("p q")
    assert set(await client.proxies()) == {"a ?%b"}


async def test_populate(client: ToxiproxyClient) -> None:
    specs = [ProxySpec(name=f"n{number}", upstream="x:1") for number in range(300)]
    made = await client.populate(specs)
    assert [proxy.name for proxy in made] == [spec.name for spec in specs]
    assert len({proxy.listen for proxy in made}) == 300
    again = [
        ProxySpec(name=proxy.name, listen=proxy.listen, upstream=proxy.upstream) for proxy in made
    ]
    assert await client.populate(again) == made
    assert await client.populate([]) == []


async def test_toxics(client: ToxiproxyClient) -> None:
    await client.create_proxy(ProxySpec(name="p", upstream="x:1"))
    spec = ToxicSpec(type_name="latency", stream="upstream", attributes={"latency": 5})
    assert await client.add_toxic("p", spec) == ToxicState(
        name="latency_upstream",
        type_name="latency",
        stream="upstream",
        toxicity=1.0,
        attributes={"latency": 5, "jitter": 0},
    )
    changed = await client.update_toxic("p", "latency_upstream", attributes={"jitter": 3})
    assert changed.attributes == {"latency": 5, "jitter": 3}
    changed = await client.update_toxic("p", "latency_upstream", toxicity=0.5, attributes={})
    assert changed.toxicity == 0.5
    assert await client.toxics("p") == [changed] == [await client.toxic("p", "latency_upstream")]
    assert (await client.proxy("p")).toxics == (changed,)
    await client.delete_toxic("p", "latency_upstream")
    assert await client.toxics("p") == []


async def test_refusals_are_definite(client: ToxiproxyClient) -> None:
    with pytest.raises(ToxiproxyNotFoundError, match="proxy not found") as missing:
        await client.proxy("none")
    assert missing.value.definite
    await client.create_proxy(ProxySpec(name="p", upstream="x:1"))
    with pytest.raises(ToxiproxyConflictError, match="proxy already exists"):
        await client.create_proxy(ProxySpec(name="p", upstream="x:1"))
    with pytest.raises(ToxiproxyNotFoundError, match="toxic not found"):
        await client.delete_toxic("p", "none")
    with pytest.raises(ToxiproxyApiError, match="invalid toxic type") as refused:
        await client.add_toxic("p", ToxicSpec(type_name="none"))
    assert refused.value.status == 400


async def test_no_server_is_unreachable() -> None:
    async with ToxiproxyClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(ToxiproxyUnreachableError) as error:
            await client.version()
    assert error.value.retriable
    assert not error.value.definite


@asynccontextmanager
async def canned(answer: bytes | None) -> AsyncIterator[str]:
    """A server that gives one answer to everything, or none at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
            writer.write(head.encode() + answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_no_answer_is_unreachable() -> None:
    async with canned(None) as url, ToxiproxyClient(url, timeout_s=0.2) as client:
        with pytest.raises(ToxiproxyUnreachableError, match=r"no answer within 0\.2 s"):
            await client.reset()


@pytest.mark.parametrize(
    "answer", [b"not JSON", b"[]", b'{"a": 5}', b'{"a": {"name": 5}}', b'{"a": {"name": "a"}}']
)
async def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    async with canned(answer) as url, ToxiproxyClient(url) as client:
        with pytest.raises(ToxiproxyError):
            await client.proxies()
