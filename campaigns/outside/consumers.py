"""Consumers: polling members of an ordered group, push members, broadcast clients, the final drain.

Place in the data path: processes in virtual time, which read what is committed and commit offsets.

Invariants (without a defect): a position is what the group last committed, or the queue's first
offset; a queue is given to another member only after its holder was notified; whoever gets an
`info` starts anew under another name and queries its position again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from campaigns.outside.client_world import Client, World
from campaigns.outside.replica_group import Node
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process, Wait

__all__ = ["BroadcastClient", "Drainer", "GroupState", "PollMember", "PushMember", "QueueName"]

QueueName: TypeAlias = tuple[str, str, int]


@dataclass(kw_only=True)
class GroupState:
    """Who owns what in a cluster group, as its coordinator has it."""

    name: str
    members: list[str] = field(default_factory=list)
    generation: int = 0
    extra: tuple[QueueName, ...] = ()  # retry queues

    def join(self, member: str) -> None:
        self.members.append(member)
        self.generation += 1

    def leave(self, member: str) -> None:
        self.members.remove(member)
        self.generation += 1

    def share(self, member: str, queues: Sequence[QueueName]) -> list[QueueName]:
        place = self.members.index(member)
        return list(queues)[place :: len(self.members)]


def _named(queues: Sequence[QueueName]) -> list[Row]:
    return [{"broker_group": g, "topic": t, "queue": q} for g, t, q in queues]


class _Reader(Client):
    """What all consumers do: polls, and offsets of their group."""

    def poll(self, name: QueueName, offset: int, count: int, *, final: bool = False) -> Process:
        """The messages that came, or None."""
        group, topic, queue = name
        broker = self.world.brokers[group]
        row = self.begin(
            "poll",
            broker_group=group,
            topic=topic,
            queue=queue,
            offset=offset,
            final=final,
        )

        def shown(node: Node) -> Wait:
            wait = Wait()
            wait.resolve(broker.read(node, topic, queue, offset, count))
            return wait

        came = yield from self.request(row, group, shown)
        if came is not None:
            self.end(row, "ok", messages=came)
        return came

    def fetch(self, name: QueueName) -> Process:
        """The group's offset, -1 where there is none, None where nobody answered."""
        group, topic, queue = name
        broker = self.world.brokers[group]
        row = self.begin("fetch_offset", broker_group=group, topic=topic, queue=queue)

        def stored(node: Node) -> Wait:
            wait = Wait()

            def read(index: int | None) -> None:
                offset = broker.stored_offset(node, self.client_group, topic, queue)
                wait.resolve(None if index is None else -1 if offset is None else offset)

            broker.group.read_index(node).then(read)
            return wait

        offset = yield from self.request(row, group, stored)
        if offset is not None:
            self.end(row, "ok", offset=None if offset < 0 else offset)
        return offset

    def commit(self, name: QueueName, offset: int) -> Process:
        group, topic, queue = name
        broker = self.world.brokers[group]
        row = self.begin(
            "commit_offset", broker_group=group, topic=topic, queue=queue, offset=offset
        )
        answer = yield from self.request(
            row,
            group,
            lambda node: broker.commit_offset(node, self.client_group, topic, queue, offset),
        )
        if answer is not None:
            self.end(row, "ok")


class PollMember(_Reader):
    """A member of a cluster group that polls its queues in order."""

    def __init__(self, world: World, name: str, state: GroupState) -> None:
        super().__init__(world, name, state.name)
        self.state = state
        self.generation = -1
        self.positions: dict[QueueName, int] = {}
        self.owned: list[QueueName] = []
        self.leaves_at: int | None = None

    def run(self) -> Process:
        self.state.join(self.name)
        rng = self.world.rng
        known = self.process
        while self.now < self.world.times.drain_end - SECOND:
            if self.leaves_at is not None and self.now >= self.leaves_at:
                yield from self._give_up()
                return
            if self.generation != self.state.generation or known != self.process:
                yield from self.assign()
                known = self.process
            for name in list(self.owned):
                if known != self.process or self.generation != self.state.generation:
                    break
                if name not in self.positions:
                    offset = yield from self.fetch(name)
                    if offset is None:
                        continue
                    self.positions[name] = max(offset, 0)
                    continue
                yield from self.consume(name)
            yield rng.randint(40 * MS, 160 * MS)

    def assign(self) -> Process:
        """Takes what the coordinator gives it; the positions start anew."""
        self.generation = self.state.generation
        self.owned = self.state.share(self.name, [*self.world.user_queues(), *self.state.extra])
        self.positions = {}
        row = self.begin("assign", assigned=_named(self.owned))
        yield self.world.latency()
        self.end(row, "info" if self.world.rng.random() < 0.03 else "ok")

    def _give_up(self) -> Process:
        row = self.begin("assign", assigned=[])
        yield self.world.latency()
        self.end(row, "ok")
        self.state.leave(self.name)

    def to_floor(self, name: QueueName) -> None:
        """Where retention has taken what it would read, it goes on at the first that is left."""
        group, topic, queue = name
        broker = self.world.brokers[group]
        leader = broker.group.leader()
        if leader is not None:
            first = broker.floor(leader, topic, queue)
            self.positions[name] = max(self.positions[name], first)

    def consume(self, name: QueueName) -> Process:
        came = yield from self.poll(name, self.positions[name], self.world.rng.randint(1, 16))
        if came is not None and not came:
            self.to_floor(name)
        if came:
            self.positions[name] = came[-1]["offset"] + 1
            if self.world.rng.random() < 0.4:
                yield from self.commit(name, self.positions[name])


class PushMember(PollMember):
    """A member whose listener consumes; what it refuses comes back through the retry queue."""

    def __init__(self, world: World, name: str, state: GroupState, *, hides: bool) -> None:
        super().__init__(world, name, state)
        self.hides = hides  # reports the original topic, and no offset, of what came back

    def consume(self, name: QueueName) -> Process:
        group, topic, queue = name
        world, rng = self.world, self.world.rng
        broker = world.brokers[group]
        node = world.dialled(group)
        if node is None or node.paused:
            return
        came = broker.read(node, topic, queue, self.positions[name], rng.randint(1, 3))
        if not came:
            self.to_floor(name)
            return
        shown = [dict(message) for message in came]
        row = self.begin("deliver", broker_group=group, topic=topic, queue=queue)
        if topic.startswith("%RETRY%") and self.hides:
            shown = shown[:1]
            original = self._original(shown[0])
            shown[0].update(topic=original["topic"], queue=original["queue"], offset=None)
            row.update(topic=original["topic"], queue=original["queue"])
        row["messages"] = shown
        yield rng.randint(0, 4 * MS)
        luck = rng.random()
        if luck < 0.01:  # it crashed within its listener
            self.end(row, "info")
            self.name, self.generation = self.process, -1
            self.state.members[self.state.members.index(row["client"])] = self.name
            return
        refuses = luck < 0.08 and max(message["reconsume"] for message in shown) < 2
        self.end(row, "fail" if refuses else "ok", error="RECONSUME_LATER" if refuses else None)
        consumed = came[: len(shown)]
        if refuses:
            yield from self._send_back(group, consumed)
        self.positions[name] = consumed[-1]["offset"] + 1
        if rng.random() < 0.3:
            yield from self.commit(name, self.positions[name])

    def _original(self, message: Row) -> Row:
        return next(made for made in self.world.sent if made["value"] == message["value"])

    def _send_back(self, group: str, messages: list[Row]) -> Process:
        broker = self.world.brokers[group]
        for message in messages:
            is_back = False
            while not is_back:
                node = broker.group.leader()
                if node is not None:
                    by_schedule = self.world.rng.random() < 0.3
                    back = broker.send_back(
                        node, message, self.client_group, by_schedule=by_schedule
                    )
                    is_back = bool((yield self.world.sim.timeout(back, SECOND)))
                yield 10 * MS


class BroadcastClient(_Reader):
    """Reads every queue for itself, with positions of its own."""

    def run(self) -> Process:
        positions = dict.fromkeys(self.world.user_queues(), 0)
        rng = self.world.rng
        while self.now < self.world.times.drain_end - SECOND:
            for name in positions:
                came = yield from self.poll(name, positions[name], rng.randint(4, 32))
                if came:
                    positions[name] = came[-1]["offset"] + 1
            yield rng.randint(50 * MS, 300 * MS)


class Drainer(_Reader):
    """The final drain: every queue from its first offset to its last."""

    def __init__(self, world: World, name: str, queues: dict[QueueName, tuple[int, int]]) -> None:
        super().__init__(world, name, "drain")
        self.queues = queues

    def run(self) -> Process:
        for name, (first, end) in self.queues.items():
            position = first
            while position < end:
                count = min(self.world.rng.randint(8, 40), end - position)
                came = yield from self.poll(name, position, count, final=True)
                if came:
                    position = came[-1]["offset"] + 1
                else:
                    yield 20 * MS
