"""The replica stores of a run and the paths of their files, from the manifest's list alone.

Place in the data path: first of an export; each replica's process gets its `Store` as plain values.

    nodes/<group>/<node>/checkpoint
    nodes/<group>/<node>/commitlog.base, commitlog.base.copy
    nodes/<group>/<node>/commitlog/{20-digit position}
    nodes/<group>/<node>/consumequeue/{topic}/{queue}/{20-digit first byte}
    nodes/<group>/<node>/ha/commitlog/{20-digit position}             of a master or slave
    nodes/<group>/<node>/ha/commitlog.durable, ha/commitlog.durable.copy

Segments below the base are leftovers of an interrupted deletion, and not part of the log; so are
all segments while the log is being emptied.

Invariants: a file that is not listed is never opened; topics and queues come from listed names, so
that nothing stored in a log becomes part of a path.

Source: docs/FORMATS.md sections 1, 3 (slots), 5 and 19.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verify.export.messages.listed_files import files_by_store, position_of, queue_files_of
from verify.export.messages.queue_units import QueueFile

__all__ = ["Base", "Checkpoint", "Segment", "Store", "master_slave_stores", "stores"]

_BASE_SLOT: Final = struct.Struct(">4sQQQQII")  # magic, sequence, then the record
# Three cuts, each of position, index, term and chain: up to where the log is durable, where its
# last file begins, and what stands before its first entry.
_MARK_SLOT: Final = struct.Struct(">4sQQQQIQQQIQQQI")
_CRC: Final = struct.Struct(">I")
_BASE_MAGIC: Final = b"LMQB"
_MARK_MAGIC: Final = b"LMQM"
_SLOT_OFFSETS: Final = (0, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The node's own record of its progress, which may be stale; zeros if the file is missing."""

    commit_index: int = 0
    applied_index: int = 0
    clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The position, index and chain right before a log's first entry; zeros for a whole log."""

    position: int = 0
    index: int = 0
    chain: int = 0
    emptying: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    path: Path
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One replica's store."""

    broker_group: str
    node: str
    checkpoint: Checkpoint
    base: Base | None  # None: no readable base file
    durable_index: int = 0  # of a master or slave: the last entry that was reported durable
    segments: tuple[Segment, ...] = field(default=())
    queue_files: tuple[QueueFile, ...] = field(default=())


def stores(run: Path, listed: Iterable[str]) -> list[Store]:
    """Return every store of which `listed` names a file, by group and node.

    `listed`: names relative to `run`, as in the manifest's table `nodes`.
    """
    return [_store(*store) for store in files_by_store(run, listed)]


def _store(group: str, node: str, files: Mapping[tuple[str, ...], Path]) -> Store:
    base = _base(files.get((name,)) for name in ("commitlog.base", "commitlog.base.copy"))
    segments: list[Segment] = []
    for parts, path in files.items():
        match parts:
            case ("commitlog", name) if (position := position_of(name)) is not None:
                if base is None or (not base.emptying and position >= base.position):
                    segments.append(Segment(path=path, position=position))
    return Store(
        broker_group=group,
        node=node,
        checkpoint=_checkpoint(files.get(("checkpoint",))),
        base=base,
        segments=tuple(segments),
        queue_files=queue_files_of(files),
    )


def master_slave_stores(run: Path, listed: Iterable[str]) -> list[Store]:
    """Return every store as `stores` does, of the engines that keep their log in `ha`."""
    return [_master_slave_store(*store) for store in files_by_store(run, listed)]


def _master_slave_store(group: str, node: str, files: Mapping[tuple[str, ...], Path]) -> Store:
    mark = _newest_slot(
        (files.get(("ha", name)) for name in ("commitlog.durable", "commitlog.durable.copy")),
        _MARK_MAGIC,
        _MARK_SLOT,
    )
    base, durable_index = None, 0
    if mark is not None:
        _, _, durable_index, *_, position, index, _, chain = mark
        base = Base(position=position, index=index, chain=chain)
    segments: list[Segment] = []
    for parts, path in files.items():
        match parts:
            case ("ha", "commitlog", name) if (start := position_of(name)) is not None:
                if base is None or start >= base.position:
                    segments.append(Segment(path=path, position=start))
    return Store(
        broker_group=group,
        node=node,
        checkpoint=_checkpoint(files.get(("checkpoint",))),
        base=base,
        durable_index=durable_index,
        segments=tuple(segments),
        queue_files=queue_files_of(files),
    )


def _base(paths: Iterable[Path | None]) -> Base | None:
    """Return the newest readable slot of the base file and its copy."""
    slot = _newest_slot(paths, _BASE_MAGIC, _BASE_SLOT)
    if slot is None:
        return None
    _, position, index, _, chain, emptying = slot
    return Base(position=position, index=index, chain=chain, emptying=emptying != 0)


def _newest_slot(
    paths: Iterable[Path | None], wanted: bytes, form: struct.Struct
) -> tuple[int, ...] | None:
    """Return sequence number and record of the newest readable slot of a file and its copy."""
    slots: list[tuple[int, ...]] = []
    for path in paths:
        content = b"" if path is None else path.read_bytes()
        for offset in _SLOT_OFFSETS:
            end = offset + form.size
            if len(content) < end + _CRC.size:
                continue
            magic, *values = form.unpack_from(content, offset)
            (crc,) = _CRC.unpack_from(content, end)
            if magic == wanted and zlib.crc32(content[offset:end]) == crc:
                slots.append(tuple(values))
    # The sequence number is the first field.
    return max(slots, default=None)


def _checkpoint(path: Path | None) -> Checkpoint:
    """Read a checkpoint; zeros, which claim nothing, if it is missing or unreadable."""
    if path is None:
        return Checkpoint()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Checkpoint(
            commit_index=int(content["commit_index"]),
            applied_index=int(content["applied_index"]),
            clean=content["clean"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Checkpoint()
