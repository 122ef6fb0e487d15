"""JSON as Go's `encoding/json` reads and writes it, error texts included.

The HTTP surface of Toxiproxy is defined by a Go program: keys match without regard to case, text
after the first value is ignored, half of a surrogate pair becomes U+FFFD, `null` leaves a field as
it was, an int64 rejects `1.5`, `1e2` and `"12"`, a mismatch is remembered while the other fields
are still filled, and the texts of the errors are seen by clients. This module is the only place
that implements these rules.

Invariants: `decode` never returns a Python float or int, but `Number` with the literal as sent, so
that no digit is lost before the target type is known; a `Reader` reports the first mismatch in the
order of the document.
"""

import json
import math
import re
import struct
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

__all__ = [
    "Json",
    "Members",
    "Number",
    "Reader",
    "decode",
    "encode",
    "kind_of",
    "number_of_float32",
]

_SPACE = " \t\r\n"
_INTEGER = re.compile(r"-?\d+\Z")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Number(str):
    """A number literal, as it stood in the document."""

    __slots__ = ()


class Members(list[tuple[str, "Json"]]):
    """An object's members in document order, repeated keys kept."""


Json: TypeAlias = "bool | str | Number | list[Json] | Members | None"


def _constant(name: str) -> NoReturn:
    raise ValueError(f"invalid character '{name.lstrip('-')[0]}' looking for beginning of value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=Members, parse_float=Number, parse_int=Number, parse_constant=_constant
)


def decode(text: str) -> Json:
    """Return the first JSON value of `text`; what follows it is ignored.

    Raises ValueError with the text that Go's decoder gives.
    """
    body = text.lstrip(_SPACE)
    if not body:
        raise ValueError("EOF")
    try:
        value: Json = _DECODER.raw_decode(body)[0]
    except json.JSONDecodeError as error:
        raise ValueError(_syntax_error(body, error)) from None
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    return value


def encode(value: object) -> str:
    """Return compact JSON with the characters that matter to HTML escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def kind_of(value: Json) -> str:
    """Return Go's word for the kind of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case Number():
            return "number"
        case str():
            return "string"
        case Members():
            return "object"
        case _:
            return "array"


def number_of_float32(text: str) -> float:
    """Return the float32 nearest to a literal, as the float with its shortest decimal form.

    Raises OverflowError beyond the range of float32.
    """
    exact = float(text)
    if math.isinf(exact):
        raise OverflowError(text)
    single = struct.unpack("<f", struct.pack("<f", exact))[0]
    for digits in range(1, 10):
        short = float(f"{single:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", short))[0] == single:
            break
    return int(short) if short.is_integer() and abs(short) < 1e21 else short


class Reader:
    """Reads members of one object into typed values, as Go fills the fields of a struct.

    `owner` is the name of the struct in error texts. A mismatch does not stop the reading: the
    first one is kept in `error`, which the caller must check.
    """

    def __init__(self, value: Json, *, owner: str, whole: str | None = None) -> None:
        self.error: str | None = None
        self._owner = owner
        self._members: Members = Members()
        if isinstance(value, Members):
            self._members = value
        elif value is not None:
            self._fail(value, f"value of type {whole or owner}")

    def fields(self) -> Iterator[tuple[str, Json]]:
        """Yield the members in document order, keys in lower case, nulls left out."""
        return ((key.casefold(), value) for key, value in self._members if value is not None)

    def raw(self, field: str) -> Json:
        """Return the last value of a field that is not null, undecoded."""
        found: Json = None
        for key, value in self.fields():
            if key == field:
                found = value
        return found

    def text(self, field: str, value: Json) -> str | None:
        """Return a string, or None and remember an error.

        Half of a surrogate pair, which no answer could hold, becomes U+FFFD.
        """
        if isinstance(value, str) and not isinstance(value, Number):
            return _LONE_SURROGATE.sub("\ufffd", value)
        self._fail(value, f"struct field {self._owner}.{field} of type string")
        return None

    def boolean(self, field: str, value: Json) -> bool | None:
        """Return a boolean, or None and remember an error."""
        if isinstance(value, bool):
            return value
        self._fail(value, f"struct field {self._owner}.{field} of type bool")
        return None

    def int64(self, field: str, value: Json, type_name: str = "int64") -> int | None:
        """Return an integer of 64 bits, or None and remember an error."""
        if isinstance(value, Number) and _INTEGER.match(value):
            number = int(value) if len(value) <= 20 else 1 << 64
            if -(1 << 63) <= number < 1 << 63:
                return number
        self._fail(value, f"struct field {self._owner}.{field} of type {type_name}", literal=True)
        return None

    def integers(self, field: str, value: Json) -> tuple[int, ...] | None:
        """Return a list of integers, of which one may stand alone; or None, and an error."""
        listed = value if isinstance(value, list) and not isinstance(value, Members) else [value]
        numbers: list[int] = []
        for item in listed:
            number = self.int64(field, item)
            if number is None:
                return None
            numbers.append(number)
        return tuple(numbers)

    def float32(self, field: str, value: Json) -> float | None:
        """Return a float32, or None and remember an error."""
        if isinstance(value, Number):
            try:
                return number_of_float32(value)
            except OverflowError:
                pass
        self._fail(value, f"struct field {self._owner}.{field} of type float32", literal=True)
        return None

    def members(self, field: str, value: Json, type_name: str) -> Members:
        """Return an object, or an empty one and remember an error."""
        if isinstance(value, Members):
            return value
        self._fail(value, f"struct field {self._owner}.{field} of type {type_name}")
        return Members()

    def _fail(self, value: Json, target: str, *, literal: bool = False) -> None:
        if self.error is None:
            kind = kind_of(value)
            if literal and isinstance(value, Number):
                kind = f"number {value}"
            self.error = f"json: cannot unmarshal {kind} into Go {target}"


def _syntax_error(body: str, error: json.JSONDecodeError) -> str:
    """Return Go's words for the place where Python's decoder stopped."""
    position = error.pos
    if error.msg.startswith("Unterminated string"):
        return "unexpected EOF"
    if error.msg.startswith(("Invalid \\escape", "Invalid \\uXXXX")):
        position += 1
    while position < len(body) and body[position] in _SPACE:
        position += 1
    if position >= len(body):
        return "unexpected EOF"
    found = body[position]
    shown = {"'": "\\'", '"': '"'}.get(found) or json.dumps(found, ensure_ascii=False)[1:-1]
    if error.msg.startswith("Expecting value"):
        return _value_error(body, position, shown)
    before = body[:position].rstrip(_SPACE)
    wanted = {
        "Expecting property name": "looking for beginning of object key string",
        "Illegal trailing comma": "looking for beginning of object key string",
        "Expecting ':'": "after object key",
        "Invalid control": "in string literal",
        "Invalid \\escape": "in string escape code",
        "Invalid \\uXXXX": "in \\u hexadecimal character escape",
    }
    for start, text in wanted.items():
        if error.msg.startswith(start):
            return f"invalid character '{shown}' {text}"
    number = _number_error(body, position)
    if number is not None:
        return number
    container = "object key:value pair" if _inside_object(before) else "array element"
    return f"invalid character '{shown}' after {container}"


def _number_error(body: str, position: int) -> str | None:
    """Return the error of a number of which Python's decoder read only a part, or None."""
    found = body[position]
    if found not in ".eE" or not body[position - 1].isdigit():
        return None
    place, wanted = "after decimal point in", position + 1
    if found != ".":
        place = "in exponent of"
        if body[wanted : wanted + 1] in {"+", "-"}:
            wanted += 1
    if wanted >= len(body):
        return "unexpected EOF"
    return f"invalid character '{body[wanted]}' {place} numeric literal"


def _value_error(body: str, position: int, shown: str) -> str:
    if body[position] == "-":
        if position + 1 >= len(body):
            return "unexpected EOF"
        return f"invalid character '{body[position + 1]}' in numeric literal"
    for word in ("null", "true", "false"):
        if body[position] != word[0]:
            continue
        for place, wanted in enumerate(word):
            if position + place >= len(body):
                return "unexpected EOF"
            found = body[position + place]
            if found != wanted:
                return f"invalid character '{found}' in literal {word} (expecting '{wanted}')"
    return f"invalid character '{shown}' looking for beginning of value"


def _inside_object(before: str) -> bool:
    """Return whether the innermost bracket still open at the end of `before` is a brace."""
    opened: list[str] = []
    in_string = escaped = False
    for character in before:
        if in_string:
            in_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            in_string = True
        elif character in "{[":
            opened.append(character)
        elif character in "}]" and opened:
            opened.pop()
    return bool(opened) and opened[-1] == "{"
