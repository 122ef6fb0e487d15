"""Wrong wall clocks: they jump, are skewed against each other, drift and strobe.

Place in the data path: act on `chaos.systems.base.Clocks`. Monotonic clocks are left alone, as on a
machine whose time is set.

Effect probe: the node's own answer says by how much its wall clock is off. Healed when every node
says that it is right again.

Source: Jepsen's clock nemesis (bump, strobe); Chaos Mesh's TimeChaos.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.nemesis.base import FaultContext, FaultSpec, Observation, Parameter
from chaos.nemesis.process.node_fault import target_nodes
from chaos.systems.base import Part, SystemFailedError

__all__ = ["SPECS", "WrongClock"]

_SEEN_MS: Final = 50  # an answer takes time too
_TARGETS: Final = ("leader", "follower", "any", "minority", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    offset_ms: int = 0
    drift_ppm: int = 0
    strobe_ms: int = 0


class WrongClock:
    """The wall clocks of some nodes; `draw` returns one node's setting."""

    def __init__(
        self, context: FaultContext, draw: Callable[[FaultContext, int], _Setting]
    ) -> None:
        self._context = context
        self._draw = draw
        self._settings: dict[str, _Setting] = {}
        self._seen: dict[str, int] = {}

    @property
    def targets(self) -> list[str]:
        return list(self._settings)

    async def setup(self) -> None:
        nodes = target_nodes(self._context)
        self._settings = {node: self._draw(self._context, i) for i, node in enumerate(nodes)}

    async def inject(self) -> None:
        for node, setting in self._settings.items():
            await self._context.clocks.put(
                node,
                offset_ms=setting.offset_ms,
                drift_ppm=setting.drift_ppm,
                strobe_ms=setting.strobe_ms,
            )

    async def probe(self) -> Observation:
        for node in self._settings:
            off_ms = await self._context.clocks.offset_ms(node)
            if off_ms is not None and abs(off_ms) > abs(self._seen.get(node, 0)):
                self._seen[node] = off_ms
        text = ", ".join(f"{node} says {off_ms} ms" for node, off_ms in self._seen.items())
        seen = all(abs(self._seen.get(node, 0)) >= _SEEN_MS for node in self._settings)
        return Observation(seen=seen, evidence=text or "no node answers")

    async def heal(self) -> None:
        error = None
        for node in self._settings:
            try:
                await self._context.clocks.put(node, offset_ms=0)
            except SystemFailedError as each:
                error = each  # the others are set right all the same
        if error is not None:
            raise error

    async def probe_healed(self) -> Observation:
        offsets = {node: await self._context.clocks.offset_ms(node) for node in self._settings}
        text = ", ".join(f"{node} says {off_ms} ms" for node, off_ms in offsets.items())
        if None in offsets.values():
            return Observation(seen=None, evidence=text)
        return Observation(seen=all(off_ms == 0 for off_ms in offsets.values()), evidence=text)


def _jump(context: FaultContext, _: int) -> _Setting:
    ahead = context.params["direction"] == "forth"
    return _Setting(offset_ms=int(context.params["offset_ms"]) * (1 if ahead else -1))


def _skew(context: FaultContext, number: int) -> _Setting:
    sign = 1 if number % 2 else -1  # so that two of them are apart by twice as much
    return _Setting(offset_ms=sign * int(context.params["offset_ms"]))


def _drift(context: FaultContext, number: int) -> _Setting:
    sign = 1 if number % 2 == 0 else -1
    return _Setting(drift_ppm=sign * int(context.params["drift_ppm"]))


def _strobe(context: FaultContext, _: int) -> _Setting:
    return _Setting(
        offset_ms=int(context.params["offset_ms"]), strobe_ms=int(context.params["strobe_ms"])
    )


def _spec(
    name: str,
    summary: str,
    draw: Callable[[FaultContext, int], _Setting],
    *,
    choices: dict[str, tuple[str, ...]] | None = None,
    **parameters: Parameter,
) -> FaultSpec:
    return FaultSpec(
        name=name,
        summary=summary,
        probe="the node's own answer says by how much its wall clock is off",
        make=lambda context: WrongClock(context, draw),
        parts=frozenset({Part.CLOCKS}),
        seen_elsewhere="Jepsen, Chaos Mesh",
        parameters={"target": "leader", **parameters},
        choices={"target": _TARGETS, **(choices or {})},
    )


SPECS: Final = (
    _spec(
        "clock-jump",
        "a wall clock jumps, and back when the fault is healed",
        _jump,
        offset_ms=3_600_000,
        direction="forth",
        choices={"direction": ("forth", "back")},
    ),
    _spec(
        "clock-skew",
        "wall clocks are skewed against each other",
        _skew,
        offset_ms=500,
        target="all",
    ),
    _spec("clock-drift", "a wall clock runs too fast or too slow", _drift, drift_ppm=200_000),
    _spec(
        "clock-strobe",
        "a wall clock jumps forth and back all the time",
        _strobe,
        offset_ms=5_000,
        strobe_ms=100,
    ),
)
