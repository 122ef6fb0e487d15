"""Rules R1 to R11, checked on the actions of all nodes of a seed as they happen.

Place in the data path: every `SimNode` reports here what its core and its log did, in the order in
which it happened; a broken rule raises `Violation` at the step that broke it. The rules are those
of the run format, so that the simulator and the verifier use the same names:

R1 one leader per term. R2 one vote per node and term, across restarts. R3 a node's term never
falls, across restarts. R4 a leader never truncates, and no node drops an entry only to append the
same one again. R5 equal index and term mean equal chain. R6 one entry per committed index, for
ever. R7 a leader holds all that was committed in terms before its own, and a node that takes part
in such a term does not drop it. R8 a commit index never falls, is within the log, and only an entry
of the leader's own term is committed by counting. R9 what a leader commits is durable on a majority
of the voters of the configuration in force there, and what is durable is there after a restart. R10
entries are applied without a gap, as they were committed. R11 votes go to logs that are up to date
only.

Membership (dissertation 4): a leader is elected by a majority of the voters in its own
configuration, so the vote of a removed node never counts; a node that knows that it was removed
does not campaign; a leader has at most one uncommitted configuration, proposes none before an entry
of its own term is committed, and each differs in one voter from the one before; the newest
configuration in the log is in force.

A voter is a name and a store: what a voter acknowledged before its disk was wiped may still be
counted, its vote too, by nodes whose configuration names the old store, and nothing that the new
store under the same name says. Only one voter may be wiped at a time, else the group could lose
what it acknowledged.

Also checked is the shell's contract (`raft.events`): no vote, no acknowledgement and no message of
a term leaves before the state that it depends on is durable.

The checker keeps its own `LogShadow` of each node, never queries the core, and compares chains, so
that a comparison at one index is one of all entries before it. Costs are per entry, never per log.

A little over 500 lines: each rule is a few, and all of them read and write the same shadows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from chaos.sim.cores.log_shadow import Config, LogShadow
from chaos.sim.machine.violation import Violation
from raft.events import Role
from raft.membership import Configuration, Member, Membership, decode_membership
from raft.messages import (
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Index,
    LogBase,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)

__all__ = ["Invariants", "RecoveredLog"]


class RecoveredLog(Protocol):
    """The part of a log that is read after a node has recovered it."""

    @property
    def base(self) -> LogBase: ...

    @property
    def last_index(self) -> Index: ...

    def term(self, index: Index) -> Term: ...

    def chain(self, index: Index) -> int: ...

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]: ...


class Invariants:
    """The history of one seed. Every method raises Violation.

    `stores` holds all nodes that can ever take part, each with its first store; `first` is the
    initial configuration.
    """

    def __init__(self, stores: Mapping[NodeId, str], first: Membership) -> None:
        self._nodes = {node: LogShadow(first, store_id) for node, store_id in stores.items()}
        self._lost: dict[str, LogShadow] = {}  # shadows of wiped stores, as they were
        # Every entry that was ever appended: chain, kind and payload by (index, term).
        self._entries: dict[tuple[Index, Term], tuple[int, EntryKind, bytes]] = {}
        self.committed_configs: list[Config] = [(0, first)]
        # Committed entries: term, chain, and the term of the leader that committed each.
        self.committed_terms: list[Term] = []
        self._committed_chains: list[int] = []
        self._committed_in_terms: list[Term] = []
        self.committed_payloads: list[bytes] = []
        self.committed_kinds: list[EntryKind] = []
        self._committed_states: list[int] = []  # checksums of the state, by index
        # The leader of a term: the node, its store, and its log at the election.
        self._leaders: dict[Term, tuple[NodeId, str, list[int]]] = {}
        self._votes: dict[tuple[str, Term], NodeId] = {}  # by store
        self._campaigns: dict[tuple[NodeId, Term], tuple[Term, Index]] = {}

    @property
    def committed_index(self) -> Index:
        """The highest index that any node has committed."""
        return len(self.committed_terms)

    @property
    def newest_membership(self) -> Membership:
        """The newest committed configuration."""
        return self.committed_configs[-1][1]

    @property
    def contested_voters(self) -> frozenset[NodeId]:
        """Voters of uncommitted configurations in any log, still to be committed or dropped."""
        committed = self.committed_configs[-1][0]
        return frozenset(
            name
            for mirror in self._nodes.values()
            for index, membership in mirror.configs
            if index > committed
            for name in membership.voter_ids
        )

    def forget(self, node: NodeId, store_id: str) -> None:
        """Replace the shadow of a node whose disk was wiped: a new store that knows of no group."""
        lost = self._nodes[node]
        self._lost[lost.store_id] = lost
        self._nodes[node] = LogShadow(Membership(), store_id)

    def _mirror_of(self, member: Member) -> LogShadow:
        """Return the shadow of the store that a configuration names."""
        mirror = self._nodes[member.node_id]
        if member.store_id in {"", mirror.store_id}:
            return mirror
        return self._lost[member.store_id]

    # --- snapshots and the start of the log ----------------------------------------------------

    def on_drop(self, node: NodeId, base: LogBase) -> None:
        """Record that the node's log starts behind `base` now."""
        mirror = self._nodes[node]
        if base.index > mirror.commit_index:
            raise Violation("retention", f"{node} drops {base.index}, which is not committed")
        self._check_base(node, base)
        mirror.base = base.index
        # Other nodes may have committed these entries before an fsync of this log was reported: the
        # base is durable all the same, and so is the snapshot that holds what was dropped.
        mirror.durable_index = max(mirror.durable_index, base.index)

    def on_install(self, node: NodeId, base: LogBase, configuration: Configuration) -> None:
        """Record that the log was reset to `base`, durably, with `configuration` in force."""
        mirror = self._nodes[node]
        self._check_base(node, base)
        index = base.index
        if len(mirror.chains) > index and mirror.chains[index - 1] == base.chain:
            raise Violation("R9", f"{node} empties its log for {index}, which it held, and more")
        mirror.base = mirror.durable_index = index
        mirror.terms = self.committed_terms[:index]
        mirror.chains = self._committed_chains[:index]
        known = [one for one in self.committed_configs if one[0] <= configuration.index]
        if (configuration.index, configuration.membership) != known[-1]:
            raise Violation("members", f"{node} installs a configuration that was not committed")
        mirror.configs = list(known)

    def on_configuration_restored(self, node: NodeId, configuration: Configuration) -> None:
        """Record the configuration of a snapshot that is newer than the end of the log."""
        mirror = self._nodes[node]
        if configuration.index <= mirror.configs[-1][0]:
            return
        known = [one for one in self.committed_configs if one[0] <= configuration.index]
        if (configuration.index, configuration.membership) != known[-1]:
            raise Violation("members", f"{node} restores a configuration that was not committed")
        mirror.configs = list(known)

    def on_restore(self, node: NodeId, last: LogBase, state: int) -> None:
        """Check the state that a node has restored from a snapshot of the entries up to `last`."""
        self._check_base(node, last)
        if state != self._committed_states[last.index - 1]:
            raise Violation("snapshot", f"{node} restores another state at {last.index}")
        self._nodes[node].applied_index = last.index

    def _check_base(self, node: NodeId, base: LogBase) -> None:
        index = base.index
        if index > self.committed_index:
            raise Violation("R6", f"{node} takes {index} as committed, which nobody did")
        known = (self.committed_terms[index - 1], self._committed_chains[index - 1])
        if known != (base.term, base.chain):
            raise Violation("R6", f"{node} begins its log behind another entry at {index}")

    # --- starts --------------------------------------------------------------------------------

    def on_start(
        self,
        node: NodeId,
        hard_state: HardState,
        log: RecoveredLog,
        *,
        commit_hint: Index,
        restored_index: Index,
    ) -> int:
        """Check a recovered node; return the number of entries it kept that were not known durable.

        `restored_index`: the index of the snapshot whose state was restored, 0 if none.
        """
        mirror = self._nodes[node]
        if hard_state.current_term < mirror.durable_term:
            raise Violation(
                "R3",
                f"{node} restarts in term {hard_state.current_term} after {mirror.durable_term}",
            )
        same_term = hard_state.current_term == mirror.durable_term
        if same_term and mirror.durable_vote not in {None, hard_state.voted_for}:
            raise Violation(
                "R2",
                f"{node} forgot its vote of term {mirror.durable_term} for {mirror.durable_vote}",
            )
        self._on_base_found(node, mirror, log.base)
        known = mirror.durable_index
        last_index = log.last_index
        if last_index < known:
            raise Violation(
                "R9", f"{node} restarts with its log up to {last_index}, durable up to {known}"
            )
        if known and log.chain(known) != mirror.chains[known - 1]:
            raise Violation("R9", f"{node} restarts with another entry at {known}, durable before")
        del mirror.terms[known:]
        del mirror.chains[known:]
        mirror.drop_configs(known + 1)
        self._forget_unheard(node, max(hard_state.current_term, log.term(last_index)))
        for entry in log.entries(known + 1, last_index + 1, 1 << 40):
            self._check_recovered(node, entry, log.chain(entry.index), log.term(entry.index))
            mirror.terms.append(entry.term)
            mirror.chains.append(log.chain(entry.index))
            mirror.note_config(entry)
        if len(mirror.terms) < last_index:
            raise Violation("R5", f"{node} recovers {len(mirror.terms) + 1}, and can't read it")
        mirror.durable_index = last_index  # recovery syncs what it keeps
        mirror.durable_term = mirror.term = hard_state.current_term
        mirror.durable_vote = hard_state.voted_for
        mirror.role = Role.FOLLOWER
        mirror.applied_index = restored_index
        mirror.commit_index = 0
        self.on_commit(node, min(commit_hint, last_index))
        return last_index - known

    def _forget_unheard(self, node: NodeId, term: Term) -> None:
        """Drop elections in terms above `term`, which the store no longer knows.

        No message of them has left: a sole voter that led in one did so for itself alone, and may
        enter it again. A term that an earlier store of the same name led stays: its entries are in
        the logs of others.
        """
        store_id = self._nodes[node].store_id
        led = {one for one, (_, by, _) in self._leaders.items() if by == store_id and one > term}
        for unheard in led:
            del self._leaders[unheard]
        if led:
            for place in [place for place in self._entries if place[1] in led]:
                del self._entries[place]

    def _on_base_found(self, node: NodeId, mirror: LogShadow, base: LogBase) -> None:
        """Check a base found at start: the crash may have come right after a cut or reset."""
        if base.index < mirror.base:
            raise Violation("R9", f"{node} has entries again that its log had lost")
        if base.index == mirror.base:
            return
        self._check_base(node, base)
        mirror.base = base.index
        has_it = len(mirror.chains) >= base.index and mirror.chains[base.index - 1] == base.chain
        if not has_it or mirror.durable_index < base.index:
            mirror.durable_index = base.index
            mirror.terms = self.committed_terms[: base.index]
            mirror.chains = self._committed_chains[: base.index]
            mirror.configs = [one for one in self.committed_configs if one[0] <= base.index]

    def _check_recovered(self, node: NodeId, entry: Entry, chain: int, term: Term) -> None:
        known = self._entries.get((entry.index, entry.term))
        if known is None or term != entry.term:
            raise Violation(
                "R5", f"{node} recovers {entry.index}@{entry.term}, an entry that never was"
            )
        if known != (chain, entry.kind, entry.payload):
            raise Violation(
                "R5", f"{node} recovers {entry.index}@{entry.term} other than it was written"
            )

    # --- roles and votes -----------------------------------------------------------------------

    def on_role(self, node: NodeId, role: Role, term: Term) -> None:
        """Check role and term after a step in which either changed."""
        mirror = self._nodes[node]
        if term < mirror.term:
            raise Violation("R3", f"{node} goes from term {mirror.term} back to {term}")
        if role is Role.LEADER and (mirror.role is not Role.LEADER or term != mirror.term):
            self._on_leader(node, mirror, term)
        mirror.role = role
        mirror.term = term

    def _on_leader(self, node: NodeId, mirror: LogShadow, term: Term) -> None:
        if term in self._leaders:
            raise Violation("R1", f"{node} and {self._leaders[term][0]} both lead term {term}")
        members = mirror.configs[-1][1].voters
        for_it = [
            member.node_id
            for member in members
            if (voter := self._mirror_of(member)) is mirror
            or self._votes.get((voter.store_id, term)) == node
        ]
        if len(for_it) <= len(members) // 2:
            raise Violation(
                "R1",
                f"{node} leads term {term} by the votes of {for_it or 'nobody'} among "
                f"{mirror.voters}",
            )
        self._leaders[term] = (node, mirror.store_id, list(mirror.chains))
        index = self.committed_index
        while index and self._committed_in_terms[index - 1] >= term:
            index -= 1
        self._check_holds(node, term, mirror.chains, index)

    def _check_holds(self, node: NodeId, term: Term, chains: Sequence[int], index: Index) -> None:
        if not index:
            return
        if len(chains) < index or chains[index - 1] != self._committed_chains[index - 1]:
            raise Violation(
                "R7",
                f"{node} leads term {term} without entry {index}, committed in term "
                f"{self._committed_in_terms[index - 1]}",
            )

    def on_votes(self, node: NodeId, messages: Iterable[Message]) -> None:
        """Check granted votes against the log as it is at the step (R11)."""
        for message in messages:
            if not isinstance(message, RequestVoteReply) or not message.granted or message.pre_vote:
                continue
            mirror = self._nodes[node]
            campaign = self._campaigns.get((message.receiver, message.term))
            own = (mirror.terms[-1] if mirror.terms else 0, len(mirror.terms))
            # Raft 5.4.1: compare the last terms first, then the last indexes.
            if campaign is None or campaign < own:
                raise Violation(
                    "R11",
                    f"{node} votes in term {message.term} for {message.receiver}, whose log ends "
                    f"at (term, index) {campaign}, its own at {own}",
                )

    def on_send(self, node: NodeId, message: Message) -> None:
        """Check that what an outgoing message promises is durable now."""
        mirror = self._nodes[node]
        match message:
            case RequestVote(pre_vote=True) | RequestVoteReply(pre_vote=True, granted=True):
                return  # it names a term that no node has entered
            case RequestVote():
                self._check_may_campaign(node, mirror)
                self._campaigns[node, message.term] = (
                    message.last_log_term,
                    message.last_log_index,
                )
                self._on_vote_leaves(node, mirror, message.term, node)
            case RequestVoteReply(granted=True):
                self._on_vote_leaves(node, mirror, message.term, message.receiver)
            case AppendEntriesReply(success=True):
                # Entries acknowledged in an earlier term may have been truncated since.
                if message.term == mirror.term and message.match_index > mirror.durable_index:
                    raise Violation(
                        "acknowledged before durable",
                        f"{node} acknowledges {message.match_index}, durable up to "
                        f"{mirror.durable_index}",
                    )
            case _:
                pass
        if message.term > mirror.durable_term:
            raise Violation(
                "sent before durable",
                f"{node} sends {type(message).__name__} of term {message.term}, durable is "
                f"{mirror.durable_term}",
            )

    def _check_may_campaign(self, node: NodeId, mirror: LogShadow) -> None:
        """Check that a node that is no voter campaigns only while its removal may be taken back."""
        store_id = mirror.store_id
        index, membership = mirror.configs[-1]
        if membership.has_voter(node, store_id):
            return
        before = mirror.configs[-2][1] if len(mirror.configs) > 1 else Membership()
        if not before.has_voter(node, store_id) or index <= mirror.commit_index:
            raise Violation("members", f"{node} campaigns, and is no voter of {mirror.voters}")

    def _on_vote_leaves(
        self, node: NodeId, mirror: LogShadow, term: Term, candidate: NodeId
    ) -> None:
        before = self._votes.setdefault((mirror.store_id, term), candidate)
        if before != candidate:
            raise Violation("R2", f"{node} votes in term {term} for {before} and {candidate}")
        vote_is_durable = mirror.durable_term > term or (
            mirror.durable_term == term and mirror.durable_vote == candidate
        )
        if not vote_is_durable:
            raise Violation(
                "vote before durable", f"{node} votes in term {term} for {candidate} un-fsynced"
            )

    # --- the log -------------------------------------------------------------------------------

    def on_hard_state_durable(self, node: NodeId, hard_state: HardState) -> None:
        mirror = self._nodes[node]
        mirror.durable_term = hard_state.current_term
        mirror.durable_vote = hard_state.voted_for

    def on_checkpoint(self, node: NodeId, index: Index) -> None:
        """Check a checkpoint that records the entries up to `index` as committed."""
        durable = self._nodes[node].durable_index
        if index > durable:
            raise Violation(
                "checkpoint before durable", f"{node} notes {index}, durable up to {durable}"
            )

    def on_append(self, node: NodeId, entry: Entry, chain: int) -> None:
        mirror = self._nodes[node]
        if entry.index != len(mirror.terms) + 1:
            raise Violation("R5", f"{node} appends {entry.index} after {len(mirror.terms)}")
        this = (chain, entry.kind, entry.payload)
        if self._entries.setdefault((entry.index, entry.term), this) != this:
            raise Violation("R5", f"{node} appends {entry.index}@{entry.term} unlike the others'")
        if entry.kind is EntryKind.CONFIG and entry.index > mirror.configs[-1][0]:
            self._on_config(node, mirror, entry)
        mirror.terms.append(entry.term)
        mirror.chains.append(chain)

    def _on_config(self, node: NodeId, mirror: LogShadow, entry: Entry) -> None:
        index, before = mirror.configs[-1]
        if mirror.role is Role.LEADER and index > mirror.commit_index:
            raise Violation(
                "members", f"{node} appends a configuration while that at {index} is not committed"
            )
        mirror.note_config(entry)
        is_change = mirror.configs[-1][1] != before  # the first leader writes what is in force
        # Otherwise the changes of two leaders could be decided by disjoint majorities.
        if mirror.role is Role.LEADER and is_change and not mirror.committed_own_term:
            raise Violation(
                "members", f"{node} changes members, no entry of term {mirror.term} is committed"
            )
        changed = set(before.voter_ids) ^ set(mirror.voters)
        if before.voters and len(changed) > 1:
            raise Violation(
                "members", f"{node} appends a configuration that changes {sorted(changed)} at once"
            )

    def on_configuration(self, node: NodeId, index: Index) -> None:
        """Check that the core's configuration after a step is the one at `index`."""
        newest = self._nodes[node].configs[-1][0]
        if index != newest:
            raise Violation(
                "members", f"{node} lives by the configuration at {index}, its log has {newest}"
            )

    def on_truncate(self, node: NodeId, index: Index, successor: Entry | None) -> bool:
        """Record that `successor` replaces the entries from `index` on in the same step.

        Return True if a durable entry was among them.
        """
        mirror = self._nodes[node]
        if mirror.role is Role.LEADER:
            raise Violation("R4", f"{node} leads term {mirror.term} and truncates from {index}")
        if index > len(mirror.terms):
            raise Violation("R4", f"{node} truncates from {index}, its log ends before")
        if successor is None or successor.term == mirror.terms[index - 1]:
            raise Violation(
                "R4", f"{node} truncates from {index} though nothing conflicts with what it has"
            )
        if index <= self.committed_index:
            committed = mirror.chains[index - 1] == self._committed_chains[index - 1]
            if committed and mirror.term >= self._committed_in_terms[index - 1]:
                raise Violation(
                    "R7",
                    f"{node} in term {mirror.term} truncates {index}, committed in term "
                    f"{self._committed_in_terms[index - 1]}",
                )
        del mirror.terms[index - 1 :]
        del mirror.chains[index - 1 :]
        mirror.drop_configs(index)
        had_durable = mirror.durable_index >= index
        mirror.durable_index = min(mirror.durable_index, index - 1)
        return had_durable

    def on_fsync(self, node: NodeId, index: Index) -> None:
        mirror = self._nodes[node]
        if index > len(mirror.terms):
            raise Violation("R9", f"{node} claims {index} durable, its log ends before")
        mirror.durable_index = max(mirror.durable_index, index)

    # --- commit and apply ----------------------------------------------------------------------

    def on_commit(self, node: NodeId, index: Index) -> int:
        """Check a node's commit index after a step; return how many entries are newly committed."""
        mirror = self._nodes[node]
        before = mirror.commit_index
        if index == before:
            return 0
        if index < before:
            raise Violation("R8", f"{node} takes its commit index back from {before} to {index}")
        if index > len(mirror.terms):
            raise Violation("R8", f"{node} commits {index}, its log ends at {len(mirror.terms)}")
        mirror.commit_index = index
        if mirror.role is Role.LEADER:
            self._check_counted(node, mirror, index)
        known = min(index, self.committed_index)
        if known > before and mirror.chains[known - 1] != self._committed_chains[known - 1]:
            raise Violation("R6", f"{node} commits another entry at, or before, {known}")
        if index > known and mirror.role is not Role.LEADER:
            raise Violation("R8", f"{node} commits {index} as a follower, before any leader")
        for new in range(known + 1, index + 1):
            term, chain = mirror.terms[new - 1], mirror.chains[new - 1]
            self.committed_terms.append(term)
            self._committed_chains.append(chain)
            self._committed_in_terms.append(mirror.term)
            _, kind, payload = self._entries[new, term]
            self.committed_payloads.append(payload)
            self.committed_kinds.append(kind)
            state = self._committed_states[-1] if self._committed_states else 0
            self._committed_states.append(zlib.crc32(payload, state))
            if kind is EntryKind.CONFIG:
                self.committed_configs.append((new, decode_membership(payload)))
        # Raft 5.4.3: a later leader may be elected before this commit is counted, and must hold it
        # too.
        if index > known:
            for term, (leader, _, chains) in self._leaders.items():
                if term > mirror.term:
                    self._check_holds(leader, term, chains, index)
        return index - known

    def _check_counted(self, node: NodeId, mirror: LogShadow, index: Index) -> None:
        # Raft 5.4.2: entries of earlier terms are committed only along with one of the own term.
        if mirror.terms[index - 1] != mirror.term:
            raise Violation(
                "R8",
                f"{node} leads term {mirror.term} and commits {index} of term "
                f"{mirror.terms[index - 1]} by counting",
            )
        chain = mirror.chains[index - 1]
        members = mirror.configs[-1][1].voters
        holders = [
            member.node_id
            for member in members
            if self._mirror_of(member).has_durable(index, chain)
        ]
        if len(holders) <= len(members) // 2:
            raise Violation(
                "R9",
                f"{node} commits {index}, durable on {holders or 'nobody'} only among "
                f"{mirror.voters}",
            )

    def on_apply(self, node: NodeId, entries: Sequence[Entry]) -> None:
        mirror = self._nodes[node]
        for entry in entries:
            index = entry.index
            if index != mirror.applied_index + 1 or index > mirror.commit_index:
                raise Violation(
                    "R10",
                    f"{node} applies {index} after {mirror.applied_index}, committed up to "
                    f"{mirror.commit_index}",
                )
            same_term = self.committed_terms[index - 1] == entry.term
            if not same_term or self.committed_payloads[index - 1] != entry.payload:
                raise Violation("R10", f"{node} applies another entry at {index} than others")
            mirror.applied_index = index
