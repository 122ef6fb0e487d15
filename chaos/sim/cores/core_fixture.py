"""The parts that a simulated node is built from, and the surroundings that it sees.

Place in the data path: `chaos.sim.cores.cluster` is the one `World`; `chaos.sim.cores.node` sees it
through this protocol. `Parts` is where a test puts a substitute with a bug: the product's own parts
have no code for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from chaos.sim.cores.client_checker import ClientChecker
from chaos.sim.cores.invariants import Invariants
from chaos.sim.cores.network import Network
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.trace import Trace
from chaos.sim.seed.core_options import SimOptions
from chaos.sim.seed.coverage import Coverage
from raft.core.core import Core
from raft.log.segment_log import SegmentLog
from raft.messages import Message, NodeId

__all__ = ["Parts", "World", "message_line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a node: the product's own, or a test's substitutes with a bug."""

    core: type[Core] = Core
    log: type[SegmentLog] = SegmentLog


class World(Protocol):
    """The surroundings of a node; `chaos.sim.cores.cluster` implements it."""

    options: SimOptions
    parts: Parts
    scheduler: Scheduler
    network: Network
    invariants: Invariants
    checker: ClientChecker
    coverage: Coverage
    trace: Trace

    def send(self, message: Message) -> None:
        """Send a message over the network, between the stores that sender and receiver have now."""

    def on_death(self, name: NodeId) -> None:
        """Report that the node died by itself; the nemesis may restart it."""


def message_line(message: Message) -> str:
    """Return the message as one line of a trace."""
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in {"sender", "receiver"}:
            continue
        if name == "entries":
            value = f"[{', '.join(f'{entry.index}@{entry.term}' for entry in value)}]"
        fields.append(f"{name}={value}")
    return f"{message.sender}->{message.receiver} {type(message).__name__} {' '.join(fields)}"
