"""Place of every entry of the log: summaries of closed segments, the index of the last one.

Place in the data path: `raft.log.segment_log` appends to it and looks entries up in it.

Invariants:
- memory is bounded by the number of segments, not of entries: the indexes of closed segments are
  loaded from their sidecars on demand, and the least recently used ones are dropped. Only that of a
  segment with damage is retained: what is known of it must not depend on the disk any more;
- what is not known of a damaged entry is never made up: a lookup raises DamagedLogError.

Source: none; DLedger keeps a file of 32-byte units per entry for the same purpose.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from raft.log.damage import Damage, DamagedLogError
from raft.log.log_recovery import RecoveredLog
from raft.log.segment_index import SegmentIndex, SegmentSummary
from raft.messages import EntryKind, Index, LogBase, Term

__all__ = ["SegmentTable"]

_CACHED_ENTRIES_MAX = 2 << 20  # 16 MiB of offsets and chains


class SegmentTable:
    """Index of the whole log. `load` reads a closed segment's; raises OSError, CorruptLogError."""

    def __init__(
        self, recovered: RecoveredLog, load: Callable[[SegmentSummary], SegmentIndex]
    ) -> None:
        self._load = load
        self.base = recovered.base
        self.damages = recovered.damages
        self.closed: list[SegmentSummary] = recovered.closed
        self.last: SegmentIndex = recovered.last
        self._firsts = [summary.before.index + 1 for summary in self.closed]
        self._positions = [summary.position for summary in self.closed]
        self._starts = recovered.term_starts  # first index of each run; the base begins one
        self._terms = recovered.term_values
        self._noted_terms: dict[Index, Term] = {}  # of damaged entries, from a snapshot
        self.config_indexes: list[Index] = recovered.config_indexes
        self._retained: dict[int, SegmentIndex] = {}
        self._cache: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._cached_count = 0
        for summary in self.closed:
            index = recovered.indexes.get(summary.position)
            if index is not None:
                self._hold(summary, index)

    # --- looking up ----------------------------------------------------------------------------

    @property
    def last_index(self) -> Index:
        last = self.last
        return last.before.index + len(last.offsets)

    @property
    def last_term(self) -> Term:
        return self._terms[-1]

    @property
    def last_chain(self) -> int:
        return self.last.last_chain

    @property
    def end_position(self) -> int:
        return self.last.end_position

    @property
    def end(self) -> LogBase:
        last = self.last
        return LogBase(
            index=last.before.index + len(last.offsets),
            term=self._terms[-1],
            position=last.end_position,
            chain=last.last_chain,
        )

    def term(self, index: Index) -> Term:
        """Return the term of an entry or of the base. Raises IndexError and DamagedLogError."""
        self._check(index, self.base.index)
        if index >= self._starts[-1]:
            return self._terms[-1]
        if self.damages:
            damage = self._unsure_of_term(index)
            if damage is not None:
                return self._term_between(damage, index)
        return self.term_of_run(index)

    def term_of_run(self, index: Index) -> Term:
        """Return the term that the runs give, confirmed or not."""
        return self._terms[bisect_right(self._starts, index) - 1]

    def position(self, index: Index) -> int:
        """Return the position of the entry's header. Raises IndexError and DamagedLogError."""
        last = self.last
        if last.before.index < index and not self.damages:  # nearly always
            self._check(index, index)
            return last.position(index)
        self._check(index, self.base.index + 1)
        if self.damages:
            self._check_known(index, by_end=False)
        return self.segment_of(index).position(index)

    def chain(self, index: Index) -> int:
        """Return the chain of an entry or of the base. Raises IndexError and DamagedLogError."""
        self._check(index, self.base.index)
        last = self.last
        if index >= last.before.index:
            if self.damages:
                self._check_known(index)
            return last.chain(index)
        if index == self.base.index:
            return self.base.chain
        if self.damages:
            self._check_known(index)
        return self.segment_of(index).chain(index)

    def segment_of(self, index: Index) -> SegmentIndex:
        """Return the index of the segment that holds the entry."""
        if index > self.last.before.index:
            return self.last
        return self._index(bisect_right(self._firsts, index) - 1)

    def segment_at(self, position: int) -> SegmentIndex:
        """Return the index of the segment that holds the byte; `position` is in the log."""
        if position >= self.last.before.position:
            return self.last
        return self._index(bisect_right(self._positions, position) - 1)

    def segment_end(self, position: int) -> int:
        """Return the end of the segment that holds the byte; for a byte behind it the log's end."""
        if position >= self.last.before.position:
            return self.last.end_position
        return self.closed[bisect_right(self._positions, position) - 1].end_position

    def cut_before(self, index: Index) -> LogBase:
        """Return the place right before the entry."""
        # The first entry of a damage is damaged, but its beginning is known.
        damage = self.damages.at(index)
        begins_damage = damage is not None and damage.first_index == index
        return LogBase(
            index=index - 1,
            term=self.term(index - 1),
            position=damage.position if damage and begins_damage else self.position(index),
            chain=self.chain(index - 1),
        )

    def knows_term(self, index: Index) -> bool:
        """Return whether the entry's term is known; damage without known entries may hide it."""
        try:
            self.term(index)
        except DamagedLogError:
            return False
        return True

    def note_term(self, index: Index, term: Term) -> None:
        """Set the term of a committed entry, learnt from a snapshot."""
        self._noted_terms[index] = term

    def retain(self, index: SegmentIndex) -> None:
        """Retain the index of a segment with new or repaired damage: see the invariants."""
        if index is not self.last:
            summary = self.summary_at(index.before.position)
            self._forget(summary.position)
            self._hold(summary, index)

    # --- changing ------------------------------------------------------------------------------

    def append(self, index: Index, term: Term, kind: EntryKind, size: int, chain: int) -> None:
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)
        if kind is EntryKind.CONFIG:
            self.config_indexes.append(index)
        self.last.append(size, chain)

    def summary_of_last(self) -> SegmentSummary:
        """Return the summary of the last segment as a closed one."""
        last = self.last
        first, end = last.before.index + 1, last.last_index
        configs = self.config_indexes
        return SegmentSummary(
            before=self._before_last(),
            last_index=end,
            end_position=last.end_position,
            chain_after=last.chain(end),
            term_runs=tuple(self.runs_within(first, end)),
            config_indexes=tuple(configs[bisect_left(configs, first) :]),
        )

    def close_last(self, summary: SegmentSummary) -> None:
        """Begin a new last segment. The closed one's index stays cached while it is used."""
        index, self.last = self.last, SegmentIndex(self.end)
        self.closed.append(summary)
        self._firsts.append(summary.before.index + 1)
        self._positions.append(summary.position)
        self._hold(summary, index)

    def has_unknown(self, summary: SegmentSummary) -> bool:
        """Return whether the segment has damaged entries of unknown place."""
        damage = self.damages.next(summary.before.index + 1) if self.damages else None
        while damage is not None and damage.first_index <= summary.last_index:
            if not damage.entries_known:
                return True
            damage = self.damages.next(damage.last_index + 1)
        return False

    def truncate_from(self, cut: LogBase) -> list[int]:
        """Drop all entries behind `cut`; return the positions of closed segments that are reopened.

        They are ordered newest first; the last of them is the log's last segment again. Where the
        entry at the cut is damaged, the damage leads to the cut from now on.
        """
        index = cut.index + 1
        reopened: list[int] = []
        while index <= self.last.before.index:
            place = len(self.closed) - 1
            self.last = self._index(place)
            reopened.append(self.last.before.position)
            self._forget(self.last.before.position)
            del self.closed[place], self._firsts[place], self._positions[place]
        self.last.truncate_from(index)
        self.last.end_position = cut.position
        if self.last.chains:
            self.last.chains[-1] = cut.chain
        self.damages.truncate_from(index, cut.position, cut.chain)
        while self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        while self.config_indexes and self.config_indexes[-1] >= index:
            self.config_indexes.pop()
        if self._terms[-1] != cut.term:
            self._starts.append(cut.index)
            self._terms.append(cut.term)
        return reopened

    def drop_segments(self, count: int, base: LogBase) -> None:
        """Drop the oldest `count` segments; the log begins behind `base` now."""
        for summary in self.closed[:count]:
            self._forget(summary.position)
        del self.closed[:count], self._firsts[:count], self._positions[:count]
        self.base = base
        place = bisect_right(self._starts, base.index)
        del self._starts[:place], self._terms[:place]
        self._starts.insert(0, base.index)
        self._terms.insert(0, base.term)
        if len(self._terms) > 1 and self._terms[0] == self._terms[1]:
            del self._starts[1], self._terms[1]
        del self.config_indexes[: bisect_right(self.config_indexes, base.index)]
        self.damages.drop_before(base.index + 1)

    def reset(self, base: LogBase) -> None:
        """Drop everything; the log is empty and begins behind `base`."""
        self.drop_segments(len(self.closed), base)
        self.last = SegmentIndex(base)
        self._starts = array("Q", [base.index])
        self._terms = array("Q", [base.term])
        self._noted_terms.clear()
        self.config_indexes.clear()
        self.damages.clear()

    def learn(
        self,
        summary: SegmentSummary | None,
        index: SegmentIndex,
        runs: Sequence[tuple[Index, Term]],
    ) -> None:
        """Add entries that have become known: a repaired segment's index, and all its term runs.

        `summary` None: it is the last segment.
        """
        low, behind = index.before.index + 1, index.last_index + 1
        place = bisect_left(self._starts, low)
        starts, terms = self._starts[:place], self._terms[:place]
        place = bisect_right(self._starts, behind)
        later_runs = [(behind, self._terms[place - 1])] if behind <= self.last_index else []
        later_runs += zip(self._starts[place:], self._terms[place:], strict=True)
        for start, term in [*runs, *later_runs]:
            if term != terms[-1]:
                starts.append(start)
                terms.append(term)
        self._starts, self._terms = starts, terms
        if summary is None:
            self.last = index
            return
        place = bisect_right(self._firsts, low) - 1
        self.closed[place] = summary
        self.retain(index)

    def runs_within(self, low: Index, high: Index) -> list[tuple[Index, Term]]:
        """Return the term runs of [low, high], the first one starting at `low` itself."""
        if low > high:
            return []
        first, behind = bisect_right(self._starts, low), bisect_right(self._starts, high)
        runs = [(low, self._terms[first - 1])]
        runs += zip(self._starts[first:behind], self._terms[first:behind], strict=True)
        return runs

    def summary_at(self, position: int) -> SegmentSummary:
        """Return the summary of the closed segment that begins at `position`."""
        return self.closed[bisect_right(self._positions, position) - 1]

    def summary_of(self, index: SegmentIndex, runs: Sequence[tuple[Index, Term]]) -> SegmentSummary:
        """Return a closed segment's summary after its entries have become known."""
        before = index.before
        low = bisect_right(self.config_indexes, before.index)
        high = bisect_right(self.config_indexes, index.last_index)
        return SegmentSummary(
            before=before,
            last_index=index.last_index,
            end_position=index.end_position,
            chain_after=index.chain(index.last_index),
            term_runs=tuple(runs),
            config_indexes=tuple(self.config_indexes[low:high]),
        )

    # --- inside --------------------------------------------------------------------------------

    def _index(self, place: int) -> SegmentIndex:
        summary = self.closed[place]
        position = summary.position
        index = self._retained.get(position) or self._cache.get(position)
        if index is None:
            index = self._load(summary)
            self._hold(summary, index)
        elif position in self._cache:
            self._cache.move_to_end(position)
        return index

    def _hold(self, summary: SegmentSummary, index: SegmentIndex) -> None:
        damage = self.damages.next(summary.before.index + 1)
        if damage is not None and damage.first_index <= summary.last_index:
            self._retained[summary.position] = index
        else:
            self._remember(index)

    def _remember(self, index: SegmentIndex) -> None:
        cache = self._cache
        cache[index.before.position] = index
        self._cached_count += len(index.offsets)
        while self._cached_count > _CACHED_ENTRIES_MAX and len(cache) > 1:
            _, oldest = cache.popitem(last=False)
            self._cached_count -= len(oldest.offsets)

    def _forget(self, position: int) -> None:
        self._retained.pop(position, None)
        gone = self._cache.pop(position, None)
        if gone is not None:
            self._cached_count -= len(gone.offsets)

    def _before_last(self) -> LogBase:
        before = self.last.before
        # The segment before may be damaged up to its end, its last term unknown.
        known = self.knows_term(before.index)
        return replace(before, term=self.term(before.index)) if known else before

    def _unsure_of_term(self, index: Index) -> Damage | None:
        """Return the damage that makes the term of the entry's run uncertain, if any."""
        damage = self.damages.next(index)
        if damage is None or damage.entries_known or damage.terms_known:
            return None
        return damage if index >= damage.suspect_index else None

    def _term_between(self, damage: Damage, index: Index) -> Term:
        """Return the entry's term. Raises DamagedLogError where it is not known."""
        low, high = self.term_bounds(damage, index)
        if low != high:
            raise DamagedLogError(damage)
        return low

    def term_bounds(self, damage: Damage, index: Index) -> tuple[Term, Term]:
        """Return the lowest and highest possible term of an entry of the damage, or of an
        unconfirmed one before it: terms never fall, and those before and after are known."""
        if damage.entries_known or damage.terms_known:
            term = self.term_of_run(index)
            return term, term
        noted = self._noted_terms.get(index)
        if noted is not None:
            return noted, noted
        low = self.term_of_run(max(damage.suspect_index - 1, self.base.index))
        behind: Damage | None = damage
        while behind is not None:
            after = behind.last_index + 1
            behind = self._unsure_of_term(after) if after <= self.last_index else None
        return low, self.term_of_run(min(after, self.last_index))

    def _check(self, index: Index, low: Index) -> None:
        if not low <= index <= self.last_index:
            raise IndexError(f"index {index} is outside {low}..{self.last_index}")

    def _check_known(self, index: Index, *, by_end: bool = True) -> None:
        """Raise DamagedLogError for unknown entries; `by_end`: a damage's last chain is known."""
        damage = self.damages.at(index)
        if damage is None or damage.entries_known or (by_end and index == damage.last_index):
            return
        raise DamagedLogError(damage)
