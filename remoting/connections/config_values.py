"""Tables of configuration files as the dataclasses they are declared by, or why they can't be.

Place in the data path: whoever reads a TOML file (broker, name server, TLS settings, scenarios,
campaigns) has each table converted here. A field says the type of its value, and by `number` its
range. A refusal names the key, and says in words, not types, what its value may be.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

__all__ = [
    "check_keys",
    "near_matches",
    "number",
    "range_problems",
    "section",
    "section_values",
    "typed",
]

_Section = TypeVar("_Section")

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


def number(default: Any, low: float, high: float = math.inf, *, above_0: float = 0) -> Any:
    """Return a dataclass field of a number with its legal range, both ends included.

    `default` MISSING: it has none. A number that is not 0 is at least `above_0`.
    """
    return dataclasses.field(default=default, metadata={"range": (low, high, above_0)})


def range_problems(where: str, values: Any) -> list[str]:
    """Return which numbers of a dataclass are not in the range of their field."""
    problems = []
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if value is None or "range" not in field.metadata:
            continue
        low, high, above_0 = field.metadata["range"]
        key = _key(where, field.name)
        if not low <= value <= high:  # NaN is in no range
            legal = f"at least {low:g}" if high == math.inf else f"{low:g}..{high:.15g}"
            problems.append(f"{key} must be {legal}, not {value:.15g}")
        elif 0 < value < above_0:
            problems.append(f"{key} must be 0 or at least {above_0:g}, not {value:g}")
    return problems


def section(kind: type[_Section], where: str, table: object, refuse: type[ValueError]) -> _Section:
    """Make a dataclass of a table whose keys are its fields. Raises `refuse`.

    Caller's duty: `range_problems`, once all that may be wrong can be said together.
    """
    return kind(**section_values(kind, where, table, refuse))


def section_values(
    kind: type[Any], where: str, table: object, refuse: type[ValueError]
) -> dict[str, Any]:
    """Return the values of a table by field of `kind`: all keys are known, and none is missing
    that has no default. Raises `refuse`."""
    given: dict[str, object] = typed(where, table, dict, refuse)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    check_keys(where, given, fields, refuse)
    hints = get_type_hints(kind)
    values = {
        key: typed(_key(where, key), value, hints[key], refuse) for key, value in given.items()
    }
    for field in fields.values():
        no_default = field.default is field.default_factory is dataclasses.MISSING
        if no_default and field.name not in values:
            raise refuse(f"{_key(where, field.name)} is missing")
    return values


def check_keys(
    where: str, table: Iterable[str], known: Iterable[str], refuse: type[ValueError]
) -> None:
    """Raise `refuse` for the first key of the table that is not known."""
    names = list(known)
    for key in table:
        if key not in names:
            place = f" in {where}" if where else ""
            raise refuse(f"unknown key {key!r}{near_matches(key, names)}{place}")


def near_matches(word: str, known: Iterable[str]) -> str:
    """Return the question whether one of the known words was meant; empty where none is near."""
    matches = get_close_matches(word, sorted(known), n=3, cutoff=0.5)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


def _key(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


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
