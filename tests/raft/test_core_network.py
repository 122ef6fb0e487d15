"""Random walks of groups of pure cores over a network that loses, repeats and reorders messages,
with crashes that take what was not fsynced. Checked after every step: Raft's figure 3.

It is the small sister of `ledgermq sim`: no disks, no bytes, so that a mistake in the core shows
here within a second.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from raft.events import Ready, Role, Tick
from raft.messages import Entry, Index, Message, NodeId, RequestVote, RequestVoteReply, Term
from tests.raft.core_group import Group, Node

STEPS_COUNT = 3000


class Walk:
    """One group, one seed. Every check reads what the nodes sent and stored, never the core's
    private state."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = Random(seed)
        self.crash = 0.0
        self.seen: Counter[str] = Counter()
        self.group = Group(
            count,
            auto_sync=False,
            rng=lambda number: Random(f"{seed}/{number}"),
            inflight_count_max=self.rng.choice([1, 3, 128]),
            append_count_max=self.rng.choice([1, 4, 1024]),
            commit_notice_delay_ms=self.rng.choice([0, 5]),
        )
        self.group.on_ready = self.check_ready
        self.group.on_send = self.check_vote
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[NodeId, Term], NodeId] = {}
        self.committed: list[Entry] = []
        self.commit_index: dict[NodeId, Index] = dict.fromkeys(self.group.nodes, 0)
        self.open_reads: dict[tuple[NodeId, int], Index] = {}
        self.reads_count = 0

    # The walk.

    def run(self) -> None:
        loss = self.rng.choice([0.0, 0.02, 0.2])
        repeat = self.rng.choice([0.0, 0.1])
        self.crash = self.rng.choice([0.0, 0.005, 0.02])
        cut: set[NodeId] = set()
        for _ in range(STEPS_COUNT):
            if self.rng.random() < 0.01:
                cut = {n for n in self.group.nodes if self.rng.random() < 0.25}
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
            self.let_time_pass()
            return
        # Mostly in order, as connections have it; sometimes not.
        position = 0 if self.rng.random() < 0.8 else self.rng.randrange(len(network))
        message = network[position]
        if self.rng.random() >= repeat:
            del network[position]
        if self.rng.random() < loss or {message.sender, message.receiver} & cut:
            return
        if self.group.nodes[message.receiver].is_up:
            self.group.receive(message)

    def act(self, node: Node) -> None:
        if not node.is_up:
            return
        name = node.config.node_id
        draw = self.rng.random()
        if draw < 0.40:
            self.sync(node)
        elif draw < 0.70:
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
        elif draw < 0.93:
            self.let_time_pass()

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
        down = [node for node in self.group.nodes.values() if not node.is_up]
        node = self.rng.choice(list(self.group.nodes.values()))
        if node.is_up and (not down or self.rng.random() < 0.2):
            self.seen["crash"] += 1
            lost = len(node.storage.stored) - len(node.durable_entries)
            self.seen["lost entries"] += max(lost, 0)
            node.crash()
        elif down:
            self.restart(self.rng.choice(down))

    def restart(self, node: Node) -> None:
        self.commit_index[node.config.node_id] = 0
        node.restart(self.group.now_ms)

    def calm_down(self) -> None:
        """Liveness: a whole group with a sound network elects a leader and commits."""
        group = self.group
        for node in group.nodes.values():
            if not node.is_up:
                self.restart(node)
        until_ms = group.now_ms + 20 * 600
        while group.now_ms < until_ms:
            for node in group.nodes.values():
                if node.core.next_deadline_ms <= group.now_ms:
                    group.step(node.config.node_id, Tick(now_ms=group.now_ms))
            for _ in range(100):
                for name in group.nodes:
                    group.sync(name)
                if not group.deliver():
                    break
            [*ready] = [node for node in group.nodes.values() if node.core.ready]
            logs = [node.storage.stored for node in group.nodes.values()]
            commits = {node.core.commit_index for node in group.nodes.values()}
            if ready and commits == {len(logs[0])} and all(log == logs[0] for log in logs):
                self.check_logs()
                return
            group.now_ms += 5
        raise AssertionError("a sound group does not agree")

    # The checks.

    def check_ready(self, name: NodeId, ready: Ready) -> None:
        node = self.group.nodes[name]
        self.seen["truncation"] += ready.truncate_from is not None
        assert ready.commit_index >= self.commit_index[name], "commit index fell"
        assert ready.commit_index <= len(node.storage.stored)
        if ready.role is Role.LEADER:
            assert self.leaders.setdefault(ready.term, name) == name, "two leaders in a term"
            assert ready.truncate_from is None, "a leader truncates"
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
        known = self.votes.setdefault((voter, message.term), candidate)
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
            holders = [
                other
                for other in self.group.nodes.values()
                if other.durable_entries[:index] == stored[:index]
            ]
            assert 2 * len(holders) > len(self.group.nodes), f"commit {index} is not durable"
        self.commit_index[name] = ready.commit_index

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
@given(seed=st.integers(0, 2**32), count=st.sampled_from([1, 2, 3, 3, 3, 4, 5, 5]))
def test_random_walks_keep_figure_3(seed: int, count: int) -> None:
    Walk(seed, count).run()


def test_the_walks_reach_what_they_are_to_test() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        walk = Walk(seed, 3)
        walk.run()
        seen += walk.seen
        seen["terms"] += len(walk.leaders)
    for what in ("commit", "read", "crash", "lost entries", "crash after fsync", "truncation"):
        assert seen[what] > 10, f"{what}: {seen[what]}"
    assert seen["terms"] > 24
