"""The identity of a store: which store it is, and whether it may take part in its group.

Place in the data path: `raft.node_store` loads it before anything else of the store, `raft.node`
saves it anew when the store is born (`raft.formation`).

Invariants: a store keeps its `store_id` for ever, and is born at most once; both are durable, file
and directory, before anything that depends on them leaves the node. A store that was used before
there were identities is born with the first one it gets.

File `identity` (docs/FORMATS.md section 2), replaced as the hard state is:

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQI` |
| 4 | 4 | size N of the body |
| 8 | N | msgpack [version, group, node, store_id, born, roster] |
| 8+N | 4 | CRC32 of everything before |

`roster` is the configuration that the store was born with, in the encoding of a CONFIG entry;
empty where it is unborn, and where it is older than identities.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

import msgpack

from raft.durable_record import read_durable, read_now, replace
from raft.log_format import CorruptLogError
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


class CorruptIdentityError(CorruptLogError):
    """The file is there but is no identity. Starting as a new store could vote twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """`store_id`: 32 hex digits, random, made with the store."""

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

    PATH = "identity"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def load(self) -> StoreIdentity | None:
        """None where there is none, durable otherwise. Raises OSError and CorruptIdentityError."""
        data = read_durable(self._disk, self.PATH, _FILE_SIZE_MAX)
        return None if data is None else _decode(data, self.PATH)

    def peek(self) -> StoreIdentity | None:
        """As `load`, only to be looked at: perhaps while its node is running."""
        data = read_now(self._disk, self.PATH, _FILE_SIZE_MAX)
        return None if data is None else _decode(data, self.PATH)

    def save(self, identity: StoreIdentity) -> None:
        """Durable when this returns. Raises OSError."""
        replace(self._disk, self.PATH, _encode(identity))


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
    return data + zlib.crc32(data).to_bytes(_CRC_SIZE, "big")


def _decode(data: bytes, path: str) -> StoreIdentity:
    if len(data) < _HEAD.size + _CRC_SIZE or data[:4] != _MAGIC:
        raise CorruptIdentityError(path, 0, f"{len(data)} bytes without the magic")
    _, size = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + size + _CRC_SIZE:
        raise CorruptIdentityError(path, 4, f"{len(data)} bytes with a body of {size}")
    if zlib.crc32(data[:-_CRC_SIZE]) != int.from_bytes(data[-_CRC_SIZE:], "big"):
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
