"""Replaces damaged entries by a peer's; detects entries that were never committed.

Place in the data path: `SegmentLog.repair` passes what the node has fetched.

There is one rule. A damage lies between known points: entries whose end and chain are known, from
an index or from what follows the damage. Where the index is known each entry is one, else only the
damage's ends are. Entries that lead from one known point to the next are the ones that stood there,
whoever sends them. Where they cannot be (another chain at a known point, no room left before the
next one, a term that would make terms fall), and the peer reports them committed, what stood here
never was: all from the first such entry on may be dropped, and what the peer has before it is what
the log continues (Raft 5.3, log matching).

Invariants:
- bytes are written where they belong and made durable before the damage counts as repaired; a lost
  file is built beside and renamed when it is whole, so that a crash leaves it missing;
- nothing is dropped here, and nothing that may have been acknowledged is ever proposed to be:
  NeverCommittedError names an end of the log behind which a committed entry contradicts this log;
- entries before a damage that a peer's committed ones contradict, or that the right ones do not
  continue, are stale: the damage grows to the segment's beginning, whose chain is certain. While a
  peer's entries only differ from them, they are doubted: the peers' ones are followed from the
  segment's beginning, and nothing is written until they have led to what follows the damage.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from raft.log.damage import Damage, DamagedLogError, NeverCommittedError, RepairMismatchError
from raft.log.log_format import HEADER_SIZE, CorruptLogError, encode_header
from raft.log.segment_files import SegmentFiles
from raft.log.segment_index import SegmentIndex, encode_sidecar
from raft.log.segment_table import SegmentTable
from raft.messages import Entry, EntryKind, Index, LogBase, Term
from raft.storage import write_fully

__all__ = ["LogRepair"]


@dataclass(slots=True, kw_only=True)
class _Patch:
    """Entries collected so far for a damage that can't be repaired entry by entry."""

    damage: Damage
    chain_before: int
    position: int
    chain: int
    sizes: list[int] = field(default_factory=list)
    chains: list[int] = field(default_factory=list)
    runs: list[tuple[Index, Term]] = field(default_factory=list)
    config_indexes: list[Index] = field(default_factory=list)

    @property
    def next_index(self) -> Index:
        return self.damage.first_index + len(self.sizes)

    @property
    def is_confirmed(self) -> bool:
        """Whether it continues what precedes the damage."""
        return self.chain_before == self.damage.chain_before

    def add(self, entry: Entry, end_position: int, chain: int) -> None:
        if not self.runs or self.runs[-1][1] != entry.term:
            self.runs.append((entry.index, entry.term))
        if entry.kind is EntryKind.CONFIG:
            self.config_indexes.append(entry.index)
        self.sizes.append(end_position - self.position)
        self.chains.append(chain)
        self.position, self.chain = end_position, chain


class LogRepair:
    """Repairs of one log, on its own `table` and `files`."""

    def __init__(self, table: SegmentTable, files: SegmentFiles) -> None:
        self._table = table
        self._files = files
        self._patch: _Patch | None = None
        self._doubted: Damage | None = None

    def wanted_index(self, damage: Damage) -> Index:
        """Return the first entry that the damage still needs."""
        if damage == self._doubted:
            damage = self._grown(damage)
        patch = self._patch
        if patch is not None and patch.damage == damage:
            return patch.next_index
        return damage.first_index

    def forget(self) -> None:
        """Discard an unfinished repair: the log has changed, or no peer can continue it."""
        self._patch = self._doubted = None

    def repair(
        self,
        first_index: Index,
        entries: Sequence[Entry],
        chain_before: int | None,
        committed_index: Index,
    ) -> int:
        """Take the entries, of which those up to `committed_index` are committed, and return the
        lowest position that was written, if any was: entries that only confirm or refute what
        precedes the damage are not written, and are wanted once more.

        Raises ValueError, RepairMismatchError, NeverCommittedError, OSError, and CorruptLogError
        where the log's base is contradicted.
        """
        found, segment, entries = self._wanted(first_index, entries)
        is_doubted = found == self._doubted
        damage = self._grown(found) if is_doubted else found
        patch = self._begin(damage, chain_before, committed_index)
        pieces: list[bytes] = []
        position = patch.position
        for entry in entries:
            header, chain = encode_header(entry, patch.position, patch.chain)
            end_position = patch.position + HEADER_SIZE + len(entry.payload)
            if not self._may_have_stood(damage, segment, entry, end_position, chain):
                self._patch = None
                raise self._difference(found, patch, entry.index, committed_index)
            pieces += (header, entry.payload)
            patch.add(entry, end_position, chain)
        last = entries[-1].index
        is_last = last == damage.last_index
        confirms = is_last and (is_doubted or not patch.is_confirmed)
        if confirms:
            self._confirm(found, patch, segment)
        if is_doubted or confirms:
            return position  # nothing is written yet
        whole = is_last or last == segment.last_index
        beside = not self._files.exists(segment.before.position)
        self._write(segment, position, b"".join(pieces), whole=whole)
        if is_last and not damage.entries_known:
            self._learn(patch, segment)
        elif damage.entries_known and (whole or not beside):
            self._shrink(damage, segment, last)
        return position

    def compare(self, entry: Entry, chain_before: int) -> None:
        """Compare a peer's committed entry, from before a damage, with this log.

        Returns where that proves nothing. Raises NeverCommittedError where this log has another
        one, RepairMismatchError where a damage has grown by the finding, and OSError.
        """
        table, index = self._table, entry.index
        if not table.base.index < index <= table.last_index:
            return
        damage = table.damages.next(index)
        if damage is None or damage.entries_known or index < damage.suspect_index:
            self._compare_certain(entry, chain_before)
            return
        low, high = table.term_bounds(damage, index)
        if index >= damage.first_index or low <= entry.term <= high:
            return
        # The entry that stood here had another term.
        segment = table.segment_of(index)
        if segment.chain(index - 1) == chain_before:
            cut = LogBase(
                index=index - 1,
                term=table.term_of_run(index - 1),
                position=segment.position(index),
                chain=chain_before,
            )
            raise NeverCommittedError(cut)
        if index - 1 == segment.before.index:
            raise self._never_committed(index - 1)
        raise self._grow(damage, segment)

    # --- conclusions from a peer's entries -----------------------------------------------------

    def _wanted(
        self, first_index: Index, entries: Sequence[Entry]
    ) -> tuple[Damage, SegmentIndex, list[Entry]]:
        """Return the damage, its segment, and the entries that are of use."""
        damage = self._table.damages.next(first_index)
        if damage is None or (first_index < damage.first_index and damage != self._doubted):
            raise ValueError(f"entry {first_index} is not damaged")
        if first_index != self.wanted_index(damage):
            raise ValueError(f"entry {self.wanted_index(damage)} of {damage} comes first")
        segment = self._table.segment_of(first_index)
        # A damage that extends into the next segment is repaired segment by segment.
        last_index = min(damage.last_index, segment.last_index)
        wanted = [entry for entry in entries if entry.index <= last_index]
        for number, entry in enumerate(wanted):
            if entry.index != first_index + number:
                raise ValueError(f"entry {entry.index} after {first_index + number - 1}")
        if not wanted:
            raise ValueError("no entries")
        return damage, segment, wanted

    def _begin(self, damage: Damage, chain_before: int | None, committed_index: Index) -> _Patch:
        """Return the patch that the entries continue. Raises if they don't continue it."""
        patch = self._patch
        if patch is not None and patch.damage == damage:
            if chain_before in {None, patch.chain}:
                return patch
            if patch.next_index - 1 <= committed_index:
                self._patch = None  # it is of no use
            raise RepairMismatchError(f"entries that don't continue those taken of {damage}")
        start = damage.chain_before if chain_before is None else chain_before
        before = damage.first_index - 1
        if start != damage.chain_before:
            is_committed = before <= committed_index
            if damage.suspect is None:
                if is_committed:
                    raise self._never_committed(before)
                raise RepairMismatchError(f"entries that don't continue what precedes {damage}")
            if is_committed:
                raise self._grow(damage, self._table.segment_of(damage.first_index))
        self._patch = _Patch(
            damage=damage, chain_before=start, position=damage.position, chain=start
        )
        return self._patch

    def _may_have_stood(
        self, damage: Damage, segment: SegmentIndex, entry: Entry, end_position: int, chain: int
    ) -> bool:
        """Return whether the entry can be the one that stood here, as far as that is known."""
        index = entry.index
        if damage.entries_known:
            return (end_position, chain) == (segment.end(index), segment.chain(index))
        if index == damage.last_index:
            return (end_position, chain) == (damage.end_position, damage.chain_after)
        low, high = self._table.term_bounds(damage, index)
        room = HEADER_SIZE * (damage.last_index - index)
        return low <= entry.term <= high and end_position + room <= damage.end_position

    def _difference(
        self, found: Damage, patch: _Patch, index: Index, committed_index: Index
    ) -> Exception:
        """Return the error for a peer's entry at `index` that contradicts this log's; those before
        it may agree."""
        damage = patch.damage
        if not patch.is_confirmed:
            self._doubted = damage
        if index > committed_index or not patch.is_confirmed:
            return RepairMismatchError(f"entry {index} is not the one that stood here")
        if damage.first_index < min(index, found.first_index):
            # Is the last committed one of the doubted entries the one that stands here?
            segment = self._table.segment_of(found.first_index)
            before = min(index, found.first_index) - 1
            if patch.chains[before - damage.first_index] != segment.chain(before):
                return self._grow(found, segment)
        if damage.entries_known:
            return self._never_committed(index)
        term = patch.runs[-1][1] if patch.runs else self._table.term_of_run(index - 1)
        return NeverCommittedError(
            LogBase(index=index - 1, term=term, position=patch.position, chain=patch.chain)
        )

    def _compare_certain(self, entry: Entry, chain_before: int) -> None:
        """Compare with this log's entry at that index, whose place and chain are certain."""
        table, index = self._table, entry.index
        if table.chain(index - 1) != chain_before:
            raise self._never_committed(index - 1)
        position = table.segment_of(index).position(index)
        if encode_header(entry, position, chain_before)[1] != table.chain(index):
            raise self._never_committed(index)

    def _never_committed(self, index: Index) -> Exception:
        """Return the error for a committed entry that contradicts this log's certain one."""
        base = self._table.base
        if index <= base.index:
            text = f"the log begins behind entry {index}, and a peer's committed one differs"
            return CorruptLogError("commitlog", base.position, text)
        try:
            return NeverCommittedError(self._table.cut_before(index))
        except DamagedLogError as error:  # what precedes it comes first
            return RepairMismatchError(f"entry {index} is another one, and before it {error}")

    def _confirm(self, found: Damage, patch: _Patch, segment: SegmentIndex) -> None:
        """Confirm what precedes the damage, or mark it stale: the peers' entries lead to what
        follows the damage, so they are right. They are fetched once more."""
        self._patch = self._doubted = None
        before = found.first_index - 1
        if patch.damage == found:
            chain = patch.chain_before
        else:
            chain = patch.chains[before - patch.damage.first_index]
        if chain != segment.chain(before):
            self._grow(found, segment)
        else:
            # Else the next peer whose entries differ would make it doubted once more.
            self._table.damages.replace(found, replace(found, suspect=None))

    # --- changes of the damage -----------------------------------------------------------------

    def _shrink(self, damage: Damage, segment: SegmentIndex, last: Index) -> None:
        """Record known entries up to `last` as repaired."""
        self._patch = None
        if last == damage.last_index:
            self._table.damages.remove(damage)
            self._table.retain(segment)
            return
        rest = replace(
            damage,
            first_index=last + 1,
            position=segment.end(last),
            chain_before=segment.chain(last),
        )
        self._table.damages.replace(damage, rest)

    def _grown(self, damage: Damage) -> Damage:
        """Return the damage extended to the beginning of its segment."""
        before = self._table.segment_of(damage.first_index).before
        return replace(
            damage,
            first_index=before.index + 1,
            position=before.position,
            chain_before=before.chain,
            suspect=None,
            reason="stale entries, and damaged ones behind them",
        )

    def _grow(self, damage: Damage, segment: SegmentIndex) -> RepairMismatchError:
        """Extend the damage over stale entries before it: they were tied only to their own
        beginning, while what follows the damage is tied to the log's end."""
        self._patch = self._doubted = None
        first = segment.before.index + 1
        for index in range(first, damage.first_index):
            segment.offsets[index - first] = 0
            segment.chains[index - first] = 0
        for index in range(damage.first_index, damage.last_index + 1):
            segment.offsets[index - first] = 0
        self._table.damages.replace(damage, self._grown(damage))
        return RepairMismatchError(f"the entries before {damage} are stale")

    def _learn(self, patch: _Patch, old: SegmentIndex) -> None:
        """Build the segment's index with the repaired entries in it."""
        self._patch = None
        table, damage = self._table, patch.damage
        index = SegmentIndex(old.before)
        place = damage.first_index - old.before.index - 1
        index.offsets.extend(old.offsets[:place])
        index.chains.extend(old.chains[:place])
        index.end_position = damage.position
        for size, chain in zip(patch.sizes, patch.chains, strict=True):
            index.append(size, chain)
        index.offsets.extend(old.offsets[place + damage.count :])
        index.chains.extend(old.chains[place + damage.count :])
        index.end_position = old.end_position
        runs = table.runs_within(old.before.index + 1, damage.first_index - 1)
        runs += patch.runs
        runs += table.runs_within(damage.last_index + 1, old.last_index)
        configs = table.config_indexes
        low = bisect_left(configs, damage.first_index)
        configs[low : bisect_right(configs, damage.last_index)] = patch.config_indexes
        table.damages.remove(damage)
        if old is table.last:
            table.learn(None, index, runs)
            return
        table.learn(table.summary_of(index, runs), index, runs)
        summary = table.summary_at(index.before.position)
        if not table.has_unknown(summary):
            self._files.write_sidecar(summary.position, encode_sidecar(summary, index))

    def _write(self, segment: SegmentIndex, position: int, data: bytes, *, whole: bool) -> None:
        """Write repaired bytes durably. `whole`: a lost file is complete now."""
        first_position = segment.before.position
        offset = position - first_position
        with closing(self._files.open_for_repair(first_position, begins=not offset)) as file:
            file.allocate(offset + len(data))
            write_fully(file, data, offset)
            file.sync()
        if whole:
            self._files.end_repair(first_position)
