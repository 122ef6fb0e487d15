"""A replica group in virtual time: terms, elections, replication, restarts, and their trace.

Place in the data path: below `broker_model`; its events are the raft table of a model run.

Raft as the run format's page has it, by somebody who sees all nodes at once: who stands for
election is drawn or planned, and a follower that is behind is given what its log lacks. Votes,
durability, commitment and truncation are decided by the nodes' own state alone.

Invariants (without a defect): a leader commits what a quorum of its configuration has on disk and
what is of its own term; nobody drops what is committed; every event is traced when it happens.
`defects` switches single ones of these rules off: they are what planted runs are made with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from campaigns.outside.run_rows import MS, Row, signed_hash
from campaigns.outside.virtual_time import Simulator, Wait

__all__ = ["COMMAND", "Entry", "Node", "ReplicaGroup", "entry_size"]

_COLUMNS: Final = (
    "topic queue queue_offset client_group value uniq_key keys digest tx decision size tag_hash"
)
COMMAND: Final[Row] = dict.fromkeys(_COLUMNS.split()) | {"kind": "command"}
HEARTBEAT: Final = 100 * MS
ENTRY_HEADER_BYTES: Final = 48


@dataclass(kw_only=True)
class Entry:
    index: int
    term: int
    chain: int
    position: int
    records: list[Row]

    @property
    def voters(self) -> tuple[str, ...] | None:
        return self.records[0].get("voters") if self.records[0]["kind"] == "config" else None


def entry_size(records: Sequence[Row]) -> int:
    return ENTRY_HEADER_BYTES + sum(record["size"] or 24 for record in records)


@dataclass(kw_only=True)
class Node:
    name: str
    born_with: tuple[str, ...]
    entries: list[Entry] = field(default_factory=list)  # from index 1, whatever is exported
    first: int = 1  # of what its store still has
    base: int = 0  # its newest snapshot
    durable: int = 0
    commit: int = 0
    applied: int = 0
    term: int = 0
    voted: dict[int, str] = field(default_factory=dict)
    role: str = "follower"
    up: bool = False
    paused: bool = False
    incarnation: int = -1
    seq: int = 0
    votes: set[str] = field(default_factory=set)
    match: dict[str, int] = field(default_factory=dict)
    config: tuple[int, tuple[str, ...]] = (0, ())
    lag_apply: bool = False

    @property
    def last(self) -> int:
        return len(self.entries)

    def entry(self, index: int) -> Entry | None:
        return self.entries[index - 1] if 1 <= index <= self.last else None

    @property
    def quorum(self) -> int:
        return len(self.config[1]) // 2 + 1


class ReplicaGroup:
    """The replicas of one broker group."""

    def __init__(
        self,
        sim: Simulator,
        name: str,
        voters: Sequence[str],
        rng: random.Random,
        defects: frozenset[str] = frozenset(),
    ) -> None:
        self.sim, self.name, self.rng, self.defects = sim, name, rng, defects
        self.voters = tuple(voters)
        self.nodes = {voter: Node(name=voter, born_with=self.voters) for voter in voters}
        self.trace: list[Row] = []
        self.cut: set[str] = set()  # nodes whose links to the others are cut
        self.committed: list[Entry] = []
        self.commit_times: list[int] = []
        self.on_commit: Callable[[Entry], None] = lambda _: None
        self.on_leader: Callable[[Node], None] = lambda _: None
        self._waiting: dict[tuple[int, int], list[Wait]] = {}
        self.latency: Callable[[], int] = lambda: rng.randint(MS // 2, 3 * MS)
        self.disk: Callable[[], int] = lambda: rng.randint(MS // 2, 4 * MS)

    # -- what is traced

    def emit(self, node: Node, event: str, **fields: Any) -> Row:
        node.seq += 1
        row = {
            "broker_group": self.name,
            "node": node.name,
            "incarnation": node.incarnation,
            "seq": node.seq,
            "t": self.sim.now,
            "event": event,
            "term": node.term,
            **fields,
        }
        self.trace.append(row)
        return row

    # -- lives

    def start(self, node: Node) -> None:
        node.up, node.paused = True, False
        node.incarnation += 1
        node.role, node.votes, node.match = "follower", set(), {}
        node.commit = node.applied = node.base
        node.config = self._config_of(node)
        last = node.entry(node.last)
        self.emit(
            node,
            "start",
            index=node.last,
            entry_term=last.term if last else 0,
            chain=last.chain if last else 0,
            voters=list(node.config[1]),
        )
        if node.durable < node.last:
            self.plan_fsync(node)

    def kill(self, node: Node, *, with_power: bool = False) -> None:
        if node.role == "leader":
            self._waiting.clear()
        if node.role == "leader" and not with_power and self.rng.random() < 0.6:
            # Killed between storing and tracing: its start will find more than the trace has.
            node.entries.append(self._next(node, [dict(COMMAND)]))
        node.up, node.role = False, "follower"
        if with_power:
            del node.entries[max(node.durable, node.base) :]

    def resume(self, node: Node) -> None:
        """A stopped process goes on where it was, an old leader among them."""
        node.paused = False
        self.plan_fsync(node)

    def _config_of(self, node: Node) -> tuple[int, tuple[str, ...]]:
        for entry in reversed(node.entries):
            if entry.voters is not None:
                return entry.index, entry.voters
        return 0, node.born_with

    def reaches(self, one: Node, other: Node) -> bool:
        if one is other:
            return True
        both = (one, other)
        return all(node.up and not node.paused and node.name not in self.cut for node in both)

    # -- elections

    def leader(self) -> Node | None:
        """The leader of the highest term that lives, if any."""
        leaders = [n for n in self.nodes.values() if n.up and n.role == "leader" and not n.paused]
        return max(leaders, key=lambda node: node.term, default=None)

    def in_charge(self, node: Node) -> bool:
        """Whether a majority still follows: its own check of a quorum."""
        followers = [self.nodes[name] for name in node.config[1] if name in self.nodes]
        reached = [n for n in followers if self.reaches(node, n) and n.term <= node.term]
        return node.up and node.role == "leader" and len(reached) >= node.quorum

    def step_down(self, node: Node, term: int | None = None) -> None:
        if term is not None and term > node.term:
            node.term = term
        if node.role != "follower" or term is not None:
            if node.role == "leader":
                self._waiting.clear()
            node.role = "follower"
            self.emit(node, "role", role="follower")

    def stand(self, node: Node) -> None:
        """An election: it may be won, or not."""
        if not node.up or node.paused or node.role == "leader":
            return
        if node.name not in node.config[1]:
            return
        node.term += 1
        node.role, node.votes = "candidate", set()
        term = node.term
        self.emit(node, "role", role="candidate")
        self._vote(node, node, term)
        for name in node.config[1]:
            peer = self.nodes.get(name)
            if peer is not None and peer is not node:
                self.sim.after(self.latency(), partial(self._on_vote_request, peer, node, term))

    def _on_vote_request(self, peer: Node, candidate: Node, term: int) -> None:
        if not self.reaches(candidate, peer) or term < peer.term:
            return
        if term > peer.term:
            self.step_down(peer, term)
        self._vote(peer, candidate, term)

    def _vote(self, voter: Node, candidate: Node, term: int) -> None:
        if "double_vote" not in self.defects and voter.voted.get(term, candidate.name) != (
            candidate.name
        ):
            return
        log_end = (self._last_term(candidate), candidate.last)
        if "vote_for_any_log" not in self.defects and log_end < (
            self._last_term(voter),
            voter.last,
        ):
            return
        voter.voted[term] = candidate.name
        for _ in range(1 + (self.rng.random() < 0.1)):  # a vote may be sent again
            self.emit(
                voter, "vote", peer=candidate.name, last_term=log_end[0], last_index=log_end[1]
            )
        delay = 0 if voter is candidate else self.latency()
        self.sim.after(delay, lambda: self._granted(candidate, voter, term))

    def _granted(self, candidate: Node, voter: Node, term: int) -> None:
        if not candidate.up or candidate.term != term or candidate.role != "candidate":
            return
        candidate.votes.add(voter.name)
        if len(candidate.votes) >= candidate.quorum:
            candidate.role, candidate.match = "leader", {}
            self._waiting.clear()
            self.emit(candidate, "role", role="leader")
            self.on_leader(candidate)

    @staticmethod
    def _last_term(node: Node) -> int:
        return node.entries[-1].term if node.entries else 0

    # -- the log

    def propose(self, node: Node, records: list[Row]) -> tuple[Entry, Wait]:
        """Appends `records` as one entry on a leader; the wait is answered when it commits."""
        entry = self._next(node, records)
        self._append(node, entry)
        self.plan_fsync(node)
        self.replicate(node)
        wait = Wait()
        self._waiting.setdefault((entry.index, node.term), []).append(wait)
        return entry, wait

    @staticmethod
    def _next(node: Node, records: list[Row]) -> Entry:
        before = node.entry(node.last)
        return Entry(
            index=node.last + 1,
            term=node.term,
            chain=signed_hash(before.chain if before else 0, node.term, records),
            position=before.position + entry_size(before.records) if before else 0,
            records=records,
        )

    def wait_for(self, entry: Entry) -> Wait:
        """Answered when the leader commits `entry`; at once where it has."""
        wait = Wait()
        if entry.index <= len(self.committed):
            wait.resolve(self.committed[entry.index - 1] is entry)
        else:
            self._waiting.setdefault((entry.index, entry.term), []).append(wait)
        return wait

    def _append(self, node: Node, entry: Entry) -> None:
        node.entries.append(entry)
        self.emit(node, "append", index=entry.index, entry_term=entry.term, chain=entry.chain)
        if entry.voters is not None:
            node.config = (entry.index, entry.voters)
            self.emit(node, "config", index=entry.index, voters=list(entry.voters))

    def truncate(self, node: Node, index: int) -> None:
        del node.entries[index - 1 :]
        node.durable = min(node.durable, index - 1)
        self.emit(node, "truncate", index=index)
        config = self._config_of(node)
        if config != node.config:
            node.config = config
            self.emit(node, "config", index=config[0], voters=list(config[1]))

    def plan_fsync(self, node: Node) -> None:
        if not node.entries:
            return
        entry, life = node.entries[-1], node.incarnation

        def done() -> None:
            is_there = node.entry(entry.index) is entry
            if not node.up or node.paused or node.incarnation != life or not is_there:
                return
            if entry.index > node.durable:
                node.durable = entry.index
                self.emit(node, "fsync", index=entry.index)
            if node.role == "leader":
                self._advance(node)

        self.sim.after(self.disk(), done)

    def replicate(self, leader: Node) -> None:
        entries, commit, term = list(leader.entries), leader.commit, leader.term
        for peer in self.nodes.values():
            if peer is not leader and self.reaches(leader, peer):
                self.sim.after(
                    self.latency(),
                    partial(self._received, peer, leader, term, entries, commit),
                )

    def heartbeats(self, until: int) -> None:
        """The leader's heartbeat, and its own check of a quorum, for ever."""

        def beat() -> None:
            for node in list(self.nodes.values()):
                if node.up and not node.paused and node.role == "leader":
                    self.replicate(node)
                    if self.rng.random() < 0.2 and not self.in_charge(node):
                        self.step_down(node)
            if self.sim.now < until:
                self.sim.after(HEARTBEAT, beat)

        beat()

    def _received(
        self, node: Node, leader: Node, term: int, entries: list[Entry], commit: int
    ) -> None:
        if not node.up or node.paused or node.name in self.cut:
            return
        if term < node.term:
            if self.reaches(node, leader) and leader.role == "leader" and leader.term < node.term:
                self.sim.after(self.latency(), partial(self._heard, leader, node.term))
            return
        if term > node.term:
            self.step_down(node, term)
        elif node.role == "candidate":
            self.step_down(node)
        common = min(node.last, len(entries))
        while common and node.entries[common - 1] is not entries[common - 1]:
            common -= 1
        if common + 1 < leader.first and common < leader.base <= len(entries):
            common = self._install(node, leader, entries)
        elif common < min(node.last, len(entries)):
            if "keep_conflicts" in self.defects:
                return
            self.truncate(node, common + 1)
        for entry in entries[max(common, node.last) :]:
            self._append(node, entry)
        self._acknowledge(node, leader, term, len(entries))
        self.learn_commit(node, min(commit, len(entries)))

    def _heard(self, node: Node, term: int) -> None:
        if node.up and term > node.term:
            self.step_down(node, term)

    def _install(self, node: Node, leader: Node, entries: list[Entry]) -> int:
        node.entries = list(entries[: leader.base])
        node.first, node.base = leader.base + 1, leader.base
        node.commit = node.applied = leader.base
        node.durable = 0
        last = node.entries[-1]
        self.emit(node, "install", index=last.index, entry_term=last.term, chain=last.chain)
        config = self._config_of(node)
        if config != node.config:
            node.config = config
            self.emit(node, "config", index=config[0], voters=list(config[1]))
        return leader.base

    def _acknowledge(self, node: Node, leader: Node, term: int, upto: int) -> None:
        life = node.incarnation

        def answer() -> None:
            if leader.up and not leader.paused and (leader.role, leader.term) == ("leader", term):
                held = upto if "ack_before_fsync" in self.defects else min(upto, node.durable)
                leader.match[node.name] = max(leader.match.get(node.name, 0), held)
                self._advance(leader)

        def durable() -> None:
            if not node.up or node.paused or node.incarnation != life or node.term != term:
                return
            index = min(upto, node.last)
            if index > node.durable:
                node.durable = index
                self.emit(node, "fsync", index=index)
            if self.reaches(node, leader):
                self.sim.after(self.latency(), answer)

        if "ack_before_fsync" in self.defects:
            self.sim.after(self.latency(), answer)
            return
        self.sim.after(self.disk() if node.durable < upto else 0, durable)

    def _advance(self, leader: Node) -> None:
        for index in range(leader.last, leader.commit, -1):
            if leader.entries[index - 1].term != leader.term and (
                "commit_older_terms" not in self.defects
            ):
                return
            holders = [
                name
                for name in leader.config[1]
                if (leader.durable if name == leader.name else leader.match.get(name, 0)) >= index
            ]
            if len(holders) >= leader.quorum:
                self.learn_commit(leader, index)
                self.replicate(leader)
                return

    def learn_commit(self, node: Node, index: int) -> None:
        if index <= node.commit:
            return
        entry = node.entries[index - 1]
        node.commit = index
        self.emit(node, "commit", index=index, entry_term=entry.term, chain=entry.chain)
        for done in node.entries[len(self.committed) : index]:
            self.committed.append(done)
            self.commit_times.append(self.sim.now)
            self.on_commit(done)
        if node.role == "leader" or not (node.lag_apply and self.rng.random() < 0.4):
            self.apply(node)
        if node.role == "leader":
            for key in sorted(key for key in self._waiting if key[0] <= index):
                is_same = node.entries[key[0] - 1].term == key[1]
                for wait in self._waiting.pop(key):
                    if is_same:
                        wait.resolve(True)

    def apply(self, node: Node) -> None:
        if node.applied < node.commit:
            entry = node.entries[node.commit - 1]
            first, node.applied = node.applied + 1, node.commit
            self.emit(
                node,
                "apply",
                first=first,
                index=entry.index,
                entry_term=entry.term,
                chain=entry.chain,
            )

    # -- reads and snapshots

    def read_index(self, node: Node) -> Wait:
        """Answers the commit index that a linearizable read may show, or None."""
        wait = Wait()
        begun, term, index = self.sim.now, node.term, node.commit

        def confirmed() -> None:
            is_own = bool(index) and node.entries[index - 1].term == term
            is_sure = self.in_charge(node) or "lease_read" in self.defects
            if node.up and node.term == term and is_own and is_sure:
                self.emit(node, "read", t_begin=begun, index=index)
                wait.resolve(index)
            else:
                wait.resolve(None)

        if node.up and node.role == "leader":
            self.sim.after(2 * self.latency(), confirmed)
        else:
            wait.resolve(None)
        return wait

    def snapshot(self, node: Node, *, first: int | None = None) -> None:
        """A snapshot at what is applied; what lies before `first` may be removed."""
        if not node.up or not node.applied:
            return
        entry = node.entries[node.applied - 1]
        self.emit(node, "state", index=entry.index, chain=signed_hash("state", entry.chain))
        node.base = entry.index
        if first is not None:
            node.first = max(node.first, min(first, entry.index + 1))

    def add_node(self, name: str) -> Node:
        """A new replica, which votes for nobody until a configuration names it."""
        node = Node(name=name, born_with=self.voters)
        self.nodes[name] = node
        return node

    def living(self) -> Iterable[Node]:
        return [node for node in self.nodes.values() if node.up and not node.paused]
