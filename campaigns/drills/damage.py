"""Ways in which a disk ruins a file that was durable, done to the files of a stopped node.

Place in the data path: the corruption drill and the storage tests choose a place by a seeded
Random, ruin it here, and know from the pristine copy what must come back.

Invariant: what is called ruined differs from what was there; bytes behind the log's last entry,
which mean nothing, are never chosen.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18), section 2.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KINDS", "Ruin", "data_size", "ruin", "segments"]

_BLOCK_SIZE = 4096
_HEADER = struct.Struct(">4sI36x")  # magic and size of an entry; the rest is not needed here


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruin:
    kind: str
    file: str
    place: str


def segments(store: Path) -> list[Path]:
    return sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())


def data_size(segment: Path) -> int:
    """Bytes of whole entries at the segment's beginning; zeros of the preallocation don't count."""
    data = segment.read_bytes()
    at = 0
    while at + _HEADER.size <= len(data):
        magic, size = _HEADER.unpack_from(data, at)
        if magic != b"LMQ1" or at + size > len(data):
            break
        at += size
    return at


def ruin(kind: str, files: Sequence[Path], rng: random.Random) -> Ruin | None:
    """Ruin one of `files`; None where nothing would have changed."""
    file = rng.choice(list(files))
    place = KINDS[kind](file, files, rng)
    return None if place is None else Ruin(kind=kind, file=file.name, place=place)


def _bit_flip(file: Path, _files: Sequence[Path], rng: random.Random) -> str | None:
    size = data_size(file)
    if not size:
        return None
    at, bit = rng.randrange(size), rng.randrange(8)
    _change(file, at, lambda old: bytes([old[0] ^ 1 << bit]), 1)
    return f"bit {bit} of byte {at}"


def _zeroed_page(file: Path, _files: Sequence[Path], rng: random.Random) -> str | None:
    pages = data_size(file) // _BLOCK_SIZE
    if not pages:
        return None
    at = rng.randrange(pages) * _BLOCK_SIZE
    changed = _change(file, at, lambda old: bytes(len(old)), _BLOCK_SIZE)
    return f"page at {at}" if changed else None


def _swapped_blocks(file: Path, _files: Sequence[Path], rng: random.Random) -> str | None:
    pages = data_size(file) // _BLOCK_SIZE
    if pages < 2:
        return None
    one, other = (page * _BLOCK_SIZE for page in rng.sample(range(pages), 2))
    data = file.read_bytes()
    first, second = data[one : one + _BLOCK_SIZE], data[other : other + _BLOCK_SIZE]
    _change(file, one, lambda _: second, _BLOCK_SIZE)
    _change(file, other, lambda _: first, _BLOCK_SIZE)
    return f"blocks at {one} and {other}" if first != second else None


def _misdirected_block(file: Path, files: Sequence[Path], rng: random.Random) -> str | None:
    """A block that was written for one place, found at another one, maybe of another file."""
    source = rng.choice(list(files))
    pages, source_pages = data_size(file) // _BLOCK_SIZE, data_size(source) // _BLOCK_SIZE
    if not pages or not source_pages:
        return None
    at, source_at = rng.randrange(pages) * _BLOCK_SIZE, rng.randrange(source_pages) * _BLOCK_SIZE
    block = source.read_bytes()[source_at : source_at + _BLOCK_SIZE]
    changed = _change(file, at, lambda _: block, _BLOCK_SIZE)
    return f"block at {at} is that of {source.name} at {source_at}" if changed else None


def _truncated_file(file: Path, _files: Sequence[Path], rng: random.Random) -> str | None:
    size = data_size(file)
    if not size:
        return None
    at = rng.randrange(size)
    with file.open("r+b") as stream:
        stream.truncate(at)
    return f"cut to {at} of {size} bytes"


def _deleted_file(file: Path, _files: Sequence[Path], _rng: random.Random) -> str | None:
    file.unlink()
    return "deleted"


KINDS: dict[str, Callable[[Path, Sequence[Path], random.Random], str | None]] = {
    "bit flip": _bit_flip,
    "zeroed page": _zeroed_page,
    "swapped blocks": _swapped_blocks,
    "misdirected block": _misdirected_block,
    "truncated file": _truncated_file,
    "deleted file": _deleted_file,
}


def _change(file: Path, at: int, change: Callable[[bytes], bytes], size: int) -> bool:
    with file.open("r+b") as stream:
        stream.seek(at)
        old = stream.read(size)
        new = change(old)
        stream.seek(at)
        stream.write(new)
    return new != old
