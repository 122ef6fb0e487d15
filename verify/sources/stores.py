"""Which replica stores a run holds, and where their files are.

Place in the data path: the driver lists them once; each partition of the `commitlog` and
`consumequeue` data sources gets what it needs as plain values.

    nodes/<group>/<node>/checkpoint
    nodes/<group>/<node>/commitlog.base, commitlog.base.copy
    nodes/<group>/<node>/commitlog/{20-digit position}
    nodes/<group>/<node>/consumequeue/{topic}/{queue}/{20-digit first byte}

Segments below the base are leftovers of a drop that was broken off, and no log; so are all of them
while the log is being emptied.

Source: docs/FORMATS.md sections 1, 3 (slots) and 5.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = [
    "UNIT",
    "Base",
    "Checkpoint",
    "ConsumeQueues",
    "QueueFile",
    "Segment",
    "Store",
    "queue_files",
    "stores",
]

UNIT: Final = struct.Struct(">qiq")
assert UNIT.size == 20
_FILE_SIZE_BYTES: Final = 300_000 * UNIT.size
_FILES_KEPT_MAX: Final = 16  # of 6 MB at most
_BASE_SLOT: Final = struct.Struct(">4sQQQQII")  # magic, sequence, then the record
_CRC: Final = struct.Struct(">I")
_BASE_MAGIC: Final = b"LMQB"
_SLOT_OFFSETS: Final = (0, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The node's own hint of how far it was; zeros where there is none."""

    commit_index: int = 0
    applied_index: int = 0
    clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What stands right before the first entry of a log; zeros for a whole one."""

    position: int = 0
    index: int = 0
    chain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    path: Path
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One replica's store."""

    broker_group: str
    node: str
    path: Path
    checkpoint: Checkpoint
    base: Base | None  # None: nothing tells it
    segments: tuple[Segment, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFile:
    """One file of a ConsumeQueue; its first unit is that of `first_offset`."""

    topic: str
    queue: int
    first_offset: int
    path: Path


def stores(run: Path) -> Iterator[Store]:
    """Every store below `run`, by group and node."""
    for path in sorted((run / "nodes").glob("*/*")):
        if path.is_dir():
            base, emptying = _base(path / "commitlog.base")
            begin = 0 if base is None else base.position
            yield Store(
                broker_group=path.parent.name,
                node=path.name,
                path=path,
                checkpoint=_checkpoint(path / "checkpoint"),
                base=base,
                segments=tuple(
                    Segment(path=file, position=int(file.name))
                    for file in sorted((path / "commitlog").glob("*"))
                    if file.name.isdigit() and file.is_file() and int(file.name) >= begin
                )
                if not emptying
                else (),
            )


def queue_files(store: Path) -> Iterator[QueueFile]:
    """Every ConsumeQueue file of a store."""
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        if path.name.isdigit() and path.parent.name.isdigit():
            yield QueueFile(
                topic=path.parent.parent.name,
                queue=int(path.parent.name),
                first_offset=int(path.name) // UNIT.size,
                path=path,
            )


class ConsumeQueues:
    """Look-ups in one store's ConsumeQueues; a few files are kept in memory at a time."""

    __slots__ = ("_files", "_root")

    def __init__(self, store: Path) -> None:
        self._root = store / "consumequeue"
        self._files: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    def unit(self, topic: str, queue: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(position, size, tag hash) of a unit; None where nothing was written."""
        at = queue_offset * UNIT.size
        first = at - at % _FILE_SIZE_BYTES
        content = self._content(topic, queue, first)
        if not 0 <= at - first <= len(content) - UNIT.size:
            return None
        position, size, tag_hash = UNIT.unpack_from(content, at - first)
        return (position, size, tag_hash) if size > 0 else None

    def _content(self, topic: str, queue: int, first: int) -> bytes:
        name = (topic, queue, first)
        content = self._files.get(name)
        if content is None:
            path = self._root / topic / str(queue) / f"{first:020d}"
            content = path.read_bytes() if path.is_file() else b""
            self._files[name] = content
            if len(self._files) > _FILES_KEPT_MAX:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(name)
        return content


def _base(path: Path) -> tuple[Base | None, bool]:
    """The newest readable slot of the base and its copy, and whether the log is being emptied."""
    slots: list[tuple[int, ...]] = []
    for file in (path, path.with_name(f"{path.name}.copy")):
        content = file.read_bytes() if file.is_file() else b""
        for offset in _SLOT_OFFSETS:
            end = offset + _BASE_SLOT.size
            if len(content) < end + _CRC.size:
                continue
            magic, *values = _BASE_SLOT.unpack_from(content, offset)
            (crc,) = _CRC.unpack_from(content, end)
            if magic == _BASE_MAGIC and zlib.crc32(content[offset:end]) == crc:
                slots.append(tuple(values))
    if not slots:
        return None, False
    _, position, index, _, chain, emptying = max(slots)
    return Base(position=position, index=index, chain=chain), emptying != 0


def _checkpoint(path: Path) -> Checkpoint:
    """A hint that is missing or unreadable claims nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Checkpoint(
            commit_index=int(content["commit_index"]),
            applied_index=int(content["applied_index"]),
            clean=content["clean"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Checkpoint()
