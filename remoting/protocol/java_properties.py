"""Java's properties text, the format of configuration requests. Pure.

Place in the data path: bodies of UPDATE/GET_NAMESRV_CONFIG and of the broker's counterparts. One
`name=value` a line; `:` or a blank may replace the `=`; lines that start with `#` or `!` are
comments; a backslash at a line's end joins the next one; `\\t \\n \\r \\f \\uXXXX` are escapes.

Invariant: `parse_java_properties` reads back what `properties_lines` writes.

Source: java.util.Properties, RocketMQ MixAll.string2Properties and properties2String.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["JavaPropertiesError", "parse_java_properties", "properties_lines"]

_SIZE_MAX: Final = 1 << 20
_ENTRIES_MAX: Final = 10_000
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"})
_BLANKS: Final = " \t\f"
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SIGN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class JavaPropertiesError(ValueError):
    """The text is not valid properties text; says in which line."""


def parse_java_properties(text: str) -> dict[str, str]:
    """Parse into values by name; the last of two equal names wins. Raises JavaPropertiesError."""
    if len(text) > _SIZE_MAX:
        raise JavaPropertiesError(f"{len(text)} characters, more than {_SIZE_MAX}")
    pairs: dict[str, str] = {}
    pieces: list[str] = []  # of a line that is continued
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        piece = line.lstrip(_BLANKS)
        if not pieces and (not piece or piece[0] in "#!"):
            continue
        is_continued = (len(piece) - len(piece.rstrip("\\"))) % 2 == 1
        pieces.append(piece[:-1] if is_continued else piece)
        if not is_continued:
            _take(pairs, "".join(pieces), number)
            pieces.clear()
    if pieces:
        _take(pairs, "".join(pieces), number)
    return pairs


def properties_lines(values: Mapping[str, str]) -> str:
    """Format one line each, in the mapping's order."""
    return "".join(f"{_written(name, True)}={_written(value)}\n" for name, value in values.items())


def _take(pairs: dict[str, str], line: str, number: int) -> None:
    name_match = _NAME.match(line)
    assert name_match is not None
    sign = _SIGN.match(line, name_match.end())
    assert sign is not None
    name = _read(name_match.group(), number)
    pairs[name] = _read(line[sign.end() :], number)
    if len(pairs) > _ENTRIES_MAX:
        raise JavaPropertiesError(f"more than {_ENTRIES_MAX} entries")


def _read(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise JavaPropertiesError(f"line {number}: \\u{digits} is no character")
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    # Java escapes a character beyond the first plane as two surrogates: join them.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _written(text: str, is_name: bool = False) -> str:
    text = text.translate(_WRITTEN)
    if is_name:
        text = re.sub(r"([ =:#!])", r"\\\1", text)
    elif text[:1] in {" ", "="}:
        text = f"\\{text}"
    return text
