"""The index of all messages of a store by key: a row of IndexFiles, and their progress.

Place in the data path: `broker.index.indexer` adds the keys of committed entries, in the log's
order; QUERY_MESSAGE looks up positions. Derived: missing or damaged parts are rebuilt from the log.

The progress stands in `index.checkpoint` (JSON, docs/FORMATS.md section 15), replaced atomically:
the position up to which every entry's keys are in, the last entry's chain, and each file's mark.
After a kill the files hold what was written, and the entries behind the checkpoint are added again,
the same units at the same places. After a failure of the machine (another boot) only files count
that were fsynced: the sealed ones, and all of them after a clean stop.

Invariants: files are in the log's order; a unit counts only while the checkpoint's CRC fits; an
index that is of another log, or of another shape, is discarded.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from broker.index.index_file import (
    IndexFile,
    IndexFileMark,
    IndexShape,
    find_positions,
    is_sound,
    write_fully,
)
from broker.index.key_hashes import IndexedKeys

__all__ = ["IndexProgress", "IndexState", "Lookup", "MessageIndex"]

_log = logging.getLogger(__name__)
_VERSION: Final = 1
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProgress:
    """Extent of the index: every entry below `next_position` is in; the last one began at
    `last_position` (-1: there is none) and had this chain."""

    next_position: int = 0
    last_position: int = -1
    chain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """Content of a checkpoint: the progress, and the mark of each file."""

    progress: IndexProgress
    marks: tuple[IndexFileMark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Chains of one hash as they were at the time of the lookup, the newest file's first."""

    hashed: int
    shape: IndexShape
    chains: list[tuple[Path, IndexFileMark, int]]

    def positions(self, *, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Return positions of records, newest first: see `find_positions`. On any thread. Raises
        OSError."""
        positions: list[int] = []
        for path, mark, head in self.chains:
            if mark.begin_ms > end_ms:
                continue
            try:
                positions += find_positions(
                    path,
                    self.shape,
                    mark,
                    self.hashed,
                    head=head,
                    begin_ms=begin_ms,
                    end_ms=end_ms,
                    count_max=count_max - len(positions),
                )
            except FileNotFoundError:  # retention removed it meanwhile
                break
            if mark.begin_ms < begin_ms or len(positions) >= count_max:
                break
        return positions


class MessageIndex:
    """Index of one store. `open` first, on a thread; then one owner adds, while lookups may run on
    other threads."""

    def __init__(self, directory: Path, shape: IndexShape) -> None:
        self._directory = directory
        self._checkpoint_path = directory.with_name(f"{directory.name}.checkpoint")
        self._shape = shape
        self._files: list[IndexFile] = []  # ascending; only the last one grows
        self.progress = IndexProgress()
        self._saved: IndexState | None = None  # as the checkpoint has it

    # Life --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the files that are there, as far as they are sound. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        progress, marks, trusted = self._read_checkpoint()
        for at, mark in enumerate(marks):
            if (trusted or mark.sealed) and is_sound(
                self._directory / mark.name, self._shape, mark
            ):
                continue
            _log.info("index file %s and later ones are built again from the log", mark.name)
            progress = IndexProgress(next_position=mark.from_position)
            marks = marks[:at]
            break
        self.progress = progress
        retained = {mark.name for mark in marks}
        for path in self._directory.iterdir():
            if path.name not in retained:
                path.unlink()
        self._files = [IndexFile(self._directory, self._shape, mark) for mark in marks]
        # Before any file changes: after a failure of the machine they must not count as clean.
        self._write_checkpoint(self.state, clean=False, durable=True)

    def close(self) -> None:
        """Make all of it durable and close the files (a clean stop). Raises OSError."""
        for file in self._files:
            if not file.mark.sealed:
                file.flush()
                file.sync()
        self._write_checkpoint(self.state, clean=True, durable=True)
        self.abandon()

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self._files:
            file.close()
        self._files.clear()

    def clear(self) -> None:
        """Remove all files of an index that is of another log. Raises OSError."""
        for file in self._files:
            file.close()
            file.path.unlink(missing_ok=True)
        self._files.clear()
        self.progress = IndexProgress()
        self._write_checkpoint(self.state, clean=False, durable=False)

    # Adding ------------------------------------------------------------------------------------

    def add(self, keys: IndexedKeys, progress: IndexProgress) -> None:
        """Add the keys of entries from the present progress on up to the new one.

        Raises OSError; the progress stays then, and the same keys may be added again.
        """
        at = 0
        while at < len(keys):
            file = self._growing(int(keys.stored_ms[at]))
            count = min(len(keys) - at, file.room)
            file.append(keys[at : at + count])
            at += count
        self.progress = progress

    def skip_to(self, position: int) -> None:
        """Move the progress to the begin of the log, behind it: the entries between are gone."""
        assert position > self.progress.next_position
        self.progress = IndexProgress(next_position=position)

    def unsealed(self) -> list[IndexFile]:
        """Return the full files that were not fsynced yet."""
        return [file for file in self._files[:-1] if not file.mark.sealed]

    def trim(self, position: int) -> bool:
        """Remove all files but the last that name no record from `position` on, where the log
        begins now.

        Returns whether any was removed: then the checkpoint names too many until the next `save`.
        Raises OSError.
        """
        gone = 0
        while gone < len(self._files) - 1 and self._files[gone].mark.end_position < position:
            self._files[gone].close()
            self._files[gone].path.unlink(missing_ok=True)
            gone += 1
        del self._files[:gone]
        return gone > 0

    # Saving: `unsaved`, the flushes on a thread, then `save` -------------------------------------

    @property
    def state(self) -> IndexState:
        return IndexState(progress=self.progress, marks=tuple(file.mark for file in self._files))

    def unsaved(self) -> tuple[IndexState, list[IndexFile]] | None:
        """Return the present state, and the files to be flushed before it may be saved; None where
        it is saved already."""
        state = self.state
        if state == self._saved:
            return None
        return state, [file for file in self._files if not file.mark.sealed]

    def save(self, state: IndexState) -> None:
        """Save a state all of whose files were flushed after it was taken. Raises OSError."""
        if {mark.name for mark in state.marks} <= {file.mark.name for file in self._files}:
            self._write_checkpoint(state, clean=False, durable=False)

    def _growing(self, stored_ms: int) -> IndexFile:
        """Return the file for the next unit. Raises OSError."""
        last = self._files[-1] if self._files else None
        if last is not None and last.room:
            return last
        mark = IndexFileMark(
            name=_file_name(stored_ms, None if last is None else last.mark.name),
            from_position=self.progress.next_position,
        )
        file = IndexFile(self._directory, self._shape, mark)
        self._files.append(file)
        return file

    # Lookups -----------------------------------------------------------------------------------

    @property
    def last_update(self) -> tuple[int, int]:
        """(store timestamp, position) of the newest unit; zeros where there is none."""
        if not self._files:
            return 0, 0
        return self._files[-1].mark.end_ms, self._files[-1].mark.end_position

    def __len__(self) -> int:
        """Return the number of units that count."""
        return sum(file.mark.next_number - 1 for file in self._files)

    def look_up(self, hashed: int) -> Lookup:
        """Return the chains of messages whose key may have this hash. Raises OSError."""
        return Lookup(
            hashed=hashed,
            shape=self._shape,
            chains=[
                (file.path, file.mark, file.head(hashed))
                for file in reversed(self._files)
                if file.mark.next_number > 1
            ],
        )

    # The checkpoint ----------------------------------------------------------------------------

    def _read_checkpoint(self) -> tuple[IndexProgress, list[IndexFileMark], bool]:
        """Read progress, marks, and whether unsealed files may be trusted; empty ones where it
        can't be read or is of another shape."""
        try:
            values = json.loads(self._checkpoint_path.read_bytes())
            if values["version"] != _VERSION or values["shape"] != asdict(self._shape):
                return IndexProgress(), [], False
            progress = IndexProgress(**values["progress"])
            marks = [IndexFileMark(**mark) for mark in values["files"]]
            trusted = bool(values["clean"]) or (
                values["boot"] == _boot_id() and values["boot"] is not None
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return IndexProgress(), [], False
        return progress, marks, trusted

    def _write_checkpoint(self, state: IndexState, *, clean: bool, durable: bool) -> None:
        values: dict[str, Any] = {
            "version": _VERSION,
            "boot": _boot_id(),
            "clean": clean,
            "shape": asdict(self._shape),
            "progress": asdict(state.progress),
            "files": [asdict(mark) for mark in state.marks],
        }
        temporary = self._checkpoint_path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            # A disk that fills up in the middle must not replace a whole checkpoint by half a one.
            write_fully(descriptor, json.dumps(values).encode() + b"\n", 0)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(self._checkpoint_path)
        if durable:
            descriptor = os.open(self._directory.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._saved = state


def _boot_id() -> str | None:
    """Return the id of this boot of the machine; None where it has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def _file_name(stored_ms: int, before: str | None) -> str:
    """Return yyyyMMddHHmmssSSS of the first unit, in UTC; later than the name before."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=stored_ms)
    name = f"{moment:{_NAME_FORMAT}}{stored_ms % 1000:03d}"
    while before is not None and name <= before:
        moment += timedelta(milliseconds=1)
        name = f"{moment:{_NAME_FORMAT}}{moment.microsecond // 1000:03d}"
    return name
