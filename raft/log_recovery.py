"""Recovery of the segmented log: walk every entry, tell a torn tail from damage.

Place in the data path: `raft.segment_log` calls it once, before anything is appended. It reads
only; the log cuts the tail that this module found torn.

Invariants:
- an entry is kept only if all of its bytes check: magic, index, position, the chain before it and
  its own chain. Half an entry is never kept.
- a segment that has a successor was fsynced whole before that one was made: anything wrong in it
  is damage. In the last segment, anything wrong below the durable mark is damage, above it a torn
  tail: those bytes were never reported durable, whether or not something valid stands behind
  them (a disk may write un-fsynced pages in any order).
- where there is no durable mark (a store copied without it), something valid behind the wrong
  place counts as damage: refusing to start is the safe side.

Source: Pillai et al., "All file systems are not created equal" (what a crash may leave behind);
Alagappan et al., "Protocol-aware recovery" (damage of acknowledged entries is no torn tail).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from raft.log_format import (
    HEADER_SIZE,
    MAGIC,
    CorruptLogError,
    EntryCutShortError,
    EntryDefectError,
    parse_entry,
)
from raft.messages import EntryKind, Index, Term
from raft.storage import DiskFile

__all__ = ["RecoveredLog", "RecoveryReport", "recover"]

_CHUNK_SIZE = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery found. `torn_bytes` were cut off: never durable, never acknowledged."""

    entries: int
    bytes: int
    torn_bytes: int
    torn_reason: str | None


@dataclass(slots=True, kw_only=True)
class RecoveredLog:
    """The index of the valid log, and where its tail is to be cut."""

    positions: array[int] = field(default_factory=lambda: array("Q"))
    chains: array[int] = field(default_factory=lambda: array("I"))
    config_indexes: array[int] = field(default_factory=lambda: array("Q"))
    term_runs: list[tuple[Index, Term]] = field(default_factory=list)
    end_position: int = 0
    torn_bytes: int = 0
    torn_reason: str | None = None


def recover(
    segments: Sequence[tuple[int, str]],
    open_file: Callable[[str], DiskFile],
    durable_position: int | None,
) -> RecoveredLog:
    """Walk `segments`, (first position, path) in order. Raises CorruptLogError and OSError."""
    log = RecoveredLog()
    for number, (first_position, path) in enumerate(segments):
        if first_position != log.end_position:
            raise CorruptLogError(
                path,
                log.end_position,
                f"the log goes on at {log.end_position}, this segment begins at {first_position}",
            )
        file = open_file(path)
        try:
            defect = _walk(file, first_position, path, log)
            if defect is None:
                continue
            if number + 1 < len(segments):
                raise CorruptLogError(
                    path,
                    log.end_position,
                    f"{defect}, and segment {segments[number + 1][1]} is behind it",
                )
            _classify_tail(
                file, first_position, path, log, defect=defect, durable_position=durable_position
            )
        finally:
            file.close()
    if durable_position is not None and log.end_position < durable_position:
        path = segments[-1][1] if segments else "commitlog"
        raise CorruptLogError(
            path,
            log.end_position,
            f"the log ends here, but was durable up to {durable_position}",
        )
    return log


def _walk(file: DiskFile, first_position: int, path: str, log: RecoveredLog) -> str | None:
    """Add the segment's entries; what was wrong behind the last one, None at a clean end."""
    buffer = b""
    offset = 0  # of the next entry in the buffer
    read_offset = 0  # of the next byte to read in the file
    index = len(log.positions) + 1
    chain = log.chains[-1] if log.chains else 0
    term_last = log.term_runs[-1][1] if log.term_runs else 0
    while True:
        position = log.end_position
        try:
            header = parse_entry(buffer, offset, index=index, position=position, chain_before=chain)
        except EntryCutShortError as defect:
            # The entry may be whole but only partly in the buffer: read on before judging.
            chunk = file.pread(max(_CHUNK_SIZE, len(buffer) - offset), read_offset)
            if not chunk:
                return None if offset == len(buffer) else str(defect)
            read_offset += len(chunk)
            buffer = buffer[offset:] + chunk
            offset = 0
            continue
        except EntryDefectError as defect:
            return str(defect)
        if header.term < term_last:
            return f"term {header.term} after term {term_last}"
        if header.term != term_last:
            log.term_runs.append((index, header.term))
            term_last = header.term
        if header.kind is EntryKind.CONFIG:
            log.config_indexes.append(index)
        log.positions.append(position)
        log.chains.append(header.chain)
        chain = header.chain
        index += 1
        offset += header.size
        log.end_position = position + header.size
        assert log.end_position <= first_position + read_offset, path


def _classify_tail(
    file: DiskFile,
    first_position: int,
    path: str,
    log: RecoveredLog,
    *,
    defect: str,
    durable_position: int | None,
) -> None:
    """Torn tail: note it. Damage: raise CorruptLogError."""
    end = log.end_position
    if durable_position is not None and end < durable_position:
        raise CorruptLogError(path, end, f"{defect}; it was durable up to {durable_position}")
    tail = _read_tail(file, end - first_position)
    meaningful = len(tail.rstrip(b"\0"))
    if meaningful == 0:
        return  # only the zeros of the preallocation
    if durable_position is None:
        behind = _find_entry(tail, end, len(log.positions) + 1)
        if behind is not None:
            raise CorruptLogError(
                path, end, f"{defect}, and a valid entry stands behind it at position {behind}"
            )
    log.torn_bytes = meaningful
    log.torn_reason = defect


def _read_tail(file: DiskFile, offset: int) -> bytes:
    """All bytes from `offset` on; the last segment's size bounds them."""
    chunks = []
    while chunk := file.pread(_CHUNK_SIZE, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def _find_entry(tail: bytes, tail_position: int, index_min: Index) -> int | None:
    """The position of a valid entry inside `tail`, behind its first byte."""
    place = tail.find(MAGIC, 1)
    while 0 <= place <= len(tail) - HEADER_SIZE:
        try:
            header = parse_entry(
                tail, place, index=None, position=tail_position + place, chain_before=None
            )
        except EntryDefectError:
            place = tail.find(MAGIC, place + 1)
            continue
        if header.index > index_min:
            return tail_position + place
        place = tail.find(MAGIC, place + 1)
    return None
