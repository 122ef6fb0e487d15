"""The server under test: ours in a process of its own, or the one that TOXIPROXY_URL names.

All tests here are black-box, over HTTP and sockets, so that the same expectations hold for
Shopify's server; what ours does better on purpose is marked `ours_only`.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from toxiproxy.client import ToxiproxyClient

_SERVE = "import sys; from toxiproxy.server import run; sys.exit(run('127.0.0.1', 0, 42))"


@pytest.fixture(scope="session")
def toxiproxy_url() -> Iterator[str]:
    given = os.environ.get("TOXIPROXY_URL")
    if given:
        yield given
        return
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert words[:4] == ["ledgermq", "toxiproxy", "listening", "on"]
        yield f"http://{words[4]}"
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0
        process.stdout.close()


@pytest.fixture(scope="session")
def ours_only() -> None:
    if os.environ.get("TOXIPROXY_URL"):
        pytest.skip("TOXIPROXY_URL names another server: what ours does otherwise on purpose")


@pytest.fixture
async def client(toxiproxy_url: str) -> AsyncIterator[ToxiproxyClient]:
    """A client of a server without proxies; those that the test makes are removed again."""
    async with ToxiproxyClient(toxiproxy_url) as client:
        for name in await client.proxies():
            await client.delete_proxy(name)
        yield client
        for name in await client.proxies():
            await client.delete_proxy(name)
