"""Producers, transactional producers, and the tool that queries offsets and keys.

Place in the data path: processes in virtual time; what they do is the larger half of the ops table.
"""

from __future__ import annotations

from typing import Final

from campaigns.outside.broker_model import HalfState
from campaigns.outside.client_world import Client, World, message
from campaigns.outside.replica_group import Node
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process, Wait

__all__ = ["Producer", "Tool", "TransactionProducer"]


QUIET: Final = 1600 * MS


class Producer(Client):
    """Sends messages, batches and ordered shards; repeats what it does not know the end of."""

    def __init__(self, world: World, name: str, client_group: str) -> None:
        super().__init__(world, name, client_group)
        self._number = 0
        self._seq: dict[str, int] = {}

    def run(self) -> Process:
        world, rng = self.world, self.world.rng
        while self.now < world.times.load_end:
            yield rng.randint(20 * MS, 400 * MS)
            group, topic, queue = rng.choice(world.user_queues())
            if rng.random() < 0.08:
                batch = [self._message(group, topic, queue) for _ in range(rng.randint(2, 4))]
            elif rng.random() < 0.5:
                batch = [self._of_shard()]
            else:
                batch = [self._message(group, topic, queue)]
            world.sent += batch
            yield from self._deliver(batch)

    def _message(self, group: str, topic: str, queue: int) -> Row:
        self._number += 1
        keys = [f"k{self._number % 5}"] if self.world.rng.random() < 0.5 else []
        return message(
            f"{self.name}.v{self._number}", topic=topic, queue=queue, broker_group=group, keys=keys
        )

    def _of_shard(self) -> Row:
        shard = f"{self.name}-s{self.world.rng.randint(0, 1)}"
        queues = self.world.user_queues()
        group, topic, queue = queues[sum(shard.encode()) % len(queues)]
        made = self._message(group, topic, queue)
        self._seq[shard] = made["seq"] = self._seq.get(shard, 0) + 1
        made["shard"] = shard
        return made

    def _deliver(self, batch: list[Row]) -> Process:
        for _ in range(6):
            outcome = yield from self.attempt(batch)
            if outcome == "ok" or self.world.rng.random() < 0.15:
                return
            yield self.world.rng.randint(50 * MS, 300 * MS)

    def attempt(self, batch: list[Row]) -> Process:
        """One attempt to send; answers how it ended."""
        group, topic, queue = (batch[0][key] for key in ("broker_group", "topic", "queue"))
        row = self.begin(
            "send",
            broker_group=group,
            topic=topic,
            queue=queue,
            messages=[dict(each) for each in batch],
        )

        def stored(node: Node) -> Wait:
            return self.world.brokers[group].store(node, batch, topic, queue)

        offsets = yield from self.request(row, group, stored)
        if offsets is None:
            if row["type"] == "info" and self.world.rng.random() < 0.3:
                row["status"] = "FLUSH_DISK_TIMEOUT"
            return row["type"]
        for each, offset in zip(row["messages"], offsets, strict=True):
            each["offset"] = offset
        self.end(row, "ok", status="SEND_OK")
        return "ok"


class TransactionProducer(Client):
    """Half, local transaction, decision; answers the broker's questions while it lives."""

    def __init__(
        self, world: World, name: str, client_group: str, *, repeats: bool = False
    ) -> None:
        super().__init__(world, name, client_group)
        self.repeats = repeats  # halves and decisions that were acknowledged, too
        self._number, self._checks = 0, 0
        self.local: dict[str, str] = {}  # what its own database says
        self._stubborn: set[str] = set()  # for which it answers unknown for ever

    def run(self) -> Process:
        rng = self.world.rng
        while self.now < self.world.times.load_end - SECOND:
            yield rng.randint(100 * MS, 900 * MS)
            yield from self._transaction()
        while self.now < self.world.times.heal_end:  # alive, so that halves are checked
            yield rng.randint(100 * MS, 700 * MS)
            yield from self._query_end()

    def _query_end(self) -> Process:
        group, topic, queue = self.world.user_queues()[0]
        broker = self.world.brokers[group]
        row = self.begin("max_offset", broker_group=group, topic=topic, queue=queue)
        index = yield from self.request(row, group, broker.group.read_index)
        if index is not None:
            answered = broker.length(broker.group.nodes[row["node"]], topic, queue)
            self.end(row, "ok", offset=answered)

    def _transaction(self) -> Process:
        rng = self.world.rng
        self._number += 1
        tx = f"{self.name}-x{self._number}"
        group, topic, queue = rng.choice(self.world.user_queues())
        made = message(
            f"{self.name}.t{self._number}", topic=topic, queue=queue, broker_group=group, tx=tx
        )
        self.world.sent.append(made)
        quiet = QUIET if self.repeats and self._number % 3 == 0 else None
        outcome = yield from self._half(made, quiet)
        if self.repeats and self._number % 4 == 0 and outcome != "fail":
            yield from self._half(made, quiet)
        if outcome == "fail":
            return
        if rng.random() < 0.1:
            return  # it crashed before its local transaction
        yield rng.randint(0, 20 * MS)
        row = self.begin("local", broker_group=group, tx=tx)
        yield rng.randint(0, 10 * MS)
        local = rng.choices(["commit", "rollback", "unknown"], [6, 3, 2])[0]
        self.local[tx] = local
        if local == "unknown" and rng.random() < 0.5:
            self._stubborn.add(tx)
        self.end(row, "ok", decision=local)
        if local == "unknown" or rng.random() < 0.15:
            return  # the checker will check
        for _ in range(4):
            answer = yield from self._decide(group, tx, local)
            if answer != "info" and not (self.repeats and rng.random() < 0.5):
                break
            yield rng.randint(20 * MS, 200 * MS)
        if rng.random() < 0.1 and outcome == "ok":
            other = "rollback" if local == "commit" else "commit"
            yield from self._decide_late(group, tx, other)

    def _half(self, made: Row, quiet: int | None) -> Process:
        row = self.begin(
            "half",
            broker_group=made["broker_group"],
            topic=made["topic"],
            queue=made["queue"],
            tx=made["tx"],
            messages=[dict(made)],
            due=None if quiet is None else self.now + quiet,
        )
        broker = self.world.brokers[made["broker_group"]]
        offset = yield from self.request(
            row,
            made["broker_group"],
            lambda node: broker.store_half(node, made, self.client_group, quiet or 0),
        )
        if offset is not None:
            self.end(row, "ok", status="SEND_OK", offset=offset)
        return row["type"]

    def _decide(self, group: str, tx: str, decision: str) -> Process:
        broker = self.world.brokers[group]
        row = self.begin("decide", broker_group=group, tx=tx, decision=decision)
        answer = yield from self.request(row, group, lambda node: broker.decide(node, tx, decision))
        if answer is not None and answer == "done":
            self.end(row, "ok")
        elif answer is not None:
            self.end(row, "fail", status="604", error="REFUSED decided otherwise")
        return row["type"]

    def _decide_late(self, group: str, tx: str, other: str) -> Process:
        """A contrary decision, only once the first is settled: it has to be refused."""
        half = self.world.brokers[group].halves.get(tx)
        if half is not None and half.decision is not None and half.decision != other:
            yield from self._decide(group, tx, other)

    def checked(self, tx: str, half: HalfState) -> bool:
        """The broker's question arrives; answered in a process of its own."""
        self._checks += 1
        local = self.local.get(tx, "unknown")
        if local == "unknown" and tx not in self._stubborn and half.checks >= 1:
            local = self.local[tx] = "rollback"  # it gives up what it knows nothing of
        answerer = Client(self.world, f"{self.name}.check{self._checks}", self.client_group)
        answerer.name = self.name
        self.world.sim.spawn(self._answer(answerer, tx, local, half))
        return True

    def _answer(self, answerer: Client, tx: str, local: str, half: HalfState) -> Process:
        group = half.message["broker_group"]
        row = answerer.begin(
            "check",
            broker_group=group,
            tx=tx,
            decision=local,
            offset=half.offset,
            node=half.checked_by,
            status=str(half.checks + 1),
        )
        yield self.world.latency()
        answerer.end(row, "ok")
        node = self.world.dialled(group)
        if local != "unknown" and node is not None and not node.paused:
            self.world.brokers[group].decide(node, tx, local)


class Tool(Client):
    """Queries max offsets and keys: what an administrator does."""

    def run(self) -> Process:
        rng = self.world.rng
        while self.now < self.world.times.drain_end - SECOND:
            yield rng.randint(100 * MS, 500 * MS)
            if rng.random() < 0.5:
                yield from self._max_offset(*rng.choice(self.world.user_queues()))
            elif self.world.sent:
                sent = rng.choice(self.world.sent)
                keys = [sent["uniq_key"], *sent["keys"]]
                yield from self._query(sent["broker_group"], sent["topic"], rng.choice(keys))

    def _max_offset(self, group: str, topic: str, queue: int) -> Process:
        broker = self.world.brokers[group]
        row = self.begin("max_offset", broker_group=group, topic=topic, queue=queue)

        def answered(node: Node) -> Wait:
            wait = Wait()
            broker.group.read_index(node).then(
                lambda index: wait.resolve(
                    None if index is None else broker.length(node, topic, queue)
                )
            )
            return wait

        offset = yield from self.request(row, group, answered)
        if offset is not None:
            self.end(row, "ok", offset=offset)

    def _query(self, group: str, topic: str, key: str) -> Process:
        broker = self.world.brokers[group]
        row = self.begin("query", broker_group=group, topic=topic, key=key)

        def shown(node: Node) -> Wait:
            wait = Wait()
            broker.group.read_index(node).then(
                lambda index: wait.resolve(None if index is None else broker.find(node, topic, key))
            )
            return wait

        found = yield from self.request(row, group, shown)
        if found is not None:
            self.end(row, "ok", messages=found)
