"""Puts entries that a peer had in the place of damaged ones.

Place in the data path: `SegmentLog.repair` hands over what the node has fetched.

Invariants:
- an entry is taken only if it is the one that stood there: where the index knows its chain, that
  chain must come out of the entry's own bytes; where only the damage's ends are known, the entries
  must lead from the one to the other, and count only once the last of them has;
- bytes are written where they belong and made durable before the damage is called mended; a file
  that is gone is built beside and renamed when it is whole, so that a crash leaves it missing;
- a damage whose right entries continue another chain than the one that stands before it has stale
  entries before it as well: it grows to the segment's beginning.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from raft.damage import Damage, RepairMismatchError
from raft.log_format import HEADER_SIZE, encode_header
from raft.messages import Entry, EntryKind, Index, Term
from raft.segment_files import SegmentFiles
from raft.segment_index import SegmentIndex, encode_sidecar
from raft.segment_table import SegmentTable
from raft.storage import write_fully

__all__ = ["LogRepair"]


@dataclass(slots=True, kw_only=True)
class _Patch:
    """What was taken so far of a damage of which only the ends are known."""

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


class LogRepair:
    """Works on the log's own `table` and `files`."""

    def __init__(self, table: SegmentTable, files: SegmentFiles) -> None:
        self._table = table
        self._files = files
        self._patch: _Patch | None = None
        self._beside: dict[Damage, Index] = {}  # the next entry of files that are built beside

    def wanted_index(self, damage: Damage) -> Index:
        """The first entry of the damage that is still to be had."""
        patch = self._patch
        if patch is not None and patch.damage == damage:
            return patch.next_index
        return self._beside.get(damage, damage.first_index)

    def repair(self, first_index: Index, entries: Sequence[Entry], chain_before: int | None) -> int:
        """Take the entries; the lowest position that was written.

        Raises ValueError, RepairMismatchError and OSError.
        """
        damage = self._table.damages.at(first_index)
        if damage is None:
            raise ValueError(f"entry {first_index} is not damaged")
        if first_index != self.wanted_index(damage):
            raise ValueError(f"entry {self.wanted_index(damage)} of {damage} comes first")
        entries = [entry for entry in entries if entry.index <= damage.last_index]
        for number, entry in enumerate(entries):
            if entry.index != first_index + number:
                raise ValueError(f"entry {entry.index} after {first_index + number - 1}")
        if not entries:
            raise ValueError("no entries")
        if damage.entries_known:
            return self._mend_known(damage, entries)
        return self._mend_unknown(damage, entries, chain_before)

    def forget(self) -> None:
        """The log was truncated, dropped or reset: what was under way begins anew."""
        self._patch = None
        self._beside.clear()

    # --- entries whose chains are known --------------------------------------------------------

    def _mend_known(self, damage: Damage, entries: Sequence[Entry]) -> int:
        table = self._table
        segment = table.segment_of(damage.first_index)
        # A damage that touches the next segment's is mended segment by segment.
        entries = [entry for entry in entries if entry.index <= segment.last_index]
        pieces: list[bytes] = []
        for entry in entries:
            index = entry.index
            position = segment.position(index)
            size = HEADER_SIZE + len(entry.payload)
            header, chain = encode_header(entry, position, segment.chain(index - 1))
            if chain != segment.chain(index) or position + size != segment.end(index):
                raise RepairMismatchError(f"entry {index} is not the one that stood here")
            pieces += (header, entry.payload)
        last = entries[-1].index
        position = segment.position(entries[0].index)
        whole = last in {damage.last_index, segment.last_index}
        beside = not self._files.exists(segment.before.position)
        self._write(segment, position, b"".join(pieces), whole=whole)
        if beside and not whole:
            self._beside[damage] = last + 1
            return position
        self._beside.pop(damage, None)
        if last == damage.last_index:
            table.damages.remove(damage)
            table.keep(segment)
        else:
            rest = replace(
                damage,
                first_index=last + 1,
                position=segment.end(last),
                chain_before=segment.chain(last),
            )
            table.damages.replace(damage, rest)
        return position

    # --- entries of which only the ends are known ----------------------------------------------

    def _mend_unknown(
        self, damage: Damage, entries: Sequence[Entry], chain_before: int | None
    ) -> int:
        patch = self._patch
        if patch is None or patch.damage != damage:
            start = damage.chain_before if chain_before is None else chain_before
            patch = self._patch = _Patch(
                damage=damage, chain_before=start, position=damage.position, chain=start
            )
        pieces: list[bytes] = []
        position = patch.position
        for entry in entries:
            header, chain = encode_header(entry, patch.position, patch.chain)
            size = HEADER_SIZE + len(entry.payload)
            pieces += (header, entry.payload)
            if not patch.runs or patch.runs[-1][1] != entry.term:
                patch.runs.append((entry.index, entry.term))
            if entry.kind is EntryKind.CONFIG:
                patch.config_indexes.append(entry.index)
            patch.sizes.append(size)
            patch.chains.append(chain)
            patch.position += size
            patch.chain = chain
        segment = self._table.segment_of(damage.first_index)
        is_last = entries[-1].index == damage.last_index
        leads_there = (patch.position, patch.chain) == (damage.end_position, damage.chain_after)
        if patch.position > damage.end_position or (is_last and not leads_there):
            self._patch = None
            if patch.chain_before != damage.chain_before:
                self._widen(damage, segment)
            raise RepairMismatchError(f"entries that don't lead to what follows {damage}")
        if is_last and patch.chain_before != damage.chain_before:
            self._widen(damage, segment)
        self._write(segment, position, b"".join(pieces), whole=is_last)
        if is_last:
            self._patch = None
            self._learn(patch, segment)
        return position

    def _widen(self, damage: Damage, segment: SegmentIndex) -> None:
        """The entries given continue others than stand before the damage: those may be stale.

        What follows it is tied to the log's end, what stands before only to its own beginning.
        """
        self._patch = None
        first = segment.before.index + 1
        if damage.first_index > first:
            for index in range(first, damage.first_index):
                segment.offsets[index - first] = 0
                segment.chains[index - first] = 0
            for index in range(damage.first_index, damage.last_index + 1):
                segment.offsets[index - first] = 0
            self._table.damages.replace(
                damage,
                replace(
                    damage,
                    first_index=first,
                    position=segment.before.position,
                    chain_before=segment.before.chain,
                    suspect=None,
                    reason="stale entries, and damaged ones behind them",
                ),
            )
        raise RepairMismatchError(f"the entries before {damage} may be stale")

    def _learn(self, patch: _Patch, old: SegmentIndex) -> None:
        """The segment's index with the mended entries in it."""
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

    # --- both ----------------------------------------------------------------------------------

    def _write(self, segment: SegmentIndex, position: int, data: bytes, *, whole: bool) -> None:
        """`whole`: nothing of the segment's damage is left, if its file was gone."""
        first_position = segment.before.position
        offset = position - first_position
        with closing(self._files.open_for_repair(first_position)) as file:
            file.allocate(offset + len(data))
            write_fully(file, data, offset)
            file.sync()
        if whole:
            self._files.end_repair(first_position)
