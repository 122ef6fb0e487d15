"""Processes that are restarted again and again: storms, rolling restarts, a hunt for leaders.

Place in the data path: as `chaos.nemesis.process.node_fault`. At most one node is down at a time:
the next is taken once the one before answers.

Effect: each restart is counted where the process was seen gone and a new one runs. Source: Jepsen's
hammer-time; etcd's robustness tests (kill while recovering); Kubernetes' rolling updates.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.nemesis.base import FaultContext, FaultSpec, Observation
from chaos.nemesis.process.node_fault import (
    ANSWER_POLL_S,
    Campaign,
    await_answer,
    await_true,
    choose_nodes,
    target_nodes,
)
from chaos.systems.base import Part

__all__ = ["SPECS", "ChaseLeader", "KillInRecovery", "RestartStorm", "RollingRestart"]

BACK_TIMEOUT_S: Final = 30.0
TERMINATE_TIMEOUT_S: Final = 15.0
RECOVERY_POLL_S: Final = 0.005
CHASED_MIN: Final = 2
_PARTS: Final = frozenset({Part.PROCESSES})
_TARGET: Final = {"target": ("leader", "follower", "any")}


class RestartStorm(Campaign):
    """Kills a node and starts it again, `rounds` times, each `pause_ms` after its start."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._restarts = 0

    async def _act(self) -> None:
        processes, node = self._context.processes, self._nodes[0]
        for _ in range(int(self._context.params["rounds"])):
            await processes.kill(node)
            gone = processes.state(node) == "gone"
            await processes.restart(node)
            self._restarts += gone and processes.state(node) != "gone"
            await asyncio.sleep(float(self._context.params["pause_ms"]) / 1000)

    def _observed(self) -> Observation:
        wanted = int(self._context.params["rounds"])
        text = f"{self._nodes[0]} was killed and started {self._restarts} of {wanted} times"
        return Observation(seen=self._restarts >= max(1, wanted), evidence=text)


class KillInRecovery(Campaign):
    """Kills a node, and kills it again before it serves, `rounds` times."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._phases: list[str] = []

    async def _act(self) -> None:
        context, node = self._context, self._nodes[0]
        await context.processes.kill(node)
        for _ in range(int(context.params["rounds"])):
            await context.processes.restart(node)
            phase = await self._await_recovery(node)
            if phase is not None:
                self._phases.append(phase)
            await context.processes.kill(node)
        await context.processes.restart(node)

    async def _await_recovery(self, node: str) -> str | None:
        """Wait until the node is between its start and its service; None: it was too quick.

        Of a process whose store can't be seen only its phase tells.
        """
        context = self._context
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BACK_TIMEOUT_S
        while loop.time() < deadline:
            is_open = context.processes.has_opened_store(node)
            if is_open:
                return "its store was just opened"
            if is_open is None:
                answer = await context.system.status(node)
                if answer is not None:
                    return answer.phase if answer.phase != "serving" else None
            await asyncio.sleep(context.rng.uniform(0, RECOVERY_POLL_S))
        return None

    def _observed(self) -> Observation:
        wanted = int(self._context.params["rounds"])
        text = f"{self._nodes[0]} was killed again in: {', '.join(self._phases) or 'no phase seen'}"
        if self._task is not None and self._task.done() and not self._phases:
            return Observation(seen=None, evidence=text)
        return Observation(seen=len(self._phases) >= max(1, wanted), evidence=text)


class RollingRestart(Campaign):
    """Terminates and starts every node of the group, one after the other."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, lambda context: choose_nodes(context, "all"))
        self._back: list[str] = []

    async def _act(self) -> None:
        processes = self._context.processes
        for node in self._nodes:
            await processes.terminate(node, timeout_s=TERMINATE_TIMEOUT_S)
            gone = processes.state(node) == "gone"
            await processes.restart(node)
            if await await_answer(self._context, node, timeout_s=BACK_TIMEOUT_S) and gone:
                self._back.append(node)

    def _observed(self) -> Observation:
        text = f"restarted and back: {', '.join(self._back) or 'none'} of {len(self._nodes)}"
        return Observation(seen=len(self._back) == len(self._nodes), evidence=text)


class ChaseLeader(Campaign):
    """Kills each new leader as soon as it leads; the one before it has come back by then."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, lambda context: choose_nodes(context, "all"))
        self._killed: list[str] = []

    async def setup(self) -> None:
        await super().setup()
        self._context.require_leader()

    async def _act(self) -> None:
        context = self._context
        while True:
            leader = context.leader(context.group)
            if leader is None or context.processes.state(leader) == "gone":
                await asyncio.sleep(ANSWER_POLL_S)
                continue
            await context.processes.kill(leader)
            if context.processes.state(leader) == "gone":
                self._killed.append(leader)
            # Down until there is another leader: the next kill is of that one.
            former = {leader, None}
            await await_true(lambda: context.leader(context.group) not in former)  # noqa: B023
            await context.processes.restart(leader)
            await await_answer(context, leader, timeout_s=BACK_TIMEOUT_S)
            await asyncio.sleep(ANSWER_POLL_S)

    def _observed(self) -> Observation:
        text = f"leaders killed: {', '.join(self._killed) or 'none'}"
        return Observation(seen=len(self._killed) >= CHASED_MIN, evidence=text)


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="restart-storm",
        summary="a node is killed and started again, many times in a row",
        probe="the process was seen gone, and a new one running, in each round",
        parts=_PARTS,
        make=RestartStorm,
        seen_elsewhere="FoundationDB, OpenChaos",
        parameters={"target": "any", "rounds": 5, "pause_ms": 300},
        choices=_TARGET,
        effect_timeout_s=30.0,
    ),
    FaultSpec(
        name="kill-in-recovery",
        summary="a node is killed, and killed again while it recovers from that",
        probe="its store was just opened, or its phase not serving, when it was killed again",
        parts=_PARTS,
        make=KillInRecovery,
        seen_elsewhere="etcd, FoundationDB",
        parameters={"target": "any", "rounds": 2},
        choices=_TARGET,
        effect_timeout_s=40.0,
    ),
    FaultSpec(
        name="rolling-restart",
        summary="every node is terminated and started, the next once the one before answers",
        probe="each process was seen gone, and answers again with a known leader",
        parts=_PARTS,
        make=RollingRestart,
        roves=True,
        seen_elsewhere="Redpanda, CockroachDB",
        effect_timeout_s=120.0,
    ),
    FaultSpec(
        name="chase-leader",
        summary="each new leader is killed; the one before it has come back by then",
        probe="two leaders or more were seen gone, one after the other",
        parts=_PARTS,
        make=ChaseLeader,
        roves=True,
        seen_elsewhere="CockroachDB, Jepsen",
        effect_timeout_s=40.0,
    ),
)
