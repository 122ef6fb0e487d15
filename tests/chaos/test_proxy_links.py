"""The toxics of links through proxies, before a Toxiproxy whose answers get lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster.layout import fixed_ports, lay_out
from chaos.links import proxies
from chaos.links.base import Link, LinksError
from chaos.links.proxies import ProxyLinks
from toxiproxy.client import ToxicSpec
from toxiproxy.errors import ToxiproxyNotFoundError, ToxiproxyUnreachableError

LINK = Link(who="broker-a-n1", whom="broker-a-n2")


class LosingToxiproxy:
    """Carries out every request while `loses_requests` is off, and loses the answers it is told
    to."""

    def __init__(self) -> None:
        self.toxics: set[tuple[str, str]] = set()
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

    def _lose(self, loses: bool) -> None:
        if loses:
            raise ToxiproxyUnreachableError("no answer within 10 s")


@pytest.fixture
def server() -> LosingToxiproxy:
    return LosingToxiproxy()


@pytest.fixture
def links(tmp_path: Path, server: LosingToxiproxy, monkeypatch: pytest.MonkeyPatch) -> ProxyLinks:
    monkeypatch.setattr(proxies, "free_ports", lambda *_: [8474])  # nothing listens here
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports)
    links = ProxyLinks(
        tmp_path,
        layout,
        [],
        process_state=lambda _: "S",
        toxiproxy_url=None,
        seed=1,
    )
    links._toxiproxy = server  # type: ignore[assignment]
    return links


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
