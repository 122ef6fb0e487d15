"""All proxies of one server, by name, and the changes that concern several of them.

Changes that wait (for a name to be resolved) are made one at a time under a lock, so that two
requests never fight for one name or address. Source: Toxiproxy's `POST /proxies`, `/populate`,
`/reset`.
"""

import asyncio
from dataclasses import dataclass

from toxiproxy.errors import ApiError
from toxiproxy.proxy import Proxy

__all__ = ["ProxyCollection", "ProxyWish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyWish:
    """A proxy as a request describes it."""

    name: str
    listen: str
    upstream: str
    enabled: bool


class ProxyCollection:
    """The proxies of a server; `seed` decides every draw of their links."""

    def __init__(self, *, seed: int, tasks: asyncio.TaskGroup) -> None:
        self._seed = seed
        self._tasks = tasks
        self._proxies: dict[str, Proxy] = {}
        self._lock = asyncio.Lock()

    def all(self) -> list[Proxy]:
        """Return every proxy, by name."""
        return [self._proxies[name] for name in sorted(self._proxies)]

    def get(self, name: str) -> Proxy:
        """Return the proxy of that name; raises ApiError 404."""
        try:
            return self._proxies[name]
        except KeyError:
            raise ApiError(404, "proxy not found") from None

    async def create(self, wish: ProxyWish) -> Proxy:
        """Add a proxy; raises ApiError 409 for a known name, 500 where it can't listen."""
        async with self._lock:
            if wish.name in self._proxies:
                raise ApiError(409, "proxy already exists")
            return await self._make(wish)

    async def update(self, name: str, wish: ProxyWish) -> Proxy:
        """Change the proxy of that name; raises ApiError 404, or 500 as `Proxy.update` does."""
        async with self._lock:
            proxy = self.get(name)
            await proxy.update(listen=wish.listen, upstream=wish.upstream, enabled=wish.enabled)
            return proxy

    async def remove(self, name: str) -> None:
        """Stop and remove the proxy of that name; raises ApiError 404."""
        async with self._lock:
            self.get(name).stop()
            del self._proxies[name]

    async def populate(self, wishes: list[ProxyWish], made: list[Proxy]) -> None:
        """Create or replace the proxies in order, but leave one with the same addresses alone.

        `made` is filled as it goes; an ApiError stops it, and what was created stays.
        """
        async with self._lock:
            for wish in wishes:
                present = self._proxies.get(wish.name)
                if present is None:
                    made.append(await self._make(wish))
                elif await present.differs(listen=wish.listen, upstream=wish.upstream):
                    present.stop()
                    made.append(await self._make(wish))
                else:
                    made.append(present)

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic; raises ApiError 500 as `Proxy.start`."""
        async with self._lock:
            for proxy in self.all():
                if not proxy.enabled:
                    await proxy.start()
                proxy.remove_all_toxics()

    def close(self) -> None:
        """Stop every proxy."""
        for proxy in self._proxies.values():
            proxy.stop()

    async def _make(self, wish: ProxyWish) -> Proxy:
        proxy = Proxy(
            name=wish.name,
            listen=wish.listen,
            upstream=wish.upstream,
            seed=self._seed,
            tasks=self._tasks,
        )
        if wish.enabled:
            await proxy.start()
        self._proxies[wish.name] = proxy
        return proxy
