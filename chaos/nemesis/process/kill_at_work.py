"""Processes killed in the middle of a snapshot: while it is written, or while one is received.

Place in the data path: as `chaos.nemesis.process.node_fault`. A snapshot is drafted as
`snapshots/*.tmp` and renamed when it is whole (docs/FORMATS.md section 14): the node is killed when
a draft is seen in its store.

Effect: the draft is still there once the process is gone. Where the node was quicker in every
round, nothing is claimed.

Source: etcd's failpoints around snapshots (raftBeforeSave, beforeApplySnapshot), from outside.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import Campaign, await_answer, await_true, target_nodes
from chaos.systems.base import Part

__all__ = ["SPECS", "KillInInstall", "KillInSnapshot"]

ROUNDS_MAX: Final = 6
DRAFT_TIMEOUT_S: Final = 8.0
BACK_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.0005
INCOMING: Final = "snapshots/incoming.tmp"


def _drafts(context: FaultContext, node: str, *, incoming: bool) -> list[str]:
    names = context.stores.files(node).names()
    return [
        name
        for name in names
        if name.startswith("snapshots/")
        and name.endswith(".tmp")
        and (name == INCOMING) is incoming
    ]


class KillInSnapshot(Campaign):
    """Terminates a node, which writes a last snapshot, and kills it at the draft of that."""

    incoming = False

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._left: list[str] = []
        self._rounds = 0

    async def _act(self) -> None:
        context, node = self._context, self._nodes[0]
        for _ in range(ROUNDS_MAX):
            self._rounds += 1
            await self._kill_at_draft(node)
            self._left = _drafts(context, node, incoming=self.incoming)
            if self._left:
                return  # the node stays down until the heal
            await context.processes.restart(node)
            await await_answer(context, node, timeout_s=BACK_TIMEOUT_S)

    async def _kill_at_draft(self, node: str) -> None:
        context = self._context
        ending = asyncio.create_task(
            context.processes.terminate(node, timeout_s=DRAFT_TIMEOUT_S), name="terminate"
        )
        try:
            while not ending.done():
                if _drafts(context, node, incoming=self.incoming):
                    if context.processes.state(node) != "gone":
                        await context.processes.kill(node)
                    break
                await asyncio.sleep(POLL_S)
        finally:
            await ending

    def _observed(self) -> Observation:
        node = self._nodes[0]
        if self._left:
            text = f"{node} is gone and left {', '.join(self._left)}, in round {self._rounds}"
            return Observation(seen=True, evidence=text)
        ended = self._task is not None and self._task.done()
        text = f"no draft was left in {self._rounds} rounds: {node} was quicker"
        return Observation(seen=None if ended else False, evidence=text)


class KillInInstall(KillInSnapshot):
    """Kills a follower, waits until the leader's log begins behind it, and kills it again when
    the leader's snapshot arrives."""

    incoming = True

    async def setup(self) -> None:
        leader = self._context.require_leader()
        status = self._context.statuses().get(leader)
        if status is None or status.first_index <= 1:
            raise FaultNotPossibleError(
                f"{leader} still has its whole log, so that nobody is sent a snapshot"
            )
        await super().setup()
        if self._nodes == [leader]:
            raise FaultNotPossibleError("a leader is sent no snapshot: choose a follower")

    async def _kill_at_draft(self, node: str) -> None:
        context = self._context
        loop = asyncio.get_running_loop()
        last = context.statuses()[node].last_index if node in context.statuses() else 0
        await context.processes.kill(node)
        await await_true(lambda: self._lies_behind(last))
        await context.processes.restart(node)
        deadline = loop.time() + BACK_TIMEOUT_S
        while loop.time() < deadline:
            if _drafts(context, node, incoming=True):
                break
            await asyncio.sleep(POLL_S)
        await context.processes.kill(node)

    def _lies_behind(self, last: int) -> bool:
        leader = self._context.leader(self._context.group)
        status = self._context.statuses().get(leader or "")
        return status is not None and status.first_index > last + 1


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="kill-in-snapshot",
        summary="a node is killed while it writes a snapshot",
        probe="the snapshot's draft is in the store of the process that is gone",
        parts=frozenset({Part.PROCESSES, Part.STORES}),
        make=KillInSnapshot,
        seen_elsewhere="etcd",
        parameters={"target": "follower"},
        choices={"target": ("leader", "follower", "any")},
        effect_timeout_s=60.0,
    ),
    FaultSpec(
        name="kill-in-install",
        summary="a follower that lies behind the leader's log is killed as it gets a snapshot",
        probe="the incoming snapshot's draft is in the store of the process that is gone",
        parts=frozenset({Part.PROCESSES, Part.STORES}),
        make=KillInInstall,
        seen_elsewhere="etcd",
        parameters={"target": "follower"},
        choices={"target": ("follower",)},
        effect_timeout_s=60.0,
    ),
)
