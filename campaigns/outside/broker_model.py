"""What a broker group stores: queues, transactions, consumer offsets, retries.

Place in the data path: between `replica_group` (which orders entries) and the clients' processes.

Invariants (without a defect): queue offsets are given by the leader and dense; a uniq_key that the
leader's log has is answered with its old place; a commit's final and op record are one entry; the
first decision wins; everything that is answered or shown is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from campaigns.outside.replica_group import COMMAND, Entry, Node, ReplicaGroup
from campaigns.outside.run_rows import MS, Row, signed_hash
from campaigns.outside.virtual_time import Wait

__all__ = [
    "HALF_TOPIC",
    "MAX_TIME_TOPIC",
    "OP_TOPIC",
    "Broker",
    "HalfState",
    "java_hash",
    "of_message",
    "record",
]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
HALF_GROUP: Final = "CID_SYS_RMQ_TRANS"
STARTED_MS: Final = 1_767_225_600_000  # 2026-01-01


def record(kind: str, **fields: object) -> Row:
    """A record as the log table has it, but for its place."""
    return {**COMMAND, "kind": kind, **fields}


def java_hash(text: str) -> int:
    """String.hashCode of `text`, which has no letters beyond the basic plane."""
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def of_message(kind: str, message: Row, topic: str, queue: int) -> Row:
    """The record of a message, but for its place."""
    return record(
        kind,
        topic=topic,
        queue=queue,
        value=message["value"],
        uniq_key=message["uniq_key"],
        keys=message["keys"],
        digest=message["digest"],
        tx=message["tx"],
        size=91 + len(message["value"]) * 3 + len(topic),
        tag_hash=java_hash(message["tag"]),
        message=message,
    )


@dataclass(kw_only=True)
class HalfState:
    """A half as the checker sees it."""

    message: Row
    client_group: str
    offset: int  # of its newest append in the half queue
    since: int  # its commit, or its last check
    checks: int = 0
    checked_by: str = ""  # the replica that checked last
    quiet: int = 0  # for so long its producer wants no check
    decision: str | None = None
    is_discarded: bool = False


@dataclass(kw_only=True)
class _Tail:
    """What the leader's log says, uncommitted entries included."""

    next_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    by_key: dict[str, tuple[Entry, Row]] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    halves: dict[str, Row] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        for row in entry.records:
            if row["kind"] in {"message", "half", "op", "final"}:
                self.next_offset[row["topic"], row["queue"]] = row["queue_offset"] + 1
            is_first = row["kind"] == "half" or (
                row["kind"] == "message" and row["topic"][0] not in "%STR"
            )
            if is_first and row["uniq_key"]:
                self.by_key.setdefault(row["uniq_key"], (entry, row))
            if row["kind"] == "half":
                self.halves.setdefault(row["tx"], row["message"])
            if row["kind"] == "op":
                self.decided.setdefault(row["tx"], row["decision"])
            if row["topic"] == MAX_TIME_TOPIC:
                self.decided.setdefault(row["tx"], "discard")


class Broker:
    """The state machine of one group, and what its leader adds to the log."""

    def __init__(self, group: ReplicaGroup, *, dedupe: bool, first_config: bool) -> None:
        self.group, self.dedupe, self.first_config = group, dedupe, first_config
        self.queues: dict[tuple[str, int], list[tuple[int, Row]]] = {}
        self.offsets: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
        self.halves: dict[str, HalfState] = {}
        self.half_groups: dict[str, str] = {}
        self.half_quiet: dict[str, int] = {}
        self.half_offset = 0
        self.ignored: set[str] = set()  # transactions that a defect keeps from being checked
        self.forgotten: set[str] = set()  # and whose decisions are answered, and never stored
        self.stored_ms: dict[tuple[str, int], int] = {}  # by topic and offset, of first queues
        self.found: dict[tuple[str, int], Row] = {}  # the messages there
        self._tails: dict[tuple[str, int], _Tail] = {}
        group.on_commit, group.on_leader = self._committed, self._elected

    # -- the leader's log

    def _tail(self, node: Node) -> _Tail:
        key = (node.name, node.term)
        if key not in self._tails:
            tail = _Tail()
            for entry in node.entries:
                tail.take(entry)
            self._tails[key] = tail
        return self._tails[key]

    def _elected(self, node: Node) -> None:
        if self.first_config and not node.entries:
            self.group.propose(node, [record("config", voters=self.group.voters)])
        self.group.propose(node, [record("noop")])
        if self.group.rng.random() < 0.3:
            self.group.propose(node, [record("command")])  # a topic's settings, say

    def add(self, node: Node, records: list[Row]) -> tuple[Entry, Wait]:
        """One entry of `records`, which get their queue offsets here."""
        tail = self._tail(node)
        placed: dict[tuple[str, int], int] = {}
        for row in records:
            if row["kind"] in {"message", "half", "op", "final"}:
                key = (row["topic"], row["queue"])
                offset = placed.get(key, tail.next_offset.get(key, 0))
                row["queue_offset"], placed[key] = offset, offset + 1
                row["stored_ms"] = STARTED_MS + self.group.sim.now // MS
                if row["kind"] == "message" and row["queue"] == 0:
                    self.stored_ms[row["topic"], offset] = row["stored_ms"]
                    self.found[row["topic"], offset] = row["message"]
        entry, wait = self.group.propose(node, records)
        tail.take(entry)
        return entry, wait

    def store(self, node: Node, messages: list[Row], topic: str, queue: int) -> Wait:
        """Answers the queue offsets once they are committed."""
        tail, answer = self._tail(node), Wait()
        known = [tail.by_key.get(message["uniq_key"]) for message in messages]
        if self.dedupe and all(known) and "no_dedupe" not in self.group.defects:
            entry = known[0][0]  # type: ignore[index]  # a batch is one entry
            offsets = [found[1]["queue_offset"] for found in known if found is not None]
            self.group.wait_for(entry).then(lambda _: answer.resolve(offsets))
            return answer
        records = [of_message("message", message, topic, queue) for message in messages]
        entry, wait = self.add(node, records)
        offsets = [row["queue_offset"] for row in records]
        if "early_ack" in self.group.defects:
            answer.resolve(offsets)
        wait.then(lambda is_done: answer.resolve(offsets if is_done else None))
        return answer

    def store_half(self, node: Node, message: Row, client_group: str, quiet: int = 0) -> Wait:
        tail, answer = self._tail(node), Wait()
        self.half_groups[message["tx"]] = client_group
        self.half_quiet.setdefault(message["tx"], quiet)
        known = tail.by_key.get(message["uniq_key"])
        if known is not None:
            self.group.wait_for(known[0]).then(lambda _: answer.resolve(known[1]["queue_offset"]))
            return answer
        half = of_message("half", message, HALF_TOPIC, 0)
        _, wait = self.add(node, [half])
        wait.then(lambda _: answer.resolve(half["queue_offset"]))
        return answer

    def decide(self, node: Node, tx: str, decision: str) -> Wait:
        """Answers `done`, or `refused` where the other decision had won."""
        tail, answer = self._tail(node), Wait()
        before = tail.decided.get(tx)
        if before is not None or tx not in tail.halves:
            answer.resolve("done" if before == decision else "refused")
            return answer
        message = tail.halves[tx]
        if tx in self.forgotten:
            answer.resolve("done")
            return answer
        op = record(
            "op",
            topic=OP_TOPIC,
            queue=0,
            value=message["value"],
            uniq_key=message["uniq_key"],
            tx=tx,
            decision=decision,
            size=140,
            tag_hash=signed_hash("op"),
        )
        final = of_message("final", message, message["topic"], message["queue"])
        _, wait = self.add(node, [final, op] if decision == "commit" else [op])
        wait.then(lambda _: answer.resolve("done"))
        return answer

    def commit_offset(self, node: Node, group: str, topic: str, queue: int, offset: int) -> Wait:
        row = record("offset", topic=topic, queue=queue, queue_offset=offset, client_group=group)
        return self.add(node, [row])[1]

    def send_back(self, node: Node, message: Row, group: str, *, by_schedule: bool) -> Wait:
        """A message that a listener refused goes to its group's retry queue."""
        again = {**message, "reconsume": (message["reconsume"] or 0) + 1, "offset": None}
        retry = of_message("message", again, f"%RETRY%{group}", 0)
        if not by_schedule:
            return self.add(node, [retry])[1]
        waiting = of_message("message", again, "SCHEDULE_TOPIC_XXXX", 3)
        answer = Wait()
        self.add(node, [waiting])[1].then(lambda _: self.add(node, [retry])[1].then(answer.resolve))
        return answer

    def change_voters(self, node: Node, voters: tuple[str, ...]) -> Wait:
        return self.add(node, [record("config", voters=voters)])[1]

    # -- what is committed

    def _committed(self, entry: Entry) -> None:
        now = self.group.sim.now
        for row in entry.records:
            if row["kind"] in {"message", "half", "op", "final"}:
                self.queues.setdefault((row["topic"], row["queue"]), []).append((entry.index, row))
            if row["kind"] == "offset" and row["client_group"] != HALF_GROUP:
                key = (row["client_group"], row["topic"], row["queue"])
                self.offsets.setdefault(key, []).append((entry.index, row["queue_offset"]))
            tx = row["tx"]
            if row["kind"] == "half" and tx in self.halves:
                self.halves[tx].offset = row["queue_offset"]
            elif row["kind"] == "half":
                self.halves[tx] = HalfState(
                    message=row["message"],
                    client_group=self.half_groups[tx],
                    offset=row["queue_offset"],
                    since=now,
                    quiet=self.half_quiet[tx],
                )
            elif row["kind"] == "op" and tx in self.halves and not self.halves[tx].decision:
                self.halves[tx].decision = row["decision"]
            elif row["topic"] == MAX_TIME_TOPIC:
                self.halves[tx].is_discarded = True

    def length(self, node: Node, topic: str, queue: int) -> int:
        """The queue's next offset as `node` has applied it."""
        rows = self.queues.get((topic, queue), [])
        return sum(index <= node.applied for index, _ in rows)

    def floor(self, node: Node, topic: str, queue: int) -> int:
        """The queue's first offset that `node` still has."""
        rows = self.queues.get((topic, queue), [])
        return sum(index < node.first for index, _ in rows)

    def read(self, node: Node, topic: str, queue: int, offset: int, count: int) -> list[Row]:
        rows = self.queues.get((topic, queue), [])[offset : offset + count]
        return [
            {**row["message"], "topic": topic, "queue": queue, "offset": row["queue_offset"]}
            for index, row in rows
            if node.first <= index <= node.applied
        ]

    def find(self, node: Node, topic: str, key: str) -> list[Row]:
        """What a query by key or uniq_key shows."""
        return [
            {**row["message"], "topic": topic, "queue": queue, "offset": row["queue_offset"]}
            for (name, queue), rows in sorted(self.queues.items())
            for index, row in rows
            if name == topic and node.first <= index <= node.applied
            if key == row["uniq_key"] or key in (row["keys"] or ())
        ]

    def stored_offset(self, node: Node, group: str, topic: str, queue: int) -> int | None:
        rows = [
            offset
            for index, offset in self.offsets.get((group, topic, queue), [])
            if index <= node.applied
        ]
        return rows[-1] if rows else None

    # -- the checker of halves

    def check_halves(
        self,
        node: Node,
        *,
        timeout: int,
        interval: int,
        check_max: int,
        check: Callable[[str, HalfState], bool],
        puts_back: bool,
    ) -> None:
        """One round: checks producers, discards what was checked too often, moves the offset."""
        now = self.group.sim.now
        for tx, half in sorted(self.halves.items()):
            if (
                tx in self.ignored
                or half.decision
                or half.is_discarded
                or self._tail(node).decided.get(tx)
            ):
                continue
            if now - half.since < (interval if half.checks else max(timeout, half.quiet)):
                continue
            half.checked_by = node.name
            if half.checks >= check_max:
                self.add(node, [of_message("message", half.message, MAX_TIME_TOPIC, 0)])
            elif check(tx, half):
                half.checks += 1
                half.since = now
                if puts_back:
                    self.add(node, [of_message("half", half.message, HALF_TOPIC, 0)])
        self._move_half_offset(node)

    def _move_half_offset(self, node: Node) -> None:
        total = self.length(node, HALF_TOPIC, 0)
        waiting = [
            half.offset
            for half in self.halves.values()
            if not half.decision and not half.is_discarded
            if half.message["tx"] not in self.ignored or "stuck" in self.group.defects
        ]
        reached = min([*waiting, total])
        if reached > self.half_offset and node.applied == node.commit:
            self.half_offset = reached
            self.add(
                node,
                [
                    record(
                        "offset",
                        topic=HALF_TOPIC,
                        queue=0,
                        queue_offset=reached,
                        client_group=HALF_GROUP,
                    )
                ],
            )
