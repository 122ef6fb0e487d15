"""What is done to a model cluster: faults with their effect, retention, changes of members.

Place in the data path: processes in virtual time beside those of the clients; the faults table.

Invariants: one fault of a group at a time, each healed before the load ends; a majority lives.
"""

from __future__ import annotations

import json
import random

from campaigns.outside.broker_model import Broker
from campaigns.outside.client_world import World
from campaigns.outside.replica_group import Node, ReplicaGroup
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process, Simulator

__all__ = ["FaultPlan", "change_members", "retain", "watch_elections"]

KINDS = (
    "kill-leader",
    "power-leader",
    "kill-follower",
    "cut-leader",
    "cut-follower",
    "pause-leader",
)


def watch_elections(sim: Simulator, group: ReplicaGroup, rng: random.Random, until: int) -> Process:
    """Whoever misses a leader stands for election, after a timeout."""
    missed = 0
    while sim.now < until:
        yield rng.randint(60 * MS, 140 * MS)
        leader = group.leader()
        missed = 0 if leader is not None and group.in_charge(leader) else missed + 1
        if missed >= rng.randint(2, 5):
            able = [
                node
                for node in group.living()
                if node.name not in group.cut and node.role != "leader"
            ]
            # Two who stand at once may split the votes.
            for node in rng.sample(able, min(len(able), rng.choice([1, 1, 1, 2]))):
                group.stand(node)
            missed = 0


class FaultPlan:
    """Faults of one group, one after the other, and their rows."""

    def __init__(self, world: World, broker: Broker, kinds: list[str], rows: list[Row]) -> None:
        self.world, self.group, self.kinds, self.rows = world, broker.group, kinds, rows

    def run(self) -> Process:
        rng, sim = self.world.rng, self.world.sim
        yield 2 * SECOND
        for place, kind in enumerate(self.kinds):
            yield rng.randint(200 * MS, 1200 * MS)
            leader = self.group.leader()
            if leader is None:
                continue
            followers = [
                node
                for node in self.group.living()
                if node is not leader and node.name in leader.config[1]
            ]
            target = leader if kind.endswith("leader") else rng.choice(followers)
            row: Row = {
                "fault": len(self.rows),
                "name": kind,
                "targets": [target.name],
                "params": json.dumps({"broker_group": self.group.name}),
                "t_start": sim.now,
                "t_effect": None,
                "t_heal": None,
                "t_healed": None,
                "effect": "unknown",
                "evidence": "",
            }
            self.rows.append(row)
            if place and rng.random() < 0.25:
                row.update(effect="not_taken", evidence="the process answered", t_heal=sim.now)
                continue
            yield rng.randint(0, 5 * MS)
            self._strike(kind, target)
            effect = "unknown" if place and rng.random() < 0.2 else "taken"
            row.update(effect=effect, t_effect=sim.now, evidence=f"{target.name} is gone")
            yield rng.randint(900 * MS, 1800 * MS)
            row["t_heal"] = sim.now
            self._heal(kind, target)
            yield rng.randint(1 * MS, 50 * MS)
            row["t_healed"] = sim.now if not place or rng.random() < 0.8 else None

    def _strike(self, kind: str, node: Node) -> None:
        if kind.startswith("cut"):
            self.group.cut.add(node.name)
        elif kind.startswith("pause"):
            node.paused = True
        else:
            self.group.kill(node, with_power=kind.startswith("power"))

    def _heal(self, kind: str, node: Node) -> None:
        if kind.startswith("cut"):
            self.group.cut.discard(node.name)
        elif kind.startswith("pause"):
            self.group.resume(node)
        else:
            self.group.start(node)


def retain(world: World, broker: Broker, *, installs: bool) -> Process:
    """Snapshots, and the log's beginning removed up to what every consumer is past.

    With `installs` one replica is down from the middle of the load on, so that it needs an
    install when it comes back.
    """
    group, sim, rng = broker.group, world.sim, world.rng
    yield rng.randint(4500 * MS, 5500 * MS)
    late = None
    if installs:
        able = [n for n in group.living() if n.role != "leader" and n.name not in group.cut]
        late = next((node for node in able if node.commit), None)
        if late is not None:
            group.kill(late)
    yield rng.randint(11 * SECOND, 12 * SECOND) - sim.now
    for node in list(group.living()):
        # Everybody who reads is less than four seconds behind.
        old = sum(t < sim.now - 4 * SECOND for t in group.commit_times)
        group.snapshot(node, first=old + 1 - rng.choice([0, 0, 5, 20]))
        yield rng.randint(0, 20 * MS)
    if late is not None:
        group.start(late)


def change_members(world: World, broker: Broker, *, remove: bool, begins: int) -> Process:
    """A new replica catches up and gets its vote; then an old one may lose its own."""
    group, sim = broker.group, world.sim
    yield begins
    node = group.add_node(f"n{len(group.nodes) + 1}")
    group.start(node)
    for change in ("add", "remove") if remove else ("add",):
        is_done = False
        while not is_done and sim.now < world.times.heal_end:
            yield world.rng.randint(300 * MS, 900 * MS)
            leader = group.leader()
            if leader is None or not group.in_charge(leader) or leader.commit < leader.config[0]:
                continue
            if not leader.commit or leader.entries[leader.commit - 1].term != leader.term:
                continue
            voters = leader.config[1]
            if (node.name in voters) == (change == "add"):
                if change == "add":
                    break
                gone = next(name for name in voters if name not in {leader.name, node.name})
                voters = tuple(name for name in voters if name != gone)
            else:
                voters = (*voters, node.name)
            is_done = bool((yield sim.timeout(broker.change_voters(leader, voters), SECOND)))
            if change == "remove":
                break
