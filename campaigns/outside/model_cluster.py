"""A model cluster: one seed, one whole run, written from the public format alone.

Place in the data path: wires groups, clients, faults and retention in virtual time, and turns what
they left into a `Run`. Plants and near misses are made of these runs.

Invariants: without a defect, what a seed makes keeps every promise that the format's page knows, so
that a verifier has to call it `pass`; the same seed and options make the same rows.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from campaigns.outside.broker_model import Broker, HalfState, record
from campaigns.outside.client_world import Client, Times, World
from campaigns.outside.consumers import (
    BroadcastClient,
    Drainer,
    GroupState,
    PollMember,
    PushMember,
    QueueName,
)
from campaigns.outside.feature_cast import (
    DELETED_TOPIC,
    FEATURE_GROUPS,
    FEATURE_TOPICS,
    MANIFEST,
    feature_clients,
)
from campaigns.outside.model_faults import (
    KINDS,
    FaultPlan,
    change_members,
    retain,
    watch_elections,
)
from campaigns.outside.producers import Producer, Tool, TransactionProducer
from campaigns.outside.replica_group import Node, ReplicaGroup, entry_size
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.virtual_time import Process, Simulator

__all__ = ["ModelCluster", "Options", "model_run", "options_of"]

CHECKS = {"timeout_ms": 1000, "check_interval_ms": 1000, "check_max": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a seed's cluster is like."""

    seed: int
    groups: int = 1
    replicas: int = 3
    transactions: bool = True
    retention: bool = False
    install: bool = False
    members: bool = False
    remove_member: bool = False
    push: bool = True
    push_hides: bool = False
    broadcast: bool = True
    second_drain: bool = False
    limits: bool = False
    dedupe: bool = True
    first_config: bool = False
    slow_apply: bool = False
    puts_back: bool = False
    repeats: bool = False  # halves and decisions are sent again, some halves want a quiet time
    features: bool = False  # delays, POP, locks, resets, routes and the like
    faults: tuple[str, ...] = ("kill-leader",)
    defects: frozenset[str] = frozenset()
    last_breath: bool = True  # something is under way when all is stopped
    script: Callable[[ModelCluster], Process] | None = None  # what a plant does meanwhile


def options_of(seed: int) -> Options:
    """What the seed draws."""
    rng = random.Random(f"options {seed}")
    retention = rng.random() < 0.5
    install = retention and rng.random() < 0.5
    kinds = [kind for kind in KINDS if not install or kind.endswith("leader")]
    return Options(
        seed=seed,
        groups=rng.choice([1, 1, 2]),
        replicas=rng.choice([3, 3, 5]),
        transactions=rng.random() < 0.85,
        retention=retention,
        install=install,
        members=rng.random() < 0.35,
        remove_member=rng.random() < 0.5,
        push=rng.random() < 0.75,
        push_hides=rng.random() < 0.4,
        broadcast=rng.random() < 0.6,
        second_drain=rng.random() < 0.3,
        limits=rng.random() < 0.4,
        dedupe=rng.random() < 0.85,
        first_config=rng.random() < 0.4,
        slow_apply=rng.random() < 0.4,
        puts_back=rng.random() < 0.4,
        faults=tuple(rng.choice(kinds) for _ in range(rng.randint(1, 2 if retention else 4))),
        repeats=rng.random() < 0.5,
    )


@dataclass(kw_only=True)
class ModelCluster:
    """The cluster of one seed while it runs."""

    options: Options
    sim: Simulator = field(default_factory=Simulator)
    faults: list[Row] = field(default_factory=list)
    queues: list[Row] = field(default_factory=list)
    consumer_groups: Row = field(default_factory=dict)
    note: str = ""  # what a planted script did, as a witness should show it

    def __post_init__(self) -> None:
        options = self.options
        rng = random.Random(f"run {options.seed}")
        brokers = {}
        for number in range(options.groups):
            name = f"broker-{'abc'[number]}"
            voters = [f"n{place + 1}" for place in range(options.replicas)]
            group = ReplicaGroup(
                self.sim, name, voters, random.Random(f"{name} {options.seed}"), options.defects
            )
            brokers[name] = Broker(group, dedupe=options.dedupe, first_config=options.first_config)
        self.world = World(
            sim=self.sim,
            rng=rng,
            brokers=brokers,
            topics={"orders": 2, "pay": 1},
            times=Times(),
            defects=options.defects,
        )
        self.tx_producers: list[TransactionProducer] = []

    def run(self) -> Run:
        world, times = self.world, self.world.times
        for broker in world.brokers.values():
            self._start_group(broker)
        self._start_clients()
        if self.options.script is not None:
            self.sim.spawn(self.options.script(self))
        self.sim.run(times.heal_end)
        self._settle()
        self._drain()
        self.sim.run(times.drain_end - SECOND)
        for broker in world.brokers.values():
            leader = broker.group.leader()
            if leader is not None:
                broker.add(leader, [record("command")])  # no replica's log shall be empty
        if self.options.last_breath:
            self.sim.run(times.drain_end - 3 * MS)
            self._last_breath()
        self.sim.run(times.drain_end)
        self._stop()
        return self._export()

    # -- what lives in it

    def _start_group(self, broker: Broker) -> None:
        options, group, sim, times = self.options, broker.group, self.sim, self.world.times
        for node in group.nodes.values():
            node.lag_apply = options.slow_apply
            group.start(node)
        sim.spawn(watch_elections(sim, group, group.rng, times.drain_end))
        group.heartbeats(times.drain_end)
        sim.spawn(FaultPlan(self.world, broker, list(options.faults), self.faults).run())
        if options.members:
            begins = self.world.rng.choice([3, 19 if options.retention else 5]) * SECOND
            sim.spawn(
                change_members(self.world, broker, remove=options.remove_member, begins=begins)
            )
        if options.retention:
            sim.spawn(retain(self.world, broker, installs=options.install))
        if options.transactions:
            sim.spawn(self._check_halves(broker))

    def _check_halves(self, broker: Broker) -> Process:
        while self.sim.now < self.world.times.heal_end:
            yield self.world.rng.randint(150 * MS, 250 * MS)
            leader = broker.group.leader()
            if leader is not None and broker.group.in_charge(leader):
                broker.check_halves(
                    leader,
                    timeout=CHECKS["timeout_ms"] * MS,
                    interval=CHECKS["check_interval_ms"] * MS,
                    check_max=CHECKS["check_max"],
                    check=self._check,
                    puts_back=self.options.puts_back,
                )

    def _check(self, tx: str, half: HalfState) -> bool:
        name = tx.rsplit("-x", 1)[0]
        producer = next(client for client in self.tx_producers if client.name == name)
        return producer.checked(tx, half)

    def _start_clients(self) -> None:
        world, options, sim = self.world, self.options, self.sim
        clients: list[Client] = [Producer(world, f"p{n}", "producers") for n in (1, 2)]
        clients.append(Tool(world, "tool", "tools"))
        if options.transactions:
            self.tx_producers = [
                TransactionProducer(world, f"b{n}", "bookers", repeats=options.repeats)
                for n in (1, 2)
            ]
            clients += self.tx_producers
        members = GroupState(name="ordered")
        clients += [PollMember(world, f"o{n}", members) for n in (1, 2)]
        self._has_group("ordered", "cluster", ordered=True)
        third = PollMember(world, "o3", members)
        third.leaves_at = 10 * SECOND
        sim.after(5 * SECOND, lambda: sim.spawn(third.run()))
        if options.push:
            extra = tuple((group, "%RETRY%push", 0) for group in world.brokers)
            pushed = GroupState(name="push", extra=extra)
            clients += [
                PushMember(world, f"l{n}", pushed, hides=options.push_hides) for n in (1, 2)
            ]
            self._has_group("push", "cluster", ordered=False)
        if options.broadcast:
            clients += [BroadcastClient(world, f"w{n}", "watchers") for n in (1, 2)]
            self._has_group("watchers", "broadcast", ordered=False)
        if options.features:
            clients += feature_clients(world)
            for settings in self.consumer_groups.values():
                settings["topics"] = list(world.topics)
            self.consumer_groups |= copy.deepcopy(FEATURE_GROUPS)
        for client in clients:
            sim.spawn(client.run())  # type: ignore[attr-defined]  # every one of these runs

    def _has_group(self, name: str, kind: str, *, ordered: bool) -> None:
        self.consumer_groups[name] = {
            "kind": kind,
            "at_least_once": True,
            "ordered": ordered,
            "rebalance_ms": 5000,
        }

    # -- its end

    def _settle(self) -> None:
        """After the heal every half is decided or discarded, else the seed is no clean one."""
        for broker in self.world.brokers.values():
            open_ = [
                tx
                for tx, half in broker.halves.items()
                if not half.decision and not half.is_discarded
            ]
            assert not open_ or self.options.script or self.options.defects, open_

    def _drain(self) -> None:
        bounds: dict[QueueName, tuple[int, int]] = {}
        for group, broker in self.world.brokers.items():
            leader = broker.group.leader()
            assert leader is not None, "a group has no leader after the heal"
            for topic, queue in sorted(broker.queues):
                first = broker.floor(leader, topic, queue)
                end = broker.length(leader, topic, queue)
                is_user = topic in {*self.world.topics, *FEATURE_TOPICS}
                if topic == DELETED_TOPIC:
                    first, is_user = end, True
                if is_user:
                    bounds[group, topic, queue] = first, end
                self.queues.append(
                    {
                        "broker_group": group,
                        "topic": topic,
                        "queue": queue,
                        "min_offset": first,
                        "max_offset": end,
                        "drained": is_user,
                    }
                )
        self._has_group("drain", "broadcast", ordered=False)
        self.consumer_groups["drain"]["at_least_once"] = False
        self.sim.spawn(Drainer(self.world, "drain1", bounds).run())
        if self.options.second_drain:
            second = Drainer(self.world, "drain2", bounds)
            self.sim.after(SECOND, lambda: self.sim.spawn(second.run()))

    def _last_breath(self) -> None:
        """An offset on its way when all is stopped: stored here and there, committed by few."""
        for group, topic, queue in self.world.user_queues():
            broker = self.world.brokers[group]
            leader = broker.group.leader()
            if leader is not None and (topic, queue) == ("orders", 0):
                length = broker.length(leader, topic, queue)
                member = Client(self.world, f"o-last-{group}", "ordered")
                place = {"broker_group": group, "topic": topic, "queue": queue}
                member.begin("commit_offset", offset=length, **place)
                broker.commit_offset(leader, "ordered", topic, queue, length)

    def _stop(self) -> None:
        for broker in self.world.brokers.values():
            for node in list(broker.group.living()):
                if self.world.rng.random() < 0.7 and node.applied == node.commit:
                    broker.group.snapshot(node)

    def _export(self) -> Run:
        world, options, times = self.world, self.options, self.world.times
        run = Run(
            manifest={
                "format": 1,
                "complete": True,
                "system": "ledgermq",
                "version": "model",
                "world": "sim",
                "scenario": {"name": "model", "text": ""},
                "seed": options.seed,
                "started_at": "2026-01-01T00:00:00Z",
                "environment": {},
                "phases": {
                    "load": [0, times.load_end],
                    "heal": [times.load_end, times.heal_end],
                    "drain": [times.heal_end, times.drain_end],
                },
                "groups": {
                    name: list(broker.group.voters) for name, broker in world.brokers.items()
                },
                "queues": self.queues,
                "consumer_groups": self.consumer_groups,
                "transactions": CHECKS if options.transactions else None,
                "dedupe": {"window_ms": 60_000} if options.dedupe else None,
                "limits": {"rto_ms": 6000, "gap_ms": 8000, "lag_ms": 20_000, "acked_share_min": 0.6}
                if options.limits
                else None,
                **(copy.deepcopy(MANIFEST) if options.features else {}),
                "engine": "raft",
                "left_behind": [],
                "clock_error_ns": 0,
            },
            ops=[row for row in world.ops if row["t_invoke"] <= times.drain_end],
            faults=self.faults,
            note=self.note,
        )
        for row in run.ops:
            if row["type"] is None:  # still under way when the run ended
                row["type"] = "info"
        for broker in world.brokers.values():
            run.raft += broker.group.trace
            for node in broker.group.nodes.values():
                _export_store(run, broker.group.name, node)
        run.number_ops()
        return run


def _export_store(run: Run, group: str, node: Node) -> None:
    for entry in node.entries[node.first - 1 :]:
        position = entry.position + entry_size([])
        for slot, row in enumerate(entry.records):
            has_unit = row["size"] is not None
            is_applied = entry.index <= node.applied
            run.log.append(
                {
                    **row,
                    "broker_group": group,
                    "node": node.name,
                    "index": entry.index,
                    "term": entry.term,
                    "slot": slot,
                    "chain": entry.chain,
                    "position": position,
                    "committed": entry.index <= node.commit,
                    "cq_ok": True if has_unit and is_applied else None,
                }
            )
            if has_unit and is_applied:
                unit = {key: row[key] for key in ("topic", "queue", "queue_offset", "size")}
                unit |= {"broker_group": group, "node": node.name, "position": position}
                run.cq.append({**unit, "tag_hash": row["tag_hash"]})
            position += row["size"] or 24


def model_run(options: Options | int) -> Run:
    """The run of a seed, or of these options."""
    return ModelCluster(
        options=options if isinstance(options, Options) else options_of(options)
    ).run()
