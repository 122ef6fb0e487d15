"""Links through proxies: a Toxiproxy proxy of its own on every link, all on this host.

Place in the data path: the links of a world of processes; `chaos.links.proxy_plan` maps links to
proxies. The proxy server is our own (`ledgermq toxiproxy`), started here, or a real Toxiproxy by
its URL.

Invariants: nobody but its dialer uses a proxy; every toxic that was added, or may have been, is
kept under its tag until `heal` has removed it, and every proxy that was made, or may have been, on
a server that others use is deleted at the end; `abort` leaves no process, and neither does the
death of this one.

Source: docs/DESIGN.md section 7; Toxiproxy's HTTP API.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos.cluster.layout import ClusterLayout
from chaos.cluster.processes import ProcessError, ProcessTable, free_ports, ledgermq_argv
from chaos.links.base import (
    FrameHits,
    Link,
    LinkEffect,
    LinkProbe,
    LinksError,
    LinkShape,
    OpenLink,
    PacketCount,
    Shaping,
)
from chaos.links.link_probe import open_link, probe_links
from chaos.links.proxy_plan import LinkProxy, in_use, plan_proxies, streams_of
from toxiproxy.client import ProxySpec, ProxyState, ToxicSpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyError, ToxiproxyNotFoundError, ToxiproxyUnreachableError

__all__ = ["ProxyLinks"]

TOXIPROXY: Final = "toxiproxy"
TOXIPROXY_START_S: Final = 15.0
POLL_S: Final = 0.01
STOP_TIMEOUT_S: Final = 15.0
ABORT_TIMEOUT_S: Final = 3.0
REQUESTS_AT_ONCE_MAX: Final = 16
PROXIES_PER_POPULATE: Final = 100
OPEN_TIMEOUT_S: Final = 0.6
POPULATES_MAX: Final = 3

logger = logging.getLogger(__name__)


class ProxyLinks:
    """The proxies of one cluster in one run directory."""

    name: Final = "proxies"
    effects: Final = frozenset(
        {LinkEffect.CUT, LinkEffect.SLOW, LinkEffect.STREAM, LinkEffect.FRAMES}
    )

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        client_slots: Sequence[str],
        *,
        process_state: Callable[[str], str],
        toxiproxy_url: str | None,
        seed: int,
        layout_now: Callable[[], ClusterLayout] | None = None,
    ) -> None:
        """Plan the proxies.

        `process_state`: state letter of a process of the system, "gone" where there is none.
        `layout_now`: the layout with the masters that groups have now; None: it never changes.
        `toxiproxy_url` None: our own server, started by `start` with that seed.
        """
        self._run = run
        self._process_state = process_state
        self._table = ProcessTable(run, ends_with_us=True)
        self._proxies = plan_proxies(layout, client_slots)
        self._layout_now = layout_now or (lambda: layout)
        self._listens: dict[str, str] = {}
        self._remote_names: set[str] = set()  # of proxies that may exist
        self._toxics: dict[str, list[tuple[str, str]]] = {}
        self._external = toxiproxy_url is not None
        # A port is drawn by the system: runs with the same seed go on side by side.
        self._toxiproxy_port = free_ports(1, random.Random(secrets.randbits(64)))[0]
        self._seed = seed
        url = toxiproxy_url or f"http://127.0.0.1:{self._toxiproxy_port}"
        self._proxy_host = urlsplit(url).hostname or "127.0.0.1"
        self._toxiproxy = ToxiproxyClient(url)
        self._at_once = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)

    async def start(self) -> None:
        await self._toxiproxy.__aenter__()
        try:
            if not self._external:
                self._start_toxiproxy()
            await self._await_toxiproxy()
            await self._make_proxies()
        except (ProcessError, ToxiproxyError) as error:
            raise LinksError(f"the proxies did not start: {error}") from error

    async def stop(self) -> None:
        try:
            if self._external:
                await self._delete_proxies()
            await self._toxiproxy.__aexit__(None, None, None)
            await self._stop_toxiproxy(STOP_TIMEOUT_S)
        except (ProcessError, ToxiproxyError) as error:
            raise LinksError(f"the proxies did not stop: {error}") from error

    async def abort(self) -> None:
        try:
            if self._external:
                await self._delete_proxies()
        except LinksError as error:  # what led here is the error to report
            logger.warning("%s", error)
        finally:
            await self._toxiproxy.__aexit__(None, None, None)
            await self._stop_toxiproxy(ABORT_TIMEOUT_S)

    async def _stop_toxiproxy(self, timeout_s: float) -> None:
        if TOXIPROXY in self._table.names():
            await asyncio.to_thread(self._table.stop, [TOXIPROXY], timeout_s=timeout_s)

    def dial_table(self, dialer: str) -> dict[str, str]:
        return {
            proxy.address: self._listens[proxy.name]
            for proxy in self._proxies
            if proxy.dialer == dialer
        }

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        await self._add_toxics(
            (
                (
                    proxy,
                    ToxicSpec(
                        type_name="timeout",
                        stream=stream.value,
                        name=f"{tag}.cut.{stream.value}",
                        attributes={"timeout": 0},
                    ),
                )
                for proxy, stream in streams_of(links, self._proxies)
            ),
            tag,
        )

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        kinds: list[tuple[str, dict[str, int]]] = []
        if shape.latency_ms or shape.jitter_ms:
            kinds.append(("latency", {"latency": shape.latency_ms, "jitter": shape.jitter_ms}))
        if shape.rate_kb_s:
            kinds.append(("bandwidth", {"rate": shape.rate_kb_s}))
        await self._add_toxics(
            (
                (
                    proxy,
                    ToxicSpec(
                        type_name=kind,
                        stream=stream.value,
                        name=f"{tag}.{kind}.{stream.value}",
                        attributes=attributes,
                    ),
                )
                for proxy, stream in streams_of(links, self._proxies)
                for kind, attributes in kinds
            ),
            tag,
        )

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        await self._add_toxics(
            (
                (
                    proxy,
                    ToxicSpec(
                        type_name=shaping.name,
                        stream=stream.value,
                        name=f"{tag}.{shaping.name}.{stream.value}",
                        toxicity=shaping.share,
                        attributes=shaping.attributes,
                    ),
                )
                for proxy, stream in streams_of(links, self._proxies)
            ),
            tag,
        )

    async def heal(self, tag: str) -> None:
        toxics = self._toxics.get(tag, [])
        left = await self._all(self._remove(proxy, name) for proxy, name in toxics)
        failed = [toxic for toxic, error in zip(toxics, left, strict=True) if error is not None]
        self._toxics[tag] = failed  # so that a later heal tries again
        if failed:
            raise LinksError(f"{len(failed)} toxics of {tag} could not be removed")
        del self._toxics[tag]

    async def frames(self, tag: str) -> FrameHits | None:
        seen = affected = 0
        names: dict[str, list[str]] = {}
        for proxy, name in self._toxics.get(tag, []):
            names.setdefault(proxy, []).append(name)
        try:
            answers = await asyncio.gather(
                *(self._toxiproxy.frames(self._remote_name(proxy)) for proxy in names)
            )
        except ToxiproxyNotFoundError:
            return None  # Shopify's server counts no frames
        except ToxiproxyError as error:
            raise LinksError(f"the frames of {tag} could not be counted: {error}") from error
        for answer, mine in zip(answers, names.values(), strict=True):
            for name in mine:
                toxic = answer.toxics.get(name)
                if toxic is not None:
                    seen += sum(toxic.seen.values())
                    affected += sum(toxic.affected.values())
        return FrameHits(seen=seen, affected=affected)

    async def packets(self, link: Link) -> PacketCount | None:
        return None  # proxies carry bytes, not packets

    async def open(self, link: Link) -> OpenLink:
        proxies = in_use(self._proxies, self._layout_now())
        return await open_link(link, proxies, self._listens, timeout_s=OPEN_TIMEOUT_S)

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        return await probe_links(
            links,
            in_use(self._proxies, self._layout_now()),
            self._listens,
            self._process_state,
            timeout_s=timeout_s,
            until_closed=until_closed,
        )

    def _start_toxiproxy(self) -> None:
        argv = ledgermq_argv(
            "toxiproxy",
            "--host",
            "127.0.0.1",
            "--port",
            str(self._toxiproxy_port),
            "--seed",
            str(self._seed),
        )
        self._table.start(TOXIPROXY, argv)

    async def _await_toxiproxy(self) -> None:
        deadline = asyncio.get_running_loop().time() + TOXIPROXY_START_S
        while True:
            try:
                await self._toxiproxy.version()
            except ToxiproxyUnreachableError as error:
                if not self._external and self._table.find(TOXIPROXY) is None:
                    output = self._table.output_tail(TOXIPROXY)
                    raise LinksError(f"toxiproxy ended at its start:\n{output}") from error
                if asyncio.get_running_loop().time() >= deadline:
                    raise LinksError(f"no Toxiproxy answers: {error}") from error
                await asyncio.sleep(POLL_S)
            else:
                return

    async def _make_proxies(self) -> None:
        listen = f"{self._proxy_host}:0"
        for begin in range(0, len(self._proxies), PROXIES_PER_POPULATE):
            planned = self._proxies[begin : begin + PROXIES_PER_POPULATE]
            specs = [
                ProxySpec(name=self._remote_name(p.name), listen=listen, upstream=p.address)
                for p in planned
            ]
            # Noted before the request: one without an answer may have been carried out.
            self._remote_names.update(spec.name for spec in specs)
            made = await self._populate(specs)
            for proxy in planned:
                self._listens[proxy.name] = made[self._remote_name(proxy.name)].listen

    async def _populate(self, specs: Sequence[ProxySpec]) -> dict[str, ProxyState]:
        """Make the proxies and return all of them by name; raises LinksError or ToxiproxyError.

        A populate that is repeated moves proxies that exist already to other ports. So once an
        answer was lost the server's own list counts, and only what is missing is requested again.
        """
        unanswered: ToxiproxyUnreachableError | None = None
        missing = list(specs)
        for _ in range(POPULATES_MAX):
            try:
                answered = await self._toxiproxy.populate(missing)
                there = {state.name: state for state in answered}
            except ToxiproxyUnreachableError as error:
                unanswered = error
            if unanswered is not None:
                there = await self._toxiproxy.proxies()
            made = {
                spec.name: there[spec.name]
                for spec in specs
                if spec.name in there and there[spec.name].upstream == spec.upstream
            }
            missing = [spec for spec in specs if spec.name not in made]
            if not missing:
                return made
        why = unanswered or "the server leaves them out of its answers"
        raise LinksError(f"{len(missing)} of {len(specs)} proxies were not made: {why}")

    async def _delete_proxies(self) -> None:
        """Delete every proxy that may exist; LinksError where one may be left, for another try."""
        self._listens = {}
        names = sorted(self._remote_names)
        errors = await self._all(self._delete_proxy(name) for name in names)
        failed = {
            name: error for name, error in zip(names, errors, strict=True) if error is not None
        }
        self._remote_names = set(failed)
        if failed:
            why = next(iter(failed.values()))
            raise LinksError(f"{len(failed)} of {len(names)} proxies were not deleted: {why}")

    async def _delete_proxy(self, name: str) -> None:
        try:
            await self._toxiproxy.delete_proxy(name)
        except ToxiproxyNotFoundError:
            return  # gone is the wanted state

    async def _add_toxics(self, toxics: Iterable[tuple[LinkProxy, ToxicSpec]], tag: str) -> None:
        """Add all toxics; on LinksError those that may exist are kept under the tag, for `heal`."""
        planned = list(toxics)
        # Kept before the first call: one without an answer may have been carried out. To `heal`,
        # one that was never added is as good as removed.
        self._toxics.setdefault(tag, []).extend((proxy.name, spec.name) for proxy, spec in planned)

        async def add(proxy: LinkProxy, spec: ToxicSpec) -> None:
            await self._toxiproxy.add_toxic(self._remote_name(proxy.name), spec)

        errors = await self._all(add(proxy, spec) for proxy, spec in planned)
        failed = [error for error in errors if error is not None]
        if failed:
            raise LinksError(f"{len(failed)} of {len(planned)} toxics failed: {failed[0]}")

    async def _remove(self, proxy: str, name: str) -> None:
        try:
            await self._toxiproxy.delete_toxic(self._remote_name(proxy), name)
        except ToxiproxyNotFoundError:
            return  # gone is the wanted state

    async def _all(self, calls: Iterable[Awaitable[None]]) -> list[ToxiproxyError | None]:
        """Run the calls, a bounded number at once; return the error of each, or None."""

        async def one(call: Awaitable[None]) -> ToxiproxyError | None:
            async with self._at_once:
                try:
                    await call
                except ToxiproxyError as error:
                    return error
            return None

        return await asyncio.gather(*(one(call) for call in calls))

    def _remote_name(self, name: str) -> str:
        """Return a proxy name that is unique in a server shared with other runs."""
        return f"{self._run.name}.{name}" if self._external else name
