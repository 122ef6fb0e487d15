"""Clients that propose and read, mostly at leaders, also at nodes that only believe they lead.

Place in the data path: acts on `SimNode`s through the scheduler; the answers end in
`client_checker`. A client never repeats a proposal, so each may be committed at most once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from chaos.sim.cores.client_checker import ClientChecker
from chaos.sim.cores.invariants import Invariants
from chaos.sim.cores.node import SimNode
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.seed.core_options import SimOptions
from chaos.sim.seed.coverage import Coverage

__all__ = ["Workload"]


class Workload:
    def __init__(
        self,
        *,
        options: SimOptions,
        nodes: Sequence[SimNode],
        scheduler: Scheduler,
        invariants: Invariants,
        checker: ClientChecker,
        coverage: Coverage,
    ) -> None:
        self._options = options
        self._nodes = nodes
        self._scheduler = scheduler
        self._invariants = invariants
        self._checker = checker
        self._counts = coverage.counts
        self._rng = random.Random(f"workload/{options.seed}/{options.node_count}")
        self.running = True
        self._leader: SimNode | None = None
        self._find_leader_at_us = 0

    def start(self) -> None:
        self._schedule_proposals()
        self._schedule_reads()

    def propose_once(self, node: SimNode) -> None:
        rng = self._rng
        padding = rng.randbytes(int(rng.random() * self._options.payload_size_max))
        node.requests.propose(self._checker.new_payload(padding))

    def _schedule_proposals(self) -> None:
        delay_us = int(self._options.propose_interval_us * 2 * self._rng.random()) + 1
        self._scheduler.after(delay_us, self._propose)

    def _propose(self) -> None:
        if not self.running:
            return
        leaders = [node for node in self._nodes if node.leads]
        if leaders and self._options.clients_stick_us:
            leaders = self._followed(leaders)
        # Otherwise every node that believes it leads is used: a deposed one must not acknowledge.
        top_term = max((node.term for node in self._nodes if node.leads), default=0)
        for node in leaders:
            self._counts["proposals_at_stale_leaders"] += node.term < top_term
            burst = 1 + int(self._rng.random() * self._options.propose_burst_max)
            for _ in range(burst):
                if node.alive and node.open_count < self._options.proposals_open_max:
                    self.propose_once(node)
        self._schedule_proposals()

    def _followed(self, leaders: list[SimNode]) -> list[SimNode]:
        """Return the leaders that clients use now.

        Clients stay with a leader for as long as it leads, and then take a while to find the next
        one: an isolated leader's log grows while its successor's does not.
        """
        if self._leader in leaders:
            return [self._leader]
        now_us = self._scheduler.now_us
        if self._leader is not None:
            self._leader = None
            delay_us = self._rng.random() * self._options.clients_stick_us
            self._find_leader_at_us = now_us + int(delay_us)
        if now_us < self._find_leader_at_us:
            return []
        self._leader = max(leaders, key=lambda node: node.term)
        return [self._leader]

    def _schedule_reads(self) -> None:
        delay_us = int(self._options.read_interval_us * 2 * self._rng.random()) + 1
        self._scheduler.after(delay_us, self._read)

    def _read(self) -> None:
        if not self.running:
            return
        for node in self._nodes:
            if node.leads or self._rng.random() < 0.1:
                node.requests.read(self._checker.new_read(self._invariants.committed_index))
        self._schedule_reads()
