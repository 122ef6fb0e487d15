"""Faults at failpoints: a broker crashes, waits or fails at a named point; its disk fails or lies.

Place in the data path: act on `chaos.systems.base.Failpoints`. What a fault of this kind does is
the arming of one point of one or more nodes, for as long as the fault lasts.

Effect probe: the node's own count says that the action was carried out since the fault began, or,
where the action may end the process, that it is gone. Healed when the points are disarmed and every
node serves again.

Source: the failpoints of etcd's robustness tests; LazyFS and ALICE for the disk's faults.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from chaos.nemesis.base import (
    FaultContext,
    FaultNotPossibleError,
    FaultSpec,
    Observation,
    Parameter,
)
from chaos.nemesis.process.node_fault import NodeFault, await_true, target_nodes
from chaos.systems.base import Part, PointAction, SystemFailedError

__all__ = ["COMMON_POINTS", "SPECS", "ArmedPoint"]

ANY: Final = "any"
ENDS_WITHIN_S: Final = 2.0  # a broker that could not write
# What a loaded group passes all the time, so that a fault of a few seconds meets it.
COMMON_POINTS: Final = (
    "log.append.before",
    "log.append.after",
    "log.sync.before",
    "log.sync.after",
    "sync.answer.before",
    "sync.answer.after",
    "commit.before",
    "apply.before",
    "apply.state.after",
    "apply.queue.after",
    "apply.after",
    "peer.send.before",
    "peer.receive.before",
    "request.before",
    "reply.before",
    "reply.after",
)
_HARMLESS: Final = frozenset({"delay", "lie", "stuck"})  # no process ends by these
_TARGETS: Final = ("leader", "follower", "any", "minority")


class ArmedPoint(NodeFault):
    """One point of some nodes, armed. `choose_point` takes the context and the possible points."""

    def __init__(
        self,
        context: FaultContext,
        action: PointAction,
        choose_point: Callable[[FaultContext, list[str]], str],
    ) -> None:
        super().__init__(context, target_nodes)
        self._action = action
        self._choose_point = choose_point
        self._point = ""
        self._before: dict[str, int] = {}

    async def setup(self) -> None:
        await super().setup()
        for node in self._nodes:
            counts = await self._context.failpoints.counts(node)
            if counts is None:
                raise FaultNotPossibleError(f"{node} does not answer, so nothing can be armed")
            if not self._point:
                able = [
                    name for name, each in counts.items() if self._action.action in each.actions
                ]
                self._point = self._choose_point(self._context, able)
            if self._point not in counts:
                raise FaultNotPossibleError(f"{node} has no failpoint {self._point!r}")
            self._before[node] = counts[self._point].fired

    async def inject(self) -> None:
        for node in self._nodes:
            await self._context.failpoints.arm(node, self._point, self._action)

    async def probe(self) -> Observation:
        seen: list[bool | None] = []
        texts = []
        for node in self._nodes:
            state = self._context.processes.state(node)
            counts = await self._context.failpoints.counts(node)
            if state in {"gone", "Z"}:
                texts.append(f"{node} ended at {self._point}: process {state}")
                # Of what ends no process another fault has ended it.
                seen.append(None if self._action.action in _HARMLESS else True)
            elif counts is None:
                texts.append(f"{node}: process {state}, no answer while {self._point} is armed")
                holds_up = self._action.action in {"stuck", "delay"}
                seen.append(None if state == "T" else holds_up)
            else:
                fired = counts[self._point].fired - self._before[node]
                waiting = counts[self._point].waiting
                texts.append(f"{node}: {self._point} fired {fired} times, {waiting} wait there")
                seen.append(fired + waiting > 0)
        worst = False if False in seen else None if None in seen else True
        return Observation(seen=worst, evidence="; ".join(texts))

    async def heal(self) -> None:
        for node in self._nodes:
            if self._context.processes.state(node) in {"gone", "Z"}:
                continue  # it took what was armed with it
            try:
                await self._context.failpoints.disarm(node, self._point)
                await self._until_ended(node)
            except SystemFailedError:
                # It is dying of what was armed, or hangs in it; a new process has nothing armed.
                if self._context.processes.state(node) not in {"gone", "Z"}:
                    await self._context.processes.kill(node)
        await super().heal()

    async def _until_ended(self, node: str) -> None:
        """Wait for a moment for a process to end that failed at the point: one that stops, and
        still answers, would end behind the heal, and nobody would start it again."""
        if self._action.action not in {"error", "crash"}:
            return
        counts = await self._context.failpoints.counts(node)
        if counts is not None and counts[self._point].fired == self._before[node]:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_S):
                await await_true(lambda: self._context.processes.state(node) in {"gone", "Z"})


def _named(context: FaultContext, able: list[str]) -> str:
    """Return the point that the parameter names, or a random one of those that load passes."""
    wanted = str(context.params["point"])
    if wanted != ANY:
        if wanted not in able:
            raise FaultNotPossibleError(f"no failpoint {wanted!r} has this action")
        return wanted
    common = [name for name in COMMON_POINTS if name in able]
    if not common:
        raise FaultNotPossibleError("no point that is passed under load has this action")
    return context.rng.choice(common)


def _fixed(point: str) -> Callable[[FaultContext, list[str]], str]:
    return lambda _context, _able: point


def _spec(
    name: str,
    summary: str,
    make: Callable[[FaultContext], ArmedPoint],
    *,
    elsewhere: str = "",
    part: Part = Part.FAILPOINTS,
    **parameters: Parameter,
) -> FaultSpec:
    return FaultSpec(
        name=name,
        summary=summary,
        probe="the node's own count says that the action was carried out, or the process is gone",
        make=make,
        parts=frozenset({part, Part.PROCESSES}),
        seen_elsewhere=elsewhere,
        parameters={"target": "leader", **parameters},
        choices={"target": _TARGETS},
    )


def _disk(
    name: str,
    summary: str,
    point: str,
    action: PointAction,
    *,
    elsewhere: str = "LazyFS",
    part: Part = Part.DISKS,
) -> FaultSpec:
    return _spec(
        name,
        summary,
        lambda context: ArmedPoint(context, action, _fixed(point)),
        elsewhere=elsewhere,
        part=part,
    )


def _delay_ms(context: FaultContext) -> int:
    return int(context.params["delay_ms"])


SPECS: Final = (
    _spec(
        "failpoint-crash",
        "a broker kills itself at a named point, or at one that load passes",
        lambda c: ArmedPoint(c, PointAction(action="crash", count=1), _named),
        elsewhere="etcd robustness tests",
        point=ANY,
    ),
    _spec(
        "failpoint-delay",
        "a broker waits whenever it passes a point",
        lambda c: ArmedPoint(c, PointAction(action="delay", ms=_delay_ms(c), share=0.2), _named),
        elsewhere="etcd robustness tests",
        point=ANY,
        delay_ms=100,
    ),
    _spec(
        "failpoint-error",
        "a point raises EIO, at which a broker must stop",
        lambda c: ArmedPoint(c, PointAction(action="error", errno="EIO", count=1), _named),
        elsewhere="gofail",
        point=ANY,
    ),
    _disk(
        "disk-no-space",
        "writes to the store fail with ENOSPC",
        "disk.write",
        PointAction(action="error", errno="ENOSPC"),
        elsewhere="Chaos Mesh",
    ),
    _disk(
        "disk-write-error",
        "a write to the store fails with EIO",
        "disk.write",
        PointAction(action="error", errno="EIO", count=1),
        elsewhere="Chaos Mesh, Kibosh",
    ),
    _disk(
        "disk-fsync-error",
        "an fsync of the store fails with EIO",
        "disk.fsync",
        PointAction(action="error", errno="EIO", count=1),
        elsewhere="Rebello et al.",
    ),
    _disk(
        "disk-short-write",
        "writes to the store write half of their bytes",
        "disk.write",
        PointAction(action="short", share=0.5),
    ),
    _disk(
        "fsync-lies",
        "fsyncs return without having synced anything",
        "disk.fsync",
        PointAction(action="lie"),
    ),
    _disk(
        "fsync-stuck",
        "fsyncs do not return until the fault is healed",
        "disk.fsync",
        PointAction(action="stuck", ms=60_000),
        elsewhere="Redpanda",
        part=Part.FAILPOINTS,  # a thread has to wait until it is released
    ),
    _spec(
        "fsync-slow",
        "every fsync takes longer",
        lambda c: ArmedPoint(c, PointAction(action="delay", ms=_delay_ms(c)), _fixed("disk.fsync")),
        elsewhere="Redpanda, Chaos Mesh",
        part=Part.DISKS,
        delay_ms=150,
    ),
)
