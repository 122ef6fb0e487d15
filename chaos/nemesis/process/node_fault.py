"""The base of all faults of processes: chosen nodes, and a heal that brings all of them back.

Place in the data path: the modules beside this one, and those of edited stores, differ in
what they do to the nodes.

Invariants: `heal` resumes what is stopped and restarts what is gone, whatever `inject` came to; a
node counts as healed once it answers and knows a leader, a name server once a broker's link to it
passes. A `Campaign` (something done over and over) runs as a task that `heal` ends first, and its
error is raised by the next probe.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias

from chaos.links.base import Link
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, Observation, links_pass

__all__ = [
    "ANSWER_POLL_S",
    "Campaign",
    "ChooseNodes",
    "NodeFault",
    "await_answer",
    "await_true",
    "choose_nodes",
    "name_servers",
    "target_nodes",
]

ANSWER_POLL_S: Final = 0.05
ChooseNodes: TypeAlias = Callable[[FaultContext], list[str]]


class NodeFault(ABC):
    """A fault of some processes. `choose` raises FaultNotPossibleError where there are none."""

    def __init__(self, context: FaultContext, choose: ChooseNodes) -> None:
        self._context = context
        self._choose = choose
        self._nodes: list[str] = []

    @property
    def targets(self) -> list[str]:
        return list(self._nodes)

    async def setup(self) -> None:
        self._nodes = self._choose(self._context)

    @abstractmethod
    async def inject(self) -> None: ...

    @abstractmethod
    async def probe(self) -> Observation: ...

    async def heal(self) -> None:
        for node in self._nodes:
            state = self._context.processes.state(node)
            if state == "T":
                await self._context.processes.resume(node)
            elif state == "gone":
                await self._context.processes.restart(node)

    async def probe_healed(self) -> Observation:
        states = {node: self._context.processes.state(node) for node in self._nodes}
        down = [f"{node}: process {s}" for node, s in states.items() if s in {"gone", "T", "Z"}]
        if down:
            return Observation(seen=False, evidence=", ".join(down))
        servers = [node for node in self._nodes if node in name_servers(self._context)]
        brokers = [node for node in self._nodes if node not in servers]
        answers = await asyncio.gather(*(self._context.system.status(n) for n in brokers))
        text = [
            f"{node}: " + ("no answer" if answer is None else f"{answer.role} term {answer.term}")
            for node, answer in zip(brokers, answers, strict=True)
        ]
        seen: bool | None = all(a is not None and a.leader is not None for a in answers)
        if servers:
            dialer = self._context.members()[0]
            links = [Link(who=dialer, whom=server) for server in servers]
            observed = await links_pass(self._context.world, links)
            text.append(observed.evidence)
            seen = observed.seen if seen else seen
        return Observation(seen=seen, evidence=", ".join(text))

    def _states(self) -> str:
        return ", ".join(f"{n}: process {self._context.processes.state(n)}" for n in self._nodes)


class Campaign(NodeFault):
    """Something done over and over; `_act` does it until it is cancelled, or returns."""

    def __init__(self, context: FaultContext, choose: ChooseNodes) -> None:
        super().__init__(context, choose)
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _act(self) -> None: ...

    @abstractmethod
    def _observed(self) -> Observation:
        """Return what was seen of it so far."""

    async def inject(self) -> None:
        self._task = asyncio.create_task(self._act(), name=f"{self._context.tag} acts")

    async def probe(self) -> Observation:
        if self._task is None:
            return Observation(seen=False, evidence="it has not begun")
        if self._task.done():
            await self._task  # raises what ended it
        return dataclasses.replace(self._observed(), final=self._task.done())

    async def heal(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await super().heal()

    async def probe_healed(self) -> Observation:
        if self._task is None or not self._task.done():
            return Observation(seen=False, evidence="it goes on")
        return await super().probe_healed()


def target_nodes(context: FaultContext) -> list[str]:
    """Return the nodes that the parameter `target` asks for."""
    return choose_nodes(context, str(context.params["target"]))


def choose_nodes(context: FaultContext, target: str) -> list[str]:
    """Return live nodes: "leader", "follower" or "any" one, or a random "minority", "majority" or
    "all" of the group. Raises FaultNotPossibleError where there are too few."""
    if target in {"leader", "follower", "any"}:
        return [context.pick(target)]
    alive, count = context.alive(), len(context.members())
    wanted = {"minority": (count - 1) // 2, "majority": count // 2 + 1, "all": len(alive)}[target]
    if not 0 < wanted <= len(alive):
        raise FaultNotPossibleError(
            f"{context.group} has {len(alive)} live nodes of {count}, and no {target} to choose"
        )
    return context.rng.sample(alive, wanted)


def name_servers(context: FaultContext) -> list[str]:
    return [place.name for place in context.world.layout.name_servers]


async def await_true(check: Callable[[], bool]) -> None:
    """Wait until the check holds; the task that waits is cancelled where it never does."""
    while True:
        if check():
            return
        await asyncio.sleep(ANSWER_POLL_S)


async def await_answer(context: FaultContext, node: str, *, timeout_s: float) -> bool:
    """Wait until the node answers and knows a leader; False where it does not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while loop.time() < deadline:
        answer = await context.system.status(node)
        if answer is not None and answer.leader is not None:
            return True
        await asyncio.sleep(ANSWER_POLL_S)
    return False
