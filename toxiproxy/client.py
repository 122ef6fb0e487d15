"""A client of Toxiproxy's HTTP API, for ours and for Shopify's server alike.

Typed values in and out; every answer is checked before it is used, every request has a deadline. A
rejection is a `ToxiproxyApiError` (nothing was changed, but for populate: see there), no answer a
`ToxiproxyUnreachableError` (unknown). Source: Toxiproxy 2.12's HTTP API.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import quote

import aiohttp

from toxiproxy.errors import (
    ToxiproxyApiError,
    ToxiproxyConflictError,
    ToxiproxyError,
    ToxiproxyNotFoundError,
    ToxiproxyUnreachableError,
)
from toxiproxy.toxics import AttributeValue

__all__ = [
    "ProxyEvent",
    "ProxyFrames",
    "ProxySpec",
    "ProxyState",
    "ToxicFrames",
    "ToxicSpec",
    "ToxicState",
    "ToxiproxyClient",
]

_ANSWER_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySpec:
    """A proxy to be created; port 0 in `listen` lets the server choose."""

    name: str
    upstream: str
    listen: str = "127.0.0.1:0"
    enabled: bool = True

    def to_json(self) -> dict[str, object]:
        """Return the body of the request."""
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicSpec:
    """A toxic to be added; without a name the server calls it `<type>_<stream>`."""

    type_name: str
    stream: str = "downstream"
    name: str = ""
    toxicity: float = 1.0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the body of the request."""
        return {
            "type": self.type_name,
            "stream": self.stream,
            "name": self.name,
            "toxicity": self.toxicity,
            "attributes": dict(self.attributes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicState:
    """A toxic as the server has it."""

    name: str
    type_name: str
    stream: str
    toxicity: float
    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyState:
    """A proxy as the server has it; `listen` is the address really bound while it is enabled."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[ToxicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicFrames:
    """Counts of a toxic of frames: frames by request code, None where that is not known."""

    type_name: str
    stream: str
    seen: Mapping[int | None, int]
    affected: Mapping[int | None, int]
    foreign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFrames:
    """The frames of a proxy: `passed` by stream, kind and code; `toxics` by name.

    A kind is `request`, `response` or `unreadable`. `foreign` counts directions of connections, by
    stream, that carry no frames.
    """

    passed: Mapping[tuple[str, str, int | None], int]
    toxics: Mapping[str, ToxicFrames]
    foreign: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyEvent:
    """Event of a proxy, or to the connection of that number; see docs/TOXIPROXY.md."""

    number: int
    wall_ms: int
    kind: str
    connection: int | None
    details: Mapping[str, object]


class ToxiproxyClient:
    """One server's API, used as an asynchronous context.

    `url` is the server's address, `timeout_s` the deadline of each request. Every method may raise
    ToxiproxyUnreachableError, and ToxiproxyApiError or one of its kinds.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "ToxiproxyClient":
        self._session = aiohttp.ClientSession(headers={"User-Agent": "ledgermq"})
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def version(self) -> str:
        """Return the server's version."""
        return _text(_members(await self._request("GET", "/version")), "version")

    async def proxies(self) -> dict[str, ProxyState]:
        """Return every proxy by name."""
        answer = _members(await self._request("GET", "/proxies"))
        return {name: _proxy(value) for name, value in answer.items()}

    async def proxy(self, name: str) -> ProxyState:
        """Return one proxy."""
        return _proxy(await self._request("GET", _path(name)))

    async def create_proxy(self, spec: ProxySpec) -> ProxyState:
        """Create a proxy; ToxiproxyConflictError where the name is taken."""
        return _proxy(await self._request("POST", "/proxies", spec.to_json()))

    async def populate(self, specs: Sequence[ProxySpec]) -> list[ProxyState]:
        """Create or replace many proxies; an existing proxy with the same addresses is left alone.

        On a ToxiproxyApiError the proxies before the rejected one have been created.
        """
        answer = await self._request("POST", "/populate", [spec.to_json() for spec in specs])
        made = _members(answer).get("proxies") or []
        if not isinstance(made, list):
            raise ToxiproxyError(f"populate answered no list of proxies: {made!r}")
        return [_proxy(value) for value in made]

    async def update_proxy(
        self,
        name: str,
        *,
        listen: str | None = None,
        upstream: str | None = None,
        enabled: bool | None = None,
    ) -> ProxyState:
        """Change the given fields of a proxy; another address drops its connections."""
        wanted: dict[str, object] = {"listen": listen, "upstream": upstream, "enabled": enabled}
        body = {key: value for key, value in wanted.items() if value is not None}
        return _proxy(await self._request("PATCH", _path(name), body))

    async def delete_proxy(self, name: str) -> None:
        """Close and remove a proxy."""
        await self._request("DELETE", _path(name))

    async def toxics(self, proxy: str) -> list[ToxicState]:
        """Return a proxy's toxics: upstream ones first."""
        answer = await self._request("GET", _path(proxy, "toxics"))
        if not isinstance(answer, list):
            raise ToxiproxyError(f"a list of toxics was expected, not {answer!r}")
        return [_toxic(value) for value in answer]

    async def add_toxic(self, proxy: str, spec: ToxicSpec) -> ToxicState:
        """Add a toxic, at the end of its stream's chain."""
        return _toxic(await self._request("POST", _path(proxy, "toxics"), spec.to_json()))

    async def toxic(self, proxy: str, name: str) -> ToxicState:
        """Return one toxic."""
        return _toxic(await self._request("GET", _path(proxy, "toxics", name)))

    async def update_toxic(
        self,
        proxy: str,
        name: str,
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        toxicity: float | None = None,
    ) -> ToxicState:
        """Change the given fields of a toxic; attributes not named stay."""
        wanted: dict[str, object] = {}
        if attributes is not None:
            wanted["attributes"] = dict(attributes)
        if toxicity is not None:
            wanted["toxicity"] = toxicity
        return _toxic(await self._request("PATCH", _path(proxy, "toxics", name), wanted))

    async def delete_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic."""
        await self._request("DELETE", _path(proxy, "toxics", name))

    async def frames(self, proxy: str) -> ProxyFrames:
        """Return the frames that a proxy has passed on and that its toxics hit; only of ours.

        Raises ToxiproxyNotFoundError where the proxy is not known, or the server is another.
        """
        return _frames(await self._request("GET", _path(proxy, "frames")))

    async def events(self, proxy: str, since: int = 0) -> list[ProxyEvent]:
        """Return what happened after the event of that number; only of ours.

        A first number beyond `since + 1` says that events between are no longer held.
        """
        answer = await self._request("GET", f"{_path(proxy, 'events')}?since={since}")
        if not isinstance(answer, list):
            raise ToxiproxyError(f"a list of events was expected, not {answer!r}")
        return [_event(value) for value in answer]

    async def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        await self._request("POST", "/reset")

    async def _request(self, method: str, path: str, body: object = None) -> object:
        """Send a request and check the answer; return the decoded body, None for an empty one."""
        if self._session is None:
            raise RuntimeError("a ToxiproxyClient is used inside `async with`")
        data = None if body is None else json.dumps(body).encode()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.request(method, self._url + path, data=data) as response,
            ):
                raw = await _bounded(response)
                status = response.status
        except TimeoutError:
            raise ToxiproxyUnreachableError(
                f"{method} {self._url}{path}: no answer within {self._timeout_s} s"
            ) from None
        except aiohttp.ClientError as error:
            raise ToxiproxyUnreachableError(f"{method} {self._url}{path}: {error}") from error
        if status >= 300:
            raise _refusal(status, raw)
        return _decoded(raw) if raw else None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > _ANSWER_SIZE_MAX:
            raise ToxiproxyError(f"the answer is longer than {_ANSWER_SIZE_MAX} bytes")
    return bytes(raw)


def _path(proxy: str, *rest: str) -> str:
    return "/proxies/" + "/".join(quote(part, safe="") for part in (proxy, *rest))


def _decoded(raw: bytes) -> object:
    try:
        value: object = json.loads(raw)
    except ValueError as error:
        raise ToxiproxyError(f"the answer is not JSON: {raw[:100]!r}: {error}") from None
    return value


def _refusal(status: int, raw: bytes) -> ToxiproxyApiError:
    message = raw.decode(errors="replace").strip()
    try:
        body = json.loads(raw)
    except ValueError:
        body = None  # not every refusal is JSON: 403, 404 of the router, 405, 503
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        message = body["error"]
    kinds = {404: ToxiproxyNotFoundError, 409: ToxiproxyConflictError}
    return kinds.get(status, ToxiproxyApiError)(status, message)


def _members(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ToxiproxyError(f"an object was expected in the answer, not {value!r}")
    return value


def _text(members: dict[str, object], key: str) -> str:
    value = members.get(key)
    if not isinstance(value, str):
        raise ToxiproxyError(f"{key} in the answer is no string: {value!r}")
    return value


def _proxy(value: object) -> ProxyState:
    members = _members(value)
    toxics = members.get("toxics") or []
    if not isinstance(toxics, list):
        raise ToxiproxyError(f"toxics in the answer is no list: {toxics!r}")
    return ProxyState(
        name=_text(members, "name"),
        listen=_text(members, "listen"),
        upstream=_text(members, "upstream"),
        enabled=members.get("enabled") is True,
        toxics=tuple(_toxic(toxic) for toxic in toxics),
    )


def _toxic(value: object) -> ToxicState:
    members = _members(value)
    toxicity = members.get("toxicity")
    attributes = _members(members.get("attributes"))
    if not isinstance(toxicity, int | float):
        raise ToxiproxyError(f"toxicity in the answer is no number: {toxicity!r}")
    return ToxicState(
        name=_text(members, "name"),
        type_name=_text(members, "type"),
        stream=_text(members, "stream"),
        toxicity=float(toxicity),
        attributes={key: _attribute(key, value) for key, value in attributes.items()},
    )


def _attribute(key: str, value: object) -> AttributeValue:
    if isinstance(value, int | float):
        return value
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return tuple(value)
    raise ToxiproxyError(f"attribute {key} in the answer is no number and no list: {value!r}")


def _event(value: object) -> ProxyEvent:
    members = _members(value)
    connection = members.get("connection")
    return ProxyEvent(
        number=_count(members, "number"),
        wall_ms=_count(members, "wall_ms"),
        kind=_text(members, "kind"),
        connection=None if connection is None else _count(members, "connection"),
        details=_members(members.get("details")),
    )


def _frames(value: object) -> ProxyFrames:
    members = _members(value)
    passed = {
        (_text(item, "stream"), _text(item, "kind"), _code(item)): _count(item, "count")
        for item in _listed(members, "passed")
    }
    foreign = _members(members.get("foreign"))
    toxics: dict[str, ToxicFrames] = {}
    for item in _listed(members, "toxics"):
        codes = _listed(item, "codes")
        toxics[_text(item, "name")] = ToxicFrames(
            type_name=_text(item, "type"),
            stream=_text(item, "stream"),
            seen={_code(of): _count(of, "seen") for of in codes},
            affected={_code(of): affected for of in codes if (affected := _count(of, "affected"))},
            foreign=_count(item, "foreign"),
        )
    return ProxyFrames(
        passed=passed, toxics=toxics, foreign={key: _count(foreign, key) for key in foreign}
    )


def _listed(members: dict[str, object], key: str) -> list[dict[str, object]]:
    value = members.get(key)
    if not isinstance(value, list):
        raise ToxiproxyError(f"{key} in the answer is no list: {value!r}")
    return [_members(item) for item in value]


def _count(members: dict[str, object], key: str) -> int:
    value = members.get(key)
    if not isinstance(value, int):
        raise ToxiproxyError(f"{key} in the answer is no integer: {value!r}")
    return value


def _code(members: dict[str, object]) -> int | None:
    return None if members.get("code") is None else _count(members, "code")
