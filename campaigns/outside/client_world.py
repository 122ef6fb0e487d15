"""What clients share: the world they live in, and how their operations get into the history.

Place in the data path: between the brokers' model and the processes of `producers` and `consumers`.

Invariants: one process does one thing at a time and is retired after an `info`; its successor has
another name. An operation is recorded when it is invoked and completed with what its caller knew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.outside.broker_model import Broker
from campaigns.outside.replica_group import Node
from campaigns.outside.run_rows import MS, SECOND, Row, content_digest
from campaigns.outside.virtual_time import Process, Simulator, Wait

__all__ = ["Client", "Times", "World", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The phases of every model run, in nanoseconds."""

    load_end: int = 14 * SECOND
    heal_end: int = 22 * SECOND
    drain_end: int = 27 * SECOND


@dataclass(kw_only=True)
class World:
    """Everything that clients can see, and some things that they cannot."""

    sim: Simulator
    rng: random.Random
    brokers: dict[str, Broker]
    topics: dict[str, int]  # user topics and how many queues each has, in every broker group
    times: Times
    ops: list[Row] = field(default_factory=list)
    sent: list[Row] = field(default_factory=list)  # every message that was made
    defects: frozenset[str] = frozenset()

    def user_queues(self) -> list[tuple[str, str, int]]:
        return [
            (group, topic, queue)
            for group in self.brokers
            for topic, count in self.topics.items()
            for queue in range(count)
        ]

    def latency(self) -> int:
        return self.rng.choice([0, *(self.rng.randint(MS // 5, 2 * MS) for _ in range(9))])

    def dialled(self, group: str) -> Node | None:
        """The node that a client takes for the leader: now and then one that was deposed."""
        nodes = self.brokers[group].group.nodes.values()
        leaders = [node for node in nodes if node.up and node.role == "leader"]
        if not leaders:
            return None
        newest = max(leaders, key=lambda node: node.term)
        return self.rng.choice(leaders) if self.rng.random() < 0.5 else newest


def message(
    value: str,
    *,
    topic: str,
    queue: int,
    broker_group: str,
    keys: Sequence[str] = (),
    shard: str | None = None,
    seq: int | None = None,
    tx: str | None = None,
    tag: str | None = None,
) -> Row:
    """A message as its producer makes it; without a tag it has its value's first letter."""
    properties = {
        "TAGS": tag or value[0],
        "KEYS": " ".join(keys),
        "u_from": value.split(".", maxsplit=1)[0],
    }
    return {
        "value": value,
        "uniq_key": f"U-{value}",
        "keys": list(keys),
        "broker_group": broker_group,
        "topic": topic,
        "queue": queue,
        "offset": None,
        "digest": content_digest(value.encode(), 0, properties),
        "shard": shard,
        "seq": seq,
        "tx": tx,
        "reconsume": 0,
        "tag": properties["TAGS"],  # no column: the log has its hash
    }


class Client:
    """A client instance whose operations are recorded under one process at a time."""

    def __init__(self, world: World, name: str, client_group: str) -> None:
        self.world, self.name, self.client_group = world, name, client_group
        self.process, self._successors = name, 0

    @property
    def now(self) -> int:
        return self.world.sim.now

    def begin(self, f: str, **fields: Any) -> Row:
        row: Row = {
            "process": self.process,
            "client": self.name,
            "client_group": self.client_group,
            "f": f,
            "type": None,
            "t_invoke": self.now,
            "t_complete": None,
            **fields,
        }
        self.world.ops.append(row)
        return row

    def end(self, row: Row, type_: str, **fields: Any) -> None:
        row["type"] = type_
        row.update(fields)
        if type_ != "info" or self.world.rng.random() < 0.5:
            row["t_complete"] = self.now  # of an info: when its caller gave up
        if type_ == "info":
            self._successors += 1
            self.process = f"{self.name}.{self._successors}"

    def request(
        self, row: Row, group: str, work: Callable[[Node], Wait], *, patience: int = 1500 * MS
    ) -> Process:
        """One request: answers what `work` does, or None after ending the row itself.

        What no leader took is `fail`; what nobody answered in time is `info`.
        """
        world = self.world
        yield world.latency()
        node = world.dialled(group)
        if node is None:
            yield world.latency()
            self.end(row, "fail", error="NO_LEADER no leader is known")
            return None
        if node.paused:
            yield patience
            self.end(row, "info", error="TIMEOUT")
            return None
        answer = yield world.sim.timeout(work(node), patience)
        if answer is None:
            self.end(row, "info", error="TIMEOUT", node=node.name)
            return None
        if world.rng.random() < 0.02:  # the answer gets lost on its way
            self.end(row, "info", error="CONNECTION_LOST")
            return None
        yield world.latency()
        row["node"], row["term"] = node.name, node.term
        return answer
