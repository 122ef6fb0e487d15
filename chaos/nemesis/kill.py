"""Fault `kill`: SIGKILL to the leader, a follower, any node or all of them, and a later restart.

Nothing is flushed and no peer is notified. With `target = "all"` only what was fsynced comes back.

Effect probe: the process is gone from /proc. Healed when it runs again and answers with a known
leader. Source: Jepsen's kill nemesis.
"""

from __future__ import annotations

import asyncio

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.systems.base import Part

__all__ = ["SPEC", "Kill"]


class Kill:
    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._nodes: list[str] = []

    @property
    def targets(self) -> list[str]:
        return list(self._nodes)

    async def setup(self) -> None:
        target = str(self._context.params["target"])
        self._nodes = self._context.alive() if target == "all" else [self._context.pick(target)]
        if not self._nodes:
            raise FaultNotPossibleError(f"{self._context.group} has no live node")

    async def inject(self) -> None:
        await asyncio.gather(*(self._context.processes.kill(node) for node in self._nodes))

    async def probe(self) -> Observation:
        states = {node: self._context.processes.state(node) for node in self._nodes}
        text = ", ".join(f"{node}: process {state}" for node, state in states.items())
        return Observation(seen=all(state == "gone" for state in states.values()), evidence=text)

    async def heal(self) -> None:
        for node in self._nodes:
            if self._context.processes.state(node) == "gone":
                await self._context.processes.restart(node)

    async def probe_healed(self) -> Observation:
        answers = await asyncio.gather(*(self._context.system.status(n) for n in self._nodes))
        text = ", ".join(
            f"{node}: " + ("no answer" if answer is None else f"{answer.role} term {answer.term}")
            for node, answer in zip(self._nodes, answers, strict=True)
        )
        seen = all(answer is not None and answer.leader is not None for answer in answers)
        return Observation(seen=seen, evidence=text)


SPEC = FaultSpec(
    name="kill",
    summary="kill -9 of a node, restarted when the fault is healed",
    probe="the process is gone from /proc; healed when it answers and knows a leader",
    parts=frozenset({Part.PROCESSES}),
    make=Kill,
    parameters={"target": "leader"},
    choices={"target": ("leader", "follower", "any", "all")},
)
