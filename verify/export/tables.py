"""The tables `log` and `cq` of a whole run, from the stores that its manifest lists.

Place in the data path: `ledgermq export` and the end of an experiment write them into the run; the
verifier writes them into a temporary folder if a run has none. One process per replica, as many at
a time as there are processors; small stores are read in this process.

Invariants: a file that the manifest doesn't list is not read; `committed` comes from the replica's
checkpoint (up to a second old) or its trace, whichever has the higher commit index; of a master and
its slaves from what they share with the master (`verify.export.master_slave_commitment`).

Source: docs/RUN_FORMAT.md, tables `log`, `cq` and `raft`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from verify.export import master_slave_replica, replica
from verify.export.master_slave_commitment import commit_indexes
from verify.export.messages.orphan_ops import name_orphans
from verify.export.rocketmq import replica as rocketmq_replica
from verify.export.rocketmq.commitment import Extent, survey
from verify.export.rocketmq.store_files import RocketmqStore, rocketmq_stores
from verify.export.store_files import Store, master_slave_stores, stores
from verify.sources.format_tables import TABLES
from verify.sources.manifest import Manifest

__all__ = ["EXPORTED", "ExportError", "Written", "export_tables"]

EXPORTED: Final = ("log", "cq")
_TRACED: Final = pa.schema(
    [(name, TABLES["raft"].field(name).type) for name in ("broker_group", "node", "event", "index")]
)
_ROLES: Final = pa.schema(
    [(name, TABLES["raft"].field(name).type) for name in ("broker_group", "node", "role", "t")]
)
_ROCKETMQ: Final = "rocketmq"
_SMALL_BYTES_MAX: Final = 64 * 1024 * 1024  # below, processes cost more than they save


class ExportError(Exception):
    """The stores can't be read, or the tables can't be written; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One Parquet file."""

    path: Path
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The arguments of one process, which writes one replica's files. `size`: bytes of its log."""

    replica: _AnyReplica
    size: int
    paths: Mapping[str, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """One of our own stores."""

    store: Store
    traced_index: int

    def tables(self) -> Mapping[str, Callable[[], Iterator[pa.Table]]]:
        return {
            "log": lambda: replica.log_tables(self.store, self.traced_index),
            "cq": lambda: replica.unit_tables(self.store),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _RocketmqReplica:
    """A store of RocketMQ, and what its group shows of it."""

    store: RocketmqStore
    extent: Extent

    def tables(self) -> Mapping[str, Callable[[], Iterator[pa.Table]]]:
        return {
            "log": lambda: rocketmq_replica.log_tables(self.store, self.extent),
            "cq": lambda: rocketmq_replica.unit_tables(self.store),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _MasterSlaveReplica:
    """A store of a master or slave, and how far it is what its group's master has."""

    store: Store
    commit_index: int

    def tables(self) -> Mapping[str, Callable[[], Iterator[pa.Table]]]:
        return {
            "log": lambda: master_slave_replica.log_tables(self.store, self.commit_index),
            "cq": lambda: replica.unit_tables(self.store),
        }


_AnyReplica: TypeAlias = _Replica | _RocketmqReplica | _MasterSlaveReplica


def export_tables(
    run: Path, manifest: Manifest, folder: Path, names: Sequence[str] = EXPORTED
) -> Mapping[str, Sequence[Written]]:
    """Write the tables `names` of `run`, one file per replica, below `folder`/`name`/.

    Caller's duty: the files match the manifest (`verify.sources.manifest.damage`).

    Raises:
        ExportError: the stores can't be read, or the tables can't be written.
    """
    try:
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
        tasks = [
            _Task(
                replica=found,
                size=size,
                paths={name: folder / name / f"replica-{number:03d}.parquet" for name in names},
            )
            for number, (found, size) in enumerate(_replicas(run, manifest))
        ]
        written = list(_done(tasks))
        if "log" in names:
            for numbers in _by_group(tasks).values():
                name_orphans([written[number]["log"].path for number in numbers])
    except (OSError, pa.ArrowException, BrokenProcessPool) as error:
        raise ExportError(f"the stores can't be exported: {error}") from error
    return {name: [files[name] for files in written] for name in names}


def _by_group(tasks: Sequence[_Task]) -> Mapping[str, Sequence[int]]:
    """Return the numbers of the replicas of each group."""
    groups: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(task.replica.store.broker_group, []).append(number)
    return groups


def _replicas(run: Path, manifest: Manifest) -> Sequence[tuple[_AnyReplica, int]]:
    """Return every replica that has files in the run, with the size of its log."""
    listed = [file.name for file in manifest.tables.get("nodes", ())]
    if manifest.system == _ROCKETMQ:
        theirs = rocketmq_stores(run, listed)
        extents = survey(theirs, manifest.groups)
        return [
            (_RocketmqReplica(store=store, extent=extent), _size(f.path for f in store.files))
            for store, extent in zip(theirs, extents, strict=True)
        ]
    traces = [run / file.name for file in manifest.tables.get("raft", ())]
    if manifest.is_master_slave:
        ours = master_slave_stores(run, listed)
        indexes = commit_indexes(ours, _masters(traces))
        return [
            (_MasterSlaveReplica(store=store, commit_index=index), _log_size(store))
            for store, index in zip(ours, indexes, strict=True)
        ]
    traced = _traced_indexes(traces)
    return [
        (
            _Replica(store=store, traced_index=traced.get((store.broker_group, store.node), 0)),
            _log_size(store),
        )
        for store in stores(run, listed)
    ]


def _log_size(store: Store) -> int:
    return _size(segment.path for segment in store.segments)


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _done(tasks: Sequence[_Task]) -> Iterator[Mapping[str, Written]]:
    size = sum(task.size for task in tasks)
    workers = min(len(tasks), len(os.sched_getaffinity(0)))
    if workers < 2 or size < _SMALL_BYTES_MAX:
        yield from map(_written, tasks)
        return
    # Forking from here would not be safe: Arrow and others may have threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_on_interrupt) as pool:
        try:
            yield from pool.map(_written, tasks)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_on_interrupt() -> None:
    """Restore SIGINT's default, so that Ctrl-C ends every process without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _written(task: _Task) -> Mapping[str, Written]:
    tables = task.replica.tables()
    return {name: _write(path, name, tables[name]()) for name, path in task.paths.items()}


def _write(path: Path, name: str, tables: Iterator[pa.Table]) -> Written:
    """Write the file under another name first, so that a reader never sees half a file."""
    draft, rows = path.with_name(f"{path.name}.tmp"), 0
    draft.unlink(missing_ok=True)
    try:
        with pq.ParquetWriter(draft, TABLES[name]) as writer:
            for table in tables:
                writer.write_table(table)
                rows += len(table)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return Written(path=path, rows=rows)


def _traced_indexes(files: Sequence[Path]) -> Mapping[tuple[str, str], int]:
    """Return the highest commit index in each node's trace."""
    traced: dict[tuple[str, str], int] = {}
    for table in _columns_of(files, _TRACED):
        # A snapshot holds only committed entries, so an install shows a commit, too.
        commits = table.filter(pc.is_in(table["event"], pa.array(["commit", "install"])))
        highest = commits.group_by(["broker_group", "node"]).aggregate([("index", "max")])
        for row in highest.to_pylist():
            key = (row["broker_group"], row["node"])
            traced[key] = max(traced.get(key, 0), row["index_max"] or 0)
    return traced


def _masters(files: Sequence[Path]) -> Mapping[str, str]:
    """Return the node of each group that was the last to report itself as the master."""
    last: dict[str, tuple[int, str]] = {}
    for table in _columns_of(files, _ROLES):
        for row in table.filter(pc.equal(table["role"], "leader")).to_pylist():
            report = (row["t"], row["node"])
            last[row["broker_group"]] = max(last.get(row["broker_group"], report), report)
    return {group: node for group, (_, node) in last.items()}


def _columns_of(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the columns of `schema` of each trace file that has rows. Raises ExportError."""
    for path in files:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                continue  # the file is empty, so its columns don't matter
            if not set(schema.names) <= set(file.schema_arrow.names):
                raise ExportError(f"{path.name} lacks a column of the table raft")
            yield file.read(columns=schema.names).select(schema.names).cast(schema)
