"""Attributes of topics and groups, and changes of them: "+name=value,-name".

Place in the data path: UPDATE_AND_CREATE_TOPIC and the like; the result goes into the log. Pure.
Names, values and which may change are RocketMQ's (TopicAttributes, SubscriptionGroupAttributes,
AttributeUtil), and `dedupe` is ours: "false" switches promise G2 off for the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["GROUP_ATTRIBUTES", "TOPIC_ATTRIBUTES", "BadAttributeError", "altered", "parsed"]

_SIZE_MAX: Final = 4_096
_COUNT_MAX: Final = 64


class BadAttributeError(ValueError):
    """Illegal change of an attribute; the text names it and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attribute:
    is_legal: Callable[[str], bool]
    legal: str  # what is, in words
    changeable: bool = True


def _one_of(*values: str, changeable: bool = True) -> _Attribute:
    return _Attribute(
        is_legal=lambda value: value in values, legal=" or ".join(values), changeable=changeable
    )


def _between(low: int, high: int) -> _Attribute:
    def is_legal(value: str) -> bool:
        digits = value.removeprefix("-")
        return (
            digits.isascii() and digits.isdecimal() and len(digits) < 20
            and low <= int(value) <= high
        )  # fmt: skip

    return _Attribute(is_legal=is_legal, legal=f"{low} to {high}")


TOPIC_ATTRIBUTES: Final[dict[str, _Attribute]] = {
    "dedupe": _one_of("true", "false"),
    "message.type": _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
    "reserve.time": _between(-1, (1 << 63) - 1),
    # There are neither batch queues nor compacted topics here.
    "queue.type": _one_of("SimpleCQ", changeable=False),
    "cleanup.policy": _one_of("DELETE", changeable=False),
}
GROUP_ATTRIBUTES: Final[dict[str, _Attribute]] = {"priority.factor": _between(0, 100)}


def parsed(text: str) -> dict[str, str]:
    """Return names with their signs -> values, of "+name=value" and "-name" joined by commas.

    Raises BadAttributeError.
    """
    if len(text) > _SIZE_MAX:
        raise BadAttributeError(
            f"attributes of {len(text)} characters; at most {_SIZE_MAX} are allowed"
        )
    changes: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, separator, value = item.partition("=")
        if name[:1] != ("+" if separator else "-") or not name[1:]:
            raise BadAttributeError(f"attribute {item[:40]!r} is not +key=value or -key")
        if name[1:] in {known[1:] for known in changes}:
            raise BadAttributeError(f"attribute {name[1:41]!r} is named twice")
        changes[name] = value
    return changes


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, _Attribute],
) -> dict[str, str]:
    """Return the attributes after the changes; `current` is None for a new topic or group.

    A name without a sign states a value as it is: tools send back what they have read.
    Raises BadAttributeError.
    """
    result = dict(current or {})
    for signed, value in changes.items():
        sign, name = (signed[:1], signed[1:]) if signed[:1] in {"+", "-"} else ("", signed)
        attribute = known.get(name)
        if attribute is None:
            raise BadAttributeError(f"unsupported key: {name[:40]}")
        if sign == "-":
            if name not in result:
                raise BadAttributeError(f"attempt to delete a nonexistent key: {name}")
            del result[name]
            continue
        if not attribute.is_legal(value):
            raise BadAttributeError(f"attribute {name} is {value[:40]!r}, not {attribute.legal}")
        before = None if current is None else current.get(name)
        if current is not None and value != before and not attribute.changeable:
            raise BadAttributeError(f"attempt to update an unchangeable attribute. key: {name}")
        result[name] = value
    if len(result) > _COUNT_MAX:
        raise BadAttributeError(f"{len(result)} attributes; at most {_COUNT_MAX} are allowed")
    return result
