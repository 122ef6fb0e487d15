"""Values of configuration files as the types they are declared with, or why they can't be.

Place in the data path: whoever reads a TOML file (broker, name server, TLS settings, scenarios) has
each value converted here under its key. A refusal says in words, not types, what a value may be.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_origin

import msgspec

__all__ = ["near_matches", "typed"]

_WORDS: Final = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    list: "a list",
    dict: "a table",
}


def typed(where: str, value: object, kind: Any, refuse: type[ValueError]) -> Any:
    """Return the value as `kind`; an integer is a number, text is a path. Raises `refuse`."""
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        items = typed(where, value, list, refuse)
        return tuple(typed(f"{where}[{i}]", each, item, refuse) for i, each in enumerate(items))
    if get_origin(kind) is Mapping:
        item = get_args(kind)[1]
        table = typed(where, value, dict, refuse)
        return {key: typed(f"{where}.{key}", each, item, refuse) for key, each in table.items()}
    try:
        return msgspec.convert(value, kind, strict=True, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise refuse(f"{where} must be {_words(kind)}, not {value!r}") from error


def near_matches(word: str, known: Iterable[str]) -> str:
    """Return the question whether one of the known words was meant; empty where none is near."""
    matches = get_close_matches(word, sorted(known), n=3, cutoff=0.5)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


def _path(kind: type[Path], value: object) -> Path:
    """Make a path of text; msgspec has any other error refused."""
    if not isinstance(value, str) or not value:
        raise ValueError("no path")
    return kind(value)


def _words(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(repr(each.value) for each in kind)}"
    kinds = [each for each in get_args(kind) or (kind,) if each is not NoneType]
    return " or ".join(_WORDS[each] for each in kinds)
