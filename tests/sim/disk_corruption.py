"""Damage to bytes that were durable: the storage faults beyond crashes.

Place in the data path: tests damage a node's `SimDisk` with it; its log has to detect it, serve
none of it, and be repaired.

Invariant: `spoil_one` changes bytes, or returns None; it never touches two files, but for the one
kind that swaps them.

Source: Bairavasundaram et al., "An Analysis of Data Corruption in the Storage Stack" (FAST '08):
bit rot, torn, lost and misdirected writes.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence

from chaos.sim.machine.disk import SimDisk

__all__ = ["Corruption", "log_files", "spoil_one"]


class Corruption(enum.Enum):
    """Kinds of damage."""

    FLIPPED_BIT = "flipped_bit"
    ZEROED_PAGE = "zeroed_page"
    MISDIRECTED_BLOCK = "misdirected_block"  # a block of another place, of this file or another
    SWAPPED_FILES = "swapped_files"
    SHORTENED_FILE = "shortened_file"
    LOST_FILE = "lost_file"


def log_files(disk: SimDisk, directory: str = "commitlog") -> list[str]:
    """Return the segments of a node's log."""
    paths = (path for path in disk.paths() if path.startswith(f"{directory}/"))
    return [path for path in paths if path.rpartition("/")[2].isdecimal()]


def spoil_one(
    disk: SimDisk, rng: random.Random, kind: Corruption, paths: Sequence[str]
) -> str | None:
    """Damage one of `paths`; return its name, or None where nothing changed.

    The page size suits a simulation's small files.
    """
    if not paths:
        return None
    path = rng.choice(paths)
    before = disk.content(path)
    if kind is Corruption.LOST_FILE:
        disk.lose(path)
        return path
    if not before:
        return None
    page = rng.choice((16, 64, 512, 4096))
    start = int(rng.random() * len(before)) // page * page
    end = min(len(before), start + page)
    after = bytearray(before)
    match kind:
        case Corruption.FLIPPED_BIT:
            after[int(rng.random() * len(after))] ^= 1 << int(rng.random() * 8)
        case Corruption.ZEROED_PAGE:
            after[start:end] = bytes(end - start)
        case Corruption.MISDIRECTED_BLOCK:
            source = disk.content(rng.choice(paths))
            place = int(rng.random() * max(1, len(source))) // page * page
            block = source[place : place + end - start]
            after[start : start + len(block)] = block
        case Corruption.SWAPPED_FILES:
            other = rng.choice(paths)
            after = bytearray(disk.content(other))
            disk.spoil(other, before)
        case Corruption.SHORTENED_FILE:
            del after[int(rng.random() * len(after)) :]
    if bytes(after) == before:
        return None
    disk.spoil(path, bytes(after))
    return path
