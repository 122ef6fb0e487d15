"""Filters of subscriptions, applied by pulls, held pulls and POP.

Place in the data path: heartbeats and pulls that carry their subscription make a filter
(`filter_of`); reading a queue applies it twice at most: to the tags code in a message's
ConsumeQueue unit, and, where `reads_properties`, to the properties of the record. Pure values.

Invariant: `codes` has the tags code of every message that `wants` accepts, where it is a set.
Source: RocketMQ MessageFilter, ExpressionMessageFilter, FilterAPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from remoting.records.message import tags_code
from remoting.records.property_names import PropertyName

__all__ = [
    "EVERYTHING",
    "EXPRESSION_SIZE_MAX",
    "TAG",
    "FilterError",
    "MessageFilter",
    "TagFilter",
    "parse_tags",
]

TAG: Final = "TAG"
EXPRESSION_SIZE_MAX: Final = 65_536
"""Characters of a subscription's expression, of whatever kind."""
_TAGS_MAX: Final = 1_000
_PARSED_MAX: Final = 256


class FilterError(ValueError):
    """Illegal expression of a subscription; the text gives the reason."""


class MessageFilter(Protocol):
    @property
    def codes(self) -> frozenset[int] | None:
        """Return the tags codes of units that may match, or None if any may."""

    @property
    def reads_properties(self) -> bool:
        """Whether `wants` has to be called, too."""

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""

    def wants(self, properties: Mapping[str, str]) -> bool:
        """Whether the message with these properties matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFilter:
    """Filter by the Java hash of a whole tag; clients compare the text again."""

    codes: frozenset[int] | None

    @property
    def reads_properties(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return 64 * len(self.codes or ())

    def wants(self, properties: Mapping[str, str]) -> bool:
        return self.codes is None or tags_code(properties.get(PropertyName.TAGS)) in self.codes


EVERYTHING: Final = TagFilter(codes=None)


def parse_tags(expression: str | None) -> TagFilter:
    """Return the filter of `*`, or of tags joined by `||`; equal expressions have one. Raises
    FilterError."""
    if expression is None or expression.strip() in {"", "*"}:
        return EVERYTHING
    if len(expression) > EXPRESSION_SIZE_MAX:
        raise FilterError(
            f"an expression of {len(expression)} characters; at most {EXPRESSION_SIZE_MAX}"
        )
    return _parsed(expression)


@lru_cache(maxsize=_PARSED_MAX)
def _parsed(expression: str) -> TagFilter:
    """Parse once what each pull of a group's members brings anew: a held pull holds its filter."""
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise FilterError(f"{expression!r} has no tag between its ||")
    if len(tags) > _TAGS_MAX:
        raise FilterError(f"{len(tags)} tags; at most {_TAGS_MAX} are allowed")
    return TagFilter(codes=frozenset(map(tags_code, tags)))
