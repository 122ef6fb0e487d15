"""The client's values and errors, against the server of the other tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from campaigns.rig.ports import free_port
from toxiproxy.client import ProxySpec, ToxicSpec, ToxicState, ToxiproxyClient
from toxiproxy.errors import (
    ToxiproxyApiError,
    ToxiproxyConflictError,
    ToxiproxyError,
    ToxiproxyNotFoundError,
    ToxiproxyUnreachableError,
)
from toxiproxy.toxics import TOXIC_TYPES, AttributeValue


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


@pytest.mark.usefixtures("ours_only")
@pytest.mark.parametrize("type_name", sorted(TOXIC_TYPES))
async def test_each_type_can_be_added_shown_changed_and_removed(
    client: ToxiproxyClient, type_name: str
) -> None:
    kind = TOXIC_TYPES[type_name]
    await client.create_proxy(ProxySpec(name="p", upstream="x:1"))
    added = await client.add_toxic("p", ToxicSpec(type_name=type_name, name="t"))
    assert added.attributes == {field: kind.defaults.get(field, 0) for field in kind.fields}
    values: dict[str, AttributeValue] = {"codes": (10, 310), "loss_rate": 0.25, "correlation": 0.5}
    wanted = {field: values.get(field, 1) for field in kind.fields}
    changed = await client.update_toxic("p", "t", attributes=wanted)
    assert changed.attributes == wanted
    assert (await client.proxy("p")).toxics == (changed,)
    assert (await client.frames("p")).toxics.keys() == {"t"} & {
        "t" if name == type_name else "" for name in TOXIC_TYPES if name.startswith("frame_")
    }
    await client.delete_toxic("p", "t")
    assert await client.toxics("p") == []


@pytest.mark.usefixtures("ours_only")
async def test_attributes_of_frame_toxics(client: ToxiproxyClient) -> None:
    await client.create_proxy(ProxySpec(name="p", upstream="x:1"))
    spec = ToxicSpec(type_name="frame_drop", name="t", attributes={"codes": 10, "count": 3})
    added = await client.add_toxic("p", spec)
    assert added.attributes == {"codes": (10,), "share": 100, "count": 3}
    wrong: list[tuple[str, dict[str, AttributeValue], str]] = [
        ("frame_drop", {"share": 101}, r"frame_drop: share must be 0 to 100 \(percent\)"),
        ("frame_drop", {"count": -1}, "frame_drop: count must be 0 to"),
        ("frame_drop", {"codes": tuple(range(65))}, "codes must be at most 64"),
        ("frame_drop", {"codes": (1 << 40,)}, "codes must be of 32 bits"),
        ("frame_drop", {"codes": 1.5}, "number 1.5 into Go struct field .*codes of type int64"),
        ("frame_delay", {"jitter": -1}, "frame_delay: jitter must be 0 to"),
        ("frame_damage", {"header": 2}, "header must be 0"),
        ("packet_loss", {"loss_rate": 1.5}, "loss_rate must be 0 to 1"),
    ]
    for type_name, attributes, text in wrong:
        with pytest.raises(ToxiproxyApiError, match=text) as refused:
            await client.add_toxic("p", ToxicSpec(type_name=type_name, attributes=attributes))
        assert refused.value.status == 400
    with pytest.raises(ToxiproxyNotFoundError, match="proxy not found"):
        await client.frames("none")


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
