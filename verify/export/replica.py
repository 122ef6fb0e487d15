"""One replica's store as rows of the tables `log` and `cq`.

Place in the data path: `verify.export.tables` passes it a store and writes the tables that it
yields, one process per replica.

Invariants: rows come in the order of the log; a few megabytes of it are in memory at a time, plus
the half messages. What can't be read becomes a row of kind `damaged` with the reason; whether it is
a torn tail or damage below the commit index is for the checks to decide. `cq_ok` is null above the
applied index and for rows without a unit. An op record has value, keys and transaction of its half,
null if that is not found before it.

Source: docs/FORMATS.md sections 1, 3, 4 and 5; docs/RUN_FORMAT.md, tables `log` and `cq`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from verify.export.payloads import Payloads, read_payloads
from verify.export.queue_units import UnitOwner, Units, units_of
from verify.export.records import RecordColumns, record_columns
from verify.export.segment_entries import (
    KIND_CONFIG,
    KIND_DATA,
    LOG_START,
    Damage,
    Entries,
    SegmentEnd,
    read_segment,
)
from verify.export.store_files import Store
from verify.sources.format_tables import TABLES

__all__ = ["log_tables", "unit_tables"]

_Ints = npt.NDArray[np.int64]

_CHUNK_BYTES: Final = 16 * 1024 * 1024
_LOG: Final = TABLES["log"]
_CQ: Final = TABLES["cq"]
_ORDER: Final = "order"  # index among entries and damages of the segment; not a column of the table
_ROWS: Final = _LOG.append(pa.field(_ORDER, pa.int64()))
_OF_HALF: Final = ("value", "uniq_key", "keys", "tx")
_OF_HALF_BY: Final = ("queue_offset", *_OF_HALF)
_OTHER_COLUMNS: Final = (
    "slot", "kind", "client_group", "topic", "queue", "queue_offset", "damage",
)  # fmt: skip
_DAMAGED: Final = pa.array(["damaged"])


def log_tables(store: Store, told_index: int) -> Iterator[pa.Table]:
    """Yield the rows of the store's log. `told_index`: the highest commit index in its trace."""
    commit_index = max(store.checkpoint.commit_index, told_index)
    rows = _LogRows(store, commit_index)
    last_index = 0 if store.base is None else store.base.index
    end = LOG_START
    for place, segment in enumerate(store.segments):
        if place == 0:
            end = _before_first(store)
        with _mapped(segment.path) as data:
            read = read_segment(data, segment.position, end)
            told = 0
            for entries in _chunks(read.entries):
                before = [item for item in read.damages[told:] if item[0] < entries.order[-1]]
                told += len(before)
                yield rows.of_entries(data, segment.position, entries, before)
            if told < len(read.damages):
                yield rows.of_damages(read.damages[told:])
        end = read.end
        last_index = read.last_index or last_index
    checkpoint = store.checkpoint
    emptied = store.base is not None and store.base.emptying
    if checkpoint.clean and last_index < checkpoint.commit_index and not emptied:
        reason = (
            f"the node stopped cleanly with commit index {checkpoint.commit_index}, "
            f"its log ends at {last_index}"
        )
        yield rows.of_lost_tail(last_index + 1, reason)


def unit_tables(store: Store) -> Iterator[pa.Table]:
    """Yield the rows of the store's ConsumeQueues, one table per file."""
    for file in store.queue_files:
        units = units_of(file)
        places = np.flatnonzero(units["size"] > 0)
        if not len(places):
            continue
        found, count = units[places], len(places)
        columns = {
            "broker_group": pa.repeat(store.broker_group, count),
            "node": pa.repeat(store.node, count),
            "topic": pa.repeat(file.topic, count),
            "queue": pa.array(np.full(count, file.queue, dtype=np.int32)),
            "queue_offset": pa.array(file.first_offset + places),
            "position": pa.array(found["position"].astype(np.int64)),
            "size": pa.array(found["size"].astype(np.int32)),
            "tag_hash": pa.array(found["tag_hash"].astype(np.int64)),
        }
        yield pa.table(columns, schema=_CQ)


class _LogRows:
    """Builds rows; remembers half messages for the op records after them."""

    def __init__(self, store: Store, commit_index: int) -> None:
        self._store = store
        self._commit_index = commit_index
        self._units = Units(store.queue_files)
        self._halves = pa.schema([_LOG.field(name) for name in _OF_HALF_BY]).empty_table()

    def of_entries(
        self,
        data: memoryview,
        segment_position: int,
        entries: Entries,
        damages: Sequence[tuple[int, Damage]],
    ) -> pa.Table:
        """Return the rows of `entries` and `damages`, in the order of the log."""
        payloads = read_payloads(data, entries)
        parts = [
            self._records(data, segment_position, entries, payloads),
            self._others(entries, payloads),
            self._damages(damages),
        ]
        rows = pa.concat_tables(part for part in parts if len(part))
        order = np.lexsort((rows["slot"].to_numpy(), rows[_ORDER].to_numpy()))
        return rows.drop_columns([_ORDER]).take(pa.array(order))

    def of_damages(self, damages: Sequence[tuple[int, Damage]]) -> pa.Table:
        return self._damages(damages).drop_columns([_ORDER])

    def of_lost_tail(self, index: int, reason: str) -> pa.Table:
        """Return a row for entries that a clean stop recorded as present and that are missing."""
        columns = {"committed": pa.array([True]), "damage": pa.array([reason])}
        order = np.zeros(1, dtype=np.int64)
        rows = self._rows(order, np.array([index]), _DAMAGED, columns)
        return rows.drop_columns([_ORDER])

    def _rows(
        self, order: _Ints, index: _Ints, kind: pa.Array, columns: Mapping[str, pa.Array]
    ) -> pa.Table:
        """Return a row per element of `order`; a column missing in `columns` is null or derived."""
        count = len(order)
        given = {
            "broker_group": pa.repeat(self._store.broker_group, count),
            "node": pa.repeat(self._store.node, count),
            "index": pa.array(index),
            "slot": pa.array(np.zeros(count, dtype=np.int32)),
            "kind": kind,
            "committed": pa.array(index <= self._commit_index),
            **columns,
            _ORDER: pa.array(order),
        }
        arrays = [
            given[field.name].cast(field.type)
            if field.name in given
            else pa.nulls(count, type=field.type)
            for field in _ROWS
        ]
        return pa.Table.from_arrays(arrays, schema=_ROWS)

    def _records(
        self, data: memoryview, segment_position: int, entries: Entries, payloads: Payloads
    ) -> pa.Table:
        records = payloads.records
        found = record_columns(data, records)
        position = segment_position + records.start
        index = entries.index[records.entry]
        owned = self._units.are_owned(
            UnitOwner(
                topics=found.topics,
                topic_code=found.topic_code,
                queue=records.queue,
                queue_offset=records.queue_offset,
                position=position,
                size=records.size,
                tag_hash=found.tag_hash,
            )
        )
        # Units above the applied index may not be written yet, so a missing one proves nothing.
        above = index > self._store.checkpoint.applied_index
        rows = self._rows(
            entries.order[records.entry],
            index,
            found.kind,
            {
                "term": pa.array(entries.term[records.entry]),
                "slot": pa.array(records.slot),
                "chain": pa.array(entries.chain[records.entry]),
                "position": pa.array(position),
                "size": pa.array(records.size),
                "tag_hash": pa.array(found.tag_hash),
                "topic": pa.array(found.topics, type=pa.string()).take(pa.array(found.topic_code)),
                "queue": pa.array(records.queue),
                "queue_offset": pa.array(records.queue_offset),
                "value": found.value,
                "uniq_key": found.uniq_key,
                "keys": found.keys,
                "digest": found.digest,
                "tx": found.tx,
                "decision": _decisions(found, records.entry, payloads),
                "cq_ok": pa.array(owned, mask=above),
                "stored_ms": pa.array(records.stored_ms),
            },
        )
        return self._joined(rows, found)

    def _joined(self, rows: pa.Table, found: RecordColumns) -> pa.Table:
        """Copy value, keys and transaction of each half into its op record."""
        if found.is_half.any():
            halves = rows.select(_OF_HALF_BY).filter(pa.array(found.is_half))
            self._halves = pa.concat_tables([self._halves, halves]).combine_chunks()
        if not found.is_op.any():
            return rows
        offsets = self._halves["queue_offset"].to_numpy()
        order = np.argsort(offsets, kind="stable")
        wanted = np.array([-1 if at is None else at for at in found.half_offset], dtype=np.int64)
        place = np.searchsorted(offsets[order], wanted)
        there = place < len(order)
        there[there] = offsets[order[place[there]]] == wanted[there]
        there &= wanted >= 0  # a damaged op record may name a negative offset
        source, lost = np.arange(len(rows)), np.zeros(len(rows), dtype=np.bool_)
        ops = np.flatnonzero(found.is_op)
        lost[ops[~there]] = True
        source[ops[there]] = len(rows) + order[place[there]]
        taken = pa.array(source, mask=lost)
        for name in _OF_HALF:
            both = pa.chunked_array(
                [*rows[name].chunks, *self._halves[name].chunks], rows[name].type
            )
            column = both.combine_chunks().take(taken)
            rows = rows.set_column(rows.schema.get_field_index(name), _ROWS.field(name), column)
        return rows

    def _others(self, entries: Entries, payloads: Payloads) -> pa.Table:
        """Return rows of entries without records, of commands (after records), and of defects."""
        records = np.bincount(payloads.records.entry, minlength=len(entries.index))
        rows = _Others()
        for entry, commands in payloads.commands.items():
            rows.add_commands(entry, int(records[entry]), commands)
        for entry, reason in payloads.defects.items():
            rows.add(entry, "damaged", damage=reason)
        data = entries.kind == KIND_DATA
        holds = records > 0
        holds[list({*payloads.commands, *payloads.defects})] = True
        rows.add_plain(np.flatnonzero(data & ~holds), "command")
        rows.add_plain(np.flatnonzero(entries.kind == KIND_CONFIG), "config")
        rows.add_plain(np.flatnonzero(~data & (entries.kind != KIND_CONFIG)), "noop")
        columns = rows.columns()
        of = np.array(rows.entry, dtype=np.int64)
        columns |= {
            "term": pa.array(entries.term[of]),
            "chain": pa.array(entries.chain[of]),
            "position": pa.array(entries.position[of]),
        }
        return self._rows(entries.order[of], entries.index[of], columns["kind"], columns)

    def _damages(self, damages: Sequence[tuple[int, Damage]]) -> pa.Table:
        return self._rows(
            np.array([order for order, _ in damages], dtype=np.int64),
            np.array([damage.index for _, damage in damages], dtype=np.int64),
            pa.repeat("damaged", len(damages)),
            {
                "position": pa.array([damage.position for _, damage in damages], type=pa.int64()),
                "damage": pa.array([damage.reason for _, damage in damages], type=pa.string()),
            },
        )


class _Others:
    """Rows that are not message records, column by column."""

    def __init__(self) -> None:
        self.entry: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in _OTHER_COLUMNS}

    def add(self, entry: int, kind: str, slot: int = 0, **columns: object) -> None:
        self.entry.append(entry)
        for name, values in self._columns.items():
            values.append(columns.get(name))
        self._columns["kind"][-1] = kind
        self._columns["slot"][-1] = slot

    def add_commands(self, entry: int, slot: int, commands: Sequence[list[Any]]) -> None:
        for command in commands:
            if command[0] == "offset":
                _, group, topic, queue, offset = command
                told = {"client_group": group, "topic": topic, "queue": queue}
                self.add(entry, "offset", slot, **told, queue_offset=offset)
            else:
                self.add(entry, "command", slot)
            slot += 1

    def add_plain(self, entries: _Ints, kind: str) -> None:
        count = len(entries)
        self.entry.extend(entries.tolist())
        for name, values in self._columns.items():
            values.extend([{"kind": kind, "slot": 0}.get(name)] * count)

    def columns(self) -> dict[str, pa.Array]:
        return {
            name: pa.array(values, type=_LOG.field(name).type)
            for name, values in self._columns.items()
        }


def _decisions(found: RecordColumns, entry: _Ints, payloads: Payloads) -> pa.Array:
    """Return, per record, the decision in the command that accompanies an op record; else null."""
    ops = np.flatnonzero(found.is_op).tolist()
    decision: list[str | None] = [None] * len(entry)
    for place, half_offset in zip(ops, found.half_offset, strict=True):
        for command in payloads.commands.get(int(entry[place]), ()):
            if command[0] == "decide" and command[1] == half_offset:
                decision[place] = command[3]
    return pa.array(decision, type=pa.string())


def _before_first(store: Store) -> SegmentEnd:
    """Return the end of the log before the first segment present."""
    base, start = store.base, store.segments[0].position
    if base is not None:
        return SegmentEnd(next_index=base.index + 1, next_position=base.position, chain=base.chain)
    return LOG_START if start == 0 else SegmentEnd(next_index=0, next_position=start, chain=None)


def _chunks(entries: Entries) -> Iterator[Entries]:
    """Split `entries` into parts of at most `_CHUNK_BYTES`; a larger entry is a part of its own."""
    first, count = 0, len(entries.index)
    while first < count:
        full = int(entries.start[first]) + _CHUNK_BYTES
        end = max(first + 1, int(np.searchsorted(entries.end, full, side="right")))
        yield entries.part(first, end)
        first = end


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """Map the file's bytes without reading them at once; no bytes if the file is empty."""
    with path.open("rb") as stream:
        if stream.seek(0, 2) == 0:
            yield memoryview(b"")
            return
        # Not closed here: arrays may still refer to the map, which is freed with the last one.
        yield memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
