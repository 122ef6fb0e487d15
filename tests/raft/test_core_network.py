"""Random walks of groups of pure cores over a network that loses, repeats and reorders messages,
with crashes that take what was not fsynced, members that come, go and lose their disks, logs whose
beginning is dropped, and nodes that run out of room. Checked after every step: Raft's figure 3.

It is the small sister of `ledgermq sim`: no disks, no bytes, so that a mistake in the core shows
here within a second.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from raft.events import Ready, Role, Tick
from raft.membership import decode_membership
from raft.messages import (
    AppendEntriesReply,
    Entry,
    EntryKind,
    Index,
    InstallSnapshotReply,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)
from tests.raft.core_group import Group, Node

STEPS_COUNT = 3000
_COUNTED = (AppendEntriesReply, InstallSnapshotReply, RequestVoteReply)


class Walk:
    """One group, one seed. Every check reads what the nodes sent and stored, never the core's
    private state."""

    def __init__(self, seed: int, count: int, *, is_busy: bool = False) -> None:
        """A busy walk changes and compacts much and breaks little, so that it comes far."""
        self.rng = Random(seed)
        self.is_busy = is_busy
        self.crash = 0.0
        self.seen: Counter[str] = Counter()
        self.changes = 1.0 if is_busy else self.rng.choice([0.0, 0.3, 1.0])
        self.compaction = 1.0 if is_busy else self.rng.choice([0.0, 0.2, 1.0])
        self.group = Group(
            count,
            joiners=self.rng.choice([0, 1, 2]) if self.changes else 0,
            has_roster=self.rng.random() < 0.7,
            auto_sync=False,
            rng=lambda number: Random(f"{seed}/{number}"),
            preferred_leader=self.rng.choice([None, NodeId("n1")]),
            preferred_after_ms=self.rng.choice([500, 5000]),
            promotion_lag_max=self.rng.choice([1, 20]),
            inflight_count_max=self.rng.choice([1, 3, 128]),
            append_count_max=self.rng.choice([1, 4, 1024]),
            commit_notice_delay_ms=self.rng.choice([0, 5]),
        )
        self.group.on_ready = self.check_ready
        self.group.on_send = self.on_send
        self.stores_of: dict[int, str] = {}  # of a message: its sender's
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[NodeId, int, Term], NodeId] = {}
        self.stores: Counter[NodeId] = Counter()  # how often a node's disk was lost
        self.wiped: set[NodeId] = set()  # down, and nothing on the disk
        self.committed: list[Entry] = []
        self.commit_index: dict[NodeId, Index] = dict.fromkeys(self.group.nodes, 0)
        self.open_reads: dict[tuple[NodeId, int], Index] = {}
        self.reads_count = 0

    # The walk.

    def run(self) -> None:
        loss = 0.01 if self.is_busy else self.rng.choice([0.0, 0.02, 0.2])
        repeat = self.rng.choice([0.0, 0.1])
        self.crash = 0.002 if self.is_busy else self.rng.choice([0.0, 0.005, 0.02])
        cut: set[NodeId] = set()
        for _ in range(STEPS_COUNT):
            if self.rng.random() < 0.01:
                share = 0.05 if self.is_busy else 0.25
                cut = {n for n in self.group.nodes if self.rng.random() < share}
                self.notice(cut)
            draw = self.rng.random()
            if draw < self.crash:
                self.crash_or_restart()
            elif draw < 0.60:
                self.deliver_one(loss, repeat, cut)
            else:
                self.act(self.rng.choice(list(self.group.nodes.values())))
            self.check_logs()
        self.calm_down()

    def notice(self, cut: set[NodeId]) -> None:
        """Some nodes see their connections to those that are cut off break, so that
        another leader takes over while the old one still believes in itself."""
        for name, node in self.group.nodes.items():
            for peer in cut - {name}:
                if node.is_up and self.rng.random() < 0.7:
                    self.group.unreachable(name, peer)

    def deliver_one(self, loss: float, repeat: float, cut: set[NodeId]) -> None:
        network = self.group.network
        if not network:
            if not self.is_busy or self.rng.random() < 0.1:
                self.let_time_pass()
            return
        # Mostly in order, as connections have it; sometimes not.
        position = 0 if self.rng.random() < 0.8 else self.rng.randrange(len(network))
        message = network[position]
        if self.rng.random() >= repeat:
            del network[position]
        if self.rng.random() < loss or {message.sender, message.receiver} & cut:
            return
        if self.group.nodes[message.receiver].is_up and self.counts(message):
            self.group.receive(message)

    def on_send(self, message: Message) -> None:
        self.check_vote(message)
        self.stores_of[id(message)] = self.group.nodes[message.sender].store_id

    def counts(self, message: Message) -> bool:
        """The transport's rule: votes and acknowledgements come from the store that the receiver's
        configuration names. Without it stale voters could win with the votes of new stores. All
        else passes: a replaced member may lead by now, of which only it can tell the receiver."""
        if not isinstance(message, _COUNTED):
            return True
        receiver = self.group.nodes[message.receiver]
        named = receiver.core.configuration.membership.member(message.sender)
        is_it = named is None or named.store_id in {"", self.stores_of[id(message)]}
        self.seen["vote or acknowledgement of another store"] += not is_it
        return is_it

    def act(self, node: Node) -> None:
        if not node.is_up:
            return
        name = node.config.node_id
        draw = self.rng.random()
        if draw < 0.40:
            self.sync(node)
        elif draw < (0.55 if self.is_busy else 0.70):
            if node.core.role is Role.LEADER:
                self.group.propose(name, b"%d" % self.rng.randrange(10**6))
        elif draw < 0.80:
            self.reads_count += 1
            self.open_reads[name, self.reads_count] = max(self.commit_index.values())
            self.group.read(name, self.reads_count)
        elif draw < 0.82:
            self.group.unreachable(name, self.rng.choice(list(self.group.nodes)))
        elif draw < 0.83:
            self.group.transfer(name, self.rng.choice(list(self.group.nodes)))
        elif draw < 0.92:
            if not self.is_busy or self.rng.random() < 0.3:
                self.let_time_pass()
        elif draw < 0.95:
            self.group.tell(name)
        elif draw < 0.96:
            if self.rng.random() < self.compaction:
                self.compact(node)
        elif draw < 0.999:
            if self.rng.random() < (self.changes if node.core.role is Role.LEADER else 0.02):
                self.change(node)
        elif self.changes:
            if self.rng.random() < 0.5:
                can_begin = self.rng.random() < 0.8
                writable = can_begin and self.rng.random() < 0.9
                self.group.room(name, writable=writable, can_begin=can_begin)
                assert can_begin or node.core.role in {Role.LEADER, Role.FOLLOWER}
            else:
                self.group.replay(name, replaying=self.rng.random() < 0.5)

    def compact(self, node: Node) -> None:
        node.take_snapshot()
        if node.snapshot is not None and self.rng.random() < 0.7:
            self.seen["compaction"] += 1
            index_max = min(node.snapshot.index, node.core.commit_index)
            node.compact(self.rng.randint(node.storage.base_index, index_max))

    def change(self, node: Node) -> None:
        """One change that fits the membership; the loss of a removed member's disk, too."""
        name, core = node.config.node_id, node.core
        membership = core.configuration.membership
        others = [other for other in self.group.nodes if other not in core.voters]
        if not others or self.rng.random() < 0.3:
            others = list(self.group.nodes)
        other = self.rng.choice(others)
        if other in membership.learner_ids and self.rng.random() < 0.8:
            kind, ready = "promotion", self.group.promote(name, other)
        elif membership.member(other) is not None:
            kind, ready = "removal", self.group.remove(name, other)
        else:
            kind, ready = "addition", self.group.add(name, other)
        if ready.change_refused is not None:
            self.seen[f"refused: {ready.change_refused.reason.name}"] += 1
            return
        self.seen[kind] += 1
        self.seen["removal of the leader"] += kind == "removal" and other == name
        if kind == "addition" and other in self.wiped:
            self.wiped.remove(other)
            self.restart(self.group.nodes[other])

    def maybe_wipe(self, node: Node) -> None:
        """A node that is down and that a committed change has removed may lose its disk: only
        then may another come under its name."""
        name = node.config.node_id
        known = [other.core.configuration for other in self.group.nodes.values()]
        payloads = [entry.payload for entry in self.committed if entry.kind is EntryKind.CONFIG]
        if (
            not payloads
            or decode_membership(payloads[-1]).member(name) is not None
            or max(configuration.index for configuration in known) > len(self.committed)
        ):
            return
        self.seen["wipe"] += 1
        self.stores[name] += 1
        self.wiped.add(name)
        node.wipe(self.stores[name])

    def sync(self, node: Node) -> None:
        """Like `Group.sync`; sometimes a crash comes between the fsync and its report."""
        if node.unsynced and self.rng.random() < self.crash:
            for ready in node.unsynced:
                node.hard_state = ready.hard_state or node.hard_state
            node.durable_hard_state = node.hard_state
            node.durable_entries = list(node.storage.stored)
            node.crash()
            self.seen["crash after fsync"] += 1
            return
        self.group.sync(node.config.node_id)

    def let_time_pass(self) -> None:
        nodes = [node for node in self.group.nodes.values() if node.is_up]
        if not nodes:
            return
        node = min(nodes, key=lambda node: node.core.next_deadline_ms)
        if self.rng.random() < 0.1:
            node = self.rng.choice(nodes)
        self.group.tick(node.config.node_id)

    def crash_or_restart(self) -> None:
        nodes = self.group.nodes.items()
        down = [node for name, node in nodes if not node.is_up and name not in self.wiped]
        node = self.rng.choice(list(self.group.nodes.values()))
        if node.is_up and (not down or self.rng.random() < 0.2):
            self.seen["crash"] += 1
            lost = len(node.storage.stored) - len(node.durable_entries)
            self.seen["lost entries"] += max(lost, 0)
            node.crash()
            if self.rng.random() < 0.5:
                self.maybe_wipe(node)
        elif down:
            self.restart(self.rng.choice(down))

    def restart(self, node: Node) -> None:
        node.restart(self.group.now_ms)
        self.commit_index[node.config.node_id] = node.core.commit_index

    def calm_down(self) -> None:
        """Liveness: a whole group with a sound network elects a leader and commits."""
        group = self.group
        for name, node in group.nodes.items():
            if not node.is_up and name not in self.wiped:
                self.restart(node)
            if node.is_up:
                group.room(name, writable=True)
                group.replay(name, replaying=False)
        until_ms = group.now_ms + 20 * 600
        while group.now_ms < until_ms:
            for node in [node for node in group.nodes.values() if node.is_up]:
                if node.core.next_deadline_ms <= group.now_ms:
                    group.step(node.config.node_id, Tick(now_ms=group.now_ms))
            for _ in range(100):
                for name, node in group.nodes.items():
                    if node.is_up:
                        group.sync(name)
                        group.tell(name)
                if not group.deliver(self.counts):
                    break
            if self.agrees():
                self.check_logs()
                return
            group.now_ms += 5
        raise AssertionError("a sound group does not agree")

    def agrees(self) -> bool:
        """There is a ready leader, and all whom it counts as members have its whole log."""
        leaders = [node for node in self.group.nodes.values() if node.is_up and node.core.ready]
        if not leaders:
            return False
        leader = max(leaders, key=lambda node: node.core.current_term)
        log = leader.storage.stored
        members = leader.core.configuration.membership.members
        return all(
            node.core.commit_index == len(log) and node.storage.stored == log
            for node in (self.group.nodes[member.node_id] for member in members)
        )

    # The checks.

    def check_ready(self, name: NodeId, ready: Ready) -> None:
        node = self.group.nodes[name]
        self.seen["truncation"] += ready.truncate_from is not None
        assert ready.commit_index >= self.commit_index[name], "commit index fell"
        assert ready.commit_index <= len(node.storage.stored)
        if ready.role is Role.LEADER:
            # An only voter leads before its term is durable; until then nothing of it leaves, and
            # a crash gives the term to whoever else may take it.
            if node.durable_hard_state.current_term == ready.term:
                assert self.leaders.setdefault(ready.term, name) == name, "two leaders in a term"
            assert ready.truncate_from is None, "a leader truncates"
            self.check_config(node)
        self.seen["install"] += ready.install is not None
        self.seen["configuration taken back"] += (
            ready.configuration is not None and ready.truncate_from is not None
        )
        self.check_commit(name, node, ready)
        for state in ready.read_states:
            commit_when_asked = self.open_reads.pop((name, state.request_id))
            if state.index is not None:
                self.seen["read"] += 1
                assert state.index >= commit_when_asked, "a stale read"

    def check_vote(self, message: Message) -> None:
        """One vote per node and term, across restarts, durable before it leaves."""
        match message:
            case RequestVote(pre_vote=False):
                voter, candidate = message.sender, message.sender
            case RequestVoteReply(pre_vote=False, granted=True):
                voter, candidate = message.sender, message.receiver
            case _:
                return
        durable = self.group.nodes[voter].durable_hard_state
        assert durable.current_term >= message.term, "a vote leaves before it is durable"
        key = (voter, self.stores[voter], message.term)
        known = self.votes.setdefault(key, candidate)
        assert known == candidate, f"{voter} voted twice in term {message.term}"

    def check_commit(self, name: NodeId, node: Node, ready: Ready) -> None:
        stored = node.storage.stored
        for index in range(self.commit_index[name] + 1, ready.commit_index + 1):
            entry = stored[index - 1]
            if index <= len(self.committed):
                assert self.committed[index - 1] == entry, f"two entries committed at {index}"
                continue
            # First commit anywhere: by a leader, an entry of its term last, durable on a majority.
            self.seen["commit"] += 1
            self.committed.append(entry)
        if ready.role is Role.LEADER and ready.commit_index > self.commit_index[name]:
            index = ready.commit_index
            assert stored[index - 1].term == ready.term, "an old entry committed by counting"
            voters = node.core.voters
            holders = [
                voter
                for voter in voters
                if self.group.nodes[voter].durable_entries[:index] == stored[:index]
            ]
            assert 2 * len(holders) > len(voters), f"commit {index} is not durable"
        self.commit_index[name] = ready.commit_index

    def check_config(self, node: Node) -> None:
        """One change at a time, and in force is the last one of the log."""
        stored = node.storage.stored
        open_count = sum(
            1
            for entry in stored[max(node.core.commit_index, len(self.committed)) :]
            if entry.kind is EntryKind.CONFIG
        )
        assert open_count <= 1, "two changes are under way"
        known = node.core.configuration
        last = max((entry.index for entry in stored if entry.kind is EntryKind.CONFIG), default=0)
        assert known.index == last, "the newest configuration is not in force"

    def check_logs(self) -> None:
        logs = [node.storage.stored for node in self.group.nodes.values()]
        for position, one in enumerate(logs):
            for other in logs[:position]:
                # Log matching: the last index where the terms agree, all before it is equal.
                for index in range(min(len(one), len(other)) - 1, -1, -1):
                    if one[index].term == other[index].term:
                        assert one[: index + 1] == other[: index + 1], "logs do not match"
                        break
        for node in self.group.nodes.values():
            if node.is_up and node.core.role is Role.LEADER:
                self.check_leader(node)

    def check_leader(self, node: Node) -> None:
        """Leader completeness: what earlier terms committed is in the leader's log."""
        term = node.core.current_term
        if term < max(self.leaders, default=0):
            return  # deposed and does not know it yet
        assert node.storage.stored[: len(self.committed)] == self.committed


@settings(max_examples=60, deadline=None)
@example(seed=293, count=2)  # only a member whose store is another one now can tell n3 of it
@given(seed=st.integers(0, 2**32), count=st.sampled_from([1, 2, 3, 3, 3, 4, 5, 5]))
def test_random_walks_keep_figure_3(seed: int, count: int) -> None:
    Walk(seed, count, is_busy=seed % 2 == 1).run()


def test_the_walks_reach_what_they_are_to_test() -> None:
    seen: Counter[str] = Counter()
    for seed in range(90):
        walk = Walk(seed, 3, is_busy=seed % 3 > 0)
        walk.run()
        seen += walk.seen
        seen["terms"] += len(walk.leaders)
    for what in (
        "commit",
        "read",
        "crash",
        "lost entries",
        "crash after fsync",
        "truncation",
        "compaction",
        "install",
        "addition",
        "promotion",
        "removal",
        "removal of the leader",
        "configuration taken back",
        "wipe",
        "refused: UNDERWAY",
        "refused: NOT_READY",
        "refused: NOT_CAUGHT_UP",
    ):
        assert seen[what] > 4, f"{what}: {seen[what]} of {seen}"
    assert seen["terms"] > 24
