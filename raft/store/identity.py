"""The identity of a store: which store it is, and whether it may take part in its group.

Place in the data path: `raft.store.node_store` loads it before anything else of the store, and
saves it anew when `raft.node.node` admits the store (`raft.bootstrap.formation`).

Invariants: a store keeps its `store_id` for ever, and is admitted (`born`) at most once; both are
durable, file and directory, before anything that depends on them leaves the node. A store that was
used before there were identities is admitted with the first one it gets. Two files hold the same
record, `identity` and `identity.copy`: where one is torn, rotten or lost the other one is read.

Both files (docs/FORMATS.md section 13) are replaced whole, one after the other:

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQI` |
| 4 | 4 | size N of the body |
| 8 | N | msgpack [version, group, node, store_id, born, roster] |
| 8+N | 4 | CRC32 of everything before |

`roster` is the configuration that the store was admitted with, in the encoding of a CONFIG entry;
empty before admission, and where the store is older than identities.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack
from isal.isal_zlib import crc32

from raft.log.durable_record import read_durable, read_now, replace
from raft.log.log_format import CorruptLogError
from raft.log.segment_files import NO_ROOM
from raft.messages import NodeId
from raft.storage import Disk

__all__ = ["CorruptIdentityError", "IdentityFile", "StoreIdentity"]

_MAGIC = b"LMQI"
_HEAD = struct.Struct(">4sI")
_CRC_SIZE = 4
_VERSION = 1
_FILE_SIZE_MAX = 64 << 10
_STORE_ID = re.compile(r"[0-9a-f]{32}")

assert _HEAD.size == 8

_log = logging.getLogger(__name__)


class CorruptIdentityError(CorruptLogError):
    """A file exists, but none is readable. Starting as a new store could vote twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Record of the file. `store_id`: 32 hex digits, random, made with the store."""

    group: str
    node: NodeId
    store_id: str
    born: bool
    roster: bytes = b""

    def __post_init__(self) -> None:
        if not _STORE_ID.fullmatch(self.store_id):
            raise ValueError(f"store_id {self.store_id!r:.80} is not 32 hex digits")
        if self.roster and not self.born:
            raise ValueError("an unborn store has no roster")


class IdentityFile:
    """Loads and saves the identity at the root of `disk`."""

    PATHS = ("identity", "identity.copy")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> StoreIdentity | None:
        """Return the identity, durable, both files alike and whole; None if there is none. A store
        older than the copy gets one. On a full disk the whole file has to do until a later start.

        Raises OSError, and CorruptIdentityError where no file is readable, or two name two stores.
        """
        contents = {path: read_durable(self._disk, path, _FILE_SIZE_MAX) for path in self.PATHS}
        identity = _furthest(contents)
        if identity is None:
            return None
        image = _encode(identity)
        for path, content in contents.items():
            if content == image:
                continue
            try:
                replace(self._disk, path, image)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                _log.warning("no room to make %s whole: %s", path, error)
        return identity

    def peek(self) -> StoreIdentity | None:
        """Read as `load` does, without changing anything: its node may be running."""
        return _furthest({path: read_now(self._disk, path, _FILE_SIZE_MAX) for path in self.PATHS})

    def save(self, identity: StoreIdentity) -> None:
        """Save to both files; durable when this returns. Raises OSError."""
        image = _encode(identity)
        for path in self.PATHS:
            replace(self._disk, path, image)


def _furthest(contents: Mapping[str, bytes | None]) -> StoreIdentity | None:
    """Return the readable file written last: a store is admitted once, and stays so."""
    found: list[StoreIdentity] = []
    defects: list[CorruptIdentityError] = []
    for path, data in contents.items():
        if data is None:
            continue
        try:
            identity = _decode(data, path)
        except CorruptIdentityError as defect:
            defects.append(defect)
            continue
        if found and found[0].store_id != identity.store_id:
            raise CorruptIdentityError(
                path, 0, f"names store {identity.store_id}, the other file {found[0].store_id}"
            )
        found.append(identity)
    if not found:
        if defects:
            raise defects[0]
        return None
    for known in defects:
        _log.info("%s; the other copy is used", known)
    return max(found, key=lambda identity: identity.born)


def _encode(identity: StoreIdentity) -> bytes:
    body: bytes = msgpack.packb(
        [
            _VERSION,
            identity.group,
            identity.node,
            identity.store_id,
            identity.born,
            identity.roster,
        ]
    )
    data = _HEAD.pack(_MAGIC, len(body)) + body
    assert len(data) + _CRC_SIZE <= _FILE_SIZE_MAX, "names and addresses are bounded"
    return data + crc32(data).to_bytes(_CRC_SIZE, "big")


def _decode(data: bytes, path: str) -> StoreIdentity:
    if len(data) < _HEAD.size + _CRC_SIZE or data[:4] != _MAGIC:
        raise CorruptIdentityError(path, 0, f"{len(data)} bytes without the magic")
    _, size = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + size + _CRC_SIZE:
        raise CorruptIdentityError(path, 4, f"{len(data)} bytes with a body of {size}")
    if crc32(data[:-_CRC_SIZE]) != int.from_bytes(data[-_CRC_SIZE:], "big"):
        raise CorruptIdentityError(path, len(data) - _CRC_SIZE, "CRC32 does not match")
    try:
        version, group, node, store_id, born, roster = msgpack.unpackb(
            data[_HEAD.size : -_CRC_SIZE], raw=False
        )
        identity = StoreIdentity(
            group=str(group),
            node=NodeId(str(node)),
            store_id=str(store_id),
            born=born is True,
            roster=bytes(roster),
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptIdentityError(path, _HEAD.size, f"{type(error).__name__}: {error}") from error
    if version != _VERSION:
        raise CorruptIdentityError(path, _HEAD.size, f"version {version!r:.20} is unknown")
    return identity
