"""The world of processes on this host: every link goes through a Toxiproxy proxy of its own.

Place in the data path: `chaos.experiment.experiment` starts it; brokers, name servers and the proxy
server are processes of `chaos.cluster.processes` in the run directory; `chaos.worlds.links` maps
links to proxies. The proxy server is our own (`ledgermq toxiproxy`), or a real Toxiproxy by its
URL.

Invariants: brokers register and publish their own addresses and dial peers and name servers through
their own map; status (request 60001) is requested past every proxy; every toxic that this world has
added, or may have, is kept under its tag until `mend` has removed it, and every proxy that it has
made, or may have, on a server that others use is deleted at the end; `abort` leaves no process, and
neither does the death of this one.

Source: docs/DESIGN.md section 7; Toxiproxy's HTTP API.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos.cluster.broker_status import BrokerStatus, ask
from chaos.cluster.cluster import (
    ClusterError,
    await_ready,
    broker_process,
    name_server_process,
    write_directory,
)
from chaos.cluster.layout import ClusterLayout
from chaos.cluster.processes import ProcessError, ProcessTable, free_ports, ledgermq_argv
from chaos.worlds.base import Link, LinkProbe, LinkShape, WorldError
from chaos.worlds.link_probe import ProxyProbe, probe_proxy
from chaos.worlds.links import LinkProxy, plan_proxies, streams_of
from remoting.connections.rpc import RemotingClient
from toxiproxy.client import ProxySpec, ProxyState, ToxicSpec, ToxiproxyClient
from toxiproxy.errors import ToxiproxyError, ToxiproxyNotFoundError, ToxiproxyUnreachableError

__all__ = ["LocalWorld"]

TOXIPROXY: Final = "toxiproxy"
TOXIPROXY_START_S: Final = 15.0
POLL_S: Final = 0.01
STATE_CHANGE_S: Final = 5.0
STOP_TIMEOUT_S: Final = 15.0
ABORT_TIMEOUT_S: Final = 3.0
REQUESTS_AT_ONCE_MAX: Final = 16
STATUS_TIMEOUT_MS: Final = 500
PROXIES_PER_POPULATE: Final = 100
POPULATES_MAX: Final = 3

logger = logging.getLogger(__name__)


class LocalWorld:
    """One cluster in one run directory."""

    name: Final = "local"

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        client_slots: Sequence[str],
        *,
        toxiproxy_url: str | None,
        seed: int,
        rng: random.Random,
    ) -> None:
        """Build the world; `toxiproxy_url` None: our own server, started here with that seed."""
        self.run: Final = run
        self.layout: Final = layout
        self.client_slots: Final = tuple(client_slots)
        self._table = ProcessTable(run, ends_with_us=True)
        self._proxies = plan_proxies(layout, client_slots)
        self._listens: dict[str, str] = {}
        self._remote_names: set[str] = set()  # of proxies that may exist
        self._toxics: dict[str, list[tuple[str, str]]] = {}
        self._external = toxiproxy_url is not None
        self._toxiproxy_port = free_ports(1, rng)[0]
        self._seed = seed
        url = toxiproxy_url or f"http://127.0.0.1:{self._toxiproxy_port}"
        self._proxy_host = urlsplit(url).hostname or "127.0.0.1"
        self._toxiproxy = ToxiproxyClient(url)
        self._at_once = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)
        self._statuses = RemotingClient()

    async def start(self) -> None:
        await self._toxiproxy.__aenter__()
        try:
            if not self._external:
                self._start_toxiproxy()
            await self._await_toxiproxy()
            await self._make_proxies()
            dial = {place.name: self.dial_table(place.name) for place in self.layout.brokers}
            write_directory(self.run, self.layout, dial)
            for server in self.layout.name_servers:
                self._table.start(server.name, name_server_process(self.run, server.name))
            for place in self.layout.brokers:
                self._table.start(place.name, broker_process(self.run, place.name))
            await await_ready(self._table, self.layout)
        except (ClusterError, ProcessError, ToxiproxyError) as error:
            raise WorldError(f"the cluster did not start: {error}") from error

    async def stop(self) -> None:
        brokers = [place.name for place in self.layout.brokers]
        others = [name for name in self._table.names() if name not in brokers]
        try:
            killed = await asyncio.to_thread(self._table.stop, brokers, timeout_s=STOP_TIMEOUT_S)
            await self._statuses.close()
            if self._external:
                await self._delete_proxies()
            await self._toxiproxy.__aexit__(None, None, None)
            await asyncio.to_thread(self._table.stop, others, timeout_s=STOP_TIMEOUT_S)
        except (ProcessError, ToxiproxyError) as error:
            raise WorldError(f"the cluster did not stop: {error}") from error
        if killed:
            raise WorldError(f"{', '.join(killed)} did not stop at SIGTERM and had to be killed")

    async def abort(self) -> None:
        await self._statuses.close()
        try:
            if self._external:
                await self._delete_proxies()
        except WorldError as error:  # what led here is the error to report
            logger.warning("%s", error)
        finally:
            await self._toxiproxy.__aexit__(None, None, None)
            await asyncio.to_thread(
                self._table.stop, self._table.names(), timeout_s=ABORT_TIMEOUT_S
            )

    def dial_table(self, slot: str) -> dict[str, str]:
        return {
            proxy.address: self._listens[proxy.name]
            for proxy in self._proxies
            if proxy.dialer == slot
        }

    async def kill(self, node: str) -> None:
        await self._signal(node, signal.SIGKILL, {"gone"})

    async def restart(self, node: str) -> None:
        try:
            self._table.start(node, broker_process(self.run, node))
        except ProcessError as error:
            raise WorldError(str(error)) from error

    async def pause(self, node: str) -> None:
        await self._signal(node, signal.SIGSTOP, {"T"})

    async def resume(self, node: str) -> None:
        await self._signal(node, signal.SIGCONT, {"S", "R", "D"})

    def process_state(self, node: str) -> str:
        try:
            return self._table.state(node)
        except ProcessError as error:
            raise WorldError(str(error)) from error

    async def status(self, node: str) -> BrokerStatus | None:
        address = self.layout.broker(node).address
        return await ask(self._statuses, address, timeout_ms=STATUS_TIMEOUT_MS)

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

    async def mend(self, tag: str) -> None:
        toxics = self._toxics.get(tag, [])
        left = await self._all(self._remove(proxy, name) for proxy, name in toxics)
        failed = [toxic for toxic, error in zip(toxics, left, strict=True) if error is not None]
        self._toxics[tag] = failed  # so that a later mend tries again
        if failed:
            raise WorldError(f"{len(failed)} toxics of {tag} could not be removed")
        del self._toxics[tag]

    async def probe(self, links: Sequence[Link], *, timeout_s: float = 0.6) -> list[LinkProbe]:
        return list(await asyncio.gather(*(self._probe_link(link, timeout_s) for link in links)))

    async def _probe_link(self, link: Link, timeout_s: float) -> LinkProbe:
        proxies = [proxy for proxy, _ in streams_of([link], self._proxies)]
        # Silence proves a cut only where the target could answer.
        down = [p.target for p in proxies if self.process_state(p.target) in {"gone", "T", "Z"}]
        if down or not proxies:
            why = f"{down[0]} does not run" if down else "no proxy carries it"
            return LinkProbe(link=link, passes=None, round_trip_ms=None, evidence=why)
        seen = await asyncio.gather(*(self._probe_one(proxy, timeout_s) for proxy in proxies))
        return _judge(link, proxies, seen)

    async def _probe_one(self, proxy: LinkProxy, timeout_s: float) -> ProxyProbe:
        host, _, port = self._listens[proxy.name].rpartition(":")
        return await probe_proxy(host, int(port), proxy.protocol, timeout_s=timeout_s)

    async def _signal(self, node: str, number: signal.Signals, states: set[str]) -> None:
        """Send the signal and wait until the process state shows its effect."""
        try:
            self._table.signal(node, number)
        except ProcessError as error:
            raise WorldError(str(error)) from error
        deadline = asyncio.get_running_loop().time() + STATE_CHANGE_S
        while (state := self.process_state(node)) not in states:
            if asyncio.get_running_loop().time() >= deadline:
                raise WorldError(f"{node} is still in state {state} after {number.name}")
            await asyncio.sleep(POLL_S)

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
                    raise WorldError(f"toxiproxy ended at its start:\n{output}") from error
                if asyncio.get_running_loop().time() >= deadline:
                    raise WorldError(f"no Toxiproxy answers: {error}") from error
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
        """Make the proxies and return all of them by name; raises WorldError or ToxiproxyError.

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
        raise WorldError(f"{len(missing)} of {len(specs)} proxies were not made: {why}")

    async def _delete_proxies(self) -> None:
        """Delete every proxy that may exist; WorldError where one may be left, for another try."""
        self._listens = {}
        names = sorted(self._remote_names)
        errors = await self._all(self._delete_proxy(name) for name in names)
        failed = {
            name: error for name, error in zip(names, errors, strict=True) if error is not None
        }
        self._remote_names = set(failed)
        if failed:
            why = next(iter(failed.values()))
            raise WorldError(f"{len(failed)} of {len(names)} proxies were not deleted: {why}")

    async def _delete_proxy(self, name: str) -> None:
        try:
            await self._toxiproxy.delete_proxy(name)
        except ToxiproxyNotFoundError:
            return  # gone is the wanted state

    async def _add_toxics(self, toxics: Iterable[tuple[LinkProxy, ToxicSpec]], tag: str) -> None:
        """Add all toxics; on WorldError those that may exist are kept under the tag, for `mend`."""
        planned = list(toxics)
        # Kept before the first call: one without an answer may have been carried out. To `mend`,
        # one that was never added is as good as removed.
        self._toxics.setdefault(tag, []).extend((proxy.name, spec.name) for proxy, spec in planned)

        async def add(proxy: LinkProxy, spec: ToxicSpec) -> None:
            await self._toxiproxy.add_toxic(self._remote_name(proxy.name), spec)

        errors = await self._all(add(proxy, spec) for proxy, spec in planned)
        failed = [error for error in errors if error is not None]
        if failed:
            raise WorldError(f"{len(failed)} of {len(planned)} toxics failed: {failed[0]}")

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
        return f"{self.run.name}.{name}" if self._external else name


def _judge(link: Link, proxies: Sequence[LinkProxy], seen: Sequence[ProxyProbe]) -> LinkProbe:
    reactions = {probe.reacted for probe in seen}
    passes = reactions.pop() if len(reactions) == 1 else None
    return LinkProbe(
        link=link,
        passes=passes,
        round_trip_ms=max(probe.elapsed_ms for probe in seen) if passes else None,
        evidence=", ".join(
            f"{proxy.dialer}'s connection {probe.evidence}"
            for proxy, probe in zip(proxies, seen, strict=True)
        ),
    )
