"""Op records whose half their own replica no longer has, named by the group's other replicas.

Place in the data path: `verify.export.tables` calls it when all replicas of a run are written.

Invariants: only rows of a log that retention has cut are changed, and of them only value, key and
transaction of op records that have none; they are copied from a row at the same index and slot with
the same chain, so that both entries are the same bytes. Replicas are cut at places of their own:
without this, the same op record would differ between two of them.

Source: docs/RUN_FORMAT.md, table `log`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["OF_HALF", "name_orphans"]

OF_HALF: Final = ("value", "uniq_key", "keys", "tx")
_PLACE: Final = ("index", "slot", "chain")
_Place: TypeAlias = tuple[int, int, int]
_Row: TypeAlias = Mapping[str, object]


def name_orphans(files: Sequence[Path]) -> None:
    """Rewrite those of a group's log files, one per replica, that lack what others have.

    Raises OSError and pyarrow.ArrowException."""
    cut = [path for path in files if _first_index(path) > 1]
    if not cut or len(files) < 2:
        return
    ops = {path: _ops(path) for path in files}
    for path in cut:
        orphans = ops[path].filter(pc.invert(_has_half(ops[path])))
        wanted = set(_places(orphans))
        found = {
            place: row
            for other in files
            if wanted and other != path
            for place, row in _named(ops[other], wanted).items()
        }
        if found:
            _rewrite(path, found)


def _first_index(path: Path) -> int:
    """Return the index of the file's first row; 0 for a file without rows."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1, columns=["index"]):
            return int(batch["index"][0].as_py() or 0)
    return 0


def _ops(path: Path) -> pa.Table:
    columns = [*_PLACE, *OF_HALF]
    return pq.read_table(path, columns=columns, filters=pc.field("kind") == "op")


def _places(table: pa.Table) -> Sequence[_Place]:
    return list(zip(*(table[name].to_pylist() for name in _PLACE), strict=True))


def _named(ops: pa.Table, wanted: set[_Place]) -> Mapping[_Place, _Row]:
    """Return those at the places `wanted` whose half was found."""
    named = ops.filter(_has_half(ops))
    rows = named.select(OF_HALF).to_pylist()
    return {place: row for place, row in zip(_places(named), rows, strict=True) if place in wanted}


def _has_half(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows have anything of a half: one that names no transaction has a key."""
    has_value, has_key, has_tx = (pc.is_valid(rows[name]) for name in ("value", "uniq_key", "tx"))
    return pc.or_(pc.or_(has_value, has_key), has_tx)


def _rewrite(path: Path, found: Mapping[_Place, _Row]) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with pq.ParquetFile(path) as file, pq.ParquetWriter(draft, file.schema_arrow) as writer:
            for batch in file.iter_batches():
                writer.write_table(_filled(pa.Table.from_batches([batch]), found))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _filled(rows: pa.Table, found: Mapping[_Place, _Row]) -> pa.Table:
    """Return the rows with those of `found` filled in."""
    orphan = pc.and_(pc.equal(rows["kind"], "op"), pc.invert(_has_half(rows)))
    numbers = np.flatnonzero(orphan.to_numpy(zero_copy_only=False))
    places = _places(rows.take(pa.array(numbers)))
    filled = {
        int(number): found[place]
        for number, place in zip(numbers, places, strict=True)
        if place in found
    }
    if not filled:
        return rows
    source = np.arange(len(rows))
    source[list(filled)] = len(rows) + np.arange(len(filled))
    for name in OF_HALF:
        field = rows.schema.field(name)
        copied = pa.array([row[name] for row in filled.values()], type=field.type)
        both = pa.chunked_array([*rows[name].chunks, copied], type=field.type)
        column = both.combine_chunks().take(pa.array(source))
        rows = rows.set_column(rows.schema.get_field_index(name), field, column)
    return rows
