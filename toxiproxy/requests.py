"""Decode the bodies of API requests: from JSON to checked values.

Every rejection is an `ApiError` with Toxiproxy's status and text. Fields are checked in its order:
a toxic's shape, stream, type, name, attributes. Attributes that Toxiproxy accepts and then crashes
or hangs on (a negative rate, a slicer without a size) are rejected here with 400.
"""

from toxiproxy.errors import ApiError
from toxiproxy.gojson import Json, Members, Reader, decode, kind_of
from toxiproxy.proxy import Proxy
from toxiproxy.proxy_collection import ProxyWish
from toxiproxy.toxic import Direction, Toxic
from toxiproxy.toxics import TOXIC_TYPES, Attributes, AttributeValue

__all__ = ["populate_wishes", "proxy_change", "proxy_wish", "read_toxic", "read_toxic_change"]

_POPULATE_ITEM = 'struct { toxiproxy.Proxy; Enabled *bool "json:\\"enabled\\"" }'
_TOXIC_CHANGE = (
    'struct { Attributes interface {} "json:\\"attributes\\"";'
    ' Toxicity float32 "json:\\"toxicity\\"" }'
)


def proxy_wish(body: str) -> ProxyWish:
    """Return the proxy that `POST /proxies` requests."""
    present = ProxyWish(name="", listen="", upstream="", enabled=True)
    reader = Reader(_decoded(body), owner="Proxy", whole="toxiproxy.Proxy")
    wish = _merge_proxy(reader, present, enabled_reader=reader)
    _check_body(reader.error)
    if not wish.name:
        raise ApiError(400, "missing required field: name")
    if not wish.upstream:
        raise ApiError(400, "missing required field: upstream")
    return wish


def proxy_change(body: str, proxy: Proxy) -> ProxyWish:
    """Return the proxy as changed by `PATCH /proxies/{name}`; fields not named stay."""
    present = ProxyWish(
        name=proxy.name, listen=proxy.listen, upstream=proxy.upstream, enabled=proxy.enabled
    )
    reader = Reader(_decoded(body), owner="Proxy", whole="toxiproxy.Proxy")
    wish = _merge_proxy(reader, present, enabled_reader=reader)
    _check_body(reader.error)
    return wish


def populate_wishes(body: str) -> list[ProxyWish]:
    """Return the proxies that `POST /populate` requests."""
    document = _decoded(body)
    if document is None:
        return []
    if not isinstance(document, list) or isinstance(document, Members):
        _check_body(
            f"json: cannot unmarshal {kind_of(document)} into Go value of type []{_POPULATE_ITEM}"
        )
        return []
    wishes: list[ProxyWish] = []
    error: str | None = None
    for item in document:
        present = ProxyWish(name="", listen="", upstream="", enabled=True)
        reader = Reader(item, owner=".Proxy", whole=_POPULATE_ITEM)
        enabled_reader = Reader(None, owner="")
        wishes.append(_merge_proxy(reader, present, enabled_reader=enabled_reader))
        error = error or reader.error or enabled_reader.error
    _check_body(error)
    for number, wish in enumerate(wishes, start=1):
        if not wish.name:
            raise ApiError(400, f"missing required field: name at proxy {number}")
        if not wish.upstream:
            raise ApiError(400, f"missing required field: upstream at proxy {number}")
    return wishes


def read_toxic(body: str, proxy: Proxy) -> Toxic:
    """Return the toxic that `POST /proxies/{name}/toxics` requests."""
    document = _decoded(body)
    reader = Reader(document, owner="ToxicWrapper", whole="toxics.ToxicWrapper")
    texts = {"name": "", "type": "", "stream": ""}
    toxicity: float = 1
    attributes_given = Members()
    for key, value in reader.fields():
        if key in texts:
            texts[key] = reader.text(key, value) or ""
        elif key == "toxicity":
            toxicity = reader.float32(key, value) or 0
        elif key == "attributes":
            attributes_given += reader.members(key, value, "toxics.NoopToxic")
    _check_body(reader.error)
    stream = texts["stream"] if reader.raw("stream") is not None else "downstream"
    if stream.lower() not in set(Direction):
        raise ApiError(400, "stream was invalid, can be either upstream or downstream")
    if texts["type"] not in TOXIC_TYPES:
        raise ApiError(400, "invalid toxic type")
    name = texts["name"] or f"{texts['type']}_{stream}"
    if proxy.has_toxic(name):
        raise ApiError(409, "toxic already exists")
    stage = TOXIC_TYPES[texts["type"]]
    defaults = {field: stage.defaults.get(field, 0) for field in stage.fields}
    attributes, error = _merge_attributes(texts["type"], defaults, attributes_given)
    _check_body(error)
    _check_attributes(texts["type"], attributes)
    return Toxic(
        name=name,
        type_name=texts["type"],
        stream=stream,
        direction=Direction(stream.lower()),
        toxicity=toxicity,
        attributes=attributes,
    )


def read_toxic_change(body: str, toxic: Toxic) -> tuple[Toxic, ApiError | None]:
    """Return the toxic after `PATCH .../toxics/{name}`, and the error to answer with, if any.

    Well-formed attributes are applied even where another one was not.
    """
    stage = TOXIC_TYPES[toxic.type_name]
    reader = Reader(_decoded(body), owner="", whole=_TOXIC_CHANGE)
    toxicity = toxic.toxicity
    attributes = toxic.attributes
    error: str | None = reader.error
    for key, value in reader.fields():
        if key == "toxicity":
            toxicity = reader.float32(key, value) or 0
            error = error or reader.error
        elif key == "attributes":
            given = reader.members(key, value, f"toxics.{stage.go_name}")
            attributes, wrong = _merge_attributes(toxic.type_name, attributes, given)
            error = error or reader.error or wrong
    _check_attributes(toxic.type_name, attributes)
    changed = Toxic(
        name=toxic.name,
        type_name=toxic.type_name,
        stream=toxic.stream,
        direction=toxic.direction,
        toxicity=toxic.toxicity if error else toxicity,
        attributes=attributes,
    )
    return changed, None if error is None else ApiError(400, f"bad request body: {error}")


def _decoded(body: str) -> Json:
    try:
        return decode(body)
    except ValueError as error:
        raise ApiError(400, f"bad request body: {error}") from None


def _check_body(error: str | None) -> None:
    if error is not None:
        raise ApiError(400, f"bad request body: {error}")


def _check_attributes(type_name: str, attributes: Attributes) -> None:
    fault = TOXIC_TYPES[type_name].fault_in(attributes)
    if fault is not None:
        raise ApiError(400, f"bad request body: {type_name}: {fault}")


def _merge_proxy(reader: Reader, present: ProxyWish, *, enabled_reader: Reader) -> ProxyWish:
    texts = {"name": present.name, "listen": present.listen, "upstream": present.upstream}
    enabled = present.enabled
    for key, value in reader.fields():
        if key in texts:
            texts[key] = reader.text(key, value) or ""
        elif key == "enabled":
            enabled = bool(enabled_reader.boolean(key, value))
    return ProxyWish(enabled=enabled, **texts)


def _merge_attributes(
    type_name: str, present: Attributes, given: Members
) -> tuple[Attributes, str | None]:
    """Return the attributes with those given in place, and the first mismatch."""
    stage = TOXIC_TYPES[type_name]
    reader = Reader(given, owner=f"{stage.go_name}.attributes")
    merged = dict(present)
    for key, value in reader.fields():
        if key not in merged:
            continue
        read: AttributeValue | None
        match merged[key]:
            case tuple():
                read = reader.integers(key, value)
            case float():
                number = reader.float32(key, value)
                read = None if number is None else float(number)
            case _:
                read = reader.int64(key, value, stage.int_name)
        if read is not None:
            merged[key] = read
    return merged, reader.error
