"""Decoder of the JSON that Java peers write with fastjson, which standard decoders refuse.

Place in the data path: bodies of routes, heartbeats, registrations and statistics that come from
RocketMQ. ledgermq itself writes standard JSON except for tables by queue
(`remoting.protocol.queue_table`).

The dialect, beyond standard JSON: object keys may be numbers or words without quotes
(`{0:"ip:port"}`), strings in single quotes, or whole objects
(`{{"brokerName":"a","queueId":0,"topic":"t"}:{...}}`). A number or word becomes its text; an object
becomes its JSON text, compact and with sorted names. A null field counts as absent.

Invariant: the dialect decoder costs up to a microsecond per byte, so its input from a request,
which anyone may send, is limited to a size that doesn't delay a server's other clients.

Source: fastjson 1.2 as RocketMQ 4.9 and 5.3 use it, fastjson2 as RocketMQ 5.4 and 5.5 do.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

import msgspec

from remoting.errors import BodyError

__all__ = ["decode", "decode_answer", "decode_request", "encode", "parse"]

T = TypeVar("T")
_DEPTH_MAX: Final = 64
_STRANGERS_BODY_SIZE_MAX: Final = 4 << 20  # standard JSON of the expected shape
_STRANGERS_SIZE_MAX: Final = 1 << 20  # standard JSON with nulls or numbers as text
_STRANGERS_DIALECT_SIZE_MAX: Final = 1 << 16
_STRANGERS_ANSWER_SIZE_MAX: Final = 1 << 18
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WORD: Final = re.compile(r"-?[A-Za-z0-9_$.+@%|-]+")
_SINGLE_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_HALF: Final = re.compile("[\ud800-\udfff]")
_SCALARS: Final = json.JSONDecoder()

encode = msgspec.json.Encoder().encode
"""Encodes a value or Struct as standard JSON, as bytes."""


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a body as a `kind`; numbers given as text and nulls are accepted.

    Raises BodyError where it is neither JSON nor the dialect, or not of that shape.
    """
    return _decode(body, kind, size_max=len(body), dialect_size_max=len(body))


def decode_request(
    body: bytes, kind: type[T], *, body_size_max: int = _STRANGERS_BODY_SIZE_MAX
) -> T:
    """Decode as `decode` does, within size limits, since anyone may send a request.

    Three bytes of a body may become a hundred in memory, and more in the dialect decoder.
    `body_size_max`: of standard JSON of the expected shape. Raises BodyError.
    """
    if len(body) > body_size_max:
        raise BodyError(f"{len(body)} bytes; at most {body_size_max} are read")
    return _decode(
        body,
        kind,
        size_max=_STRANGERS_SIZE_MAX,
        dialect_size_max=_STRANGERS_DIALECT_SIZE_MAX,
    )


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Decode a client's answer to a server, with room for a table by queue in the dialect.

    Raises BodyError.
    """
    return _decode(
        body,
        kind,
        size_max=_STRANGERS_SIZE_MAX,
        dialect_size_max=_STRANGERS_ANSWER_SIZE_MAX,
    )


def _decode(body: bytes, kind: type[T], *, size_max: int, dialect_size_max: int) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The dialect, nulls or numbers as text: the tolerant decoder below reports what is wrong.
        if len(body) > size_max:
            raise BodyError(f"body of {len(body)} bytes is no {kind.__name__}: {error}") from error
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(body) > dialect_size_max:
            raise BodyError(f"body of {len(body)} bytes is not JSON: {error}") from error
        value = parse(body)
    try:
        return msgspec.convert(_without_nulls(value), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BodyError(f"body is no {kind.__name__}: {error}") from error


def parse(body: bytes) -> Any:
    """Return the value in plain Python types. Raises BodyError, also above 64 levels of nesting."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"body is not UTF-8: {error}") from error
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip_space()
    if reader.at != len(text):
        raise BodyError(f"body goes on at character {reader.at} after its JSON value")
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


class _Reader:
    """Recursive descent over one text; the standard library decodes the scalars."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None  # the pattern matches the empty text
        self.at = match.end()

    def value(self, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise BodyError(f"body is nested more than {_DEPTH_MAX} levels deep")
        self.skip_space()
        match self.text[self.at : self.at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case "'":
                return self._single_quoted()
            case _:
                return self._scalar()

    def _scalar(self) -> Any:
        try:
            value, self.at = _SCALARS.raw_decode(self.text, self.at)
        except ValueError as error:  # Also a number of thousands of digits.
            raise self._unexpected("a JSON value") from error
        return self._whole(value) if isinstance(value, str) else value

    def _whole(self, value: str) -> str:
        """Return `value`. Refuses half of a surrogate pair, which can't be encoded or logged."""
        if _HALF.search(value) is not None:
            raise BodyError(f"a string that ends at character {self.at} has half a character")
        return value

    def _single_quoted(self) -> str:
        match = _SINGLE_QUOTED.match(self.text, self.at)
        if match is None:
            raise self._unexpected("a string in single quotes")
        self.at = match.end()
        inner = re.sub(r'\\(.)|(")', _requote, match.group(1), flags=re.DOTALL)
        try:
            return self._whole(str(json.loads(f'"{inner}"')))
        except ValueError as error:
            raise self._unexpected("a string in single quotes") from error

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        items: list[Any] = []
        self.skip_space()
        if self._take("]"):
            return items
        while True:
            items.append(self.value(depth + 1))
            self.skip_space()
            if self._take("]"):
                return items
            if not self._take(","):
                raise self._unexpected("',' or ']'")

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        fields: dict[str, Any] = {}
        self.skip_space()
        if self._take("}"):
            return fields
        while True:
            name = self._name(depth + 1)
            self.skip_space()
            if not self._take(":"):
                raise self._unexpected("':'")
            fields[name] = self.value(depth + 1)
            self.skip_space()
            if self._take("}"):
                return fields
            if not self._take(","):
                raise self._unexpected("',' or '}'")

    def _name(self, depth: int) -> str:
        self.skip_space()
        if self.text[self.at : self.at + 1] in {'"', "'", "{", "["}:
            name = self.value(depth)
            if isinstance(name, str):
                return name
            return json.dumps(name, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self._unexpected("a field name")
        self.at = match.end()
        return match.group()

    def _take(self, character: str) -> bool:
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def _unexpected(self, wanted: str) -> BodyError:
        found = self.text[self.at : self.at + 20] or "the end"
        return BodyError(f"body has {found!r} at character {self.at} where {wanted} should be")


def _requote(match: re.Match[str]) -> str:
    """Requote for a JSON string: \\' in single quotes becomes ', and " has to be escaped."""
    if match.group(2):
        return '\\"'
    return "'" if match.group(1) == "'" else match.group()
