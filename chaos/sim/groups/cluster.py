"""One seed of a whole group from beginning to end.

Place in the data path: `chaos.sim.campaign.campaign` makes one per seed and calls `run`.

Phases, on virtual time:
1. safety: faults; traced steps are checked by `trace_rules`, applied entries by `log_model`;
2. liveness: faults end. A majority, drawn at random, is healthy, the others stay down or cut off.
   It must acknowledge a send within LIVENESS_TIMEOUTS_MAX election timeouts (the longest, on the
   slowest clock) and SERVE_GRACE_MS, for reconnecting and clients' own waits;
3. convergence: all run again; within the same time and QUIESCE_MS each node has applied the whole
   log, transactions are decided, delayed messages delivered (clocks may jump, an owner of queues
   fail); then queues are drained, and replicas and clients' answers compared with the log;
4. quiet: left alone for `quiet_ms`, once no sync is under way that began under a fault, the group
   keeps its leader, and name servers name it. (The two phases are TigerBeetle's VOPR's.)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from broker.config.config import BrokerConfig
from chaos.sim.cores.core_fixture import Parts
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.jumps_when_calm import JumpsWhenCalm, is_whole
from chaos.sim.groups.late_syncs import await_late_syncs
from chaos.sim.groups.lock_takeover import LockTakeover
from chaos.sim.groups.machine import Machine
from chaos.sim.groups.models.client_checker import ClientChecker
from chaos.sim.groups.models.log_model import LogModel
from chaos.sim.groups.models.trace_rules import TraceRules
from chaos.sim.groups.models.true_time import TrueTime
from chaos.sim.groups.nemesis import GroupNemesis
from chaos.sim.groups.operator import GroupOperator
from chaos.sim.groups.programs.clients import DELETED_TOPIC, TOPIC, Desk, TransactionSender
from chaos.sim.groups.programs.lock_clients import LOCK_GROUP
from chaos.sim.groups.programs.order_clients import ORDER_GROUP, ORDER_TOPIC
from chaos.sim.groups.programs.pop_clients import POP_GROUP, POP_TOPIC
from chaos.sim.groups.programs.programs import client_programs
from chaos.sim.groups.programs.readers import drain
from chaos.sim.groups.programs.settings import NameServerProgram, broker_config
from chaos.sim.groups.replicas import check_replicas, check_route
from chaos.sim.groups.seed_run import SeedRun
from chaos.sim.groups.strays import Strays
from chaos.sim.groups.wall_clocks import WallClocks
from chaos.sim.machine.violation import Violation
from chaos.sim.seed.group_options import GroupOptions, group_schedule
from chaos.sim.seed.schedule import Schedule, options_of
from raft.core.core import Core
from raft.log.segment_log import SegmentLog
from raft.messages import Index, NodeId, Term
from raft.replicated_log import CommittedEntry

__all__ = ["LIVENESS_TIMEOUTS_MAX", "QUIESCE_MS", "SERVE_GRACE_MS", "GroupCluster"]

LIVENESS_TIMEOUTS_MAX = 12
"""Election timeouts within which a healthy majority serves again."""
SERVE_GRACE_MS = 6_000
"""Time beyond those: raft links reconnect after 0.5 s at most, a client's attempt takes 1 s and
there may be one per node, and a connection to a dead machine is given up after 5 s."""
QUIESCE_MS = 40_000
"""Time for transactions, delayed messages and followers to catch up once all is healthy."""

_OTHER_TOPICS = (POP_TOPIC, ORDER_TOPIC, DELETED_TOPIC)


class GroupCluster(SeedRun):
    """The group of one seed; implements `chaos.sim.groups.broker_machine.Witness`."""

    counted_as = "seeds_of_whole_groups"

    def __init__(
        self,
        options: GroupOptions,
        *,
        parts: Parts | None = None,
        schedule: Schedule | None = None,
        traced: bool,
    ) -> None:
        if schedule is not None:
            options = options_of(schedule, options)
        self.options = options
        self.schedule = schedule or group_schedule(options)
        self._parts = parts or Parts()
        super().__init__(
            options,
            key=f"{options.seed}/{options.node_count}",
            wall_clock_spread_ms=options.wall_clock_spread_ms,
            traced=traced,
        )
        self.rules = TraceRules(lambda: self.scheduler.now_us)
        self.true_time = TrueTime(options, lambda: self.scheduler.now_us)
        self.log = LogModel(self.counts, self._log_begin, self.true_time)
        self.checker = ClientChecker(self.log, self.counts)
        self._rng = self._site.generator("group cluster")
        self.brokers: list[BrokerMachine] = []
        self._name_servers: list[Machine] = []
        self._programs: list[NameServerProgram] = []  # of the name servers
        self._clients: list[Machine] = []
        self._strays = Strays(
            self._make_broker,
            self._site.generator("strays"),
            rate=options.stray_rate,
            counts=self.counts,
        )
        self._drained: list[bool] = []
        self._calm_since_us = 0
        self._to_stay: list[BrokerMachine] = []  # restarted if they die from here on

    def describe(self) -> list[str]:
        return self.options.describe()

    def _substitutes(self) -> Sequence[tuple[object, object]]:
        return ((Core, self._parts.core), (SegmentLog, self._parts.log))

    # --- building ------------------------------------------------------------------------------

    def _build(self, root: Path) -> None:
        options, site = self.options, self._site
        for number in range(options.name_server_count):
            address = f"10.0.2.{number + 1}"
            program = NameServerProgram(f"{address}:9876")
            self._name_servers.append(Machine(site, f"ns{number}", address, program.run))
            self._programs.append(program)
        servers = tuple(f"{machine.ip}:9876" for machine in self._name_servers)
        names = [f"n{number}" for number in range(options.node_count)]
        hosts = {name: f"10.0.1.{number + 1}" for number, name in enumerate(names)}
        for name in names:
            config = broker_config(options, root, name, hosts, servers)
            self.brokers.append(self._make_broker(config))
        self._desk = Desk(
            options=options,
            checker=self.checker,
            counts=self.counts,
            scheduler=self.scheduler,
            name_servers=servers,
            leaders=self._leaders,
            brokers=lambda: [one.config.advertised for one in self.brokers],
        )
        self._build_clients()
        self._wall_clocks = WallClocks(self.brokers)
        if options.wall_clocks_begin_wrong:
            rng = self._site.generator("wall clocks")
            for _ in range(options.node_count):
                self._wall_clocks.jump_some(rng)
        self._operator = GroupOperator(
            self.brokers,
            self.rules,
            self.scheduler,
            self.counts,
            interval_us=options.election_timeout_ms_max * 500,
            find_disk=self._strays.find_disk,
        )
        self._nemesis = GroupNemesis(
            operator=self._operator,
            wall_clocks=self._wall_clocks,
            opening_failure_rate=options.opening_failure_rate,
            clients=self._clients,
            name_servers=self._name_servers,
            times=options,
            schedule=self.schedule,
            nodes=self.brokers,
            scheduler=self.scheduler,
            network=site.tcp,
            coverage=self.coverage,
            trace=self.trace,
        )

    def _make_broker(self, config: BrokerConfig, name: str | None = None) -> BrokerMachine:
        options = self.options
        return BrokerMachine(
            self._site,
            config,
            self,
            short_write_rate=options.short_write_rate,
            garbage_rate=options.garbage_rate,
            sync_us=(options.sync_us_min, options.sync_us_max),
            apply_us_max=options.apply_us_max,
            name=name,
        )

    def _build_clients(self) -> None:
        programs = client_programs(self._desk, self._rng)
        for number, program in enumerate(programs):
            self._add_client(number, program)
        number = len(programs)
        sender = TransactionSender(self._desk, "TP", lambda: self._crash_client(number))
        self._add_client(number, sender.run)

    def _add_client(self, number: int, program: Callable[[], Any]) -> None:
        self._clients.append(Machine(self._site, f"c{number}", f"10.0.3.{number + 1}", program))

    def _crash_client(self, number: int) -> None:
        """Crash a client in the middle of a transaction; not once the faults have ended."""
        machine = self._clients[number]
        if not self._nemesis.running:
            return
        self.counts["clients_crashed_in_transactions"] += 1
        machine.die(power=False)
        self._nemesis.on_machine_death(machine)

    # --- reports of brokers --------------------------------------------------------------------

    def on_trace(
        self, node: NodeId, incarnation: int, event: str, term: Term, fields: dict[str, Any]
    ) -> None:
        self.counts[f"trace:{event}"] += 1
        if self.trace.on:
            shown = " ".join(
                f"{name}={value}" for name, value in fields.items() if name != "t_begin"
            )
            self.trace.add(node, f"{event} term={term} {shown}")
        if event == "start":
            fields = {**fields, "entries": self._machine(node).entries()}
        elif event == "append":
            self._note_clocks()
        try:
            self.rules.on_event(node, event, term, fields)
            if event == "fsync":
                self._check_durable(node, fields["index"])
        except Violation as violation:
            self._site.failures.append(violation)

    def _note_clocks(self) -> None:
        """Note brokers that began group time anew: the leader may have got it from another."""
        for machine in self.brokers:
            broker = machine.broker
            if machine.alive and broker is not None and broker.replica.clocks.has_own_time:
                self.true_time.on_begun_anew(machine.name, machine.incarnation)

    def _machine(self, node: NodeId) -> BrokerMachine:
        return next(one for one in (*self.brokers, *self._strays.machines) if one.name == node)

    def _check_durable(self, node: NodeId, index: Index) -> None:
        """Check that the disk agrees with a node's report of durability (R9)."""
        machine = self._machine(node)
        if not machine.holds_durably(index, self.rules.chain(node, index)):
            raise Violation("R9", f"{node} claims {index} durable, its disk may still lose it")

    def on_apply(self, node: NodeId, entries: Sequence[CommittedEntry]) -> None:
        try:
            self.log.on_apply(node, entries)
        except Violation as violation:
            self._site.failures.append(violation)

    def on_death(self, machine: BrokerMachine) -> None:
        self._nemesis.on_death(machine)
        if machine in self._to_stay:  # a clean stop was under way when the faults ended
            self.scheduler.after(1, partial(self._come_back, machine))

    # --- phases --------------------------------------------------------------------------------

    def _run_phases(self) -> None:
        for machine in (*self._name_servers, *self.brokers, *self._clients):
            machine.start()
        self._nemesis.start()
        self._run_until(self.options.fault_time_us)
        self._nemesis.stop()
        self.trace.add("sim", "faults end")
        self._heal()
        self._check_serves()
        self._check_settles()
        self._check_drain()
        check_replicas(self.brokers, self.log)
        self._check_quiet()
        self._count_ends()
        self.checker.check_final()

    def _serve_deadline_us(self) -> int:
        wait_us = LIVENESS_TIMEOUTS_MAX * self.options.slowest_timeout_us + SERVE_GRACE_MS * 1000
        return self.scheduler.now_us + wait_us

    def _heal(self) -> None:
        """Heal a majority; the rest stays as it is, cut off from it."""
        options, tcp = self.options, self._site.tcp
        # A wiped or damaged broker is of no use yet; then all others have to be healthy.
        usable = [machine for machine in self.brokers if not self._operator.is_repairing(machine)]
        least = options.node_count // 2 + 1
        least = least if len(usable) == options.node_count else len(usable)
        healthy = self._rng.sample(usable, self._rng.randint(least, len(usable)))
        self._to_stay = healthy
        tcp.calm(delay_us_max=max(200, options.election_timeout_ms_min * 1000 // 20))
        others = [machine for machine in self.brokers if machine not in healthy]
        self._calm_since_us = self.scheduler.now_us
        for broker in self.brokers:
            broker.calm()
        for machine in (*self._name_servers, *self.brokers, *self._clients):
            if machine.alive and machine.paused:
                machine.resume()
        for machine in (*self._name_servers, *healthy, *self._clients):
            if not machine.alive:
                machine.start()
        for machine in others:
            for other in (*healthy, *self._clients, *self._name_servers):
                tcp.cut(machine.name, other.name)
                tcp.cut(other.name, machine.name)
            if machine.alive and self._rng.random() < 0.5:
                machine.crash(power=True, survival=machine.draw_survival())
        self.trace.add("sim", f"healthy are {', '.join(machine.name for machine in healthy)}")

    def _check_serves(self) -> None:
        """Check that a send from now on is acknowledged."""
        before = self.checker.acknowledged_count
        begun_us = self.scheduler.now_us
        served = self._run_until(
            self._serve_deadline_us(), lambda: self.checker.acknowledged_count > before
        )
        if not served:
            raise Violation(
                "liveness",
                f"no send is acknowledged within {LIVENESS_TIMEOUTS_MAX} election timeouts and "
                f"{SERVE_GRACE_MS} ms: {self._states()}",
            )
        self.counts["serve_ms"] += (self.scheduler.now_us - begun_us) // 1000

    def _check_settles(self) -> None:
        self.trace.add("sim", "all nodes come back")
        self._to_stay = self.brokers
        self._site.tcp.heal_all()
        for machine in self.brokers:
            if not machine.alive:
                machine.start()
        if self.options.wall_clocks_jump_when_calm:
            if not self._run_until(self._serve_deadline_us() + QUIESCE_MS * 1000, self._is_whole):
                raise Violation("liveness", f"not all nodes come back: {self._states()}")
            jumps = JumpsWhenCalm(self.brokers, self._wall_clocks, self.true_time, self._site)
            jumps.run(lambda us: self._run_until(self.scheduler.now_us + us), self._rng)
        self._desk.sending = False
        unpopped = self._unpopped()
        # One popper has many, and each takes a few trips over slow links: who gets on may go on.
        soon_us = QUIESCE_MS * 1000
        while not self._run_until(self._serve_deadline_us() + soon_us, self._has_converged):
            before, unpopped = unpopped, self._unpopped()
            if unpopped >= before:
                raise Violation(
                    "liveness",
                    f"{self.log.undecided()} transactions undecided, {self.log.undelivered()} "
                    f"delayed messages undelivered, {unpopped} not popped and done, "
                    f"{len(self.log.resets.pending)} resets not followed, or not all applied: "
                    f"{self._states()}",
                )
        if self.options.lock_owner_fails_when_calm and self.options.orderly_consumer_count:
            takeover = LockTakeover(self._clients, self.checker.locks, LOCK_GROUP, self._site)
            grace_us = self._serve_deadline_us() - self.scheduler.now_us + QUIESCE_MS * 1000
            takeover.run(self._run_until, self._site.generator("lock takeover"), grace_us=grace_us)
        self._desk.reading = False

    def _is_whole(self) -> bool:
        return not self._operator.is_busy and is_whole(self.brokers)

    def _has_converged(self) -> bool:
        if self.log.undecided() or self.log.undelivered() or self._operator.is_busy:
            return False
        if self._unpopped() or self.log.resets.pending:
            return False
        statuses = [machine.status for machine in self.brokers]
        applied = {None if status is None else status.applied_index for status in statuses}
        lasts = {None if status is None else status.last_index for status in statuses}
        return len(applied) == 1 and applied == lasts and None not in applied

    def _unpopped(self) -> int:
        pop = self.log.pop
        count = pop.pending(POP_GROUP, POP_TOPIC)
        return count + pop.pending_in_order(ORDER_GROUP, ORDER_TOPIC)

    def _log_begin(self) -> int:  # below it some broker lacks records, and readers may skip those
        return max(machine.log_begin for machine in self.brokers)

    def _check_drain(self) -> None:
        """Check that everything can be read, and that name servers route to it."""
        machine = Machine(self._site, "drain", "10.0.4.1", self._drain)
        machine.start()
        read = -1
        while not self._drained and self.counts["messages_read"] > read:  # the drain makes progress
            read = self.counts["messages_read"]
            self._run_until(self._serve_deadline_us(), lambda: bool(self._drained))
        if not self._drained or not self._run_until(self._serve_deadline_us(), self._has_converged):
            what = "the log does not come to rest" if self._drained else "queues are not drained"
            raise Violation("liveness", f"{what}: {self._states()}")

    async def _drain(self) -> None:
        known = self._known_topics()
        topics = [name for name in (TOPIC, *_OTHER_TOPICS) if name in known]
        await drain(self._desk, topics, lambda topic: topic not in self._known_topics())
        self._drained.append(True)

    def _known_topics(self) -> Container[str]:
        replica = next(one.broker.replica for one in self.brokers if one.broker is not None)
        return replica.state.topics

    def _check_quiet(self) -> None:
        """Check that the group, left alone, keeps its leader and every name server its route."""
        await_late_syncs(
            self.brokers,
            lambda done: self._run_until(self._serve_deadline_us(), done),
            lambda: self._run_until(self.scheduler.now_us + self.options.slowest_timeout_us),
            calm_since_us=self._calm_since_us,
        )
        before = self._leader_and_term()
        self._run_until(self.scheduler.now_us + self.options.quiet_ms * 1000)
        if self._leader_and_term() != before:
            raise Violation("liveness", f"{before} lost leadership for no reason: {self._states()}")
        address = next(one.config.advertised for one in self.brokers if one.name == before[0])
        for program in self._programs:
            assert program.server is not None
            check_route(program.server, TOPIC, address)

    def _leaders(self) -> frozenset[str]:
        statuses = [(one.config.advertised, one.status) for one in self.brokers]
        return frozenset(address for address, status in statuses if status and status.ready)

    def _leader_and_term(self) -> tuple[NodeId, Term]:
        for machine in self.brokers:
            status = machine.status
            if status is not None and status.ready:
                return machine.name, status.term
        raise Violation("liveness", f"nobody leads: {self._states()}")

    def _count_ends(self) -> None:
        """Count what shows at the end only."""
        for machine in self.brokers:
            status = machine.status
            assert status is not None
            self.counts["logs_begun_late"] += status.first_index > 1

    def _states(self) -> str:
        states = []
        for machine in self.brokers:
            status = machine.status
            if status is None:
                states.append(f"{machine.name} down" if not machine.alive else machine.name)
            else:
                states.append(
                    f"{machine.name} {status.role.value} term {status.term} applied "
                    f"{status.applied_index}/{status.last_index}"
                )
        return ", ".join(states)

    # --- the end -------------------------------------------------------------------------------

    def _machines(self) -> Iterable[Machine]:
        return (*self._name_servers, *self.brokers, *self._strays.machines, *self._clients)
