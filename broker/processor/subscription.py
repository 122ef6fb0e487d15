"""Tag expressions of subscriptions: `*`, or tags joined by `||`.

Place in the data path: a pull that carries its subscription, and heartbeats. What the broker
compares is the Java hash of a whole tag; the client compares the text again.
Source: RocketMQ FilterAPI.
"""

from __future__ import annotations

from remoting.message import tags_code

__all__ = ["EVERYTHING", "SubscriptionError", "parse_tags"]

EVERYTHING: frozenset[int] | None = None
_TAGS_MAX = 1_000


class SubscriptionError(ValueError):
    """The expression can't be a subscription; says why."""


def parse_tags(expression: str | None) -> frozenset[int] | None:
    """The tag codes that match; None for everything. Raises SubscriptionError."""
    if expression is None or expression.strip() in {"", "*"}:
        return EVERYTHING
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise SubscriptionError(f"{expression!r} has no tag between its ||")
    if len(tags) > _TAGS_MAX:
        raise SubscriptionError(f"{len(tags)} tags; at most {_TAGS_MAX} are allowed")
    return frozenset(map(tags_code, tags))
