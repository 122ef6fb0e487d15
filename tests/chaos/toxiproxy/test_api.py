"""The HTTP API: transcripts of Toxiproxy 2.12, and what ours does otherwise on purpose.

`testdata/*.txt` hold requests (`> METHOD PATH BODY`) and the answers that the real server gave:
status, content type, body, and where a redirect leads. `$API` stands for the API's own port, which
is taken, `$FREE` for a port that is free, `$PORT` for any. With TOXIPROXY_REWRITE set the answers
are recorded anew: do that only against a real server (TOXIPROXY_URL), and read the difference.
"""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from campaigns.rig.ports import free_port
from toxiproxy.client import ProxySpec, ToxicSpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyApiError
from toxiproxy.server import API_VERSION

TESTDATA = Path(__file__).parent / "testdata"


async def ask(url: str, request: str, port_free: int) -> str:
    """Send one request of a transcript; its answer in the transcript's form."""
    api = str(urlsplit(url).port)
    method, path, body = [*request.split(" ", 2), ""][:3]
    body = body.replace("$API", api).replace("$FREE", str(port_free))
    target = URL(url + path, encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, target, data=body.encode(), allow_redirects=False) as response,
    ):
        kind = response.headers.get("Content-Type", "-") if await response.read() else "-"
        text = await response.text()
        has_id = "X-Toxiproxy-Request-Id" in response.headers
        leads = response.headers.get("Location")
    for known, name in ((api, "$API"), (str(port_free), "$FREE")):
        text = re.sub(rf":{known}\b", f":{name}", text)
    text = re.sub(r'("listen":"[^"]*:)\d{4,5}"', r'\1$PORT"', text)
    shown = text.removesuffix("\n") + ("\\n" if text.endswith("\n") else "")
    to = f" to {leads}" if leads is not None else ""
    return f"{response.status} {kind} {'id' if has_id else 'no id'}{to}\n{shown}".rstrip("\n")


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("*.txt")), ids=lambda path: path.stem)
async def test_transcript(toxiproxy_url: str, client: ToxiproxyClient, path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    port_free = free_port()
    answered: list[str] = []
    for line in expected.splitlines():
        if line.startswith("#"):
            answered.append(line)
        elif line.startswith("> "):
            answer = await ask(toxiproxy_url, line.removeprefix("> "), port_free)
            answered.append(f"{line}\n{answer}\n")
    text = "\n".join(answered)
    if os.environ.get("TOXIPROXY_REWRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == expected


async def test_version(toxiproxy_url: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{toxiproxy_url}/version") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json;charset=utf-8"
        assert re.fullmatch(r'\{"version": "[^"]+"\}\n', await response.text())


async def test_half_of_a_surrogate_pair_is_replaced(
    toxiproxy_url: str, client: ToxiproxyClient
) -> None:
    """Go reads U+FFFD; no answer could hold such a half, that of the whole list neither."""
    async with aiohttp.ClientSession() as session:
        body = r'{"name":"p\ud800","upstream":"x:1","enabled":false}'
        async with session.post(f"{toxiproxy_url}/proxies", data=body) as response:
            assert (response.status, (await response.json())["name"]) == (201, "p\ufffd")
        path = f"{toxiproxy_url}/proxies/p%EF%BF%BD/toxics"
        body = r'{"name":"\ud83d\ude00 \udc00","type":"noop"}'
        async with session.post(URL(path, encoded=True), data=body) as response:
            assert (response.status, (await response.json(content_type=None))["name"]) == (
                200,
                "\U0001f600 \ufffd",
            )
    assert list(await client.proxies()) == ["p\ufffd"]


async def test_browsers_are_refused_on_routes_only(toxiproxy_url: str) -> None:
    async with aiohttp.ClientSession(headers={"User-Agent": "Mozilla/5.0"}) as session:
        async with session.get(f"{toxiproxy_url}/proxies") as response:
            assert response.status == 403
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert await response.text() == "User agent not allowed\n"
        async with session.get(f"{toxiproxy_url}/none") as response:
            assert response.status == 404
        async with session.put(f"{toxiproxy_url}/proxies") as response:
            assert response.status == 405


async def test_a_host_without_an_address_is_named(client: ToxiproxyClient) -> None:
    spec = ProxySpec(name="nowhere", upstream="x:1", listen="[fe80::1%nowhere]:0")
    with pytest.raises(ToxiproxyApiError, match="bind: name or service not known"):
        await client.create_proxy(spec)


async def test_a_wildcard_listen_is_shown_as_such(client: ToxiproxyClient) -> None:
    for number, listen in enumerate((":0", "", "0.0.0.0:0", "[::]:0")):
        spec = ProxySpec(name=f"w{number}", upstream="x:1", listen=listen)
        assert re.fullmatch(r"\[::\]:\d+", (await client.create_proxy(spec)).listen)


@pytest.mark.usefixtures("ours_only")
class TestOnPurpose:
    """Requests that the real server takes and later dies or hangs of."""

    @pytest.mark.parametrize(
        ("type_name", "attributes", "text"),
        [
            ("bandwidth", {"rate": -1}, "rate must not be negative"),
            ("latency", {"jitter": 2**63 - 1}, f"jitter must be at most {2**62 - 1}"),
        ],
    )
    async def test_attributes_that_can_not_work(
        self, client: ToxiproxyClient, type_name: str, attributes: dict[str, int], text: str
    ) -> None:
        await client.create_proxy(ProxySpec(name="a", upstream="x:1"))
        with pytest.raises(ToxiproxyApiError, match=text) as refused:
            await client.add_toxic("a", ToxicSpec(type_name=type_name, attributes=attributes))
        assert refused.value.status == 400
        await client.add_toxic("a", ToxicSpec(type_name=type_name, name="t"))
        with pytest.raises(ToxiproxyApiError, match=text):
            await client.update_toxic("a", "t", attributes=attributes)
        assert (await client.toxic("a", "t")).attributes != attributes

    async def test_version_is_the_one_spoken(self, client: ToxiproxyClient) -> None:
        assert await client.version() == API_VERSION

    async def test_a_body_beyond_all_bounds(self, toxiproxy_url: str) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{toxiproxy_url}/populate", data=bytes(3 << 20)) as response,
        ):
            assert response.status == 413

    async def test_deep_nesting(self, toxiproxy_url: str) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{toxiproxy_url}/proxies", data=b"[" * 100_000) as response,
        ):
            assert response.status == 400
