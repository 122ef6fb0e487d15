"""What no fsync covers yet, saved so that a power failure can take it back.

Place in the data path: `broker.failpoints.faulty_disk` notes every change of the store before it is
made; `lose_unsynced` undoes what is left once the process was killed. Killing a process loses
nothing that it wrote, since the kernel has it: only both together are a power failure.

Invariants:
- a change is in the journal before it is in the store, so a kill between the two undoes nothing;
- a sync drops what was changed before it began, and no change that was made meanwhile. One that
  fails drops nothing: its pages count as still dirty;
- a name belongs to its directory, a file's bytes to its inode: renames do not lose track of them,
  and a file that is new has no history, whatever had its inode before;
- the journal goes where its store goes: in a copy, whose inodes are others, it counts for nothing.

The journal itself is never synced: it outlives a kill, and no real power failure.

Files in `undo/` of the store (docs/FORMATS.md section 17): `store` (the inode of that very file),
`names` (one JSON object a line), `kept-N` (hard links to removed or replaced files), `file-I.G` (of
inode I, generation G: records as below). A sync begins a new generation.

| size | field |
|---|---|
| 1 | 1 where a change begins, 0 where the record belongs to the one before |
| 8 | offset |
| 8 | size of the old bytes |
| 8 | size of the file before |
| 4 | size of what follows: as much as the old bytes, or 0 where all of them were zeros |
| 4 | CRC32 of all before and of what follows |

Source: undo logging, as in any database's textbook.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from isal.isal_zlib import crc32

__all__ = ["DIRECTORY", "FileUndo", "Lost", "UndoJournal", "lose_unsynced"]

DIRECTORY: Final = "undo"
_HEAD: Final = struct.Struct(">BQQQI")
_CRC: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 20
_SECTOR: Final = 512
_GENERATION_SIZE_MAX: Final = 8 << 20
_GENERATIONS_MAX: Final = 64
_NAMES_MAX: Final = 1_024


class _Readable(Protocol):
    def size(self) -> int: ...
    def pread(self, size: int, offset: int) -> bytes: ...


@dataclass(slots=True)
class Lost:
    """Outcome of `lose_unsynced`: changes by path, and changes of names."""

    changes: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.changes.values()) + len(self.names)


class FileUndo:
    """Changes of one inode since its last sync. Thread-safe; one for all that have it open."""

    def __init__(self, directory: Path, inode: int, generations: list[int]) -> None:
        self._directory = directory
        self._inode = inode
        self._generations = sorted(generations)
        self._lock = threading.Lock()
        self._output: int | None = None
        self._size = 0  # of what the open generation has

    @contextmanager
    def writing(self, file: _Readable, offset: int, size: int) -> Iterator[None]:
        """Note what the bytes were before the write that the body does."""
        with self._lock:
            before = file.size()
            old = file.pread(max(0, min(offset + size, before) - offset), offset)
            self._note(offset, old, before, begins=True)
            yield

    @contextmanager
    def resizing(self, file: _Readable, size: int) -> Iterator[None]:
        """Note what is cut off, or that the file grows, before the body does it."""
        with self._lock:
            before = file.size()
            if size > before:
                self._note(before, b"", before, begins=True)
            for offset in range(size, before, _CHUNK):
                old = file.pread(min(_CHUNK, before - offset), offset)
                self._note(offset, old, before, begins=offset == size)
            yield

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Drop what was noted before, once the body has synced the file without an error."""
        covered = self.begin_sync()
        yield
        self.end_sync(covered)

    def begin_sync(self) -> list[int]:
        """Return what a sync that begins now covers, for `end_sync`."""
        with self._lock:
            self._close()
            return list(self._generations)

    def end_sync(self, covered: list[int]) -> None:
        """Drop what was noted before a sync that has ended without an error."""
        with self._lock:
            for generation in covered:
                if generation in self._generations:  # no other sync was faster
                    self._generations.remove(generation)
                    self._path(generation).unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop all: the inode is gone, or new."""
        with self._lock:
            self._close()
            for generation in self._generations:
                self._path(generation).unlink(missing_ok=True)
            self._generations.clear()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _note(self, offset: int, old: bytes, size_before: int, *, begins: bool) -> None:
        if begins and self._size >= _GENERATION_SIZE_MAX:
            self._close()
        if self._output is None:
            self._write_back()
            generation = self._generations[-1] + 1 if self._generations else 0
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._output = os.open(self._path(generation), flags, 0o644)
            self._generations.append(generation)
        stored = b"" if old.count(0) == len(old) else old
        head = _HEAD.pack(begins, offset, len(old), size_before, len(stored))
        record = head + _CRC.pack(crc32(stored, crc32(head))) + stored
        self._size += len(record)
        while record:
            record = record[os.write(self._output, record) :]

    def _close(self) -> None:
        output, self._output = self._output, None
        self._size = 0
        if output is not None:
            os.close(output)

    def _write_back(self) -> None:
        """Drop the oldest where there is too much: by now any kernel has written it of its own
        accord."""
        while len(self._generations) >= _GENERATIONS_MAX:
            self._path(self._generations.pop(0)).unlink(missing_ok=True)

    def _path(self, generation: int) -> Path:
        return self._directory / f"file-{self._inode}.{generation}"


class UndoJournal:
    """The journal of one store; continues what a killed process has left there."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._directory = store / DIRECTORY
        _begin(self._directory)
        self._lock = threading.Lock()
        self._names = _read_names(self._directory)
        self._next = 1 + max([0, *(name["seq"] for name in self._names)])
        found: dict[int, list[int]] = {}
        for inode, generation in _files_in(self._directory):
            found.setdefault(inode, []).append(generation)
        self._files = {
            inode: FileUndo(self._directory, inode, generations)
            for inode, generations in found.items()
        }
        self._remove_orphans()

    def file(self, inode: int) -> FileUndo:
        with self._lock:
            return self._files.setdefault(inode, FileUndo(self._directory, inode, []))

    def forget(self, inode: int) -> None:
        """Drop what is noted of an inode that no name leads to any more, or that is new."""
        with self._lock:
            known = self._files.pop(inode, None)
        if known is not None:
            known.forget()

    def creating(self, path: str, create: Callable[[], Any]) -> Any:
        """Note that `path`, which does not exist, is created; return what `create` returns."""
        with self._lock:
            self._note("create", path)
            return create()

    def removing(self, path: str, remove: Callable[[], None]) -> None:
        """Note a removal, saving the file. Raises FileNotFoundError as `remove` would."""
        with self._lock:
            saved, inode = self._save(path)
            self._note("remove", path, saved=saved, inode=inode)
            remove()

    def renaming(self, source: str, target: str, rename: Callable[[], None]) -> None:
        """Note a rename within a directory, saving what it replaces. Raises as `rename` would."""
        assert _parent(source) == _parent(target), "a rename between directories is not foreseen"
        with self._lock:
            saved, replaced = "", 0
            if (self._store / target).exists():
                saved, replaced = self._save(target)
            moved = (self._store / source).stat().st_ino
            self._note("rename", source, target=target, saved=saved, inode=replaced, moved=moved)
            rename()

    @contextmanager
    def syncing(self, directory: str) -> Iterator[None]:
        """Drop the directory's changes of names noted before, once the body has synced it."""
        with self._lock:
            last = self._next
        yield
        with self._lock:
            self._drop(lambda n: n["seq"] < last and n["directory"] == directory)

    def _remove_orphans(self) -> None:
        """Remove what a kill in the middle of `_drop` left, before its inodes are free."""
        known = {name["kept"] for name in self._names}
        for path in self._directory.glob("kept-*"):
            if path.name not in known:
                if (file := self._files.pop(path.stat().st_ino, None)) is not None:
                    file.forget()
                path.unlink()

    def _drop(self, is_durable: Callable[[dict[str, Any]], bool]) -> None:
        dropped = [name for name in self._names if is_durable(name)]
        if not dropped:
            return
        self._names = [name for name in self._names if not is_durable(name)]
        _write_names(self._directory, self._names)
        for name in dropped:
            if name["kept"]:
                # Its history first: then its inode may be free for another file.
                if (file := self._files.pop(name["inode"], None)) is not None:
                    file.forget()
                (self._directory / name["kept"]).unlink(missing_ok=True)

    def _save(self, path: str) -> tuple[str, int]:
        """Give a file another name, under which it outlives its own."""
        saved = f"kept-{self._next}"
        (self._directory / saved).unlink(missing_ok=True)
        (self._directory / saved).hardlink_to(self._store / path)
        return saved, (self._store / path).stat().st_ino

    def _note(
        self,
        kind: str,
        path: str,
        *,
        target: str = "",
        saved: str = "",
        inode: int = 0,
        moved: int = 0,
    ) -> None:
        name = {
            "seq": self._next,
            "kind": kind,
            "directory": _parent(path),
            "path": path,
            "target": target,
            "kept": saved,
            "inode": inode,
            "moved": moved,
        }
        if len(self._names) >= _NAMES_MAX:  # as for `FileUndo._write_back`
            oldest = self._names[_NAMES_MAX // 2]["seq"]
            self._drop(lambda known: known["seq"] < oldest)
        self._next += 1
        self._names.append(name)
        with (self._directory / "names").open("a", encoding="utf-8") as file:
            file.write(json.dumps(name) + "\n")


def lose_unsynced(store: Path, rng: random.Random | None = None) -> Lost:
    """Undo what no sync covers in the store of a process that is dead, and end the journal.

    Without `rng` all of it is lost; with it of each file's changes, and of all changes of names,
    those after a random one, which may be torn between two sectors. Caller's duty: nobody has the
    store open. Raises OSError.
    """
    directory = store / DIRECTORY
    lost = Lost()
    if not directory.is_dir():
        return lost
    if not _belongs(directory):
        shutil.rmtree(directory)
        return lost
    names = _read_names(directory)
    survived = 0 if rng is None else rng.randint(0, len(names))
    for name in reversed(names[survived:]):
        if _undo_name(store, directory, name):
            lost.names.append(f"{name['kind']} {name['path']}")
    noted = {inode for inode, _ in _files_in(directory)}
    for path in sorted(store.rglob("*")):  # by name: chance must not hang on inodes
        if not path.is_file() or directory in path.parents or path.stat().st_ino not in noted:
            continue
        changes = _changes(directory, path.stat().st_ino)
        survived = 0 if rng is None else rng.randint(0, len(changes))
        if survived < len(changes):
            _undo_changes(path, changes[survived:], rng)
            lost.changes[str(path.relative_to(store))] = len(changes) - survived
    shutil.rmtree(directory)
    return lost


@dataclass(frozen=True, slots=True)
class _Record:
    offset: int
    old: bytes
    size_before: int


def _undo_changes(path: Path, changes: list[list[_Record]], rng: random.Random | None) -> None:
    with path.open("r+b", buffering=0) as file:
        for change in reversed(changes[1:]):
            for record in reversed(change):
                _restore(file.fileno(), record, 0)
        size = os.fstat(file.fileno()).st_size
        for record in reversed(changes[0]):
            torn = 0
            grew = size > record.size_before
            end = size if grew else record.offset + len(record.old)
            if rng is not None and size >= record.size_before:  # else it was cut, not written
                first = -record.offset % _SECTOR  # a sector is written whole or not at all
                sectors = max(0, end - record.offset - first) // _SECTOR
                torn = rng.choice((0, first + _SECTOR * rng.randint(0, sectors)))
                torn = min(torn, end - record.offset)
            _restore(file.fileno(), record, torn)
        os.fsync(file.fileno())


def _restore(descriptor: int, record: _Record, torn: int) -> None:
    """Put the old bytes back, but for the first `torn` of them, and the old size."""
    os.ftruncate(descriptor, max(record.size_before, record.offset + torn if torn else 0))
    old, offset = record.old[torn:], record.offset + torn
    while old:
        written = os.pwrite(descriptor, old, offset)
        old, offset = old[written:], offset + written


def _undo_name(store: Path, directory: Path, name: dict[str, Any]) -> bool:
    """Undo one change of a name; False where it was noted and never made."""
    path: Path = store / name["path"]
    if name["kind"] == "create":
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed
    if name["kind"] == "remove":
        existed = path.exists()
        (directory / name["kept"]).replace(path)
        return not existed
    target, moved = store / name["target"], int(name["moved"])
    if not target.exists() or target.stat().st_ino != moved:
        return False
    target.replace(path)
    if name["kept"]:
        (directory / name["kept"]).replace(target)
    return True


def _changes(directory: Path, inode: int) -> list[list[_Record]]:
    """Return a file's changes, oldest first, each with its records; a torn last one was never
    made."""
    changes: list[list[_Record]] = []
    for generation in sorted(g for i, g in _files_in(directory) if i == inode):
        data = memoryview((directory / f"file-{inode}.{generation}").read_bytes())
        while len(data) >= _HEAD.size + _CRC.size:
            head = data[: _HEAD.size]
            begins, offset, old_size, size_before, stored_size = _HEAD.unpack(head)
            (crc,) = _CRC.unpack(data[_HEAD.size : _HEAD.size + _CRC.size])
            stored = data[_HEAD.size + _CRC.size :][:stored_size]
            if len(stored) < stored_size or crc32(stored, crc32(head)) != crc:
                break
            record = _Record(offset, bytes(stored) or bytes(old_size), size_before)
            if begins:
                changes.append([])
            changes[-1].append(record)
            data = data[_HEAD.size + _CRC.size + stored_size :]
    return changes


def _files_in(directory: Path) -> list[tuple[int, int]]:
    """Return inode and generation of each file of records."""
    found = []
    for path in directory.glob("file-*.*"):
        inode, _, generation = path.name.removeprefix("file-").partition(".")
        found.append((int(inode), int(generation)))
    return found


def _read_names(directory: Path) -> list[dict[str, Any]]:
    """Return the noted changes of names; a torn last line was never made."""
    path = directory / "names"
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
    return [json.loads(line) for line in lines[:-1]]


def _write_names(directory: Path, names: list[dict[str, Any]]) -> None:
    draft = directory / "names.tmp"
    draft.write_text("".join(json.dumps(name) + "\n" for name in names), encoding="utf-8")
    draft.replace(directory / "names")


def _begin(directory: Path) -> None:
    """Make the journal's directory, anew where it belongs to another store."""
    if directory.is_dir() and not _belongs(directory):
        shutil.rmtree(directory)
    if not directory.is_dir():
        directory.mkdir(parents=True)
        with (directory / "store").open("w", encoding="ascii") as file:
            file.write(f"{os.fstat(file.fileno()).st_ino}\n")


def _belongs(directory: Path) -> bool:
    """Return whether the journal was begun here: a copy has other inodes."""
    mark = directory / "store"
    return mark.is_file() and mark.read_text(encoding="ascii").strip() == str(mark.stat().st_ino)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
