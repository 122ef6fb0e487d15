"""The Raft trace: events of this node's log and role, for a verifier to judge (docs/FORMATS.md 6).

Place in the data path: `raft.node.trace_events` records an event when it happens and
`raft.node.core_shell` flushes before anything that depends on it leaves the node, so that after a
kill the trace never knows less than the peers.

Invariants: `seq` rises for ever on a node (the incarnation stands in its upper bits); a file is one
incarnation; a map cut short by a kill is the last of its file. The trace is written, not fsynced:
it is evidence, nothing is recovered from it. So a full disk does not stop the node: events without
room are held, within a bound, until there is some; a kill meanwhile loses them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgpack

from raft.log.segment_files import NO_ROOM

__all__ = ["RaftTrace", "last_incarnation"]

_SEQ_BITS = 40  # 10^12 events per incarnation
_INCARNATION_DIGITS = 6
_HELD_SIZE_BYTES_MAX = 16 << 20


def last_incarnation(directory: Path) -> int:
    """Return the highest incarnation that has a file there; 0 if none has."""
    if not directory.is_dir():
        return 0
    return max((int(p.name) for p in directory.iterdir() if p.name.isdecimal()), default=0)


class RaftTrace:
    """Writes the trace of one incarnation into `directory`. Raises OSError where it can't."""

    def __init__(self, directory: Path, incarnation: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{incarnation:0{_INCARNATION_DIGITS}d}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._incarnation = incarnation
        self._seq = incarnation << _SEQ_BITS
        self._packer = msgpack.Packer(autoreset=False)
        self._held = b""  # events that found no room
        self._dirty = False

    def record(
        self,
        event: str,
        term: int,
        **fields: int | str | list[str] | None,
    ) -> None:
        """Record one event of the run format's table `raft`, as of now."""
        self._seq += 1
        fields["incarnation"] = self._incarnation
        fields["seq"] = self._seq
        fields["t"] = time.monotonic_ns()
        fields["event"] = event
        fields["term"] = term
        self._packer.pack(fields)
        self._dirty = True

    def flush(self) -> None:
        """Write everything recorded to the operating system, or hold it while there is no room.

        Raises OSError, that of a full disk once more than a bound is held.
        """
        if not self._dirty:
            return
        data = memoryview(self._held + self._packer.bytes() if self._held else self._packer.bytes())
        self._packer.reset()
        self._dirty = False
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            if error.errno not in NO_ROOM or len(data) > _HELD_SIZE_BYTES_MAX:
                raise
        self._held = bytes(data)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
