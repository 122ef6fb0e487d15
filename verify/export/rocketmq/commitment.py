"""What of a group's logs is committed, and what of each replica must be in its ConsumeQueues.

Place in the data path: `verify.export.tables` surveys the stores of a run with it, before each
replica's process reads its own again and makes rows.

Committed is a prefix of each log:

- DLedger: up to the committedIndex that the replica wrote down (every 3 s and at a clean stop); and
  as far as it holds the same entries, up to the highest committedIndex of the group, and up to the
  last entry of the newest term that any log has, if a majority holds that: any later leader has it.
- Controller mode: the log of the replica with the newest epoch, and of these with the longest log,
  which its master served to the end; the other replicas as far as they hold the same.
- SYNC_MASTER, ASYNC_MASTER: all that a replica has. There is no commit index: a broker serves what
  it has stored, the slave too.

A record owes a ConsumeQueue unit up to the last record that any unit of the replica points to,
since RocketMQ dispatches in the order of the log; after a clean stop, which RocketMQ notes only
where nothing was left to dispatch, up to all that the replica itself knew to be committed.

Source: DLedger's DLedgerEntryPusher; RocketMQ's DefaultMessageStore.shutdown and
CommitLog.getConfirmOffset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from verify.export.messages.mapped_file import mapped_file
from verify.export.messages.queue_units import units_of
from verify.export.rocketmq.dledger_frames import HEADER_SIZE_BYTES, dledger_frame
from verify.export.rocketmq.log_files import NO_CHAIN, LogReader
from verify.export.rocketmq.record_frames import Frame, record_frame
from verify.export.rocketmq.store_files import RocketmqStore

__all__ = ["Extent", "survey"]

_Ints = npt.NDArray[np.int64]
_SIZE_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What is known of a replica's log from its group: how far it is committed and dispatched."""

    divide: int
    chain_from: int
    commit_index: int
    applied_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """One replica's log: index, term, chain and the position of the record of every entry."""

    store: RocketmqStore
    index: _Ints
    term: _Ints
    chain: _Ints
    position: _Ints

    @property
    def last_index(self) -> int:
        return int(self.index[-1]) if len(self.index) else 0

    def shared_with(self, other: _Log, up_to: int) -> int:
        """Return the last of its indexes, `up_to` at most, to which both have the same entries."""
        both, ours, theirs = np.intersect1d(
            self.index, other.index, assume_unique=True, return_indices=True
        )
        chains = self.chain[ours], other.chain[theirs]
        # Behind damage there is no chain; what stands there is S2's to compare.
        same = (chains[0] == chains[1]) | (chains[0] == NO_CHAIN) | (chains[1] == NO_CHAIN)
        same &= both <= up_to
        if not same.any():
            # Nothing in common that could be compared: below both logs' beginning all agree.
            return min(up_to, int(other.index[0]) - 1) if len(other.index) else 0
        return int(both[same][-1])


def survey(
    stores: Sequence[RocketmqStore], voters: Mapping[str, Sequence[str]]
) -> Sequence[Extent]:
    """Return the extent of each of `stores`, in their order.

    Replicas of one broker group are compared with each other, so give all of a group at once.
    `voters`: the members of each group at the start. A group counts as many members as it has
    stores where `voters` names fewer.
    """
    found: dict[tuple[str, str], Extent] = {}
    for group in {store.broker_group for store in stores}:
        of_group = [store for store in stores if store.broker_group == group]
        found |= _survey_group(of_group, max(len(voters.get(group, ())), len(of_group)))
    return [found[store.broker_group, store.node] for store in stores]


def _survey_group(
    stores: Sequence[RocketmqStore], members: int
) -> Mapping[tuple[str, str], Extent]:
    divide = max(store.divide for store in stores)
    chain_from = max(_first_position(store) for store in stores)
    logs = [_log(store, divide, chain_from) for store in stores]
    if any(store.is_dledger for store in stores):
        committed = _committed_by_dledger(logs, members, divide)
        known = [_reported_index(log.store, divide) for log in logs]
    elif any(store.epochs for store in stores):
        master = max(logs, key=_rank)
        committed = [log.shared_with(master, master.last_index) for log in logs]
        # How far a slave knew its master to be confirmed is written nowhere.
        known = [log.last_index if log is master else 0 for log in logs]
    else:
        committed = known = [log.last_index for log in logs]
    return {
        (log.store.broker_group, log.store.node): Extent(
            divide=divide,
            chain_from=chain_from,
            commit_index=commit,
            applied_index=_applied_index(log, known_index),
        )
        for log, commit, known_index in zip(logs, committed, known, strict=True)
    }


def _first_position(store: RocketmqStore) -> int:
    """Return the position of the first sound entry of any file; 0 where there is none."""
    for file in store.files:
        with mapped_file(file.path) as data:
            read = dledger_frame if file.dledger else record_frame
            if isinstance(read(data, 0, file.position), Frame):
                return file.position
    return 0


def _log(store: RocketmqStore, divide: int, chain_from: int) -> _Log:
    reader = LogReader(store, divide=divide, chain_from=chain_from)
    columns: list[list[_Ints]] = [[], [], [], []]
    for file in store.files:
        with mapped_file(file.path) as data:
            entries = reader.read(data, file).entries
        header = HEADER_SIZE_BYTES if file.dledger else 0
        found = (entries.index, entries.term, entries.chain, entries.position + header)
        for column, values in zip(columns, found, strict=True):
            column.append(values)
    empty = np.zeros(0, dtype=np.int64)
    index, term, chain, position = (np.concatenate([empty, *column]) for column in columns)
    return _Log(store=store, index=index, term=term, chain=chain, position=position)


def _committed_by_dledger(logs: Sequence[_Log], members: int, divide: int) -> Sequence[int]:
    reported = [_reported_index(log.store, divide) for log in logs]
    sources = [(log, min(index, log.last_index)) for log, index in zip(logs, reported, strict=True)]
    sources += _newest_of_a_majority(logs, members)
    return [
        max(own, *(log.shared_with(source, up_to) for source, up_to in sources))
        for log, own in zip(logs, reported, strict=True)
    ]


def _reported_index(store: RocketmqStore, divide: int) -> int:
    """Return what the store itself calls committed. An old plain CommitLog is; 0: nothing is."""
    if store.committed_index is None:
        return divide
    return divide + store.committed_index + 1


def _newest_of_a_majority(logs: Sequence[_Log], members: int) -> Sequence[tuple[_Log, int]]:
    """Return the last entry of the newest term that a majority of `members` holds, if any does."""
    newest = max((int(log.term.max()) for log in logs if len(log.term)), default=0)
    found: tuple[_Log, int] | None = None
    for log in logs:
        ours = log.index[log.term == newest]
        if not len(ours):
            continue
        shared = sorted((log.shared_with(other, log.last_index) for other in logs), reverse=True)
        reach = shared[members // 2] if len(shared) > members // 2 else 0
        if reach >= int(ours[0]) and (found is None or reach > found[1]):
            found = (log, reach)
    return [] if found is None else [found]


def _rank(log: _Log) -> tuple[int, int]:
    return max((epoch.epoch for epoch in log.store.epochs), default=0), log.last_index


def _applied_index(log: _Log, known_index: int) -> int:
    """Return up to which index each record must have its unit."""
    last = max(_unit_positions(log.store), default=-1)
    place = int(np.searchsorted(log.position, last, side="right"))
    dispatched = int(log.index[place - 1]) if place else 0
    return max(dispatched, known_index) if log.store.clean else dispatched


def _unit_positions(store: RocketmqStore) -> Iterable[int]:
    for file in store.queue_files:
        units = units_of(file)
        written = (units["size"] > 0) & (units["size"] < _SIZE_MAX)
        if written.any():
            yield int(units["position"][written].max())
