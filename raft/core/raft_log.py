"""The core's view of the log: the stored entries, and how far they are durable and committed.

Place in the data path: between `raft.core.core` / `raft.core.leader_role` and a `LogStorage`. The
core decides what is appended or truncated and states it in its Ready; the shell carries that out in
the storage before the next step. So within a step this view runs ahead of the storage by the
entries of that step, and between steps both end at the same index, which `check_storage` asserts.

The newest entries are cached here, as references to the same bytes, within a bound: sending to a
follower that keeps up never reads the storage, nor does the term of a recent entry.

Invariants:
- commit_index <= last_index and durable_index <= last_index; either may be ahead of the other: a
  follower commits what a majority of others has, even before its own fsync;
- a committed entry is never truncated;
- terms never fall from one index to the next, which lets `first_index_of_term_at` and
  `last_index_of_term` bisect;
- an entry of unknown term, which is damaged, is committed: no leader has another one;
- entries appended in the current step are in the cache;
- an install leaves only its base, which is committed and durable;
- a report of an fsync counts only for an entry that can't have been truncated and written anew
  since: same index, same term, but not yet durable (see `durable_to`).

Source: Raft 5.3, 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from raft.messages import Entry, Index, LogBase, Term
from raft.storage import LogStorage

__all__ = ["RaftLog"]

_ENTRY_OVERHEAD_SIZE_BYTES = 256
"""Memory of an entry beside its payload, so that empty entries don't count as nothing."""


class RaftLog:
    """The log of one core. All in `storage` at construction must be durable (recovery fsyncs
    it)."""

    __slots__ = (
        "_cache",
        "_cache_first",
        "_cache_size_bytes",
        "_cache_size_bytes_max",
        "_storage",
        "_truncated_term",
        "commit_index",
        "durable_index",
        "first_index",
        "last_index",
        "last_term",
    )

    def __init__(
        self, storage: LogStorage, *, commit_index: Index, cache_size_bytes_max: int
    ) -> None:
        self._storage = storage
        self.first_index: Index = storage.first_index
        self.last_index: Index = storage.last_index
        self.last_term: Term = _known(storage.term(self.last_index))
        self.durable_index: Index = self.last_index
        # Dropped entries were committed; a hint may lie higher, but never beyond the log's end.
        self.commit_index: Index = max(storage.first_index - 1, min(commit_index, self.last_index))
        self._cache: list[Entry] = []
        self._cache_first: Index = self.last_index + 1
        self._cache_size_bytes = 0
        self._cache_size_bytes_max = cache_size_bytes_max
        self._truncated_term: Term = -1  # the highest of any entry truncated in this incarnation

    def check_storage(self) -> None:
        """Check that the shell has carried out every Ready before this step; note where the log
        begins, for the shell may have dropped entries meanwhile."""
        assert self._storage.last_index == self.last_index, (
            f"the storage ends at {self._storage.last_index}, the core's log at {self.last_index}"
        )
        first_index = self._storage.first_index
        if first_index != self.first_index:
            assert self.first_index < first_index <= self.commit_index + 1, (
                f"the log begins at {first_index}, not {self.first_index}; "
                f"{self.commit_index} is committed"
            )
            self.first_index = first_index

    def term(self, index: Index) -> Term | None:
        """Return the term of `index`; None if the entry is damaged and its term unknown. Raises
        IndexError outside [first_index - 1, last_index]."""
        if index == self.last_index:
            return self.last_term
        if index >= self._cache_first:
            return self._cache[index - self._cache_first].term
        return self._storage.term(index)

    def has(self, index: Index, term: Term) -> bool:
        """Return whether the log holds this entry. True if dropped, since it was committed."""
        if index > self.last_index:
            return False
        if index < self.first_index - 1:
            return True
        known = self.term(index)
        if known is None:
            # A leader's log agrees with all that is committed (5.4.3).
            assert index <= self.commit_index, f"the term of {index} is not known"
            return True
        return known == term

    def known_prev(self, index: Index) -> Index:
        """Return `index` if its term is known, else an earlier index whose term is."""
        step = 1
        while self.term(index) is None:
            index = max(self.first_index - 1, index - step)
            step *= 2
        return index

    def entries(self, low: Index, *, count_max: int, size_bytes_max: int) -> tuple[Entry, ...]:
        """Return entries from `low` on: at least one, then while they fit in both bounds; none
        where the storage can't read the first of them now."""
        assert self.first_index <= low <= self.last_index, f"no entry {low}"
        if low < self._cache_first:
            high = min(self._cache_first, low + count_max)
            return self._storage.entries(low, high, size_bytes_max)
        start = low - self._cache_first
        cache = self._cache
        end = start + 1
        end_max = min(len(cache), start + count_max)
        size_bytes = len(cache[start].payload)
        while end < end_max:
            size_bytes += len(cache[end].payload)
            if size_bytes > size_bytes_max:
                break
            end += 1
        return tuple(cache[start:end])

    def append(self, entries: Sequence[Entry]) -> None:
        self._trim_cache()
        for entry in entries:
            assert entry.index == self.last_index + 1, f"{entry.index} after {self.last_index}"
            assert entry.term >= self.last_term, f"term {entry.term} after {self.last_term}"
            self._cache.append(entry)
            self._cache_size_bytes += _size_bytes(entry)
            self.last_index = entry.index
            self.last_term = entry.term

    def truncate_from(self, index: Index) -> None:
        """Drop `index` and all after it."""
        assert self.commit_index < index <= self.last_index, (
            f"truncation from {index}: committed {self.commit_index}, last {self.last_index}"
        )
        self._truncated_term = max(self._truncated_term, self.last_term)
        self.last_term = _known(self.term(index - 1))
        self.last_index = index - 1
        self.durable_index = min(self.durable_index, index - 1)
        if index <= self._cache_first:
            self._cache.clear()
            self._cache_first = index
            self._cache_size_bytes = 0
            return
        retained_count = index - self._cache_first
        self._cache_size_bytes -= sum(map(_size_bytes, self._cache[retained_count:]))
        del self._cache[retained_count:]

    def install(self, base: LogBase) -> None:
        """Drop everything; the log continues behind `base`, which it does not hold."""
        assert base.index > self.commit_index, f"{base.index} is committed already"
        assert not self.has(base.index, base.term)
        if self.last_index > base.index:
            # Only these may come back with the index and term of an entry that was dropped.
            self._truncated_term = max(self._truncated_term, self.last_term)
        self.last_index = self.commit_index = self.durable_index = base.index
        self.last_term = base.term
        self._cache.clear()
        self._cache_first = base.index + 1
        self._cache_size_bytes = 0
        self.first_index = base.index + 1

    def commit_to(self, index: Index) -> bool:
        """Raise the commit index; True if it moved."""
        if index <= self.commit_index:
            return False
        assert index <= self.last_index, f"commit {index} beyond last index {self.last_index}"
        self.commit_index = index
        return True

    def durable_to(self, index: Index, term: Term) -> bool:
        """Note an fsync; False if it may have covered a different entry.

        An entry can be truncated and come back, same index and term, before the fsync of its first
        writing is reported; its second writing would count as durable too early. So a report counts
        only above the terms of all that was truncated: such an entry always follows, since the
        leader that truncates writes one of its own term.
        """
        if term <= self._truncated_term:
            return False
        if not self.first_index - 1 <= index <= self.last_index or self.term(index) != term:
            return False
        self.durable_index = max(self.durable_index, index)
        return True

    def first_index_of_term_at(self, index: Index) -> Index:
        """Return the first index of the term of the entry at `index`, which is known; a later one
        where an entry of unknown term stands before it."""
        term = _known(self.term(index))
        low, high = self.first_index - 1, index
        if self.term(low) == term:
            return low
        while high - low > 1:  # term(low) < term == term(high)
            middle = (low + high) // 2
            found = self.term(middle)
            if found is None or found < term:
                low = middle
            else:
                high = middle
        return high

    def last_index_of_term(self, term: Term, index: Index) -> Index | None:
        """Return the last index up to `index` whose entry has `term`; None if there is none, or
        where an entry of unknown term hides it."""
        low, high = self.first_index - 1, index + 1
        if _known(self.term(low)) > term:
            return None
        while high - low > 1:  # term(low) <= term < term(high), if there is a high
            middle = (low + high) // 2
            found = self.term(middle)
            if found is not None and found <= term:
                low = middle
            else:
                high = middle
        return low if self.term(low) == term else None

    def _trim_cache(self) -> None:
        """Shrink to half of the bound at once, so that the cost per append is constant."""
        if self._cache_size_bytes <= self._cache_size_bytes_max:
            return
        dropped_count = 0
        while self._cache_size_bytes > self._cache_size_bytes_max // 2:
            self._cache_size_bytes -= _size_bytes(self._cache[dropped_count])
            dropped_count += 1
        del self._cache[:dropped_count]
        self._cache_first += dropped_count


def _known(term: Term | None) -> Term:
    assert term is not None, "only what is committed may have an unknown term"
    return term


def _size_bytes(entry: Entry) -> int:
    return len(entry.payload) + _ENTRY_OVERHEAD_SIZE_BYTES
