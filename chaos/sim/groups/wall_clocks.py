"""Brokers with a wrong wall clock, and by how much.

Place in the data path: `nemesis` lets clocks jump, `cluster` sets those of the start and of the
calm end. A group tolerates as many wrong clocks as dead nodes, so no more are wrong at a time:
before another one jumps, the one that has been wrong longest is set right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from chaos.sim.groups.broker_machine import BrokerMachine

__all__ = ["HOUR_MS", "WallClocks"]

HOUR_MS: Final = 3_600_000
_JUMPS_MS: Final = (5_000, 200_000, 600_000, HOUR_MS, 2 * HOUR_MS)


class WallClocks:
    def __init__(self, nodes: Sequence[BrokerMachine]) -> None:
        self._nodes = nodes
        self._right_ms = {node.name: node.clock.wall_offset_ms for node in nodes}
        self._wrong: list[BrokerMachine] = []  # the longest first

    def jump(self, node: BrokerMachine, jump_ms: int) -> None:
        """Set the node's clock off by `jump_ms` from now on."""
        if node in self._wrong:
            self._wrong.remove(node)
        elif len(self._wrong) == (len(self._nodes) - 1) // 2:
            if not self._wrong:
                return  # the group needs every clock
            self.set_right(self._wrong[0])
        self._wrong.append(node)
        node.clock.wall_offset_ms = self._right_ms[node.name] + jump_ms

    def set_right(self, node: BrokerMachine) -> None:
        if node in self._wrong:
            self._wrong.remove(node)
        node.clock.wall_offset_ms = self._right_ms[node.name]

    def jump_some(self, rng: random.Random) -> str:
        """Let one more clock jump, or set one right; return a text for the trace."""
        if self._wrong and rng.random() < 0.4:
            node = rng.choice(self._wrong)
            self.set_right(node)
            return f"{node.name} back"
        node = rng.choice(self._nodes)
        jump_ms = int(rng.choice(_JUMPS_MS) * (0.5 + 0.5 * rng.random())) * rng.choice((1, -1))
        self.jump(node, jump_ms)
        return f"{node.name} {jump_ms}ms"
