"""How rows of the catalogue are written: the points of one call.

Place in the data path: none; `broker.failpoints.catalogue` and `ha_points` are made of them. Pure.
"""

from __future__ import annotations

from typing import Final

from broker.failpoints.orders import Action
from broker.failpoints.points import ALWAYS, Label, Point, When

__all__ = ["FAILING", "points"]

FAILING: Final = ALWAYS | {Action.ERROR}


def points(
    place: str,
    *,
    before: tuple[str, str] | None = None,
    after: tuple[str, str] | None = None,
    fails: bool = False,
    label: Label | None = None,
) -> list[Point]:
    """Return the points of one call; `before` and `after` are (name, summary)."""
    return [
        Point(
            name=named[0],
            place=place,
            when=when,
            summary=named[1],
            actions=FAILING if fails else ALWAYS,
            label=label,
        )
        for named, when in ((before, When.BEFORE), (after, When.AFTER))
        if named is not None
    ]
