"""A made-up run for measuring the verifier, one stretch of time after another.

Place in the data path: `benchmarks.scale.tables` requests stretch after stretch and writes each.

One group of three replicas, one topic of eight queues. A stretch has one leader. Producers send
alone and in batches of four, some get no answer and try again; a quarter of the messages are
transactions: committed, rolled back, decided only when the broker checks back, given up. A pull
group polls sixteen at a time, a push group is given each message and refuses a few; both store
offsets. Between stretches another node becomes leader; one of every four leaders was killed, with
an entry that no other node has. In the end every queue is read from its first message on.

Invariants: stretches do not overlap in time, and whatever begins in a stretch ends in it; memory is
bounded by one stretch, and a few bytes for each message before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.scale.consumers import Consumers
from benchmarks.scale.producers import Produced, Producers
from benchmarks.scale.record import (
    HALF,
    MS,
    NULL,
    QUEUES,
    US,
    Columns,
    F,
    Group,
    Kind,
    Numbers,
    Record,
    Shown,
    committed_at,
    ranges,
)
from benchmarks.scale.traces import Traces

__all__ = ["Stretch", "Timeline"]

_READING: Final = (F.POLL, F.FETCH_OFFSET, F.MAX_OFFSET)
_DRAINED_AT_A_TIME: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The tables of one stretch. `ops` refer to `refs` by index; `rows` are those of the log,
    `traces` the events by node. `message` are those in refs and rows, `is_tx` marks transactions.
    """

    ops: dict[str, Numbers]
    refs: dict[str, Numbers]
    rows: dict[str, Numbers]
    traces: Sequence[dict[str, Numbers]]
    faults: dict[str, Numbers]
    message: Numbers
    is_tx: Numbers


class Timeline:
    """The run so far."""

    def __init__(self, seed: int, *, skewed: bool, lost: int | None) -> None:
        self.ends = np.zeros(QUEUES + 4, np.int64)  # of each queue, the next offset
        self.load_from = 0
        self.now = 0
        self._producers = Producers(seed, skewed=skewed, lost=lost)
        self._consumers = Consumers(seed)
        self._traces = Traces()
        self._messages = 0
        self._stretches = 0
        self._shown: list[tuple[Numbers, ...]] = []  # message, queue, offset, is_tx
        self._position = 0

    @property
    def lost_message(self) -> int | None:
        lost = self._producers.lost_message
        return None if lost == NULL else lost

    def stretch(self, count: int) -> Stretch:
        """Produce `count` more messages, and all that happens to them before the next leader."""
        record, traces = Record(), self._traces
        killed = self._stretches % 4 == 2
        faults = self._kill() if killed else {}
        began = traces.lead(self.now, self._stretches % 3, killed=killed)
        record.entry(np.array([began]), kind=Kind.NOOP)
        if not self._stretches:
            traces.configure(began)
            record.entry(np.array([began + US]), kind=Kind.CONFIG)
        now = began + 3 * MS
        self.load_from = self.load_from or now
        now = self._consumers.assign(record, now)
        first = self._messages
        is_tx, produced, now = self._producers.produce(record, first, count, now)
        shown, offset = self._stored(first, count, produced)
        now = max(
            now + 120 * MS,
            self._consumers.pull(record, shown, traces.leader) + 5 * MS,
            self._consumers.push(record, shown) + 5 * MS,
        )
        done = np.array([now])
        halves = self.ends[HALF] + int(is_tx.sum())
        record.entry(done, kind=Kind.OFFSET, queue=HALF, group=Group.HALVES, told_offset=halves)
        ends = self.ends[:QUEUES] + np.bincount(produced[1], minlength=QUEUES)
        now = self._consumers.query(record, shown, ends, now + 3 * MS)
        rows = self._appended(record)
        ops = record.ops.whole("t_invoke")
        traces.reads(ops["t_invoke"][np.isin(ops["f"], _READING)])
        traces.state(now)
        ops["offset"] = np.where(
            ops["f"] == F.HALF, self._half_offsets(rows, first, count, ops["tx"]), ops["offset"]
        )
        refs = record.refs.whole()
        has_offset = refs["told"] == 1
        refs["offset"] = np.full(len(has_offset), NULL)
        refs["offset"][has_offset] = offset[refs["message"][has_offset] - first]
        self._shown.append((shown.message, shown.queue, shown.offset, is_tx[shown.message - first]))
        self._messages += count
        self._stretches += 1
        self.now = now + 30 * MS
        return Stretch(
            ops=ops,
            refs=refs,
            rows=rows,
            traces=traces.events(),
            faults=faults,
            message=first + np.arange(count),
            is_tx=is_tx,
        )

    @staticmethod
    def _half_offsets(rows: dict[str, Numbers], first: int, count: int, tx: Numbers) -> Numbers:
        """Return the queue offset of each transaction's half."""
        offset = np.full(count, NULL)
        halves = rows["kind"] == Kind.HALF
        offset[rows["message"][halves] - first] = rows["offset"][halves]
        return offset[np.where(tx == NULL, 0, tx - first)]

    def drains(self) -> Iterator[Stretch]:
        """Read every queue to its end, each by a process of its own."""
        message, queue, offset, is_tx = (
            np.concatenate(column) for column in zip(*self._shown, strict=True)
        )
        order = np.argsort(queue, kind="stable")
        for one in range(QUEUES):
            whole = order[queue[order] == one]
            for start in range(0, len(whole), _DRAINED_AT_A_TIME):
                part = whole[start : start + _DRAINED_AT_A_TIME]
                record = Record()
                shown = Shown(
                    message=message[part],
                    queue=queue[part],
                    offset=offset[part],
                    t=np.zeros(0, np.int64),
                )
                self.now = self._consumers.drain(record, shown, self.now)
                yield Stretch(
                    ops=record.ops.whole("t_invoke"),
                    refs=record.refs.whole() | {"offset": shown.offset},
                    rows={},
                    traces=(),
                    faults={},
                    message=shown.message,
                    is_tx=is_tx[part],
                )

    def _kill(self) -> dict[str, Numbers]:
        faults = Columns("target t_start t_effect t_heal t_healed")
        faults.add(
            1,
            target=self._traces.leader,
            t_start=self.now + 22 * US,
            t_effect=self.now + 30 * US,
            t_heal=self.now + 40 * US,
            t_healed=self.now + 60 * US,
        )
        return faults.whole()

    def _stored(self, first: int, count: int, produced: Produced) -> tuple[Shown, Numbers]:
        """Return the messages that readers can get, and the offset of each message that has one."""
        message, queue, t = produced
        order = np.lexsort((message, t, queue))  # the order of the log
        message, queue, t = message[order], queue[order], committed_at(t[order])
        place = ranges(self.ends[:QUEUES], np.bincount(queue, minlength=QUEUES))
        offset = np.full(count, NULL)
        offset[message - first] = place
        there = message != self._producers.lost_message
        shown = Shown(message=message[there], queue=queue[there], offset=place[there], t=t[there])
        return shown, offset

    def _appended(self, record: Record) -> dict[str, Numbers]:
        """Return all rows in the log's order, with entries, queue offsets and positions."""
        rows = record.rows.whole("t", "message", "slot")
        begins = rows["slot"] == 0
        entry = np.cumsum(begins) - 1
        for name, column in self._traces.entries(rows["t"][begins]).items():
            rows[name] = column[entry]
        queue = np.where(rows["kind"] == Kind.OFFSET, NULL, rows["queue"])
        stored = np.flatnonzero(queue != NULL)
        order = stored[np.argsort(queue[stored], kind="stable")]
        counts = np.bincount(queue[stored], minlength=len(self.ends))
        rows["offset"] = rows["told_offset"]
        rows["offset"][order] = ranges(self.ends, counts)
        self.ends = self.ends + counts
        # A lost message has taken its offset in the queue, and is missing there.
        lost = rows["kind"] == Kind.COMMAND
        for name in ("queue", "message", "offset"):
            rows[name] = np.where(lost, NULL, rows[name])
        queue = np.where(lost, NULL, queue)
        size = np.where(queue == NULL, 0, 180 + (rows["message"] % 7) * 16)
        ends = np.cumsum(size + 52 * begins)
        rows["position"] = self._position + ends - size
        rows["size"] = size
        self._position += int(ends[-1]) if len(ends) else 0
        return rows
