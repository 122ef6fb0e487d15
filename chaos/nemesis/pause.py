"""Fault `pause`: SIGSTOP, later SIGCONT: a node resumes with stale beliefs.

A leader that was paused must not serve reads or acknowledge writes on the strength of what it
believed before (G6).

Effect probe: state T in /proc. Healed when it runs and answers with a known leader. Source:
Jepsen's pause nemesis.
"""

from __future__ import annotations

from chaos.nemesis.base import FaultContext, FaultSpec, Observation
from chaos.systems.base import Part

__all__ = ["SPEC", "Pause"]


class Pause:
    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._node = ""

    @property
    def targets(self) -> list[str]:
        return [self._node] if self._node else []

    async def setup(self) -> None:
        self._node = self._context.pick(str(self._context.params["target"]))

    async def inject(self) -> None:
        await self._context.processes.pause(self._node)

    async def probe(self) -> Observation:
        state = self._context.processes.state(self._node)
        return Observation(seen=state == "T", evidence=f"{self._node}: process state {state}")

    async def heal(self) -> None:
        if self._context.processes.state(self._node) == "T":
            await self._context.processes.resume(self._node)

    async def probe_healed(self) -> Observation:
        state = self._context.processes.state(self._node)
        answer = await self._context.system.status(self._node)
        says = "no answer" if answer is None else f"{answer.role} term {answer.term}"
        return Observation(
            seen=state != "T" and answer is not None and answer.leader is not None,
            evidence=f"{self._node}: process state {state}, {says}",
        )


SPEC = FaultSpec(
    name="pause",
    summary="SIGSTOP of a node, SIGCONT when the fault is healed",
    probe="process state T in /proc; healed when it answers and knows a leader",
    parts=frozenset({Part.PROCESSES}),
    make=Pause,
    parameters={"target": "leader"},
    choices={"target": ("leader", "follower", "any")},
)
