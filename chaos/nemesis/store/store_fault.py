"""The base of all faults of stores: a node is killed, its files are edited, the heal restarts it.

Place in the data path: the modules beside this one differ in their edits; `chaos.systems` has the
files.

Invariants: one node at a time, and only while all of its peers serve and have what it has: no last
good copy of committed data is ever damaged. A restart heals what peers can repair (decision 6). A
fault counts as taken where the bytes that are read back differ from what was there, while the
process is gone; as healed once the node serves again, and, where the damage was below what was
committed, once the bytes are the former ones.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, Observation
from chaos.nemesis.process.node_fault import NodeFault, target_nodes
from chaos.systems.base import StoreFiles

__all__ = ["LAG_MAX", "PAGE_SIZE", "Edit", "StoreFault", "data_end", "log_files", "require_copies"]

PAGE_SIZE: Final = 4096
LAG_MAX: Final = 200  # entries that a peer may lack and count as having all: it gets them anyway
LOG: Final = "commitlog/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Edit of a file: `before` at `offset` of the file; `repaired`: it must come back."""

    name: str
    offset: int
    before: bytes
    text: str
    repaired: bool = True


class StoreFault(NodeFault):
    """Damages the store of one node."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._edit: Edit | None = None

    @property
    def _files(self) -> StoreFiles:
        return self._context.stores.files(self._nodes[0])

    async def setup(self) -> None:
        await super().setup()
        require_copies(self._context, self._nodes[0])

    @abstractmethod
    def _damage(self, files: StoreFiles) -> Edit:
        """Edit the files. Raises FaultNotPossibleError where they hold too little."""

    async def inject(self) -> None:
        await self._context.processes.kill(self._nodes[0])
        self._edit = self._damage(self._files)

    async def probe(self) -> Observation:
        if self._edit is None:
            return Observation(seen=False, evidence="nothing was damaged yet")
        node, edit = self._nodes[0], self._edit
        if self._context.processes.state(node) != "gone":
            return Observation(seen=None, evidence=f"{node} runs, and may have repaired it")
        text = f"{node}: {edit.text} of {edit.name}"
        return Observation(seen=self._now() != edit.before, evidence=text)

    async def probe_healed(self) -> Observation:
        node = self._nodes[0]
        answer = await self._context.system.status(node)
        if answer is None or answer.leader is None or answer.phase != "serving":
            phase = "no answer" if answer is None else answer.phase
            state = self._context.processes.state(node)
            return Observation(seen=False, evidence=f"{node}: process {state}, {phase}")
        text = f"{node}: {answer.role} term {answer.term}, serving"
        if self._edit is None or not self._edit.repaired:
            return Observation(seen=True, evidence=text)
        same = self._now() == self._edit.before
        words = "are the former ones" if same else "are not what they were"
        return Observation(seen=same, evidence=f"{text}; the bytes {words}")

    def _now(self) -> bytes | None:
        """Return what stands where the damage was made; None where the file is gone."""
        assert self._edit is not None
        try:
            return self._files.read(self._edit.name, self._edit.offset, len(self._edit.before))
        except FileNotFoundError:
            return None


def require_copies(context: FaultContext, node: str) -> None:
    """Check that every other member serves and has what is committed.

    Raises FaultNotPossibleError: the node may hold a last good copy.
    """
    others = [name for name in context.members() if name != node]
    statuses = context.statuses()
    commit = max((status.commit_index for status in statuses.values()), default=0)
    for name in others:
        status = statuses.get(name)
        if status is None or status.phase != "serving" or status.commit_index < commit - LAG_MAX:
            raise FaultNotPossibleError(
                f"{name} does not serve or lies behind: {node} may hold a last good copy"
            )
    if not others:
        raise FaultNotPossibleError(f"{node} holds the only copy")


def log_files(files: StoreFiles) -> list[str]:
    """Return the log's segments that hold data, in order."""
    names = [name for name in files.names() if name.startswith(LOG)]
    return [n for n in names if n.removeprefix(LOG).isdigit() and data_end(files, n)]


def data_end(files: StoreFiles, name: str) -> int:
    """Return the size of the file without the zeros of its preallocation."""
    return len(files.read(name, 0, files.size(name)).rstrip(b"\0"))
