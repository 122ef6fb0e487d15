"""Term and vote on disk (docs/FORMATS.md section 2).

Place in the data path: the shell names the hard state that a `Ready` wants saved, a round of
`raft.node.group_commit` saves it before any message that depends on it leaves, and
`raft.log.segment_log` requires its term before it claims that an entry of that term is durable.

Two files hold the same record, `hard_state` and `hard_state.copy`, each of a fixed size that is
overwritten in place: a vote never needs a block of a full disk, and where one file is torn, rotten
or lost the other one is read.

**Hard state before log.** An entry counts as durable (it is below the log's durable mark, in a
closed segment, acknowledged) only after a hard state of its term, or of a later one, is. So a
durable entry proves its term, and the vote in it, durable; and an entry that a crash left above the
mark, of a term that the hard state lacks, proves that the hard state of that term never was: no
vote in it and no acknowledgement has left, and the term may be entered without a vote. A durable
entry of a term that the hard state lacks means that a hard state was lost, perhaps with a vote: the
store is refused. The log keeps the rule in one place, `SegmentLog._before_claim`, which calls
`require` here.

**Hard state before identity.** A log without entries proves no term, and a vote needs none. So the
first `load` writes both files before the store gets its identity (`raft.store.node_store`), and
long before it is admitted to a group: an admitted store without either of them has lost them,
however its first start ended.

Invariants:
- after `persist` returns, the state is durable in both files. It writes them one after the other,
  so a crash in it leaves one of them whole: the old state or the new one, never a mixture;
- term and vote only ever go forward (within a term from no vote to one), so of two readable files
  the further one was written last. `load` makes both alike and durable before anybody acts on its
  answer;
- the wanted state is noted here before the entries of its term are appended, so `require` finds it;
- after an OSError nothing is saved any more: what is durable is unknown then.

Threads: `want` is called on the loop, `persist` and `require` on any thread.

Source: Raft, figure 2 (persistent state); dissertation 3.8.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQH` |
| 4 | 4 | size of all that follows, without the padding |
| 8 | 8 | current_term |
| 16 | 2 | length n of voted_for (0: none) |
| 18 | n | voted_for, UTF-8 |
| 18+n | 4 | CRC32 of everything before |
| 22+n | 490-n | zeros (none in a store older than the copy) |
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Mapping

from isal.isal_zlib import crc32

from raft.log.durable_record import overwrite, read_durable, read_now, replace
from raft.log.log_format import CorruptLogError
from raft.messages import HardState, NodeId, Term
from raft.storage import Disk

__all__ = [
    "CorruptHardStateError",
    "HardStateFile",
    "decode_hard_state",
    "encode_hard_state",
    "read_hard_state",
]

_MAGIC = b"LMQH"
_HEAD = struct.Struct(">4sIQH")
_HEAD_SIZE = 18
_CRC_SIZE = 4
_NODE_NAME_SIZE_MAX = 255
_FILE_SIZE = 512  # one sector
_NAMES = ("hard_state", "hard_state.copy")

assert _HEAD.size == _HEAD_SIZE
assert _HEAD_SIZE + _NODE_NAME_SIZE_MAX + _CRC_SIZE <= _FILE_SIZE

_NEVER_WRITTEN = HardState(current_term=0, voted_for=None)

_log = logging.getLogger(__name__)


class CorruptHardStateError(CorruptLogError):
    """The files are damaged or lost. Starting anew could vote twice in a term."""


class HardStateFile:
    """The hard state of the store on `disk`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._wanted = _NEVER_WRITTEN
        self._durable = _NEVER_WRITTEN
        self._failure: OSError | None = None

    @property
    def state(self) -> HardState:
        """The durable hard state."""
        return self._durable

    @property
    def durable_term(self) -> Term:
        """Lowest term that a restart can begin in, whatever happens."""
        return self._durable.current_term

    @property
    def is_saved(self) -> bool:
        """Whether the wanted state is durable."""
        return self._wanted == self._durable

    def load(self, *, was_written: bool = False) -> HardState:
        """Return the stored state; term 0 and no vote if none was ever written. Afterwards both
        files are alike, whole and durable.

        `was_written`: a load returned on this store before. Raises OSError, and
        CorruptHardStateError where neither file is readable, or both are missing that were written;
        then nothing is written either, and the next load raises the same.
        """
        contents = {path: read_durable(self._disk, path, _FILE_SIZE + 1) for path in _NAMES}
        state = _furthest(contents, was_written=was_written)
        image = _image(state)
        for path, content in contents.items():
            if content != image:
                self._write(
                    path, image, is_sized=content is not None and len(content) == _FILE_SIZE
                )
        self._wanted = self._durable = state
        return state

    def want(self, state: HardState) -> None:
        """Note the state to save next: by a round, or before an entry of its term counts."""
        assert _progress(state) >= _progress(self._wanted), f"{state} after {self._wanted}"
        self._wanted = state

    def persist(self) -> None:
        """Make the wanted state durable. Raises OSError, and then for every later call; nothing may
        be sent after that."""
        with self._lock:
            if self._failure is not None:
                raise OSError(
                    self._failure.errno, f"the hard state stopped after: {self._failure}"
                ) from self._failure
            state = self._wanted
            if state == self._durable:
                return
            try:
                self._save(state)
            except OSError as error:
                self._failure = error
                raise
            self._durable = state

    def save(self, state: HardState) -> None:
        """Make `state` durable. Raises OSError."""
        self.want(state)
        self.persist()

    def require(self, term: Term) -> None:
        """Make a hard state of `term`, or of a later one, durable.

        Raises OSError.
        """
        if term > self._durable.current_term:
            self.persist()
        assert term <= self._durable.current_term, (
            f"an entry of term {term} was appended before its hard state was wanted"
        )

    def enter(self, term: Term) -> None:
        """Enter a later term at a start: a crash left entries of it, none of which was durable.

        There is no vote in it: a vote leaves the node after the hard state that holds it, and that
        would be durable. Raises OSError.
        """
        assert term > self._wanted.current_term
        self.save(HardState(current_term=term, voted_for=None))

    def _save(self, state: HardState) -> None:
        image = _image(state)
        # One after the other: a crash leaves one whole.
        for path in _NAMES:
            self._write(path, image, is_sized=True)

    def _write(self, path: str, image: bytes, *, is_sized: bool) -> None:
        """Write in place, which needs no room on a full disk; else as a whole new file."""
        if is_sized:
            try:
                overwrite(self._disk, path, image)
            except FileNotFoundError:
                is_sized = False
        if not is_sized:
            replace(self._disk, path, image)


def read_hard_state(disk: Disk, *, was_written: bool) -> HardState:
    """Read a store's files without changing them. Raises as `HardStateFile.load` does."""
    contents = {path: read_now(disk, path, _FILE_SIZE + 1) for path in _NAMES}
    return _furthest(contents, was_written=was_written)


def _furthest(contents: Mapping[str, bytes | None], *, was_written: bool) -> HardState:
    """Return the state written last of the readable files. Raises CorruptHardStateError."""
    found: list[HardState] = []
    defects: list[CorruptHardStateError] = []
    for path, data in contents.items():
        if data is None:
            continue
        try:
            found.append(decode_hard_state(data, path))
        except CorruptHardStateError as defect:
            defects.append(defect)
    if not found:
        if defects:
            raise defects[0]
        if was_written:
            raise CorruptHardStateError(
                next(iter(contents)),
                0,
                "both copies are gone, and perhaps a vote with them: remove this member, empty "
                "its store, and add it again",
            )
        return _NEVER_WRITTEN
    for known in defects:
        _log.info("%s; the other copy is used", known)
    return max(found, key=_progress)


def _progress(state: HardState) -> tuple[Term, bool]:
    return state.current_term, state.voted_for is not None


def _image(state: HardState) -> bytes:
    return encode_hard_state(state).ljust(_FILE_SIZE, b"\0")


def encode_hard_state(state: HardState) -> bytes:
    name = (state.voted_for or "").encode()
    assert len(name) <= _NODE_NAME_SIZE_MAX, "node names are bounded by the configuration"
    size_after = _HEAD_SIZE - 8 + len(name) + _CRC_SIZE
    head = _HEAD.pack(_MAGIC, size_after, state.current_term, len(name)) + name
    return head + crc32(head).to_bytes(_CRC_SIZE, "big")


def decode_hard_state(data: bytes, path: str = "hard_state") -> HardState:
    """Decode the record. Raises CorruptHardStateError with the reason."""
    if len(data) < _HEAD_SIZE + _CRC_SIZE:
        raise CorruptHardStateError(path, 0, f"{len(data)} bytes are too few")
    magic, size_after, current_term, name_size = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptHardStateError(path, 0, f"magic {magic.hex()} is not {_MAGIC.hex()}")
    size = 8 + size_after
    if len(data) < size or len(data) > _FILE_SIZE or any(data[size:]):
        raise CorruptHardStateError(path, 4, f"{len(data)} bytes, not {size} and zeros")
    data = data[:size]
    if len(data) != _HEAD_SIZE + name_size + _CRC_SIZE:
        raise CorruptHardStateError(path, 16, f"voted_for of {name_size} bytes does not fit")
    crc = int.from_bytes(data[-_CRC_SIZE:], "big")
    if crc != crc32(data[:-_CRC_SIZE]):
        raise CorruptHardStateError(path, len(data) - _CRC_SIZE, "CRC32 does not match")
    try:
        name = data[_HEAD_SIZE:-_CRC_SIZE].decode()
    except UnicodeDecodeError as error:
        raise CorruptHardStateError(path, _HEAD_SIZE, "voted_for is not UTF-8") from error
    return HardState(current_term=current_term, voted_for=NodeId(name) if name else None)
