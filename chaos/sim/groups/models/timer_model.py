"""Messages that wait for a time of their own, by the committed log (guarantee G5).

Place in the data path: `log_model` hands it what is stored in rmq_sys_wheel_timer and the commands
that take messages out. It does not read the broker's table.

Rules: a message waits from its entry to the one of its delivery or its recall; it is delivered in
that entry, not before its time by the entry's stamp, and once, unless its topic was deleted; a
recalled message is never delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.entry.payload import DeliverTimersCommand, RecallTimerCommand
from chaos.sim.groups.models.stored import Stored, is_users
from chaos.sim.machine.violation import Violation

__all__ = ["TimerModel", "WaitingTimer"]


class WaitingTimer(NamedTuple):
    stored: Stored
    deliver_ms: int


class TimerModel:
    """The timer messages of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._waiting: dict[int, WaitingTimer] = {}  # by queue offset
        self._recalled: set[str] = set()  # values

    @property
    def waiting(self) -> Mapping[int, WaitingTimer]:
        return self._waiting

    def is_recalled(self, value: str) -> bool:
        """Return whether a committed recall has taken the message `value` out."""
        return value in self._recalled

    def on_timer(self, stored: Stored, deliver_ms: int) -> None:
        """Record a message that begins to wait."""
        self._waiting[stored.queue_offset] = WaitingTimer(stored, deliver_ms)

    def on_visible(self, stored: Stored) -> None:
        """Check a message that is stored where consumers read it."""
        if stored.value in self._recalled:
            raise Violation("G5", f"{stored.value} was recalled, and is delivered")

    def deliver(
        self,
        command: DeliverTimersCommand,
        added: Sequence[Stored],
        is_taken: Callable[[Stored], bool],
    ) -> None:
        """Check a delivery; `is_taken`: the message's topic was deleted."""
        there = {one.uniq_key: one for one in added if is_users(one.topic)}
        for offset in command.queue_offsets:
            timer = self._take(offset, "delivered")
            final = there.get(timer.stored.uniq_key)
            if final is None and is_taken(timer.stored):
                continue
            if final is None:
                raise Violation("G5", f"{timer.stored.value} is delivered, and not in the entry")
            if final.store_ms < timer.deliver_ms:
                raise Violation(
                    "G5",
                    f"{timer.stored.value} is delivered {timer.deliver_ms - final.store_ms} ms "
                    "before its time",
                )
            self._counts["timers_delivered"] += 1

    def recall(self, command: RecallTimerCommand) -> None:
        self._recalled.add(self._take(command.queue_offset, "recalled").stored.value)
        self._counts["timers_recalled"] += 1

    def _take(self, offset: int, what: str) -> WaitingTimer:
        timer = self._waiting.pop(offset, None)
        if timer is None:
            raise Violation("G5", f"timer message {offset} is {what}, and does not wait")
        return timer
