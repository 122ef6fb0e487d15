"""Producers: plain sends, batches and transactions, and their failures.

Place in the data path: `benchmarks.scale.timeline` lets them produce in each stretch.

Invariant: times follow from times by fixed delays. A process of a producer does one thing at a
time; after an unknown outcome its successor continues.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.scale.record import (
    DISCARDED,
    HALF,
    MS,
    NULL,
    OP,
    QUEUES,
    US,
    Decision,
    F,
    Group,
    Kind,
    Numbers,
    Record,
    Type,
    Who,
    committed_at,
    counted,
    ranges,
)

__all__ = ["CHECK_MAX", "Produced", "Producers"]

CHECK_MAX: Final = 3
_LANES: Final = 32
_STEP_NS: Final = 250 * US  # between sends of all producers together
_RETRY_NS: Final = 2200 * US
_CHECKED_NS: Final = 20 * MS  # from a half's acknowledgement, or one check-back, to the next

Produced = tuple[Numbers, Numbers, Numbers]
"""The messages that readers can get: message, queue, time of the append."""


class Producers:
    """All producers. `lost`: the first single message from that number on that is acknowledged is
    in no log and in no read."""

    def __init__(self, seed: int, *, skewed: bool, lost: int | None) -> None:
        self.lost_message = NULL
        self._random = np.random.default_rng(seed)
        self._skewed = skewed
        self._lost = lost
        self._lives = np.zeros(_LANES, np.int64)

    def produce(
        self, record: Record, first: int, count: int, now: int
    ) -> tuple[Numbers, Produced, int]:
        """Produce `count` messages from number `first` on, starting at `now`.

        Returns which of them are transactions, the messages that readers can get, and the time of
        the last send.
        """
        roll = self._random
        is_tx = (roll.random(count) < 0.25).astype(np.int64)
        size = np.where((is_tx == 0) & (roll.random(count) < 0.05), 4, 1)
        start = np.cumsum(size) - size
        units = int(np.searchsorted(start, count))
        start, size, is_tx = start[:units], size[:units], is_tx[:units]
        size[-1] = count - start[-1]
        queue = roll.integers(0, QUEUES, units)
        if self._skewed:
            queue = np.where(roll.random(units) < 0.5, 0, queue)
        unit = {
            "message": first + start,
            "size": size,
            "queue": queue,
            "lane": np.arange(units) % _LANES,
            "t": now + np.arange(units) * _STEP_NS + roll.integers(0, _STEP_NS, units),
            "delay": roll.integers(100 * US, 300 * US, units),
        }
        is_tx[size > 1] = 0
        sent = self._send(record, {name: column[is_tx == 0] for name, column in unit.items()})
        final = self._transact(record, {name: column[is_tx == 1] for name, column in unit.items()})
        message, of_queue, t = (np.concatenate(pair) for pair in zip(sent, final, strict=True))
        ended = int(unit["t"][-1]) + _STEP_NS
        return np.repeat(is_tx, size), (message, of_queue, t), ended

    def _send(self, record: Record, unit: dict[str, Numbers]) -> Produced:
        roll, t, size = self._random.random(len(unit["t"])), unit["t"], unit["size"]
        ok, retried = roll < 0.975, (roll >= 0.975) & (roll < 0.985)
        unanswered, unsent = (roll >= 0.985) & (roll < 0.988), (roll >= 0.988) & (roll < 0.99)
        again = roll >= 0.995  # refused and sent again; the rest was refused for good
        if self._lost is not None and self.lost_message == NULL:
            alone = unit["message"][ok & (size == 1) & (unit["message"] >= self._lost)]
            self.lost_message = int(alone[0]) if len(alone) else NULL
        info = retried | unanswered | unsent
        appended = np.where(again, t + _RETRY_NS, t) + unit["delay"]
        lives = self._lives[unit["lane"]] + counted(unit["lane"], info)
        done = np.where(ok, committed_at(appended) + 20 * US, t + 2 * MS)
        done = np.where(unanswered & (unit["lane"] % 2 == 0), NULL, done)
        outcome = np.where(ok, Type.OK, np.where(info, Type.INFO, Type.FAIL))
        _attempt(record, F.SEND, unit, t, done, outcome, lives)
        second = np.flatnonzero(retried | again)
        t_again = t[second] + _RETRY_NS
        answered = np.maximum(committed_at(appended[second]), t_again + 400 * US) + 20 * US
        _attempt(
            record,
            F.SEND,
            {name: column[second] for name, column in unit.items()},
            t_again,
            answered,
            np.zeros_like(t_again),
            lives[second] + retried[second],
        )
        np.add.at(self._lives, unit["lane"][info], 1)
        stored = np.flatnonzero(ok | retried | unanswered | again)
        size = size[stored]
        message = ranges(unit["message"][stored], size)
        queue = np.repeat(unit["queue"][stored], size)
        appended = np.repeat(appended[stored], size)
        is_lost = message == self.lost_message
        record.entry(
            appended,
            np.arange(len(message)) - np.repeat(np.cumsum(size) - size, size),
            kind=np.where(is_lost, Kind.COMMAND, Kind.MESSAGE),
            queue=queue,
            message=message,
        )
        return message, queue, appended

    def _transact(self, record: Record, unit: dict[str, Numbers]) -> Produced:
        """Run transactions: half, local part, decision; without one the broker checks back."""
        message, lane = unit["message"], unit["lane"]
        roll = self._random.random(len(message))
        discarded, crashed = roll < 0.004, (roll >= 0.004) & (roll < 0.012)
        checked = (roll >= 0.012) & (roll < 0.1)
        decides = ~(discarded | crashed)
        decision = np.where((message % 5 == 0) | crashed, Decision.ROLLBACK, Decision.COMMIT)
        stored = unit["t"] + unit["delay"]
        acked = committed_at(stored) + 20 * US
        lives = self._lives[lane]
        _attempt(record, F.HALF, unit, unit["t"], acked, np.zeros_like(acked), lives)
        record.entry(stored, kind=Kind.HALF, queue=HALF, message=message)
        by = {"group": Group.PRODUCERS, "number": lane[decides], "second": lives[decides]}
        by |= {"who": Who.PRODUCER, "tx": message[decides]}
        local = acked[decides] + 50 * US
        outcome = decision[decides]
        record.op(F.LOCAL, local, local + 30 * US, decision=outcome, on_group=0, **by)
        decided = acked + 120 * US
        settled = np.where(decides & ~checked, decided + 200 * US, acked + _CHECKED_NS + 400 * US)
        done = np.where(checked, decided + 300 * US, committed_at(settled) + 20 * US)
        outcome = np.where(checked, Decision.UNKNOWN, decision)[decides]
        record.op(F.DECIDE, decided[decides], done[decides], decision=outcome, **by)
        for number in range(CHECK_MAX):
            some = discarded if number else ~decides | checked
            t = acked[some] + (number + 1) * _CHECKED_NS
            record.op(
                F.CHECK,
                t,
                t + 200 * US,
                group=Group.PRODUCERS,
                who=Who.CHECKED,
                number=lane[some],
                second=number,
                tx=message[some],
                decision=np.where(discarded, Decision.UNKNOWN, decision)[some],
            )
        t = acked[discarded] + CHECK_MAX * _CHECKED_NS + 30 * MS
        record.entry(t, kind=Kind.MESSAGE, queue=DISCARDED, message=message[discarded])
        committed = ~discarded & (decision == Decision.COMMIT)
        rolled_back = ~discarded & (decision == Decision.ROLLBACK)
        final = message[committed], unit["queue"][committed], settled[committed]
        record.entry(final[2], kind=Kind.FINAL, queue=final[1], message=final[0])
        op = {"kind": Kind.OP, "queue": OP}
        record.entry(final[2], 1, message=final[0], decision=Decision.COMMIT, **op)
        t = settled[rolled_back]
        record.entry(t, message=message[rolled_back], decision=Decision.ROLLBACK, **op)
        return final


def _attempt(  # noqa: PLR0917 - columns of one table, in their order
    record: Record,
    f: F,
    unit: dict[str, Numbers],
    t: Numbers,
    done: Numbers,
    outcome: Numbers,
    lives: Numbers,
) -> None:
    """Record a send or half of each unit; the operation of an answered send has the offsets."""
    size = unit["size"]
    has_offset = np.repeat((outcome == Type.OK) & (f is F.SEND), size).astype(np.int64)
    message = ranges(unit["message"], size)
    refs = record.refer(message, np.repeat(unit["queue"], size), has_offset=has_offset)
    record.op(
        f,
        t,
        done,
        type=outcome,
        group=Group.PRODUCERS,
        who=Who.PRODUCER,
        number=unit["lane"],
        second=lives,
        queue=unit["queue"],
        refs=size,
        first_ref=refs[np.cumsum(size) - size],
        tx=unit["message"] if f is F.HALF else NULL,
    )
