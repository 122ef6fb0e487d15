"""The stores of a RocketMQ run and the paths of their files, from the manifest's list alone.

Place in the data path: first of an export; each replica's process gets its store as plain values.

    nodes/<group>/<node>/abort                              there unless the broker stopped cleanly
    nodes/<group>/<node>/commitlog/{20-digit position}
    nodes/<group>/<node>/consumequeue/{topic}/{queue}/{20-digit first byte}
    nodes/<group>/<node>/epochFileCheckpoint, .bak          Controller mode: where epochs begin
    nodes/<group>/<node>/dledger-<id>/data/{20-digit position}
    nodes/<group>/<node>/dledger-<id>/checkpoint            DLedger's committedIndex, every 3 s

A store with files below dledger-<id>/data is one of DLedger; what lies in its commitlog/ then comes
before them. DLedger's index files say nothing that its data files don't, and it rebuilds them from
those; they are not read.

Invariant: a file that is not listed is never opened.

Source: RocketMQ's StorePathConfigHelper, EpochFileCache; DLedger's DLedgerMmapFileStore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verify.export.messages.listed_files import (
    POSITION_MAX,
    files_by_store,
    position_of,
    queue_files_of,
)
from verify.export.messages.queue_units import QueueFile

__all__ = ["Epoch", "LogFile", "RocketmqStore", "rocketmq_stores"]

_COMMITTED_INDEX: Final = "committedIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file of the log; `dledger`: it holds DLedger entries, else bare records."""

    path: Path
    position: int
    dledger: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A master's term in Controller mode, and the position of its first record."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqStore:
    """One replica's store. `committed_index`: as DLedger wrote it down, None where it did not."""

    broker_group: str
    node: str
    clean: bool
    committed_index: int | None
    epochs: Sequence[Epoch]
    files: Sequence[LogFile]
    queue_files: Sequence[QueueFile]

    @property
    def is_dledger(self) -> bool:
        return any(file.dledger for file in self.files)

    @property
    def divide(self) -> int:
        """Position at which DLedger's files follow those of a plain CommitLog; 0: no such files."""
        dledger = [file.position for file in self.files if file.dledger]
        plain = len(self.files) - len(dledger)
        return min(dledger) if dledger and plain else 0


def rocketmq_stores(run: Path, listed: Iterable[str]) -> list[RocketmqStore]:
    """Return every store of which `listed` names a file, by group and node.

    `listed`: names relative to `run`, as in the manifest's table `nodes`.
    """
    return [_store(*store) for store in files_by_store(run, listed)]


def _store(group: str, node: str, files: Mapping[tuple[str, ...], Path]) -> RocketmqStore:
    plain: list[LogFile] = []
    dledger: list[LogFile] = []
    committed: list[int] = []
    for parts, path in files.items():
        match parts:
            case ("commitlog", name) if (position := position_of(name)) is not None:
                plain.append(LogFile(path=path, position=position, dledger=False))
            case (folder, "data", name) if _is_dledger(folder):
                if (position := position_of(name)) is not None:
                    dledger.append(LogFile(path=path, position=position, dledger=True))
            case (folder, "checkpoint") if _is_dledger(folder):
                found = _committed_index(path)
                committed.extend([] if found is None else [found])
    return RocketmqStore(
        broker_group=group,
        node=node,
        clean=("abort",) not in files,
        committed_index=max(committed, default=None),
        epochs=_epochs(
            files.get((name,)) for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak")
        ),
        files=(*plain, *dledger),
        queue_files=queue_files_of(files),
    )


def _is_dledger(folder: str) -> bool:
    return folder.startswith("dledger-")


def _committed_index(path: Path) -> int | None:
    """Read DLedger's checkpoint, a Java properties file; None where it tells no index."""
    for line in _lines(path):
        name, _, value = line.partition("=")
        word = value.strip()
        if name.strip() == _COMMITTED_INDEX and word.isascii() and word.isdecimal():
            return min(int(word), POSITION_MAX - 1)
    return None


def _epochs(paths: Iterable[Path | None]) -> tuple[Epoch, ...]:
    """Read the file of epochs, or its backup where it can't be read; none: not Controller mode."""
    for path in paths:
        # The number of lines, their CRC, and one line `epoch-position` each.
        lines = [] if path is None else _lines(path)
        found = [line.strip().split("-") for line in lines[2:] if line.strip()]
        numbers = [[int(word) for word in words if word.isdecimal()] for words in found]
        if numbers and all(len(pair) == 2 for pair in numbers) and lines[0] == str(len(numbers)):
            return tuple(Epoch(epoch=epoch, position=at) for epoch, at in sorted(numbers))
    return ()


def _lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "replace").splitlines()
