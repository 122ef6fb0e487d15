"""Toxics and proxies of links through proxies, before a Toxiproxy whose answers get lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.cluster.layout import fixed_ports, lay_out
from chaos.links import proxies
from chaos.links.base import Link, LinksError
from chaos.links.proxies import ProxyLinks
from toxiproxy.client import ProxySpec, ProxyState, ToxicSpec
from toxiproxy.errors import ToxiproxyNotFoundError, ToxiproxyUnreachableError

LINK = Link(who="broker-a-n1", whom="broker-a-n2")


class LosingToxiproxy:
    """Carries out every request while `loses_requests` is off, and loses the answers it is told
    to."""

    def __init__(self) -> None:
        self.toxics: set[tuple[str, str]] = set()
        self.made: dict[str, ProxyState] = {}
        self.populated: list[int] = []
        self.makes_at_most: int | None = None
        self._ports = itertools.count(20_000)
        self.loses_requests = False
        self.loses_answers = False

    async def add_toxic(self, proxy: str, spec: ToxicSpec) -> None:
        self._lose(self.loses_requests)
        self.toxics.add((proxy, spec.name))
        self._lose(self.loses_answers)

    async def delete_toxic(self, proxy: str, name: str) -> None:
        self._lose(self.loses_requests)
        if (proxy, name) not in self.toxics:
            raise ToxiproxyNotFoundError(404, "toxic not found")
        self.toxics.remove((proxy, name))
        self._lose(self.loses_answers)

    async def populate(self, specs: Sequence[ProxySpec]) -> list[ProxyState]:
        """Make all of them, or as many as `makes_at_most` says and lose the answer."""
        self._lose(self.loses_requests)
        self.populated.append(len(specs))
        limit, self.makes_at_most = self.makes_at_most, None
        for spec in specs[:limit]:
            self.made[spec.name] = ProxyState(
                name=spec.name,
                listen=f"127.0.0.1:{next(self._ports)}",
                upstream=spec.upstream,
                enabled=True,
                toxics=(),
            )
        self._lose(self.loses_answers or limit is not None)
        return [self.made[spec.name] for spec in specs]

    async def proxies(self) -> dict[str, ProxyState]:
        self._lose(self.loses_requests)
        return dict(self.made)

    async def delete_proxy(self, name: str) -> None:
        self._lose(self.loses_requests)
        if name not in self.made:
            raise ToxiproxyNotFoundError(404, "proxy not found")
        del self.made[name]

    def _lose(self, loses: bool) -> None:
        if loses:
            raise ToxiproxyUnreachableError("no answer within 10 s")


@pytest.fixture
def server() -> LosingToxiproxy:
    return LosingToxiproxy()


@pytest.fixture
def links(tmp_path: Path, server: LosingToxiproxy, monkeypatch: pytest.MonkeyPatch) -> ProxyLinks:
    monkeypatch.setattr(proxies, "free_ports", lambda *_: [8474])  # nothing listens here
    return links_before(server, tmp_path, None)


@pytest.fixture
def guest(tmp_path: Path, server: LosingToxiproxy, monkeypatch: pytest.MonkeyPatch) -> ProxyLinks:
    """The same on a server that others use too."""
    monkeypatch.setattr(proxies, "free_ports", lambda *_: [8474])
    return links_before(server, tmp_path, "http://127.0.0.1:1")


def links_before(server: LosingToxiproxy, run: Path, url: str | None) -> ProxyLinks:
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports)
    links = ProxyLinks(
        run,
        layout,
        [],
        process_state=lambda _: "S",
        toxiproxy_url=url,
        seed=1,
        rng=random.Random(1),
    )
    links._toxiproxy = server  # type: ignore[assignment]
    return links


def dialled(links: ProxyLinks) -> set[str]:
    tables = [links.dial_table(proxy.dialer) for proxy in links._proxies]
    return {address for table in tables for address in table.values()}


async def test_a_cut_whose_answer_was_lost_is_healed(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    server.loses_answers = True
    with pytest.raises(LinksError, match="2 of 2 toxics failed"):
        await links.cut([LINK], "fault-0")
    assert len(server.toxics) == 2, "the cut was made, but its answer never came"
    server.loses_answers = False
    await links.heal("fault-0")
    assert server.toxics == set()


async def test_a_cut_that_was_never_made_needs_no_healing(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    server.loses_requests = True
    with pytest.raises(LinksError, match="2 of 2 toxics failed"):
        await links.cut([LINK], "fault-0")
    server.loses_requests = False
    await links.heal("fault-0")
    assert server.toxics == set()


async def test_a_heal_that_failed_is_tried_again(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    await links.cut([LINK], "fault-0")
    server.loses_requests = True
    with pytest.raises(LinksError, match="2 toxics of fault-0 could not be removed"):
        await links.heal("fault-0")
    server.loses_requests = False
    await links.heal("fault-0")
    assert server.toxics == set()


async def test_proxies_of_which_no_answer_came_are_read_back(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    server.makes_at_most = 4
    await links._make_proxies()
    assert server.populated == [9, 5], "those that were made stay where they are"
    assert dialled(links) == {proxy.listen for proxy in server.made.values()}


async def test_no_answer_ever_but_all_of_them_made(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    server.loses_answers = True
    await links._make_proxies()
    assert server.populated == [9]
    assert dialled(links) == {proxy.listen for proxy in server.made.values()}


async def test_a_proxy_of_that_name_that_leads_elsewhere_is_made_anew(
    links: ProxyLinks, server: LosingToxiproxy
) -> None:
    name = links._proxies[3].name
    server.made[name] = ProxyState(
        name=name, listen="127.0.0.1:1", upstream="127.0.0.1:2", enabled=True, toxics=()
    )
    server.makes_at_most = 0
    await links._make_proxies()
    assert server.populated == [9, 9]
    assert "127.0.0.1:1" not in dialled(links)


async def test_proxies_that_are_never_made_are_an_error(
    links: ProxyLinks, server: LosingToxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(specs: Sequence[ProxySpec]) -> list[ProxyState]:
        raise ToxiproxyUnreachableError("no answer within 10 s")

    monkeypatch.setattr(server, "populate", none)
    with pytest.raises(LinksError, match="9 of 9 proxies were not made: no answer within 10 s"):
        await links._make_proxies()


async def test_proxies_on_a_shared_server_are_deleted_though_no_answer_came(
    guest: ProxyLinks, server: LosingToxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent() -> dict[str, ProxyState]:
        raise ToxiproxyUnreachableError("no answer within 10 s")

    server.makes_at_most = 4
    with monkeypatch.context() as patched:
        patched.setattr(server, "proxies", silent)
        with pytest.raises(ToxiproxyUnreachableError):
            await guest._make_proxies()
    assert len(server.made) == 4
    await guest._delete_proxies()
    assert server.made == {}


async def test_a_proxy_that_could_not_be_deleted_is_tried_again(
    guest: ProxyLinks, server: LosingToxiproxy
) -> None:
    await guest._make_proxies()
    server.loses_requests = True
    with pytest.raises(LinksError, match="9 of 9 proxies were not deleted"):
        await guest._delete_proxies()
    server.loses_requests = False
    await guest._delete_proxies()
    assert server.made == {}
