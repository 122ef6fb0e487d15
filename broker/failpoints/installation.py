"""Puts failpoints into the code of this process, and takes them out again.

Place in the data path: `ledgermq broker --failpoints` installs before anything of the broker is
made. Each place of the catalogue is replaced by a function that passes its points and calls the
original. A process without `--failpoints` never imports this module: its functions are the
originals, so that a point costs nothing where nobody asked for it.

Invariants: `remove` leaves every place exactly as it was; a place that does not exist is an error
at once, and then nothing is replaced.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.failpoints.points import FailPoint, When

__all__ = ["Installation", "resolve"]


class Installation:
    """Record of the functions that were replaced in this process."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    def put_points(self, points: Iterable[FailPoint]) -> None:
        """Let calls pass the points. Raises LookupError where a place does not exist."""
        by_place: dict[str, dict[When, FailPoint]] = {}
        for point in points:
            by_place.setdefault(point.point.place, {})[point.point.when] = point
        found = {place: resolve(place) for place in by_place}
        for place, at in by_place.items():
            owner, name = found[place]
            self.replace(owner, name, _passing(getattr(owner, name), at))

    def replace(self, owner: Any, name: str, value: object) -> None:
        """Replace an attribute of a class or a module until `remove`."""
        self._originals.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def replace_in(self, module: str, name: str, value: object) -> None:
        """Replace an attribute of the module of that name."""
        self.replace(importlib.import_module(module), name, value)

    def remove(self) -> None:
        """Put back what stood there before, the last replacement first."""
        while self._originals:
            owner, name, value = self._originals.pop()
            setattr(owner, name, value)


def resolve(place: str) -> tuple[Any, str]:
    """Return the class or module that a place names, and the attribute there. Raises LookupError
    unless it is a function of its own."""
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *owners, name = path.split(".")
    for part in owners:
        owner = vars(owner).get(part)
        if owner is None:
            raise LookupError(f"{place}: there is no {part}")
    if not inspect.isfunction(vars(owner).get(name)):
        raise LookupError(f"{place}: there is no function {name}")
    return owner, name


def _passing(original: Callable[..., Any], at: Mapping[When, FailPoint]) -> Callable[..., Any]:
    before, after = at.get(When.BEFORE), at.get(When.AFTER)
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def passing_async(*args: Any, **kwargs: Any) -> Any:
            await _pass_async(before, args)
            result = await original(*args, **kwargs)
            await _pass_async(after, args)
            return result

        return passing_async

    @functools.wraps(original)
    def passing(*args: Any, **kwargs: Any) -> Any:
        if before is not None and (label := before.labelled(args)) is not None:
            before.passed(label)
        result = original(*args, **kwargs)
        if after is not None and (label := after.labelled(args)) is not None:
            after.passed(label)
        return result

    return passing


async def _pass_async(point: FailPoint | None, args: tuple[Any, ...]) -> None:
    if point is not None and (label := point.labelled(args)) is not None:
        await point.passed_async(label)
