"""Rules R1 to R12 on the Raft traces of all nodes, event by event as they are written.

Place in the data path: every broker of a whole-group seed traces what its log and role did (the run
format's table `raft`); each event comes here the moment it is traced, and a broken rule ends the
seed at the event that broke it. The rules are those of the run format:

R1 one leader per term, by the votes of a majority. R2 one vote per node and term, across restarts.
R3 a node's term never falls. R4 a leader never truncates, and no node drops an entry to append the
same one again. R5 equal index and term mean equal chain. R6 one entry per committed index, for
ever. R7 a leader holds what was committed in terms before its own. R8 a commit index never falls
within an incarnation, and a leader commits by an entry of its own term. R9 what a leader commits is
durable on a majority of the voters in force there, and what is durable is there after a restart.
R10 entries are applied without a gap, as they were committed. R11 votes go to logs that are up to
date. R12 a read shows all that any node had committed before it was requested.

For each node it keeps terms and chains by index, from where the node's log begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from chaos.sim.machine.violation import Violation
from raft.messages import Index, NodeId, Term

__all__ = ["TraceRules"]


class _Mirror:
    """The log of one node by its trace. Index `base` is the last one before its log."""

    __slots__ = (
        "applied",
        "base",
        "chains",
        "commit",
        "configs",
        "dropped",
        "durable",
        "last",
        "lost",
        "role",
        "term",
        "terms",
    )

    def __init__(self) -> None:
        self.terms: dict[Index, Term] = {0: 0}
        self.chains: dict[Index, int] = {0: 0}
        self.base: Index = 0
        self.last: Index = 0
        self.durable: Index = 0
        self.term: Term = 0
        self.role = "follower"
        self.commit: Index = 0
        self.applied: Index | None = None  # None: nothing yet in this incarnation
        self.configs: dict[Index, tuple[str, ...]] = {}
        self.dropped: tuple[Index, Term] | None = None  # first entry of the last truncation
        # Entries truncated since the last fsync: a crash may bring them back.
        self.lost: dict[Index, tuple[Term, int]] = {}

    def cut(self, last: Index) -> None:
        for index in range(last + 1, self.last + 1):
            self.terms.pop(index, None)
            self.chains.pop(index, None)
        self.last = min(self.last, last)
        self.configs = {index: voters for index, voters in self.configs.items() if index <= last}

    def bring_back(self, index: Index, chain: int) -> None:
        """Undo a truncation that a restart with the log up to `index` shows not to be on disk."""
        lost, self.lost = self.lost, {}
        if index not in lost or lost[index][1] != chain:
            return
        self.cut(min(lost) - 1)
        for place in range(min(lost), index + 1):
            self.terms[place], self.chains[place] = lost[place]
        self.last = index

    def voters(self) -> tuple[str, ...]:
        return self.configs[max(self.configs)]


class TraceRules:
    """The history of one seed. `on_event` raises Violation."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._nodes: dict[NodeId, _Mirror] = {}
        self._leaders: dict[Term, NodeId] = {}
        self._lost: dict[NodeId, _Mirror] = {}  # of the node's previous store
        self._store_numbers: dict[NodeId, int] = {}
        self._strangers: set[NodeId] = set()  # nodes whose new store no configuration names
        self._votes: dict[tuple[NodeId, int, Term], str] = {}  # by store
        self._entries: dict[tuple[Index, Term], int] = {}
        self._committed: dict[Index, tuple[Term, int]] = {}
        self._committed_in: dict[Index, Term] = {}  # term of the leader that committed it
        self._commit_times_us: list[int] = []  # when the group's commit index rose
        self._commit_floors: list[Index] = []  # and to what
        self.committed_index: Index = 0
        self._states: dict[Index, tuple[NodeId, int]] = {}  # first reporter, and its digest

    def on_event(self, node: NodeId, event: str, term: Term, fields: Mapping[str, Any]) -> None:
        """Check one row of the trace; `term` is the node's current term.

        A start has more than the trace: `entries`, rows of index, term and chain of the log it
        found.
        """
        mirror = self._nodes.setdefault(node, _Mirror())
        if term < mirror.term:
            self._broken("R3", node, f"goes from term {mirror.term} back to {term}")
        mirror.term = term
        match event:
            case "start":
                self._on_start(node, mirror, fields)
            case "role":
                self._on_role(node, mirror, str(fields["role"]))
            case "vote":
                self._on_vote(node, mirror, term, fields)
            case "append":
                self._on_append(node, mirror, fields)
            case "truncate":
                self._on_truncate(node, mirror, int(fields["index"]))
            case "fsync":
                self._on_fsync(node, mirror, int(fields["index"]))
            case "commit":
                self._on_commit(node, mirror, fields)
            case "apply":
                self._on_apply(node, mirror, fields)
            case "config":
                self._on_config(mirror, int(fields["index"]), tuple(fields["voters"]))
            case "install":
                self._on_install(node, mirror, fields)
            case "read":
                self._on_read(node, fields)
            case "state":
                self._on_state(node, int(fields["index"]), int(fields["chain"]))
            case _:
                self._broken("trace", node, f"traces an event {event!r} that no rule knows")

    def durable_index(self, node: NodeId) -> Index:
        """Return the index up to which the node has reported its log durable."""
        return self._nodes[node].durable if node in self._nodes else 0

    def chain(self, node: NodeId, index: Index) -> int | None:
        """Return the chain of the entry that the node has reported at `index`."""
        return self._nodes[node].chains.get(index)

    def forget(self, node: NodeId) -> None:
        """Start a new store under the node's name, after its disk was wiped.

        What the old store reported of its log and votes no longer binds the node, but may still be
        counted by a leader that it had reached. Votes and acknowledgements of the new store do not
        count until it is admitted.
        """
        self._strangers.add(node)
        lost = self._nodes.pop(node, None)
        if lost is not None:
            self._lost[node] = lost
            self._store_numbers[node] = self._store_number(node) + 1

    def admit(self, node: NodeId) -> None:
        """Admit the node's new store, which a configuration names as a learner.

        It may become a voter now.
        """
        self._strangers.discard(node)

    def _store_number(self, node: NodeId) -> int:
        return self._store_numbers.get(node, 0)

    # --- starts, roles, votes ------------------------------------------------------------------

    def _on_start(self, node: NodeId, mirror: _Mirror, fields: Mapping[str, Any]) -> None:
        index, chain = int(fields["index"]), int(fields["chain"])
        mirror.bring_back(index, chain)
        for entry in fields.get("entries", ()):
            self._on_found(node, mirror, *entry)
        if index <= mirror.last:
            is_same = mirror.chains.get(index, chain) == chain
            self._check_retained(node, mirror, index + 1 if is_same else index)
            mirror.cut(index if is_same else index - 1)
            mirror.terms[index], mirror.chains[index] = int(fields["entry_term"]), chain
            mirror.last = index
        else:
            # More survived than was traced: it was written, but never reported.
            mirror.terms[index], mirror.chains[index] = int(fields["entry_term"]), chain
            mirror.last = index
        mirror.durable = index
        mirror.role = "follower"
        mirror.commit = 0
        mirror.applied = None
        mirror.dropped = None
        mirror.configs = {0: tuple(fields["voters"])}

    def _on_found(
        self, node: NodeId, mirror: _Mirror, index: Index, term: Term, chain: int
    ) -> None:
        """Check an entry found at a start: as reported before, or written and never reported."""
        if index <= mirror.base or mirror.chains.get(index) == chain:
            return
        if index <= mirror.last:
            self._check_retained(node, mirror, index)
            mirror.cut(index - 1)
        if self._entries.setdefault((index, term), chain) != chain:
            self._broken("R5", node, f"starts with {index}@{term} unlike the others'")
        mirror.terms[index], mirror.chains[index] = term, chain
        mirror.last = index

    def _check_retained(self, node: NodeId, mirror: _Mirror, index: Index) -> None:
        """Check that what is gone from `index` on was not committed, though it was durable.

        It fell to a truncation that was not traced any more, since its term was not saved yet. A
        leader that counts this node's acknowledgement later breaks R9 there.
        """
        for place in range(index, mirror.durable + 1):
            committed = self._committed.get(place)
            if committed is not None and mirror.chains.get(place) == committed[1]:
                self._broken("R9", node, f"restarts without {place}, durable and committed")

    def _on_role(self, node: NodeId, mirror: _Mirror, role: str) -> None:
        mirror.role = role
        if role != "leader":
            return
        term = mirror.term
        other = self._leaders.setdefault(term, node)
        if other != node:
            self._broken("R1", node, f"leads term {term}, and so does {other}")
        voters = mirror.voters()
        for_it = [name for name in voters if name == node or self._voted(NodeId(name), term, node)]
        if len(for_it) <= len(voters) // 2:
            self._broken("R1", node, f"leads term {term} by the votes of {for_it} among {voters}")
        for index in range(self.committed_index, 0, -1):
            if self._committed_in[index] < term:
                if index > mirror.base and mirror.chains.get(index) != self._committed[index][1]:
                    self._broken("R7", node, f"leads term {term} without committed entry {index}")
                break

    def _on_vote(
        self, node: NodeId, mirror: _Mirror, term: Term, fields: Mapping[str, Any]
    ) -> None:
        peer = str(fields["peer"])
        before = self._votes.setdefault((node, self._store_number(node), term), peer)
        if before != peer:
            self._broken("R2", node, f"votes in term {term} for {before} and for {peer}")
        own = (mirror.terms.get(mirror.last, 0), mirror.last)
        if peer != node and (int(fields["last_term"]), int(fields["last_index"])) < own:
            self._broken(
                "R11",
                node,
                f"votes for {peer}, whose log ends at {fields['last_index']}@{fields['last_term']}"
                f", its own at {own[1]}@{own[0]}",
            )

    def _voted(self, name: NodeId, term: Term, candidate: NodeId) -> bool:
        """Return whether the current store voted so, or the previous one with its last vote."""
        number = self._store_number(name)
        stores = {number - 1, number - (name in self._strangers)}
        return any(self._votes.get((name, store, term)) == candidate for store in stores)

    # --- the log -------------------------------------------------------------------------------

    def _on_append(self, node: NodeId, mirror: _Mirror, fields: Mapping[str, Any]) -> None:
        index, term, chain = int(fields["index"]), int(fields["entry_term"]), int(fields["chain"])
        if index != mirror.last + 1:
            self._broken("R5", node, f"appends {index} after {mirror.last}")
        known = self._entries.setdefault((index, term), chain)
        if known != chain:
            self._broken("R5", node, f"appends {index}@{term} unlike the others'")
        if mirror.dropped == (index, term):
            self._broken("R4", node, f"drops {index}@{term} only to take it again")
        mirror.dropped = None
        mirror.terms[index], mirror.chains[index] = term, chain
        mirror.last = index

    def _on_truncate(self, node: NodeId, mirror: _Mirror, index: Index) -> None:
        if mirror.role == "leader":
            self._broken("R4", node, f"leads term {mirror.term} and truncates from {index}")
        committed = self._committed.get(index)
        is_committed = committed is not None and mirror.chains.get(index) == committed[1]
        if is_committed and mirror.term >= self._committed_in[index]:
            self._broken("R7", node, f"truncates {index}, which is committed")
        if index in mirror.terms:
            mirror.dropped = (index, mirror.terms[index])
        for place in range(max(index, mirror.base + 1), mirror.last + 1):
            mirror.lost.setdefault(place, (mirror.terms[place], mirror.chains[place]))
        mirror.cut(index - 1)
        mirror.durable = min(mirror.durable, index - 1)

    def _on_fsync(self, node: NodeId, mirror: _Mirror, index: Index) -> None:
        if index > mirror.last:
            self._broken("R9", node, f"claims {index} durable, its log ends at {mirror.last}")
        mirror.lost.clear()
        mirror.durable = max(mirror.durable, index)

    @staticmethod
    def _on_config(mirror: _Mirror, index: Index, voters: tuple[str, ...]) -> None:
        """Put a configuration in force.

        One with a higher index was taken back, or is not in a snapshot.
        """
        mirror.configs = {
            place: before for place, before in mirror.configs.items() if place < index
        }
        mirror.configs[index] = voters

    def _on_install(self, node: NodeId, mirror: _Mirror, fields: Mapping[str, Any]) -> None:
        index, chain = int(fields["index"]), int(fields["chain"])
        committed = self._committed.get(index)
        if committed is None or committed[1] != chain:
            self._broken("R6", node, f"installs {index}, which is not what was committed there")
        is_retained = mirror.chains.get(index) == chain
        if not is_retained:
            # The configuration in force stays so until a config event replaces it.
            configs = {place: voters for place, voters in mirror.configs.items() if place <= index}
            mirror.cut(mirror.base)
            mirror.configs = configs
            mirror.last = index
            mirror.durable = index
        mirror.terms[index], mirror.chains[index] = int(fields["entry_term"]), chain
        mirror.base = max(mirror.base, index)
        mirror.commit = max(mirror.commit, index)
        mirror.applied = max(mirror.applied or 0, index)

    # --- commit, apply, read -------------------------------------------------------------------

    def _on_commit(self, node: NodeId, mirror: _Mirror, fields: Mapping[str, Any]) -> None:
        index, chain = int(fields["index"]), int(fields["chain"])
        if index < mirror.commit:
            self._broken("R8", node, f"takes its commit index back from {mirror.commit} to {index}")
        if index > mirror.last:
            self._broken("R8", node, f"commits {index}, its log ends at {mirror.last}")
        mirror.commit = index
        if mirror.role == "leader":
            self._check_counted(node, mirror, index)
        known = self._committed.get(index)
        if known is not None and known[1] != chain:
            self._broken("R6", node, f"commits another entry at {index}")
        for new in range(self.committed_index + 1, index + 1):
            if new not in mirror.chains:
                self._broken("R6", node, f"commits {index}, and never told of {new}")
            self._committed[new] = (mirror.terms[new], mirror.chains[new])
            self._committed_in[new] = mirror.term
        if index > self.committed_index:
            self.committed_index = index
            self._commit_times_us.append(self._now_us())
            self._commit_floors.append(index)

    def _check_counted(self, node: NodeId, mirror: _Mirror, index: Index) -> None:
        if mirror.terms.get(index) != mirror.term:
            self._broken("R8", node, f"commits {index}, an entry of another term, by counting")
        voters = mirror.voters()
        holders = [name for name in voters if self._holds(NodeId(name), index, mirror)]
        if len(holders) <= len(voters) // 2:
            self._broken("R9", node, f"commits {index}, durable on {holders or 'nobody'} only")

    def _holds(self, name: NodeId, index: Index, leader: _Mirror) -> bool:
        now = None if name in self._strangers else self._nodes.get(name)
        return any(
            other is not None
            and other.durable >= index
            and (index <= other.base or other.chains.get(index) == leader.chains[index])
            for other in (now, self._lost.get(name))
        )

    def _on_apply(self, node: NodeId, mirror: _Mirror, fields: Mapping[str, Any]) -> None:
        first, index, chain = int(fields["first"]), int(fields["index"]), int(fields["chain"])
        if mirror.applied is not None and first != mirror.applied + 1:
            self._broken("R10", node, f"applies {first} after {mirror.applied}")
        known = self._committed.get(index)
        if known is None or known[1] != chain:
            self._broken("R10", node, f"applies at {index} what is not committed there")
        mirror.applied = index

    def _on_read(self, node: NodeId, fields: Mapping[str, Any]) -> None:
        """Check a read; `requested_us`, by the simulator's clock, replaces the trace's t_begin."""
        index, requested_us = int(fields["index"]), int(fields["requested_us"])
        place = bisect_left(self._commit_times_us, requested_us)
        floor = self._commit_floors[place - 1] if place else 0
        if index < floor:
            self._broken(
                "R12", node, f"serves a read at {index}, asked after {floor} was committed"
            )

    def _on_state(self, node: NodeId, index: Index, digest: int) -> None:
        """Check that all who have applied the same entries have the same state, byte for byte."""
        first, known = self._states.setdefault(index, (node, digest))
        if known != digest:
            self._broken("R14", node, f"has another state at {index} than {first}")

    @staticmethod
    def _broken(rule: str, node: NodeId, detail: str) -> None:
        raise Violation(rule, f"{node} {detail}")
