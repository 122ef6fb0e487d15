"""One seed from beginning to end: a cluster, its faults, its clients, and the checks on it.

Place in the data path: `campaign` makes one per seed and calls `run`.

Phases, on virtual time:
1. safety: faults as drawn, while every step is checked by `invariants`;
2. liveness: faults end. A majority, drawn at random, is healthy; the others stay down or cut off
   for good. It must elect a leader and commit a new entry within LIVENESS_TIMEOUTS_MAX election
   timeouts (the longest that the configuration allows, on the slowest clock). A node that was
   stopping cleanly when the faults ended finishes stopping, and is started again;
3. convergence: all nodes run again, and within the same time each has applied the whole log; then a
   voter, drawn at random, is asked to lead and does so, within the same time again; then the log is
   compared with every answer that clients received.

Source: the two phases of TigerBeetle's VOPR.
"""

from __future__ import annotations

import logging
import random
from functools import partial

from chaos.sim.cores.client_checker import ClientChecker
from chaos.sim.cores.core_fixture import Parts
from chaos.sim.cores.invariants import Invariants
from chaos.sim.cores.membership_nemesis import MembershipNemesis
from chaos.sim.cores.network import Network, Sent
from chaos.sim.cores.node import SimNode
from chaos.sim.cores.store import store_of_disk
from chaos.sim.cores.workload import Workload
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.trace import Trace
from chaos.sim.machine.violation import Violation
from chaos.sim.seed.core_options import SimOptions, core_schedule
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.schedule import Schedule, options_of
from raft.membership import Configuration, Member, make_membership
from raft.messages import Message, NodeId

__all__ = ["LIVENESS_TIMEOUTS_MAX", "SimCluster"]

LIVENESS_TIMEOUTS_MAX = 12
"""Election timeouts within which a healthy majority has a leader and a new committed entry."""


class SimCluster:
    """The cluster of one seed; implements `chaos.sim.cores.core_fixture.World`."""

    def __init__(
        self,
        options: SimOptions,
        *,
        parts: Parts | None = None,
        schedule: Schedule | None = None,
        traced: bool,
    ) -> None:
        """Build the cluster; `schedule` replaces the faults that the seed would draw."""
        if schedule is not None:
            options = options_of(schedule, options)
        self.options = options
        self.parts = parts or Parts()
        self.scheduler = Scheduler()
        self.coverage = Coverage()
        self.trace = Trace(self.scheduler, on=traced)
        count = options.node_count + options.spare_count
        names = tuple(NodeId(f"n{number}") for number in range(count))
        voters = names[: options.node_count]
        # A node that starts without a configuration has a store older than the names of stores.
        learners = names[len(voters) : len(voters) + options.learner_count]
        first = make_membership(
            (_first_member(name, options) for name in voters),
            (_first_member(name, options) for name in learners),
        )
        self.invariants = Invariants({name: store_of_disk(name, 1) for name in names}, first)
        self.checker = ClientChecker(self.coverage)
        # A healthy network is quick beside an election timeout (Raft 5.6).
        self._calm_delay_us = max(100, options.election_timeout_ms_min * 1000 // 20)
        self._rng = random.Random(f"cluster/{options.seed}/{options.node_count}")
        self.network = Network(
            options=options,
            nodes=names,
            rng=random.Random(f"network/{options.seed}/{options.node_count}"),
            scheduler=self.scheduler,
            coverage=self.coverage,
            trace=self.trace,
            deliver=self._deliver,
            unreachable=self._unreachable,
        )
        begun = Configuration(index=0, membership=first) if options.first_is_written else None
        self.nodes = [
            SimNode(self, name, voters, begun, is_member=first.member(name) is not None)
            for name in names
        ]
        self._by_name = {node.name: node for node in self.nodes}
        self.schedule = schedule or core_schedule(options)
        self._nemesis = MembershipNemesis(
            invariants=self.invariants,
            times=options,
            schedule=self.schedule,
            nodes=self.nodes,
            scheduler=self.scheduler,
            network=self.network,
            coverage=self.coverage,
            trace=self.trace,
        )
        self._workload = Workload(
            options=options,
            nodes=self.nodes,
            scheduler=self.scheduler,
            invariants=self.invariants,
            checker=self.checker,
            coverage=self.coverage,
        )
        self._to_stay: list[SimNode] = []  # nodes that are restarted if they die from here on

    def describe(self) -> list[str]:
        return self.options.describe()

    def run(self) -> None:
        """Run the three phases. Raises Violation."""
        logging.disable(logging.CRITICAL)  # what the product logs about each fault
        try:
            self._run()
        finally:
            logging.disable(logging.NOTSET)

    def _run(self) -> None:
        for node in self.nodes:
            if node.is_member:
                node.start()
        self._workload.start()
        self._nemesis.start()
        self.scheduler.run_until(self.options.fault_time_us)
        self._nemesis.stop()
        self.trace.add("sim", "faults end")
        healthy = self._heal()
        self._check_progress(healthy)
        self._check_convergence()
        self._check_takeover()
        self.checker.check_final(
            self.invariants.committed_payloads, self.invariants.committed_kinds
        )
        self.coverage.counts["virtual_ms"] += self.scheduler.now_us // 1000

    # --- World, and callbacks of the network ---------------------------------------------------

    def send(self, message: Message) -> None:
        sender, receiver = self._by_name[message.sender], self._by_name[message.receiver]
        self.network.send(Sent(message, sender.store_id, receiver.store_id))

    def on_death(self, name: NodeId) -> None:
        node = self._by_name[name]
        self._nemesis.on_death(node)
        if node in self._to_stay:  # a clean stop was under way when the faults ended
            self.scheduler.after(1, partial(self._come_back, node))

    @staticmethod
    def _come_back(node: SimNode) -> None:
        if not node.alive and node.is_member and not node.is_wiped:
            node.start()

    def _deliver(self, sent: Sent) -> None:
        receiver = self._by_name[sent.message.receiver]
        if receiver.store_id == sent.receiver_store:
            receiver.requests.receive(sent.message, sent.sender_store)

    def _unreachable(self, node: NodeId, peer: NodeId) -> None:
        self._by_name[node].peer_unreachable(peer)

    # --- the phases after the faults -----------------------------------------------------------

    def _deadline_us(self) -> int:
        """Return the liveness bound, plus the time to bring the shortest log up to the longest.

        That is one entry per exchange, which the smallest windows of the configuration allow.
        """
        options = self.options
        timeout_us = options.election_timeout_ms_max * 1000
        slowest = 1.0 + 2 * options.clock_rate_spread
        lasts = [node.log.last_index for node in self.nodes if node.alive]
        exchange_us = 2 * self._calm_delay_us + options.sync_us_max + options.timer_lateness_us_max
        catch_up_us = (max(lasts, default=0) - min(lasts, default=0)) * exchange_us
        return (
            self.scheduler.now_us + int(LIVENESS_TIMEOUTS_MAX * timeout_us * slowest) + catch_up_us
        )

    def _heal(self) -> list[SimNode]:
        """Heal a majority and return it; the rest stays as it is, cut off from the majority.

        It is a majority of the newest committed configuration, and all voters of an uncommitted one
        that may still replace it, for nobody knows which of the two will have to agree. A wiped
        voter does not count until it is added again.
        """
        voters = self.invariants.newest_membership.voter_ids
        usable = [node for node in self.nodes if node.name in voters and not node.is_wiped]
        count = self._rng.randint(len(voters) // 2 + 1, len(usable))
        healthy = self._rng.sample(usable, count)
        contested = self.invariants.contested_voters
        healthy += [
            node
            for node in self.nodes
            if node.name in contested and not node.is_wiped and node not in healthy
        ]
        self._to_stay = healthy
        self.network.calm(delay_us_max=self._calm_delay_us)
        for node in self.nodes:
            if node.alive and node.paused:
                node.resume()
        for node in self.nodes:
            if node in healthy:
                if not node.alive:
                    node.start()
                continue
            for other in healthy:
                self.network.cut(node.name, other.name)
                self.network.cut(other.name, node.name)
            if node.alive and self._rng.random() < 0.5:
                node.crash(power=True, survival=node.draw_survival())
        return healthy

    def _check_progress(self, healthy: list[SimNode]) -> None:
        """Check that a proposal made from now on is acknowledged while the workload goes on."""
        before = self.checker.acknowledged_count
        done = self.scheduler.run_until(
            self._deadline_us(),
            stop=lambda: (
                self.checker.acknowledged_count > before and any(node.is_ready for node in healthy)
            ),
        )
        if not done:
            states = ", ".join(
                f"{node.name} term {node.term} leads {node.leads}" for node in healthy
            )
            raise Violation(
                "liveness",
                f"the healthy majority has committed nothing new within {LIVENESS_TIMEOUTS_MAX} "
                f"election timeouts: {states}",
            )

    @property
    def _members(self) -> list[SimNode]:
        """The nodes that must have the whole log in the end."""
        membership = self.invariants.newest_membership
        return [n for n in self.nodes if membership.member(n.name) is not None and not n.is_wiped]

    def _check_convergence(self) -> None:
        self.trace.add("sim", "all nodes come back")
        self._workload.running = False
        self.network.heal_all()
        self._to_stay = self.nodes
        for node in self.nodes:
            self._come_back(node)
        ended = self.scheduler.run_until(self._deadline_us(), stop=self._has_converged)
        if not ended:
            states = ", ".join(f"{node.name} applied {node.applied_index}" for node in self.nodes)
            raise Violation(
                "liveness",
                f"not all nodes have applied the log up to {self.invariants.committed_index} "
                f"within {LIVENESS_TIMEOUTS_MAX} election timeouts: {states}",
            )

    def _check_takeover(self) -> None:
        """Check that a caught-up voter becomes leader on request, whatever faults left behind."""
        voters = self.invariants.newest_membership.voter_ids
        able = [node for node in self.nodes if node.name in voters and not node.is_wiped]
        target = max(able, key=lambda node: (node.has_replayed, self._rng.random()))
        self.trace.add("sim", f"{target.name} is to lead")
        deadline_us = self._deadline_us()
        while not target.is_ready:
            if self.scheduler.now_us >= deadline_us:
                raise Violation(
                    "liveness",
                    f"{target.name} has not taken leadership over within {LIVENESS_TIMEOUTS_MAX} "
                    f"election timeouts: term {target.term}",
                )
            for node in self.nodes:
                if node.leads and node is not target:
                    node.transfer(target.name)
            # A leader abandons a transfer after this time, and goes on leading.
            self.scheduler.run_until(
                self.scheduler.now_us + self.options.election_timeout_ms_max * 1000,
                stop=lambda: target.is_ready,
            )

    def _has_converged(self) -> bool:
        committed = self.invariants.committed_index
        members = self._members
        return all(node.applied_index == committed for node in members) and any(
            node.is_ready and node.log.last_index == committed for node in members
        )


def _first_member(name: NodeId, options: SimOptions) -> Member:
    return Member(node_id=name, store_id=store_of_disk(name, 1) * options.first_is_written)
