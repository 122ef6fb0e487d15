"""Which nodes the active faults touch, and whether one more would leave no untouched majority.

Place in the data path: `chaos.experiment.nemesis_runner` asks before it injects a fault whose step
is to stay within what the promise allows, and notes every fault, whatever its step. Pure.

A link between two nodes touches one of them: of all links of a fault the fewest nodes are counted
that touch every one (a cut-off leader is one node, not three). A link to a client or a name server
touches the node, unless the fewer places are on the far side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["MajorityGuard", "Touched", "touched_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The places that a fault touches. `roves`: one of them at a time."""

    places: frozenset[str]
    roves: bool = False


class MajorityGuard:
    """The active faults. `groups`: node names by group."""

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = {name: frozenset(nodes) for name, nodes in groups.items()}
        self._active: dict[int, Touched] = {}

    def crowded(self, touched: Touched) -> str | None:
        """Return the group that would be left without an untouched majority; None: none."""
        for name, nodes in self._groups.items():
            if not touched.places & nodes:
                continue
            every = [each for each in (*self._active.values(), touched) if each.places & nodes]
            fixed: set[str] = set()
            for each in every:
                if not each.roves:
                    fixed |= each.places & nodes
            count = len(fixed) + sum(each.roves for each in every)
            if count > (len(nodes) - 1) // 2:
                return name
        return None

    def begin(self, number: int, touched: Touched) -> None:
        self._active[number] = touched

    def end(self, number: int) -> None:
        self._active.pop(number, None)


def touched_by(targets: Iterable[str], *, roves: bool) -> Touched:
    """Return what a fault of these targets (nodes, or links as `who->whom`) touches."""
    places: set[str] = set()
    links: set[frozenset[str]] = set()
    for target in targets:
        who, arrow, whom = target.partition("->")
        if arrow:
            links.add(frozenset({who, whom}))
        else:
            places.add(who)
    left = {link for link in links if not link & places}
    while left:
        counts = Counter(place for link in left for place in sorted(link))
        # Most links first; by name where equal, so that a run can be repeated.
        place = min(counts, key=lambda each: (-counts[each], each))
        places.add(place)
        left = {link for link in left if place not in link}
    return Touched(places=frozenset(places), roves=roves)
