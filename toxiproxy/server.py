"""The HTTP API of the embedded server, as Toxiproxy 2.12 speaks it, and its process.

Requests are few, so every route is one small handler here; proxied bytes never pass through this
module. Answers go out as Go's `http` package writes them: errors are JSON under `text/plain` with a
trailing newline, an unknown path is 404 in plain text, a wrong method 405 with an empty body,
browsers are rejected with 403, and a path that is not clean (`//proxies`, `/proxies/./a`) is
redirected to the clean one before any route is looked up, as gorilla/mux does. Source: Toxiproxy's
HTTP API; `docs/DIVERGENCE.md` lists where ours differs on purpose.
"""

import asyncio
import os
import posixpath
import re
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeAlias
from urllib.parse import quote

import uvloop
from aiohttp import web

from toxiproxy import requests
from toxiproxy.errors import ApiError
from toxiproxy.gojson import encode
from toxiproxy.proxy import Proxy
from toxiproxy.proxy_collection import ProxyCollection

__all__ = ["API_VERSION", "ToxiproxyServer", "run"]

API_VERSION: Final = "2.12.0"

_HANDLER_TIMEOUT_S = 25.0
_JSON = "application/json"
_PLAIN = "text/plain; charset=utf-8"
_PATH_SAFE = "/$&+,:;=@"  # what Go's net/url leaves as it is in a path

_Handler: TypeAlias = Callable[[web.BaseRequest, tuple[str, ...]], Awaitable[web.Response]]


class ToxiproxyServer:
    """The server as an asynchronous context: it serves from enter to exit.

    `seed` decides which connections a toxic with a toxicity below 1 hits, and every jitter; without
    one a fresh seed is drawn. Entering raises OSError where the address can't be bound.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 8474, seed: int | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.seed = secrets.randbits(63) if seed is None else seed
        self._tasks = asyncio.TaskGroup()
        self._proxies = ProxyCollection(seed=self.seed, tasks=self._tasks)
        self._runner: web.ServerRunner | None = None
        name = "([^/]+)"
        routes: tuple[tuple[str, dict[str, _Handler]], ...] = (
            ("/proxies", {"GET": self._list, "POST": self._create}),
            ("/populate", {"POST": self._populate}),
            ("/reset", {"POST": self._reset}),
            ("/version", {"GET": self._version}),
            (
                f"/proxies/{name}",
                {
                    "GET": self._show,
                    "POST": self._update,
                    "PATCH": self._update,
                    "DELETE": self._delete,
                },
            ),
            (f"/proxies/{name}/frames", {"GET": self._show_frames}),
            (f"/proxies/{name}/events", {"GET": self._show_events}),
            (
                f"/proxies/{name}/toxics",
                {"GET": self._list_toxics, "POST": self._create_toxic},
            ),
            (
                f"/proxies/{name}/toxics/{name}",
                {
                    "GET": self._show_toxic,
                    "POST": self._update_toxic,
                    "PATCH": self._update_toxic,
                    "DELETE": self._delete_toxic,
                },
            ),
        )
        self._routes = [(re.compile(path + r"\Z"), handlers) for path, handlers in routes]

    @property
    def url(self) -> str:
        """The address of the API."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> "ToxiproxyServer":
        await self._tasks.__aenter__()
        runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
        except OSError:
            await runner.cleanup()
            await self._tasks.__aexit__(None, None, None)
            raise
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._proxies.close()
        await self._tasks.__aexit__(kind, error, trace)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Find the handler, run it, and turn errors into Toxiproxy's form."""
        clean = _clean_path(request.path)
        if clean != request.path:
            _, mark, query = request.raw_path.partition("?")
            location = quote(clean, safe=_PATH_SAFE) + mark + query
            return web.Response(status=301, headers={"Location": location})
        for pattern, handlers in self._routes:
            matched = pattern.match(request.path)
            if matched is None:
                continue
            handler = handlers.get(request.method)
            if handler is None:
                return web.Response(status=405)
            response = await self._handle(handler, request, matched.groups())
            response.headers["X-Toxiproxy-Request-Id"] = secrets.token_hex(10)
            return response
        return _plain(404, "404 page not found")

    async def _handle(
        self, handler: _Handler, request: web.BaseRequest, names: tuple[str, ...]
    ) -> web.Response:
        if request.headers.get("User-Agent", "").startswith("Mozilla/"):
            return _plain(403, "User agent not allowed")
        try:
            async with asyncio.timeout(_HANDLER_TIMEOUT_S):
                return await handler(request, names)
        except ApiError as error:
            return _plain(error.status, encode({"error": error.message, "status": error.status}))
        except TimeoutError:
            return _plain(503, "the request took too long")

    async def _list(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        return _json(200, {proxy.name: proxy.to_json() for proxy in self._proxies.all()})

    async def _create(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        proxy = await self._proxies.create(requests.proxy_wish(await _body(request)))
        return _json(201, proxy.to_json())

    async def _populate(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        made: list[Proxy] = []
        answer: dict[str, object] = {}
        status = 201
        try:
            wishes = requests.populate_wishes(await _body(request))
            await self._proxies.populate(wishes, made)
        except ApiError as error:
            status = error.status
            answer = {"error": error.message, "status": error.status}
        answer["proxies"] = [proxy.to_json() for proxy in made] or None
        return _json(status, answer)

    async def _reset(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        await self._proxies.reset()
        return web.Response(status=204)

    async def _version(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        body = f'{{"version": "{API_VERSION}"}}\n'.encode()
        return web.Response(body=body, headers={"Content-Type": "application/json;charset=utf-8"})

    async def _show(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        return _json(200, self._proxies.get(names[0]).to_json())

    async def _update(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        proxy = self._proxies.get(names[0])
        wish = requests.proxy_change(await _body(request), proxy)
        return _json(200, (await self._proxies.update(proxy.name, wish)).to_json())

    async def _delete(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        await self._proxies.remove(names[0])
        return web.Response(status=204)

    async def _show_frames(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        return _json(200, self._proxies.get(names[0]).frames.to_json())

    async def _show_events(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        events = self._proxies.get(names[0]).events
        since = request.query.get("since", "0")
        if not since.isascii() or not since.isdecimal() or len(since) > 18:
            raise ApiError(400, f"since is no number of an event: {since!r:.40}")
        return _json(200, [event.to_json() for event in events.since(int(since))])

    async def _list_toxics(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        return _json(200, [toxic.to_json() for toxic in self._proxies.get(names[0]).toxics])

    async def _create_toxic(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        proxy = self._proxies.get(names[0])
        toxic = requests.read_toxic(await _body(request), proxy)
        proxy.add_toxic(toxic)
        return _json(200, toxic.to_json())

    async def _show_toxic(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        return _json(200, self._proxies.get(names[0]).toxic(names[1]).to_json())

    async def _update_toxic(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        proxy = self._proxies.get(names[0])
        proxy.toxic(names[1])
        body = await _body(request)
        toxic, error = requests.read_toxic_change(body, proxy.toxic(names[1]))
        proxy.update_toxic(toxic)
        if error is not None:
            raise error
        return _json(200, toxic.to_json())

    async def _delete_toxic(self, request: web.BaseRequest, names: tuple[str, ...]) -> web.Response:
        self._proxies.get(names[0]).remove_toxic(names[1])
        return web.Response(status=204)


def run(host: str, port: int, seed: int | None = None) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code.

    Prints one line on stdout once it serves; an address that can't be bound is reported on stderr.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:  # every proxied connection takes two descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return uvloop.run(_serve(host, port, seed))


async def _serve(host: str, port: int, seed: int | None) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with ToxiproxyServer(host=host, port=port, seed=seed) as server:
            sys.stdout.write(
                f"ledgermq toxiproxy listening on {server.host}:{server.port} seed {server.seed}\n"
            )
            sys.stdout.flush()
            await stopped.wait()
    except UnicodeError as error:
        sys.stderr.write(f"ledgermq: toxiproxy can't listen on {host!r}: {error}\n")
        return 1
    except OSError as error:
        # The loop's text repeats the address; that of a host without one is plain, and its number
        # is one of the resolver's.
        reason = error.strerror or str(error)
        if error.errno and not isinstance(error, socket.gaierror):
            reason = os.strerror(error.errno)
        sys.stderr.write(f"ledgermq: toxiproxy can't listen on {host}:{port}: {reason}\n")
        return 1
    return 0


def _clean_path(path: str) -> str:
    """Return `path` without empty, `.` and `..` parts; one slash at its end stays."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return clean + "/" if path.endswith("/") and clean != "/" else clean


async def _body(request: web.BaseRequest) -> str:
    try:
        return (await request.read()).decode(errors="replace")
    except web.HTTPRequestEntityTooLarge:
        raise ApiError(413, "bad request body: it is too large") from None


def _json(status: int, value: object) -> web.Response:
    return web.Response(status=status, body=encode(value).encode(), content_type=_JSON)


def _plain(status: int, text: str) -> web.Response:
    headers = {"Content-Type": _PLAIN, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, body=f"{text}\n".encode(), headers=headers)
