"""ConsumeQueues of a store, and their recovery after the state was restored.

Place in the data path: `broker.queues.state_machine` appends to them and restores them; pulls and
queries find their queue here.

After a restart the files are adopted as they are: none of ten million units is written again. If
files are missing (somebody deleted them, or another node's snapshot was installed here), the queue
appears empty, and `fill` rebuilds it from the entries of the log that the state already contains;
`end_filling` ends that.

Invariants: a queue never shows units that it doesn't have; once settled, a queue ends where the
state's does; all queues together hold at most `files_max` files open. The beginning of each queue
is stored in `consumequeue.begins` (docs/FORMATS.md section 5), so that a file deleted by retention
is distinguished from a missing one; losing that file costs a rebuild, no more.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from isal.isal_zlib import crc32

from broker.entry.payload import UNIT_SIZE, Run
from broker.queues.consume_queue import NO_ROOM, ConsumeQueue
from broker.queues.derived_files import FILES_MAX, DerivedFiles

__all__ = ["ConsumeQueues"]

_log = logging.getLogger(__name__)
_BEGINS_VERSION = 1


class ConsumeQueues:
    """ConsumeQueues of one store; each open file costs two descriptors, one for its map."""

    def __init__(self, directory: Path, *, files_max: int = FILES_MAX) -> None:
        self._directory = directory
        self._begins_path = directory.with_name(f"{directory.name}.begins")
        self._files = DerivedFiles(files_max)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._by_topic: dict[str, list[ConsumeQueue]] = {}
        self._ends: dict[tuple[str, int], int] = {}  # of queues that are being filled
        self._floors: dict[tuple[str, int], int] = {}  # as of the last restore
        self._are_begins_noted = True  # False: deletions have changed some
        self.wants_sync = False  # some were filled, and have no checks yet

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, empty if it was never written."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = ConsumeQueue(self._directory / topic / str(queue_id), self._files)
            self._queues[key] = queue
            self._by_topic.setdefault(topic, []).append(queue)
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue if it was ever written to, or None."""
        return self._queues.get((topic, queue_id))

    def items(self) -> list[tuple[str, int, ConsumeQueue]]:
        return [(topic, queue_id, queue) for (topic, queue_id), queue in self._queues.items()]

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def write_held(self) -> None:
        """Write units that wait for room on the disk, as far as there is room. Raises OSError."""
        for queue in list(self._files.held):
            if not queue.write_held():
                return

    # After a restore ---------------------------------------------------------------------------

    @property
    def is_filling(self) -> bool:
        """Whether some queues lack units that the log may still have."""
        return bool(self._ends)

    def restore(
        self,
        next_offsets: Mapping[tuple[str, int], int],
        floors: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Make every queue end at its offset in `next_offsets`, and not begin below its floor.

        Raises OSError.
        """
        begins = self._read_begins()
        self._ends.clear()
        self._floors = dict(floors or {})
        for key, queue in self._queues.items():
            if key not in next_offsets:
                queue.begin_at(0)
        for key, end in next_offsets.items():
            queue = self.get(*key)
            begin = max(begins.get(key, 0), self._floors.get(key, 0))
            if not queue.adopt(min(begin, end), end):
                queue.begin_at(end)
                self._ends[key] = end

    def fill(self, run: Run) -> bool:
        """Add the units of a run, which the restored state contains, to a queue that lacks them.

        True if something was added. Raises OSError.
        """
        key = (run.topic, run.queue_id)
        end = self._ends.get(key)
        if end is None or run.first_queue_offset < self._floors.get(key, 0):
            return False  # deletions stand between entries: no run lies on both sides of a floor
        queue = self.get(*key)
        assert run.first_queue_offset + run.count <= end, f"{key}: a run beyond the state's {end}"
        if queue.min_offset == end or run.first_queue_offset > queue.next_offset:
            # The first one in the log, or the log lost what is between.
            queue.begin_at(run.first_queue_offset)
        known = queue.next_offset - run.first_queue_offset
        if known >= run.count:
            return False
        queue.append(queue.next_offset, run.units[known * UNIT_SIZE :])
        return True

    def end_filling(self) -> None:
        """End the filling: the log has no more units, and queues end where the state's do.

        Until they are synced, the next start trusts what a power failure has left of them.
        """
        self.wants_sync = self.wants_sync or bool(self._ends)
        for key, end in self._ends.items():
            queue = self.get(*key)
            if queue.next_offset != end:
                queue.begin_at(end)
        self._ends.clear()
        self._write_begins()

    def trim(self, position: int) -> None:
        """Drop units of records below `position`, where the log begins. Raises OSError."""
        crossed = [queue for queue in self._queues.values() if queue.trim(position)]
        self._write_begins()
        for queue in crossed:
            queue.drop_files()

    def delete_topics(self, topics: Collection[str]) -> None:
        """Empty the topics' queues, which continue at their ends; delete files. Raises OSError.

        Caller's duty: `note_begins`, once for deletions that follow each other.
        """
        for topic in sorted(topics):
            for queue in self._by_topic.get(topic, ()):
                queue.begin_at(queue.next_offset)
                self._are_begins_noted = False

    def note_begins(self) -> None:
        """Note where queues begin if deletions have changed that. Raises OSError.

        Before anything is appended: a start from a state before a deletion would take a file that
        begins with units behind it for one that has those before it, too.
        """
        if not self._are_begins_noted:
            self._write_begins()

    def sync(self) -> None:
        """Make durable what was appended before this call. Thread-safe. Raises OSError."""
        self._files.sync(self._directory)

    # Where queues begin ------------------------------------------------------------------------

    def _read_begins(self) -> dict[tuple[str, int], int]:
        """Return the beginnings in the file, none if it is unreadable; other queues begin at 0."""
        try:
            values = json.loads(self._begins_path.read_bytes())
            begins = json.dumps(values["begins"])
            if values["version"] != _BEGINS_VERSION or values["crc32"] != _crc32(begins):
                return {}
            return {
                (str(topic), int(queue_id)): int(begin)
                for topic, queue_id, begin in values["begins"]
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _write_begins(self) -> None:
        """Replace the file atomically, without fsync: losing it costs a rebuild.

        So does a full disk, which must not stop the retention that makes room. The beginning of a
        queue that is still being filled is not known: its units may be in the log, and a restart
        in the middle of it must search for them again.
        """
        self._are_begins_noted = True
        begins = json.dumps(
            [
                (topic, queue_id, queue.min_offset)
                for (topic, queue_id), queue in self._queues.items()
                if queue.min_offset and (topic, queue_id) not in self._ends
            ]
        )
        note = f'{{"version": {_BEGINS_VERSION}, "begins": {begins}, "crc32": {_crc32(begins)}}}\n'
        temporary = self._begins_path.with_suffix(".tmp")
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(note)
            temporary.replace(self._begins_path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warning(
                "%s is not written, the disk is full: a restart may take longer", temporary
            )


def _crc32(begins: str) -> int:
    """Return a checksum of their JSON: a damaged beginning that is too high would hide messages."""
    return crc32(begins.encode())
