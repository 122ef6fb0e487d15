"""One seed of a master and its slaves from beginning to end.

Place in the data path: `chaos.sim.campaign.campaign` makes one per seed and calls `run`.

Phases, on virtual time:
1. faults; `log_book` judges each step as it is noted;
2. all is healed, every node runs: within SETTLE_MS the slaves follow their master at the end of its
   log, and within SERVE_MS more a send is answered SEND_OK;
3. quiet: each send that begins now is answered SEND_OK, for the time that the seed draws;
4. senders rest; the nodes' logs, queues and states are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.config.config import BrokerConfig
from broker.state.state_image import StateImage
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.machine import Machine
from chaos.sim.groups.models.stored import Stored
from chaos.sim.groups.models.trace_rules import TraceRules
from chaos.sim.groups.operator import GroupOperator
from chaos.sim.groups.programs.settings import GROUP, NameServerProgram
from chaos.sim.groups.replicas import check_alike, check_queue
from chaos.sim.groups.seed_run import SeedRun
from chaos.sim.groups.wall_clocks import WallClocks
from chaos.sim.ha.ha_machine import HaMachine
from chaos.sim.ha.log_book import LogBook
from chaos.sim.ha.nemesis import HaNemesis, make_longest_master
from chaos.sim.ha.programs import Consumer, EndReader, HaDesk, Sender
from chaos.sim.ha.slave_connections import SlaveConnections
from chaos.sim.machine.current_process import enter, leave
from chaos.sim.machine.disk import Survival
from chaos.sim.machine.violation import Violation
from chaos.sim.seed.ha_options import HaOptions, ha_schedule
from chaos.sim.seed.schedule import Schedule, options_of
from raft.messages import NodeId, Term
from raft.replicated_log import CommittedEntry

__all__ = ["SERVE_MS", "SETTLE_MS", "HaCluster"]

SETTLE_MS: Final = 60_000
"""Time until slaves follow, and have all: a silent connection is noticed after 20 s."""
SERVE_MS: Final = 20_000
"""Time to a SEND_OK then: clients' attempts, registrations, a connection given up."""
RETAINED_MS: Final = 30_000
"""Time until retention has taken what it may, once nothing is sent any more."""
_TAIL_MS: Final = 40  # so long before an fsync at the interval, with luck
_COPIES_MAX: Final = 3
_REGISTRATION_INTERVAL_MS: Final = 5_000
_HA_PORT: Final = 10915
_KERNEL_RATE: Final = 0.7


def _is_behind(slave: HaMachine, master: HaMachine) -> bool:
    end, status = slave.end, master.status
    assert end is not None
    assert status is not None
    return end.position < status.begin_position


class HaCluster(SeedRun):
    """The group of one seed; implements `chaos.sim.groups.broker_machine.Witness`."""

    counted_as = "seeds_of_masters"

    def __init__(
        self, options: HaOptions, *, schedule: Schedule | None = None, traced: bool
    ) -> None:
        if schedule is not None:
            options = options_of(schedule, options)
        self.options = options
        self.schedule = schedule or ha_schedule(options)
        super().__init__(
            options,
            key=f"ha/{options.seed}/{options.node_count}",
            wall_clock_spread_ms=0,
            traced=traced,
        )
        self._names = [NodeId(f"n{number}") for number in range(options.node_count)]
        self.book = LogBook(
            self.counts,
            self._names[0],
            waits_for_slaves=options.waits_for_slaves,
            waits_for_disk=options.waits_for_disk,
            in_sync_replicas=options.in_sync_replicas,
        )
        self.brokers: list[HaMachine] = []
        self._others: list[Machine] = []  # name server and clients
        self._held_down: BrokerMachine | None = None  # by the operator

    def describe(self) -> list[str]:
        return self.options.describe()

    # --- building ------------------------------------------------------------------------------

    def _build(self, root: Path) -> None:
        options, site = self.options, self._site
        server = "10.0.2.1"
        program = NameServerProgram(f"{server}:9876")
        name_server = Machine(site, "ns0", server, program.run)
        slaves = SlaveConnections(
            site.tcp,
            _HA_PORT,
            follows=self._follows,
            now_us=lambda: self.scheduler.now_us,
        )
        hosts = {name: f"10.0.1.{at}" for at, name in enumerate(self._names, start=1)}
        for name in self._names:
            machine = HaMachine(
                site,
                self._config(root, name, hosts, f"{server}:9876"),
                self,
                self.book,
                slaves,
                received=self._received,
                short_write_rate=options.short_write_rate,
                garbage_rate=options.garbage_rate,
                sync_us=(options.sync_us_min, options.sync_us_max),
                turn_mix_rate=options.turn_mix_rate,
            )
            self.brokers.append(machine)
        self.desk = HaDesk(
            options=options,
            book=self.book,
            counts=self.counts,
            name_servers=(f"{server}:9876",),
            addresses=tuple(f"{ip}:10911" for ip in hosts.values()),
            judge=self._judge,
            now_us=lambda: self.scheduler.now_us,
        )
        programs = [Sender(self.desk, f"P{at}").run for at in range(options.producer_count)]
        programs += [Consumer(self.desk, f"C{at}").run for at in range(options.consumer_count)]
        programs.append(EndReader(self.desk).run)
        clients = [
            Machine(site, f"c{at}", f"10.0.3.{at + 1}", run) for at, run in enumerate(programs)
        ]
        self._others = [name_server, *clients]
        self._nemesis = HaNemesis(
            book=self.book,
            may_wipe=not options.log_size_bytes_max,
            retained_size=options.log_size_bytes_max,
            desk=self.desk,
            machines=self.brokers,
            operator=self._operator(),
            wall_clocks=WallClocks(self.brokers),
            opening_failure_rate=options.opening_failure_rate,
            clients=clients,
            name_servers=[name_server],
            times=options,
            schedule=self.schedule,
            nodes=self.brokers,
            scheduler=self.scheduler,
            network=site.tcp,
            coverage=self.coverage,
            trace=self.trace,
        )

    def _follows(self, name: NodeId) -> bool:
        """Return whether the node, as it says itself, follows its master."""
        return any(one.is_linked for one in self.brokers if one.name == name)

    def _received(self, name: NodeId) -> int:
        return max(one.received_position for one in self.brokers if one.name == name)

    def _operator(self) -> GroupOperator:
        """Return one that has nothing to do: no member is replaced, no file rots."""
        brokers: list[BrokerMachine] = [*self.brokers]
        return GroupOperator(
            brokers,
            TraceRules(lambda: self.scheduler.now_us),
            self.scheduler,
            self.counts,
            interval_us=1_000_000,
            find_disk=lambda _machine, _disk: None,
        )

    def _config(
        self, root: Path, node: NodeId, hosts: dict[NodeId, str], name_server: str
    ) -> BrokerConfig:
        options = self.options
        by_kernel = random.Random(f"fsync/{options.seed}/{node}").random() < _KERNEL_RATE
        return BrokerConfig(
            group=GROUP,
            node=node,
            listen=f"{hosts[node]}:10911",
            raft_listen=f"{hosts[node]}:{_HA_PORT}",
            store=root / node,
            name_servers=(name_server,),
            peers={name: f"{ip}:{_HA_PORT}" for name, ip in hosts.items()},
            brokers={name: f"{ip}:10911" for name, ip in hosts.items()},
            engine=options.engine,
            flush=options.flush,
            in_sync_replicas=options.in_sync_replicas,
            slave_timeout_ms=options.slave_timeout_ms,
            sync_flush_timeout_ms=options.sync_flush_timeout_ms,
            fsync_by="kernel" if by_kernel else "thread",
            segment_size_bytes_max=options.segment_size_bytes_max,
            log_size_bytes_max=options.log_size_bytes_max,
            snapshot_interval_size_bytes=options.snapshot_interval_size_bytes,
            message_index_enable=False,  # not in the data path, and its files are not simulated
            registration_interval_ms=_REGISTRATION_INTERVAL_MS,
        )

    # --- reports -------------------------------------------------------------------------------

    def _judge(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Violation as violation:
            self._site.failures.append(violation)

    def on_trace(
        self, node: NodeId, incarnation: int, event: str, term: Term, fields: dict[str, Any]
    ) -> None:
        """Do nothing: these engines write no trace."""

    def on_apply(self, node: NodeId, entries: Sequence[CommittedEntry]) -> None:
        for entry in entries:
            self._judge(partial(self.book.on_applied, node, entry.index, entry.chain))

    def on_death(self, machine: BrokerMachine) -> None:
        self._nemesis.on_death(machine)
        # A stop, or an error, was under way when the faults ended.
        if not self._nemesis.running and machine is not self._held_down:
            self.scheduler.after(1, partial(self._come_back, machine))

    # --- phases --------------------------------------------------------------------------------

    def _run_phases(self) -> None:
        options, desk = self.options, self.desk
        machines = (*self._others, *self.brokers)
        for machine in machines:
            machine.start()
        self._nemesis.start()
        self._run_until(options.fault_time_us)
        self._nemesis.stop()
        self.trace.add("sim", "faults end")
        self._heal(machines)
        self._lead_slaves_back()
        begun_us = self.scheduler.now_us
        self._await("no send is told SEND_OK", SERVE_MS, self._is_served(begun_us))
        self.counts["serve_ms"] += (self.scheduler.now_us - begun_us) // 1000
        if options.loses_tail_at_end:
            self._lose_tail()
        desk.is_judged_calm = True
        self._run_until(self.scheduler.now_us + options.quiet_ms * 1000)
        if not self._is_linked():
            raise Violation("liveness", f"a slave has lost its master: {self._states()}")
        desk.sending = False
        for broker in self.brokers:
            broker.mixes = False
        self._await("the logs do not become alike", SETTLE_MS, self._is_alike)
        self._run_until(self.scheduler.now_us + RETAINED_MS * 1000, self._are_short)
        self._check_sizes()
        self._check_bytes()
        self._check_replicas()

    def _lose_tail(self) -> None:
        """Let the clients rest, the master lose what it has not fsynced, and its slaves, which may
        be ahead of it, take its log for theirs before anything is written over what they have."""
        desk = self.desk
        desk.is_resting = True
        self._run_until(self.scheduler.now_us + _TAIL_MS * 1000)
        for broker in self.brokers:
            if broker.alive and broker.name == self.book.master:
                broker.crash(power=True, survival=Survival.NONE)
                self.on_death(broker)
        self._await("a log is not opened", SERVE_MS, self._are_open)
        self._await("the logs do not become alike without sends", SETTLE_MS, self._is_alike)
        self._await("a slave does not follow", SETTLE_MS, self._is_linked)
        desk.is_resting = False

    def _check_sizes(self) -> None:
        """Check that logs of a bounded size are: beside it, what two snapshots and the next one
        have between them, and the files that their ends are in."""
        options = self.options
        size_max = (
            options.log_size_bytes_max
            + 3 * options.snapshot_interval_size_bytes
            + 3 * options.segment_size_bytes_max
        )
        if options.log_size_bytes_max:
            for broker in self.brokers:
                self.book.on_size(broker.name, broker.received_position - broker.begin, size_max)

    def _are_short(self) -> bool:
        try:
            self._check_sizes()
        except Violation:
            return False
        return True

    def _check_bytes(self) -> None:
        """Check that the nodes have the same bytes, from where all of them have any."""
        begin = max(broker.begin for broker in self.brokers)
        contents = []
        for broker in self.brokers:
            assert broker.process is not None
            before = enter(broker.process)  # reading may open files
            try:
                contents.append((broker.name, broker.content(begin)))
            finally:
                leave(before)
        first, *others = contents
        for name, content in others:
            if content != first[1]:
                raise Violation("H6", f"{name} has other bytes than {first[0]} behind {begin}")

    def _heal(self, machines: Sequence[Machine]) -> None:
        self._site.tcp.calm(delay_us_max=5_000)
        for broker in self.brokers:
            broker.calm()
        for machine in machines:
            if machine.alive and machine.paused:
                machine.resume()
            elif not machine.alive:
                machine.start()

    def _lead_slaves_back(self) -> None:
        """Wait until the slaves follow. As an operator does, give those a copy of the master's log
        that lack what retention has taken from it, which may take more meanwhile, and those whose
        log has nothing in common with it, since its disk was lost: they keep theirs. Or one of
        these is made the master."""
        for _ in range(_COPIES_MAX):
            self._await("a log is not opened", SERVE_MS, self._are_open)
            if self._run_until(self.scheduler.now_us + SETTLE_MS * 1000, self._is_linked):
                return
            # Whoever follows or not, the master takes sends.
            if self.desk.answered_us < self.scheduler.now_us - SERVE_MS * 1000:
                raise Violation("liveness", f"no send is answered: {self._states()}")
            (master,) = (one for one in self.brokers if one.name == self.book.master)
            slaves = [one for one in self.brokers if one is not master]
            behind = [slave for slave in slaves if _is_behind(slave, master)]
            others = [one for one in slaves if self.book.share_nothing(one.name, master.name)]
            self.counts["slaves_with_another_log"] += len(others)
            if others and self.options.makes_slave_master:
                make_longest_master(self.brokers, self.book)
            elif behind or others:
                self._copy_store(master, [one for one in slaves if one in behind or one in others])
        self._await("a slave does not follow", SETTLE_MS, self._is_linked)

    def _copy_store(self, master: HaMachine, slaves: Sequence[HaMachine]) -> None:
        self._held_down = master
        master.stop_cleanly()
        self._await("the master does not stop", SERVE_MS, lambda: not master.alive)
        self._held_down = None
        for slave in slaves:
            slave.crash(power=False, survival=Survival.ALL)
            slave.take_copy_of(master)
            slave.start()
            self.counts["slaves_given_a_copy"] += 1
        master.start()

    def _are_open(self) -> bool:
        return all(broker.status is not None and broker.end for broker in self.brokers)

    def _await(self, what: str, within_ms: int, done: Callable[[], bool]) -> None:
        if not self._run_until(self.scheduler.now_us + within_ms * 1000, done):
            raise Violation("liveness", f"{what} within {within_ms} ms: {self._states()}")

    def _is_served(self, since_us: int) -> Callable[[], bool]:
        return lambda: bool(self.desk.begun_us) and self.desk.begun_us[-1] >= since_us

    def _is_linked(self) -> bool:
        return all(broker.is_linked for broker in self.brokers)

    def _is_alike(self) -> bool:
        ends = [broker.end for broker in self.brokers]
        statuses = [broker.status for broker in self.brokers]
        applied = {None if status is None else status.applied_index for status in statuses}
        return (
            None not in ends
            and ends.count(ends[0]) == len(ends)
            and applied == {len(self.book.entries)}
        )

    def _check_replicas(self) -> None:
        """Check each node's queues against the book, and the states against one another."""
        images: dict[NodeId, StateImage] = {}
        queues = self.book.queues()
        for machine in self.brokers:
            broker, process = machine.broker, machine.process
            assert broker is not None
            assert process is not None
            before = enter(process)  # reading may open files
            try:
                images[machine.name] = broker.replica.state.capture()
                for (topic, queue_id), messages in queues.items():
                    stored = [
                        Stored(
                            topic=topic,
                            queue_id=queue_id,
                            queue_offset=one.queue_offset,
                            index=0,
                            position=one.position,
                            uniq_key="",
                            value=one.value,
                            store_ms=0,
                        )
                        for one in messages
                    ]
                    check_queue(machine.name, broker.replica, topic, queue_id, stored)
            finally:
                leave(before)
            status = machine.status
            assert status is not None
            self.counts["logs_begun_late"] += status.first_index > 1
        check_alike(images)

    def _states(self) -> str:
        states = []
        for machine in self.brokers:
            status = machine.status
            if status is None:
                states.append(f"{machine.name} {'starts' if machine.alive else 'down'}")
            else:
                role = "master" if machine.name == self.book.master else "slave"
                linked = "" if machine.is_linked else ", not linked"
                states.append(
                    f"{machine.name} {role} applied {status.applied_index}/{status.last_index}"
                    f"{linked}"
                )
        return ", ".join(states)

    # --- the end -------------------------------------------------------------------------------

    def _machines(self) -> Iterable[Machine]:
        return (*self.brokers, *self._others)
