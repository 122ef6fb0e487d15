"""A dumb model of a master's log, its copies, and what was answered about it.

Place in the data path: `ha_machine` notes here what the master appends, what each node applies, how
a node died and what its next start finds; `programs` what clients were answered and read.

What it holds, by the promises of the engines (docs/decisions/0028):
- H1: a log that is opened has all that its node had, unless its disk lost power or an fsync failed:
  then all that was claimed durable. Nothing in it is of no master. What a slave lacks beyond that,
  it has cut, and said so (StateDivergedError): nothing that its master has too, and never all of
  its log. Where retention has taken a log's beginning, two snapshots are on the disk that end in
  what is left, and no slave that follows lacks any of it, unless the disk is full;
- H2: a slave applies what the master appended, at its place, in order, and nothing else;
- H3: an entry that is answered COMMITTED, or a message SEND_OK, is on the master's disk whatever
  happens (flush sync), and `in_sync_replicas` nodes have it (engine sync);
- H4: a status that tells of a timeout comes when its time is over, and no answer comes later than
  that; an entry without messages waits for no slave; what waits for nothing is answered at once;
  SLAVE_NOT_AVAILABLE is said where too few slaves are connected, and not where enough follow;
- H5: what a consumer reads stands, or stood, at that place of a master's log; where a queue ends,
  nodes say that had all before, and no slave while it follows its master;
- H7: in the end logs are as short as retention has them.

It knows nothing of files, framing, marks, connections or snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from chaos.sim.machine.violation import Violation
from raft.messages import Index, NodeId
from raft.replicated_log import ProposalStatus

__all__ = ["Answer", "Entry", "LogBook", "Message", "Opened"]

QueueKey: TypeAlias = tuple[str, int]
_SNAPSHOTS_MIN: Final = 2  # a start restores one, also where the newest is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One record of an entry: its place in its queue and in the log, and its name."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    value: str

    @property
    def queue(self) -> QueueKey:
        return self.topic, self.queue_id


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One entry that some master appended. `end`: the position behind it."""

    index: Index
    chain: int
    end: int
    messages: tuple[Message, ...]
    had_by: set[NodeId] = field(default_factory=set)  # once, whatever became of it there
    on_disk: bool = False  # of the master, durably: shown when it was answered
    is_acknowledged: bool = False  # a client was answered SEND_OK of a message in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a proposal was answered. `waited_ms`: by the master's clock; `was_paused`: its process
    was, meanwhile; `lateness_ms`: of its timers; `is_on_disk`: whether no failure of power takes
    the entry now; slaves that could count as available, by their connections: `slaves_at_most` when
    it was proposed, `slaves_at_least` from then on."""

    status: ProposalStatus
    waited_ms: int
    was_paused: bool = False
    disk_timeout_ms: int
    slave_timeout_ms: int
    lateness_ms: int = 1
    is_on_disk: bool = False
    slaves_at_most: int = 1 << 30
    slaves_at_least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a start has found: the entries behind `first`-1, by their chains."""

    first: Index
    chains: Sequence[int]

    @property
    def last(self) -> Index:
        return self.first + len(self.chains) - 1


@dataclass(slots=True, kw_only=True)
class _Node:
    """What a node is known to have: `chains[i]` is that of entry i+1, None of one below its log's
    beginning that was never seen there."""

    chains: list[int | None] = field(default_factory=list)
    claimed: Index = 0  # durable, as it said
    may_lose: bool = False  # its disk lost power, or failed a fsync, since it was last opened
    is_cut: bool = False  # it has cut its log, and said so, or was about to
    next_index: Index | None = None  # that it applies next, in this life

    def at(self, index: Index) -> int | None:
        return self.chains[index - 1] if index <= len(self.chains) else None


class LogBook:
    """Every method raises Violation."""

    def __init__(
        self,
        counts: dict[str, int],
        master: NodeId,
        *,
        waits_for_slaves: bool,
        waits_for_disk: bool,
        in_sync_replicas: int,
    ) -> None:
        self.counts = counts
        self.master = master
        self.entries: list[Entry] = []  # of the master's log, as it is now
        self._waits_for_slaves = waits_for_slaves and in_sync_replicas > 1
        self._waits_for_disk = waits_for_disk
        self._in_sync_replicas = in_sync_replicas
        self._ever: dict[tuple[Index, int], Entry] = {}
        self._by_value: dict[str, list[Entry]] = {}
        self._values_at: dict[tuple[str, int, int], set[str]] = {}
        self._nodes: dict[NodeId, _Node] = {}
        self._masters = {master}  # and those that were
        self._is_new = False  # the master was made one, and was not opened since

    # --- the master ----------------------------------------------------------------------------

    def on_appended(
        self, index: Index, chain: int, end: int, messages: tuple[Message, ...]
    ) -> Entry:
        """The master has appended an entry."""
        if index != len(self.entries) + 1:
            raise Violation(
                "H2", f"{self.master} appends entry {index} behind {len(self.entries)} others"
            )
        entry = self._ever.get((index, chain))
        if entry is None:
            entry = self._ever[index, chain] = Entry(
                index=index, chain=chain, end=end, messages=messages
            )
        self.entries.append(entry)
        entry.had_by.add(self.master)
        self._has(self.master, entry)
        self.counts["entries_of_masters"] += 1
        self._note_messages(entry)
        return entry

    def _note_messages(self, entry: Entry) -> None:
        for message in entry.messages:
            self._by_value.setdefault(message.value, []).append(entry)
            at = (message.topic, message.queue_id, message.queue_offset)
            self._values_at.setdefault(at, set()).add(message.value)

    def length(self, node: NodeId) -> Index:
        """Return the last entry that the node is known to have, and each before it; else 0."""
        chains = self._node(node).chains
        return 0 if None in chains else len(chains)

    def on_made_master(self, node: NodeId) -> None:
        """A person has made this node, which has some `length`, the master: what others have beyond
        it is lost, whatever was answered of it."""
        former = self.entries
        self.master, self._is_new = node, True
        self._masters.add(node)
        self.entries = self._known_entries(node)
        self.counts["masters_changed"] += 1
        self.counts["entries_lost_by_changes"] += len(set(former) - set(self.entries))

    def _known_entries(self, node: NodeId) -> list[Entry]:
        chains = self._node(node).chains
        return [self._ever[at, chain] for at, chain in enumerate(chains, 1) if chain is not None]

    def on_answered(self, entry: Entry, answer: Answer) -> None:
        """The master has answered the proposal."""
        entry.on_disk = entry.on_disk or answer.is_on_disk
        status, waited_ms = answer.status, answer.waited_ms
        what = f"entry {entry.index} is answered {status.value}"
        waits_for_slaves = self._waits_for_slaves and bool(entry.messages)
        if waits_for_slaves:
            self._require_by_slaves(answer, what)
        match status:
            case ProposalStatus.COMMITTED:
                if self._waits_for_disk and not entry.on_disk:
                    raise Violation("H3", f"{what}, and a failure of power may take it")
                if waits_for_slaves:
                    self._require_copies(entry, what)
            case ProposalStatus.FLUSH_DISK_TIMEOUT:
                if not self._waits_for_disk or waited_ms < answer.disk_timeout_ms - 1:
                    raise Violation("H4", f"{what} after {waited_ms} ms")
            case ProposalStatus.FLUSH_SLAVE_TIMEOUT:
                if not waits_for_slaves or waited_ms < answer.slave_timeout_ms - 1:
                    raise Violation("H4", f"{what} after {waited_ms} ms")
            case ProposalStatus.SLAVE_NOT_AVAILABLE:
                if not waits_for_slaves:
                    raise Violation("H4", f"{what}, and no slave is waited for")
                waits_for_slaves = False  # it is said at once
            case _:
                return
        self._require_in_time(answer, what, waits_for_slaves=waits_for_slaves)

    def _require_by_slaves(self, answer: Answer, what: str) -> None:
        """Check that an entry waits for slaves where enough of them are there, and only there."""
        needed = self._in_sync_replicas - 1
        at_most, at_least = answer.slaves_at_most, answer.slaves_at_least
        if answer.status is ProposalStatus.SLAVE_NOT_AVAILABLE:
            if at_least >= needed:
                raise Violation("H4", f"{what}, and {at_least} slaves follow, {needed} is enough")
        elif answer.status is not ProposalStatus.STOPPED and at_most < needed:
            raise Violation("H4", f"{what}, and {at_most} slaves are there, not {needed}")

    def _require_in_time(self, answer: Answer, what: str, *, waits_for_slaves: bool) -> None:
        waits = (
            (self._waits_for_disk, answer.disk_timeout_ms),
            (waits_for_slaves, answer.slave_timeout_ms),
        )
        longest_ms = max((time_ms for is_waited, time_ms in waits if is_waited), default=0)
        allowed_ms = longest_ms + 2 * answer.lateness_ms if longest_ms else 0
        if answer.waited_ms > allowed_ms and not answer.was_paused:
            raise Violation("H4", f"{what} after {answer.waited_ms} ms, {allowed_ms} is the most")

    def _require_copies(self, entry: Entry, what: str) -> None:
        if len(entry.had_by) < self._in_sync_replicas:
            had_by = ", ".join(sorted(entry.had_by))
            raise Violation(
                "H3", f"{what}, and {had_by} alone had it, not {self._in_sync_replicas} nodes"
            )

    # --- all nodes -----------------------------------------------------------------------------

    def on_starting(self, node: NodeId) -> None:
        """A node begins anew, with an empty state machine."""
        self._node(node).next_index = None

    def share_nothing(self, one: NodeId, other: NodeId) -> bool:
        """Return whether two logs, neither of them empty, have no entry in common."""
        ours, theirs = self._node(one).chains, self._node(other).chains
        pairs = zip(ours, theirs, strict=False)
        return bool(ours and theirs) and not any(a is not None and a == b for a, b in pairs)

    def on_applied(self, node: NodeId, index: Index, chain: int) -> None:
        known = self._node(node)
        if known.next_index is not None and index != known.next_index:
            raise Violation("H2", f"{node} applies entry {index}, not {known.next_index}")
        known.next_index = index + 1
        entry = self._ever.get((index, chain))
        if entry is None:
            if node != self.master:
                raise Violation("H2", f"{node} applies entry {index}, which no master appended")
            return  # `on_opened` takes it in, or says what is wrong
        entry.had_by.add(node)
        self._has(node, entry)

    def _has(self, node: NodeId, entry: Entry) -> None:
        chains = self._node(node).chains
        chains += [None] * (entry.index - len(chains))
        chains[entry.index - 1] = entry.chain

    def on_claimed(self, node: NodeId, index: Index) -> None:
        """The node dies, or cuts its log, and has said last that it is durable up to `index`."""
        known = self._node(node)
        if index < known.claimed:
            known.is_cut = True
        known.claimed = index

    def on_cut(self, node: NodeId, last: Index, *, first: Index) -> None:
        """The node says that it cuts its log, which begins with entry `first`, behind `last`."""
        if node == self.master:
            raise Violation("H1", f"{node} is the master, and cuts its log")
        if last < first:
            raise Violation("H1", f"{node} cuts its whole log, from entry {first} on")
        known = self._node(node)
        known.is_cut = True
        self._note_cut(node, known, last)

    def _note_cut(self, node: NodeId, known: _Node, last: Index) -> None:
        """Count where the logs part, and how."""
        common = 0
        for chain, entry in zip(known.chains, self.entries, strict=False):
            if chain is not None and chain != entry.chain:
                break
            common += 1
        if last < common:
            raise Violation("H1", f"{node} cuts entry {last + 1}, and {self.master} has it too")
        counts, dropped = self.counts, len(known.chains) - last
        counts["slaves_cut"] += 1
        counts["slaves_cut_by_one" if dropped == 1 else "slaves_cut_by_more"] += 1
        if common == len(self.entries):
            counts["slaves_cut_ahead"] += 1
            return
        chain = known.at(common + 1)
        if chain is None:
            return  # nothing of it was applied here
        theirs, ours = self.entries[common], self._ever[common + 1, chain]
        begin = self.entries[common - 1].end if common else 0
        is_last = common + 1 == len(known.chains)
        counts["slaves_cut_at_the_last" if is_last else "slaves_cut_inside"] += 1
        sizes = (theirs.end - begin, ours.end - begin)
        name = "same" if sizes[0] == sizes[1] else "longer" if sizes[0] > sizes[1] else "shorter"
        counts[f"slaves_cut_at_a_{name}_entry"] += 1
        if len(self.entries) >= len(known.chains):
            counts["slaves_cut_behind_the_master"] += 1

    def on_shortened(self, node: NodeId, begin: int, snapshots: Sequence[int]) -> None:
        """Retention has taken all before the position `begin`; a failure of power leaves snapshots
        that end at the positions `snapshots`."""
        self.counts["logs_shortened"] += 1
        left = [position for position in snapshots if position >= begin]
        if len(left) < _SNAPSHOTS_MIN:
            ends = ", ".join(map(str, sorted(snapshots))) or "none"
            raise Violation(
                "H1", f"the log of {node} begins at {begin} now, and its snapshots end at {ends}"
            )

    def on_shortened_for(self, node: NodeId, begin: int, behind: Sequence[NodeId]) -> None:
        """Retention that no full disk forces has taken all before `begin`, which the connected
        slaves `behind` lack in part."""
        if behind:
            raise Violation(
                "H1", f"the log of {node} begins at {begin} now, and {', '.join(behind)} lacks it"
            )

    def on_size(self, node: NodeId, size: int, size_max: int) -> None:
        """In the end the node's log has this size; retention leaves no more than the other."""
        if size > size_max:
            raise Violation("H7", f"the log of {node} has {size} bytes, {size_max} is the most")

    def on_disk_failed(self, node: NodeId) -> None:
        """The node's disk lost power, or failed a fsync."""
        self._node(node).may_lose = True

    def on_wiped(self, node: NodeId) -> None:
        self._nodes[node] = _Node()
        if node == self.master:
            self.counts["entries_lost_by_masters"] += len(self.entries)
            self.entries = []

    def on_opened(self, node: NodeId, opened: Opened, extra: Sequence[Entry]) -> None:
        """A start has found its log. `extra`: entries of it, made from it, for those that the
        master appended when it died."""
        known, goes_on = self._node(node), node == self.master and not self._is_new
        for entry in extra if node in self._masters else ():
            if (entry.index, entry.chain) not in self._ever:
                if goes_on:
                    self.on_appended(entry.index, entry.chain, entry.end, entry.messages)
                else:
                    self._ever[entry.index, entry.chain] = entry
                    self._note_messages(entry)
        self._compare(node, known, opened, goes_on=goes_on)
        had = len(known.chains)
        if opened.last < had:
            self._allow_loss(node, known, opened.last, had)
            del known.chains[opened.last :]
            if goes_on:
                self._lose(opened.last)
            elif node != self.master:
                self.counts["entries_dropped_by_slaves"] += had - opened.last
        for entry_index, chain in enumerate(opened.chains, opened.first):
            self._ever[entry_index, chain].had_by.add(node)
            self._has(node, self._ever[entry_index, chain])
        known.may_lose = known.is_cut = False
        known.claimed = min(known.claimed, opened.last)
        if node == self.master and self._is_new:
            self.entries, self._is_new = self._known_entries(node), False

    def _compare(self, node: NodeId, known: _Node, opened: Opened, *, goes_on: bool) -> None:
        for index, chain in enumerate(opened.chains, opened.first):
            if (index, chain) not in self._ever:
                raise Violation("H1", f"{node} has found an entry {index} that is of no master")
            if goes_on:
                if chain != self.entries[index - 1].chain:
                    raise Violation("H1", f"{node} has found another entry {index} than it had")
            elif not known.is_cut and known.at(index) not in {None, chain}:
                raise Violation("H1", f"{node} has found another entry {index} than it had")

    def _allow_loss(self, node: NodeId, known: _Node, last: Index, had: Index) -> None:
        if known.is_cut:
            return
        what = f"{node} has found entries up to {last}, had {had}"
        if not known.may_lose:
            raise Violation("H1", f"{what}, and neither lost power nor cut its log")
        if last < known.claimed:
            raise Violation("H1", f"{what}, and claimed {known.claimed} durable")

    def _lose(self, last: Index) -> None:
        """The master's disk has lost all behind `last`."""
        lost = self.entries[last:]
        del self.entries[last:]
        self.counts["entries_lost_by_masters"] += len(lost)
        for entry in lost:
            self.counts["messages_lost_after_an_answer"] += entry.is_acknowledged
            if entry.on_disk and self._waits_for_disk:
                raise Violation("H3", f"entry {entry.index} was on the master's disk, and is lost")
            if entry.is_acknowledged and self._waits_for_disk:
                raise Violation("H3", f"entry {entry.index} was told SEND_OK, and is lost")

    def _node(self, node: NodeId) -> _Node:
        return self._nodes.setdefault(node, _Node())

    # --- clients -------------------------------------------------------------------------------

    def on_send_result(self, value: str, queue: QueueKey, offset: int, *, is_ok: bool) -> None:
        """A producer was answered where its message is stored; `is_ok`: SEND_OK."""
        place = f"{queue[0]}/{queue[1]}/{offset}"
        entries = [
            entry
            for entry in self._by_value.get(value, ())
            for message in entry.messages
            if (message.value, message.queue, message.queue_offset) == (value, queue, offset)
        ]
        if not entries:
            raise Violation("H3", f"{value} is told to stand at {place}, where no master had it")
        if not is_ok:
            return
        entry = entries[-1]
        entry.is_acknowledged = True
        if self._waits_for_slaves:
            self._require_copies(entry, f"{value} is told SEND_OK, in entry {entry.index} which")

    def on_read(self, queue: QueueKey, offset: int, value: str) -> None:
        if value not in self._values_at.get((*queue, offset), ()):
            raise Violation(
                "H5", f"{value} is read at {queue[0]}/{queue[1]}/{offset}, not its place"
            )

    def on_pulled(self, queue: QueueKey, offset: int, found: Sequence[int], to: int) -> None:
        """A pull from `offset` has found messages, and goes on at `to`."""
        if list(found) != list(range(offset, offset + len(found))) or to != offset + len(found):
            raise Violation(
                "H5", f"a pull of {queue[0]}/{queue[1]} from {offset} finds {found}, then {to}"
            )

    def on_end_answered(self, queue: QueueKey, end: int) -> None:
        """Some node has said where the queue ends."""
        if end and (*queue, end - 1) not in self._values_at:
            raise Violation("H5", f"{queue[0]}/{queue[1]} ends at {end}, where it never has been")

    def on_read_point(self, node: NodeId, *, follows: bool) -> None:
        """The node answers what a master knows; `follows`: its master is there."""
        if node == self.master:
            return
        if follows:
            raise Violation("H5", f"{node} answers for {self.master}, which it follows")
        self.counts["ends_told_by_slaves"] += 1

    def on_bad_status_when_calm(self, status: str) -> None:
        """A send that began in the calm end was answered this, not SEND_OK."""
        raise Violation("H4", f"a send is told {status}, and nothing is wrong any more")

    # --- the end -------------------------------------------------------------------------------

    def queues(self) -> dict[QueueKey, list[Message]]:
        """Return the messages of each queue of the master's log. Raises Violation where the
        offsets of one are not 0, 1, 2 and so on."""
        found: dict[QueueKey, list[Message]] = {}
        for entry in self.entries:
            for message in entry.messages:
                messages = found.setdefault(message.queue, [])
                if message.queue_offset != len(messages):
                    raise Violation("G3", f"{message} is number {len(messages)} of its queue")
                messages.append(message)
        return found
