"""Rows of the table `log`, from entries and payloads, and those of the table `cq`, from units.

Place in the data path: what reads a replica's files (`verify.export.replica`,
`verify.export.rocketmq.replica`) passes them on, file by file; `verify.export.tables` writes the
tables that come out.

Invariants: rows come in the order of the log. `cq_ok` is null above the applied index and for rows
without a unit. An op record has value, keys and transaction of its half, null if that is not found
before it.

Source: docs/RUN_FORMAT.md, tables `log` and `cq`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from verify.export.messages.entries import KIND_CONFIG, KIND_DATA, Damage, Entries
from verify.export.messages.holding_rows import HoldingRow, holding_rows
from verify.export.messages.orphan_ops import OF_HALF
from verify.export.messages.queue_units import FILE_UNITS, QueueFile, UnitOwner, Units, units_of
from verify.export.messages.record_fields import Payloads
from verify.export.messages.records import RecordColumns, RecordStyle, record_columns
from verify.sources.format_tables import TABLES

__all__ = ["LogRows", "unit_rows"]

_Ints = npt.NDArray[np.int64]

_CHUNK_BYTES: Final = 16 * 1024 * 1024
_LOG: Final = TABLES["log"]
_CQ: Final = TABLES["cq"]
_ORDER: Final = "order"  # index among entries and damages of the segment; not a column of the table
_ROWS: Final = _LOG.append(pa.field(_ORDER, pa.int64()))
_OF_HALF_BY: Final = ("queue_offset", *OF_HALF)
_OTHER_COLUMNS: Final = (
    "slot", "kind", "client_group", "topic", "queue", "queue_offset", "damage",
)  # fmt: skip
_BLANK_UNIT_SIZE: Final = (1 << 31) - 1
_DAMAGED: Final = pa.array(["damaged"])


def unit_rows(
    broker_group: str,
    node: str,
    queue_files: Iterable[QueueFile],
    style: RecordStyle = RecordStyle.LEDGERMQ,
) -> Iterator[pa.Table]:
    """Yield the rows of a store's ConsumeQueues, one table per file."""
    for file in queue_files:
        units = units_of(file)
        written = units["size"] > 0
        if style is RecordStyle.ROCKETMQ:
            # What RocketMQ fills a queue with that does not begin at offset 0 (fillPreBlank).
            written &= units["size"] != _BLANK_UNIT_SIZE
        places = np.flatnonzero(written)
        if not len(places):
            continue
        found, count = units[places], len(places)
        columns = {
            "broker_group": pa.repeat(broker_group, count),
            "node": pa.repeat(node, count),
            "topic": pa.repeat(file.topic, count),
            "queue": pa.array(np.full(count, file.queue, dtype=np.int32)),
            "queue_offset": pa.array(file.first_offset + places),
            "position": pa.array(found["position"].astype(np.int64)),
            "size": pa.array(found["size"].astype(np.int32)),
            "tag_hash": pa.array(found["tag_hash"].astype(np.int64)),
        }
        yield pa.table(columns, schema=_CQ)


class LogRows:
    """Builds rows of one replica; remembers half messages for the op records after them."""

    def __init__(
        self,
        broker_group: str,
        node: str,
        queue_files: Iterable[QueueFile],
        *,
        commit_index: int,
        applied_index: int,
        style: RecordStyle = RecordStyle.LEDGERMQ,
    ) -> None:
        self._broker_group = broker_group
        self._node = node
        self._commit_index = commit_index
        self._applied_index = applied_index
        self._style = self._own_style = style
        self._units = Units(queue_files, FILE_UNITS if style is RecordStyle.LEDGERMQ else None)
        self._halves = pa.schema([_LOG.field(name) for name in _OF_HALF_BY]).empty_table()

    def of_file(
        self,
        data: memoryview,
        file_position: int,
        entries: Entries,
        damages: Sequence[tuple[int, Damage]],
        read_payloads: Callable[[memoryview, Entries], Payloads],
        *,
        style: RecordStyle | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file's `entries` and `damages`, in the order of the log.

        `data` are the file's bytes, the first of which is at `file_position` in the log. `style`:
        whose records these are, where it is not the log's own.
        """
        self._style = style or self._own_style
        yielded = 0
        for part in _chunks(entries):
            before = [item for item in damages[yielded:] if item[0] < part.order[-1]]
            yielded += len(before)
            yield self._of_entries(data, file_position, part, read_payloads(data, part), before)
        if yielded < len(damages):
            yield self._damages(damages[yielded:]).drop_columns([_ORDER])

    def _of_entries(
        self,
        data: memoryview,
        file_position: int,
        entries: Entries,
        payloads: Payloads,
        damages: Sequence[tuple[int, Damage]],
    ) -> pa.Table:
        parts = [
            self._records(data, file_position, entries, payloads),
            self._others(entries, payloads),
            self._damages(damages),
        ]
        rows = pa.concat_tables(part for part in parts if len(part))
        order = np.lexsort((rows["slot"].to_numpy(), rows[_ORDER].to_numpy()))
        return rows.drop_columns([_ORDER]).take(pa.array(order))

    def of_lost_tail(self, index: int, reason: str) -> pa.Table:
        """Return a row for entries that the node itself called committed and that are missing."""
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
            "broker_group": pa.repeat(self._broker_group, count),
            "node": pa.repeat(self._node, count),
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
        self, data: memoryview, file_position: int, entries: Entries, payloads: Payloads
    ) -> pa.Table:
        records = payloads.records
        found = record_columns(data, records, self._style)
        position = file_position + records.start
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
        no_unit = (index > self._applied_index) | ~found.has_unit
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
                "cq_ok": pa.array(owned, mask=no_unit),
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
        half, there = self._halves_at([offsets[0] for offsets in found.half_offsets])
        source, lost = np.arange(len(rows)), np.zeros(len(rows), dtype=np.bool_)
        ops = np.flatnonzero(found.is_op)
        lost[ops[~there]] = True
        source[ops[there]] = len(rows) + half[there]
        taken = pa.array(source, mask=lost)
        for name in OF_HALF:
            both = pa.chunked_array(
                [*rows[name].chunks, *self._halves[name].chunks], rows[name].type
            )
            column = both.combine_chunks().take(taken)
            rows = rows.set_column(rows.schema.get_field_index(name), _ROWS.field(name), column)
        return pa.concat_tables([rows, *self._further_ops(rows, found)])

    def _halves_at(self, wanted: Sequence[int | None]) -> tuple[_Ints, npt.NDArray[np.bool_]]:
        """Return the place of each half in `_halves`, and whether it is there at all."""
        offsets = self._halves["queue_offset"].to_numpy()
        order = np.argsort(offsets, kind="stable")
        sought = np.array([-1 if at is None else at for at in wanted], dtype=np.int64)
        place = np.searchsorted(offsets[order], sought)
        there = place < len(order)
        there[there] = offsets[order[place[there]]] == sought[there]
        there &= sought >= 0  # a damaged op record may name a negative offset
        half = np.zeros(len(sought), dtype=np.int64)
        half[there] = order[place[there]]
        return half, there

    def _further_ops(self, rows: pa.Table, found: RecordColumns) -> Iterator[pa.Table]:
        """Yield a row for each further half that an op record resolves: slots from 1, no place."""
        named = [
            (op, slot, offset)
            for op, offsets in zip(np.flatnonzero(found.is_op), found.half_offsets, strict=True)
            for slot, offset in enumerate(offsets)
            if slot > 0
        ]
        if not named:
            return
        half, there = self._halves_at([offset for _, _, offset in named])
        same = rows.take(pa.array([op for op, _, _ in named]))
        halves = self._halves.take(pa.array(half, mask=~there))
        columns = {name: same[name] for name in ("term", "chain")}
        columns |= {name: halves[name] for name in OF_HALF}
        columns["slot"] = pa.array([slot for _, slot, _ in named])
        yield self._rows(same[_ORDER].to_numpy(), same["index"].to_numpy(), same["kind"], columns)

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
            for row in _rows_of(command):
                if row is None:
                    self.add(entry, "command", slot)
                else:
                    self.add(entry, slot=slot, **row._asdict())
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


def _rows_of(command: list[Any]) -> Sequence[HoldingRow | None]:
    """Return what a command says of places, one row at least: None where it says nothing."""
    if command[0] == "offset":
        return [HoldingRow(*command)]
    return holding_rows(command) or [None]


def _decisions(found: RecordColumns, entry: _Ints, payloads: Payloads) -> pa.Array:
    """Return, per record, the decision in the command that accompanies an op record; else null."""
    ops = np.flatnonzero(found.is_op).tolist()
    decision: list[str | None] = [None] * len(entry)
    for place, offsets in zip(ops, found.half_offsets, strict=True):
        for command in payloads.commands.get(int(entry[place]), ()):
            if command[0] == "decide" and command[1] == offsets[0]:
                decision[place] = command[3]
    return pa.array(decision, type=pa.string())


def _chunks(entries: Entries) -> Iterator[Entries]:
    """Split `entries` into parts of at most `_CHUNK_BYTES`; a larger entry is a part of its own."""
    first, count = 0, len(entries.index)
    while first < count:
        full = int(entries.start[first]) + _CHUNK_BYTES
        end = max(first + 1, int(np.searchsorted(entries.end, full, side="right")))
        yield entries.part(first, end)
        first = end
