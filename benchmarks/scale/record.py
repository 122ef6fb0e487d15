"""What happens in a run, as columns of numbers: operations, their messages, and log entries.

Place in the data path: producers and consumers of `benchmarks.scale` write what they do into a
`Record`; `benchmarks.scale.tables` makes Arrow tables of it.

Invariants: a column has one number per row, `NULL` if the row has no value; rows with equal times
keep the order in which they were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "DISCARDED",
    "HALF",
    "MS",
    "NULL",
    "OP",
    "QUEUES",
    "RETRY",
    "ROUND_NS",
    "US",
    "Columns",
    "Decision",
    "F",
    "Group",
    "Kind",
    "Numbers",
    "Record",
    "Shown",
    "Type",
    "Who",
    "committed_at",
    "counted",
    "mixed",
    "parts",
    "ranges",
]

Numbers: TypeAlias = npt.NDArray[np.int64]

NULL: Final = int(np.iinfo(np.int64).min)
US: Final = 1_000
MS: Final = 1_000_000
ROUND_NS: Final = 250 * US
"""The length of a round: what the leader appends in one is made durable and committed together."""

QUEUES: Final = 8
HALF, OP, RETRY, DISCARDED = range(QUEUES, QUEUES + 4)
"""Queue numbers: those of the users' topic first, then one for each of the broker's topics."""

F = IntEnum(
    "F",
    "SEND HALF LOCAL DECIDE CHECK POLL DELIVER COMMIT_OFFSET FETCH_OFFSET MAX_OFFSET ASSIGN QUERY",
    start=0,
)
Type = IntEnum("Type", "OK FAIL INFO", start=0)
Decision = IntEnum("Decision", "COMMIT ROLLBACK UNKNOWN", start=0)
Kind = IntEnum("Kind", "MESSAGE HALF OP FINAL OFFSET CONFIG NOOP COMMAND", start=0)
Group = IntEnum("Group", "PRODUCERS PULL PUSH DRAIN TOOLS HALVES", start=0)
Who = IntEnum("Who", "PRODUCER CHECKED PULLER PUSHED KEEPER DRAINER ASKER", start=0)
"""The role of a process. It and two numbers identify a process; it and the first one a client."""

_OP: Final = (
    "t_invoke t_complete f type group who number second queue offset refs first_ref key tx "
    "decision final node on_group"
)
_REF: Final = "message queue told reconsume"
_ROW: Final = "t slot kind queue message decision group told_offset"


class Columns:
    """Rows of integer columns, added in pieces."""

    def __init__(self, names: str) -> None:
        self.names = tuple(names.split())
        self.count = 0
        self._pieces: list[dict[str, Numbers]] = []

    def add(self, count: int, **columns: Numbers | int) -> int:
        """Add `count` rows; return the index of the first. A single number stands for all rows; a
        column that is not named is NULL."""
        assert set(columns) <= set(self.names), set(columns) - set(self.names)
        if count:
            self._pieces.append(
                {
                    name: np.broadcast_to(np.asarray(columns.get(name, NULL), np.int64), (count,))
                    for name in self.names
                }
            )
        self.count += count
        return self.count - count

    def whole(self, *by: str) -> dict[str, Numbers]:
        """Return all rows, sorted by the columns `by`, from left to right."""
        columns = {
            name: np.concatenate([piece[name] for piece in self._pieces])
            if self._pieces
            else np.empty(0, np.int64)
            for name in self.names
        }
        if not by:
            return columns
        order = np.lexsort([columns[name] for name in reversed(by)])
        return {name: column[order] for name, column in columns.items()}


class Record:
    """One stretch of time. A `ref` is a message that an operation sent or was shown; `rows` are
    those of the log, of which one with slot 0 begins an entry."""

    def __init__(self) -> None:
        self.ops = Columns(_OP)
        self.refs = Columns(_REF)
        self.rows = Columns(_ROW)

    def op(self, f: F, t: Numbers, done: Numbers, **columns: Numbers | int) -> None:
        """Add operations; by default they are ok, not final, and go to the broker group."""
        fields = {"type": Type.OK, "final": 0, "on_group": 1} | columns
        self.ops.add(len(t), f=f, t_invoke=t, t_complete=done, **fields)

    def refer(
        self,
        message: Numbers,
        queue: Numbers | int,
        *,
        has_offset: Numbers | int,
        reconsume: int = 0,
    ) -> Numbers:
        """Add refs to messages; return their indexes. `has_offset`: 1 if the offset is known."""
        columns = {"queue": queue, "told": has_offset, "reconsume": reconsume}
        first = self.refs.add(len(message), message=message, **columns)
        return first + np.arange(len(message))

    def entry(self, t: Numbers, slot: Numbers | int = 0, **columns: Numbers | int) -> None:
        """Add rows of entries that the leader appends at `t`."""
        self.rows.add(len(t), t=t, slot=slot, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Messages that readers can get, by queue and offset; `t` is the time of the commit."""

    message: Numbers
    queue: Numbers
    offset: Numbers
    t: Numbers


def committed_at(t: Numbers) -> Numbers:
    """Return the time at which the leader commits what it appended at `t`."""
    return (t // ROUND_NS + 1) * ROUND_NS + 400 * US


def ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """Return the numbers of each range [start, start + count), one range after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def parts(queue: Numbers, size_max: int) -> tuple[Numbers, Numbers]:
    """Cut rows that are sorted by queue into parts of one queue; return their starts and sizes."""
    counts = np.bincount(queue, minlength=QUEUES)
    number = -(-counts // size_max)
    first = np.repeat(np.cumsum(counts) - counts, number) + size_max * ranges(
        np.zeros(len(counts), np.int64), number
    )
    return first, np.diff(np.append(first, len(queue)))


def counted(lane: Numbers, marked: npt.NDArray[np.bool_]) -> Numbers:
    """Return for each row how many marked rows of its lane precede it."""
    order = np.argsort(lane, kind="stable")
    lanes, marks = lane[order], marked[order].astype(np.int64)
    before = np.cumsum(marks) - marks
    is_first = np.append(True, lanes[1:] != lanes[:-1])[: len(lanes)]
    base = np.maximum.accumulate(np.where(is_first, before, 0))
    result = np.empty_like(before)
    result[order] = before - base
    return result


def mixed(numbers: Numbers) -> Numbers:
    """Return a pseudo-random number for each (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).astype(np.int64)
