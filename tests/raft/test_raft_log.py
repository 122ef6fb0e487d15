"""The core's view of the log against a plain list, with a cache that is far too small."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raft.core.raft_log import RaftLog
from raft.messages import Entry, EntryKind
from tests.raft.core_group import MemoryStorage, make_entries


class RaftLogMachine(RuleBasedStateMachine):
    """The model is the list of entries, and two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.cache_size_bytes_max = 2000
        self.log = self.open(0)
        self.model: list[Entry] = []
        self.commit_index = 0
        self.durable_index = 0
        self.truncated_term = -1
        self.term = 1

    def open(self, commit_index: int) -> RaftLog:
        return RaftLog(
            self.storage,
            commit_index=commit_index,
            cache_size_bytes_max=self.cache_size_bytes_max,
        )

    @rule(count=st.integers(1, 6), size=st.integers(0, 400), new_term=st.booleans())
    def append(self, count: int, size: int, new_term: bool) -> None:
        self.term += new_term
        first = len(self.model) + 1
        entries = [
            Entry(index=index, term=self.term, kind=EntryKind.DATA, payload=bytes(size))
            for index in range(first, first + count)
        ]
        self.log.append(entries)
        # Within the step that appends, what it appended is read from the cache.
        low = entries[0].index
        assert self.log.entries(low, count_max=99, size_bytes_max=10**6) == tuple(entries)
        self.storage.stored.extend(entries)
        self.model.extend(entries)

    @precondition(lambda self: len(self.model) > self.commit_index)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.commit_index + 1, len(self.model)))
        self.truncated_term = max(self.truncated_term, self.model[-1].term)
        self.log.truncate_from(index)
        del self.model[index - 1 :]
        del self.storage.stored[index - 1 :]
        self.durable_index = min(self.durable_index, index - 1)
        self.term += 1  # whoever truncates leads in a later term

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.model)))
        assert self.log.commit_to(index) == (index > self.commit_index)
        self.commit_index = max(self.commit_index, index)

    @rule(index=st.integers(0, 40), term=st.integers(0, 10))
    def report_durable(self, index: int, term: int) -> None:
        is_known = 0 < index <= len(self.model) and self.model[index - 1].term == term
        is_known = is_known or (index, term) == (0, 0)
        counts = is_known and term > self.truncated_term
        assert self.log.durable_to(index, term) == counts
        if counts:
            self.durable_index = max(self.durable_index, index)

    @rule(data=st.data(), size_bytes_max=st.integers(1, 2000), count_max=st.integers(1, 20))
    @precondition(lambda self: self.model)
    def read(self, data: st.DataObject, size_bytes_max: int, count_max: int) -> None:
        low = data.draw(st.integers(1, len(self.model)))
        entries = self.log.entries(low, count_max=count_max, size_bytes_max=size_bytes_max)
        assert 1 <= len(entries) <= count_max
        assert list(entries) == self.model[low - 1 : low - 1 + len(entries)]
        assert len(entries) == 1 or sum(len(e.payload) for e in entries) <= size_bytes_max

    @rule()
    def restart(self) -> None:
        """A hint beyond the log's end, as after a lost tail, is cut to it."""
        self.log = self.open(self.commit_index + 1000)
        assert self.log.commit_index == len(self.model)
        self.log = self.open(self.commit_index)
        self.durable_index = len(self.model)
        self.truncated_term = -1

    @invariant()
    def agrees_with_the_model(self) -> None:
        log, model = self.log, self.model
        terms = [0, *(entry.term for entry in model)]
        log.check_storage()
        assert (log.last_index, log.last_term) == (len(model), terms[-1])
        assert (log.commit_index, log.durable_index) == (self.commit_index, self.durable_index)
        assert [log.term(index) for index in range(len(terms))] == terms
        for index, term in enumerate(terms):
            assert log.has(index, term)
            assert not log.has(index, term + 1)
            assert log.first_index_of_term_at(index) == terms.index(term)
        assert not log.has(len(terms), terms[-1])
        for term in range(terms[-1] + 2):
            for index in (len(model) // 2, len(model)):
                found = [i for i in range(index + 1) if terms[i] == term]
                expected = found[-1] if found else None
                assert log.last_index_of_term(term, index) == expected


TestRaftLog = RaftLogMachine.TestCase
TestRaftLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def make_log(terms: list[int]) -> RaftLog:
    storage = MemoryStorage(make_entries(terms))
    return RaftLog(storage, commit_index=0, cache_size_bytes_max=1000)


def test_a_committed_entry_is_never_truncated() -> None:
    log = make_log([1, 1, 2])
    log.commit_to(2)
    with pytest.raises(AssertionError, match="committed 2"):
        log.truncate_from(2)


def test_a_gap_a_falling_term_and_a_commit_beyond_the_end_are_broken_invariants() -> None:
    log = make_log([1, 3])
    with pytest.raises(AssertionError, match="4 after 2"):
        log.append([Entry(index=4, term=3, kind=EntryKind.DATA, payload=b"")])
    with pytest.raises(AssertionError, match="term 2 after 3"):
        log.append([Entry(index=3, term=2, kind=EntryKind.DATA, payload=b"")])
    with pytest.raises(AssertionError, match="beyond last index 2"):
        log.commit_to(3)


def test_a_storage_that_was_not_kept_up_is_noticed() -> None:
    log = make_log([1])
    log.append([Entry(index=2, term=1, kind=EntryKind.DATA, payload=b"")])
    with pytest.raises(AssertionError, match="the storage ends at 1, the core's log at 2"):
        log.check_storage()


def test_terms_outside_the_log_raise() -> None:
    log = make_log([1])
    for index in (-1, 2):
        with pytest.raises(IndexError):
            log.term(index)
