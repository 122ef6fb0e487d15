"""How far the log of each replica is what its group's master has: the engines `async` and `sync`.

Place in the data path: `verify.export.tables` passes it all stores of a run, before each
replica's process reads its own again and makes rows.

These engines have no commit index: a master serves what it has appended, at once, whether a slave
has it or not. So committed is what a client of the group could be shown at the stop:

- of the master, all that its log has;
- of a slave, what it shares with the master: the longest beginning that is the same, by its chain.

What stands behind that on a slave, or on a master of before, was served once and is none of the
group's log any more; the next contact with the master cuts it off. It is not committed. So a
message that was acknowledged, and that only such a log has, counts as lost, as it is for clients.

The master is the node that was the last to say so in its trace. Without a trace it is the one whose
log goes furthest; of several, the first by name.

Invariant: chains cover all before them, so that equal chains at an index mean equal beginnings.

Source: decision 28.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verify.export.master_slave_entries import NO_CHAIN
from verify.export.master_slave_replica import files_of
from verify.export.store_files import Store

__all__ = ["commit_indexes"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """One replica's sound entries: their indexes and chains."""

    store: Store
    index: _Ints
    chain: _Ints

    @property
    def last_index(self) -> int:
        return int(self.index[-1]) if len(self.index) else 0

    def shared_with(self, other: _Log) -> int:
        """Return the last index to which both logs are the same; 0 if none is."""
        both, ours, theirs = np.intersect1d(
            self.index, other.index, assume_unique=True, return_indices=True
        )
        chains = self.chain[ours], other.chain[theirs]
        same = (chains[0] == chains[1]) & (chains[0] != NO_CHAIN)
        if same.any():
            return int(both[same][-1])
        if not len(both) and len(self.index) and len(other.index):
            # One ends before the other begins: nothing that could differ.
            return self.last_index if self.last_index < int(other.index[0]) else 0
        return 0


def commit_indexes(stores: Sequence[Store], masters: Mapping[str, str]) -> Sequence[int]:
    """Return the commit index of each of `stores`, in their order.

    Give all stores of a group at once. `masters`: the node of each group that was its master at the
    stop, where that is known.
    """
    logs = [_log(store) for store in stores]
    found: dict[tuple[str, str], int] = {}
    for group in {store.broker_group for store in stores}:
        of_group = [log for log in logs if log.store.broker_group == group]
        named = [log for log in of_group if log.store.node == masters.get(group)]
        master = named[0] if named else max(of_group, key=lambda log: log.last_index)
        for log in of_group:
            shared = log.last_index if log is master else log.shared_with(master)
            found[group, log.store.node] = shared
    return [found[store.broker_group, store.node] for store in stores]


def _log(store: Store) -> _Log:
    empty = np.zeros(0, dtype=np.int64)
    indexes, chains = [empty], [empty]
    for _, file, _ in files_of(store):
        indexes.append(file.entries.index)
        chains.append(file.entries.chain)
    return _Log(store=store, index=np.concatenate(indexes), chain=np.concatenate(chains))
