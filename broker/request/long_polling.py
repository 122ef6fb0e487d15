"""Long polling: pulls that are held until a message arrives.

Place in the data path: `broker.pull.pull` holds a pull that found nothing;
`broker.queues.state_machine` notifies of arrivals; the held pull is run once more and then answered
whatever it finds. Pure: time is an argument.

Invariants: per queue, pulls are woken in the order in which they came; each held pull is run again
exactly once; their number is bounded, and what they keep of the filters that they brought; the one
too many is not held (nor one that is too large: `Request.shrink`).
Source: RocketMQ PullRequestHoldService.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.entry.payload import UNIT, Run

__all__ = ["HELD_SIZE_MAX", "HeldPull", "LongPolling"]

HELD_SIZE_MAX: Final = 256 << 20
"""Bytes, estimated, that all held pulls may keep of what they brought, and all held pops."""


@dataclass(slots=True, kw_only=True)
class HeldPull:
    """Pull that waits at `offset` of a queue until `deadline_ms`."""

    offset: int
    codes: frozenset[int] | None  # the tags codes that wake it; None: any message does
    deadline_ms: int
    run_again: Callable[[], None]
    size: int = 0  # bytes that it keeps of what it brought


class LongPolling:
    def __init__(self, *, held_max: int, size_max: int = HELD_SIZE_MAX) -> None:
        self._held_max = held_max
        self._size_max = size_max
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._count = 0
        self._size = 0
        self._is_open = True

    def __len__(self) -> int:
        return self._count

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Hold a pull; False if too many are held, or the broker stops: answer it now."""
        if not self._is_open or self._count >= self._held_max:
            return False
        if self._size + pull.size > self._size_max:
            return False
        self._held.setdefault((topic, queue_id), []).append(pull)
        self._count += 1
        self._size += pull.size
        return True

    def on_arrival(self, run: Run) -> None:
        """Wake the pulls for which a committed message of `run` is new and may match."""
        key = (run.topic, run.queue_id)
        waiting = self._held.get(key)
        if not waiting:
            return
        end = run.first_queue_offset + run.count
        codes: set[int] | None = None
        held: list[HeldPull] = []
        due: list[HeldPull] = []
        for pull in waiting:
            if pull.codes is not None and codes is None:
                codes = {code for _, _, code in UNIT.iter_unpack(run.units)}
            matches = pull.codes is None or not pull.codes.isdisjoint(codes or ())
            (due if pull.offset < end and matches else held).append(pull)
        self._replace(key, held)
        self._run(due)

    def expire(self, now_ms: int) -> None:
        """Wake the pulls whose deadlines have passed."""
        for key, waiting in list(self._held.items()):
            due = [pull for pull in waiting if pull.deadline_ms <= now_ms]
            if due:
                self._replace(key, [pull for pull in waiting if pull.deadline_ms > now_ms])
                self._run(due)

    def release(self, topic: str, queue_id: int) -> None:
        """Wake the pulls of a queue: there is something else than a message to answer."""
        waiting = self._held.get((topic, queue_id))
        if waiting:
            self._replace((topic, queue_id), [])
            self._run(waiting)

    def release_all(self) -> None:
        """Wake all pulls, and hold no more: the broker stops."""
        self._is_open = False
        for key, waiting in list(self._held.items()):
            self._replace(key, [])
            self._run(waiting)

    def _replace(self, key: tuple[str, int], held: list[HeldPull]) -> None:
        self._count -= len(self._held[key]) - len(held)
        if held:
            self._held[key] = held
        else:
            del self._held[key]
        assert self._count >= 0

    def _run(self, pulls: list[HeldPull]) -> None:
        self._size -= sum(pull.size for pull in pulls)
        for pull in pulls:
            pull.run_again()
