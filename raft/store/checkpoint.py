"""The checkpoint: a hint of what is committed, that lets a restarted node apply at once.

Place in the data path: `raft.node.node` writes it each second and at a clean stop, without fsync,
and `raft.store.node_store` reads it once, before the log (docs/FORMATS.md section 1).

Invariants: the commit index in it was committed, and durable on this node, when it was written; so
whatever of it a crash leaves is true of the log that recovery finds. A file that can't be read, or
is not as it was written, is no hint: it could make the node apply uncommitted entries. A store of
another node is an error.

`crc32` is that of the JSON text of all fields before it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from isal.isal_zlib import crc32

from raft.log.durable_record import read_now, replace
from raft.messages import Index
from raft.storage import Disk

__all__ = ["Checkpoint", "WrongStoreError", "hint", "read_checkpoint", "write_checkpoint"]

_PATH = "checkpoint"
_FILE_SIZE_MAX = 4096

_log = logging.getLogger(__name__)


class WrongStoreError(OSError):
    """The store was written by another node: its votes and its log are not this one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Fields of the file. `clean` is true after a clean stop, `incarnation` counts the starts."""

    group: str
    node: str
    incarnation: int = 0
    commit_index: Index = 0
    applied_index: Index = 0
    clean: bool = False


def hint(*, commit_index: Index, durable_index: Index) -> Index:
    """Return the commit index for a checkpoint: what a crash leaves of the log must fit it."""
    return min(commit_index, durable_index)


def read_checkpoint(disk: Disk, *, store: Path, group: str, node: str) -> Checkpoint:
    """Read the file at the root of `disk`; zeros where it is missing or damaged.

    `store` is where that root is, for the error. Raises OSError, and WrongStoreError where the file
    names another group or node.
    """
    empty = Checkpoint(group=group, node=node)
    text = read_now(disk, _PATH, _FILE_SIZE_MAX)
    if text is None:
        return empty
    try:
        found = _decode(text)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        _log.warning("%s is unreadable and not used: %r", _PATH, error)
        return empty
    if (found.group, found.node) != (group, node):
        raise WrongStoreError(
            f"{store}: the store belongs to {found.group}/{found.node}, not to {group}/{node}"
        )
    return found


def write_checkpoint(disk: Disk, checkpoint: Checkpoint) -> None:
    """Replace the file atomically, without fsync. Raises OSError."""
    values = asdict(checkpoint)
    text = json.dumps(values | {"crc32": _crc32(values)}) + "\n"
    replace(disk, _PATH, text.encode(), durable=False)


def _decode(text: bytes) -> Checkpoint:
    values = json.loads(text)
    if values.pop("crc32") != _crc32(values):
        raise ValueError("the CRC32 does not match")
    return Checkpoint(
        group=str(values["group"]),
        node=str(values["node"]),
        incarnation=max(0, int(values["incarnation"])),
        commit_index=max(0, int(values["commit_index"])),
        applied_index=max(0, int(values["applied_index"])),
        clean=values["clean"] is True,
    )


def _crc32(values: dict[str, object]) -> int:
    return crc32(json.dumps(values).encode())
