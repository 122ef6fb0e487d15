"""Disks that are wiped, restored from an old copy, or another node's.

Place in the data path: as `chaos.nemesis.store.store_fault`, for whole stores. A wiped voter says
so and waits: an operator removes it and adds it again (decision 7), and so does the heal here; a
lost master whose group elects nobody is replaced by its slave with the longest log (decision 28). A
store of another node must not be taken for one's own; the heal puts the former one back. A store
from an old copy has forgotten what it acknowledged, which Raft has no word for: a leader that knows
of the acknowledgement sends nothing older, so that member is replaced, too.

Invariants: as there: one node at a time, only while all others serve and have what is committed.

Source: decision 7; Alagappan et al. (FAST '18); Jepsen's restored snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import NodeFault, await_answer, target_nodes
from chaos.nemesis.store.store_fault import LAG_MAX, require_copies
from chaos.systems.base import Part

__all__ = ["SPECS", "ForeignDisk", "OldCopy", "WipedStore"]

BACK_TIMEOUT_S: Final = 30.0
ADVANCE_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.1
IDENTITY: Final = "identity"


class _DiskFault(NodeFault):
    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)

    async def setup(self) -> None:
        await super().setup()
        require_copies(self._context, self._nodes[0])

    async def probe_healed(self) -> Observation:
        node = self._nodes[0]
        answer = await self._context.system.status(node)
        if answer is None or answer.leader is None or answer.phase != "serving":
            phase = "no answer" if answer is None else answer.phase
            return Observation(seen=False, evidence=f"{node}: {phase}")
        known = (status.commit_index for status in self._context.statuses().values())
        behind = max(known, default=0) - answer.commit_index
        text = f"{node}: {answer.role} term {answer.term}, serving, {max(0, behind)} entries behind"
        return Observation(seen=behind <= LAG_MAX, evidence=text)

    async def _replace(self) -> None:
        """Give the node an empty store and bring it back, as an operator does."""
        await self._context.replacements.replace(self._nodes[0], self._context.statuses())


class WipedStore(_DiskFault):
    """Removes every file of the node, and starts it if it then must take part in nothing.

    A configured master would serve anew from an empty store; it stays down until it is replaced.
    """

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._injected = False

    async def inject(self) -> None:
        node = self._nodes[0]
        await self._context.processes.kill(node)
        self._injected = True
        self._context.stores.files(node).restore_all({})
        if self._context.replacements.starts_empty:
            await self._context.processes.restart(node)

    async def probe(self) -> Observation:
        node = self._nodes[0]
        if self._injected and not self._context.replacements.starts_empty:
            files = len(self._context.stores.files(node).names())
            state = self._context.processes.state(node)
            text = f"{node}: process {state}, {files} files in its store"
            return Observation(seen=state == "gone" and not files, evidence=text)
        answer = await self._context.system.status(node)
        if not self._injected or answer is None:
            return Observation(seen=False, evidence=f"{node}: no answer on an empty store yet")
        text = f"{node}: phase {answer.phase}, last index {answer.last_index}"
        return Observation(seen=answer.phase == "unborn", evidence=text)

    async def heal(self) -> None:
        if self._injected:
            await self._replace()


class OldCopy(_DiskFault):
    """Copies the store of the stopped node, lets it advance, and puts the copy back."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._copied = 0
        self._advanced = 0
        self._restored = False

    async def inject(self) -> None:
        context, node = self._context, self._nodes[0]
        await context.processes.kill(node)
        files = context.stores.files(node)
        copy = files.copy_all()
        self._copied = self._last_index(node)
        await context.processes.restart(node)
        await await_answer(context, node, timeout_s=BACK_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ADVANCE_TIMEOUT_S
        wanted = self._copied + int(context.params["entries"])
        while True:
            last = await self._last_answered(node)
            if last >= wanted or loop.time() >= deadline:
                break
            await asyncio.sleep(POLL_S)
        await context.processes.kill(node)
        self._advanced = last
        files.restore_all(copy)
        self._restored = True
        await context.processes.restart(node)

    async def _last_answered(self, node: str) -> int:
        answer = await self._context.system.status(node)
        return 0 if answer is None else answer.last_index

    def _last_index(self, node: str) -> int:
        status = self._context.statuses().get(node)
        return 0 if status is None else status.last_index

    async def probe(self) -> Observation:
        node = self._nodes[0]
        text = f"{node} had entry {self._advanced}, its store is of entry {self._copied}"
        if self._restored and (answer := await self._context.system.status(node)) is not None:
            text += f"; now it has entry {answer.last_index}, {answer.phase}"
        return Observation(seen=self._restored and self._advanced > self._copied, evidence=text)

    async def heal(self) -> None:
        if self._restored:
            await self._replace()
        else:
            await super().heal()


class ForeignDisk(_DiskFault):
    """Starts the node on a copy of another node's store."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._own: Mapping[str, bytes] | None = None
        self._other = ""

    async def setup(self) -> None:
        await super().setup()
        others = [name for name in self._context.members() if name != self._nodes[0]]
        self._other = self._context.rng.choice(others)

    async def inject(self) -> None:
        context, node = self._context, self._nodes[0]
        await context.processes.kill(node)
        files = context.stores.files(node)
        own = files.copy_all()
        if IDENTITY not in own:
            raise FaultNotPossibleError(f"{node} has no identity yet")
        self._own = own
        files.restore_all(context.stores.files(self._other).copy_all())
        await context.processes.restart(node)

    async def probe(self) -> Observation:
        node = self._nodes[0]
        if self._own is None:
            return Observation(seen=False, evidence="its own disk is there")
        now = self._context.stores.files(node).copy_all().get(IDENTITY)
        state = self._context.processes.state(node)
        text = f"{node} has the disk of {self._other}: process {state}"
        return Observation(seen=now is not None and now != self._own[IDENTITY], evidence=text)

    async def heal(self) -> None:
        node = self._nodes[0]
        if self._own is not None:
            if self._context.processes.state(node) != "gone":
                await self._context.processes.kill(node)
            self._context.stores.files(node).restore_all(self._own)
            self._own = None
        await super().heal()


_PARTS: Final = frozenset({Part.PROCESSES, Part.STORES})
_TARGET: Final = {"target": ("leader", "follower", "any")}

SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="wiped-store",
        summary="every file of a killed node is gone; healed as an operator replaces a member",
        probe="it answers with an empty store and takes no part (a configured master or slave: is"
        " gone, and its store empty); healed when it serves with what its group has",
        parts=_PARTS | {Part.REPLACEMENTS},
        make=WipedStore,
        seen_elsewhere="Redpanda, TigerBeetle",
        parameters={"target": "follower"},
        choices=_TARGET,
        effect_timeout_s=20.0,
    ),
    FaultSpec(
        name="old-copy",
        summary="a node's store is restored from an old copy; healed by replacing the member",
        probe="its last index had passed that of the copy; healed when it serves as a voter",
        parts=_PARTS | {Part.MEMBERS, Part.REPLACEMENTS},
        make=OldCopy,
        seen_elsewhere="Jepsen",
        parameters={"target": "follower", "entries": 20},
        choices=_TARGET,
        effect_timeout_s=10.0,
    ),
    FaultSpec(
        name="foreign-disk",
        summary="a node is started on a copy of another node's disk; healed by its own disk",
        probe="the identity in its store is another one; healed when it serves on its own",
        parts=_PARTS,
        make=ForeignDisk,
        seen_elsewhere="this project",
        parameters={"target": "follower"},
        choices=_TARGET,
        effect_timeout_s=10.0,
    ),
)
