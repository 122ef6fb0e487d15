"""Delays of messages as their properties tell them: usual ones, none, and several at once.

Place in the data path: the part `timers` draws them here. Pure, but for the clock that times are
told by.

Source: RocketMQ DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS; ScheduleMessageService
and TimerMessageStore (which of several counts).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.workload.messages import wall_ms
from remoting.records.property_names import PropertyName

__all__ = ["LEVELS_S", "Delay", "OddDelays"]

LEVELS_S: Final = (1, 5, 10, 30)
NO_LEVEL: Final = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A message's delay as its properties tell it, and the seconds from its send to its time."""

    properties: Mapping[str, str]
    seconds: float

    @property
    def time(self) -> int | None:
        """Return the time given, in Unix milliseconds; None where a delay counts."""
        named = [name for name in self.properties if self.properties[name] != NO_LEVEL]
        return int(self.properties[named[0]]) if named == [PropertyName.TIMER_DELIVER_MS] else None

    @property
    def has_level(self) -> bool:
        return list(self.properties) == [PropertyName.DELAY] and self.seconds > 0


class OddDelays:
    """What delays nothing, or several delays, of which the first in RocketMQ's order counts: the
    level, seconds, milliseconds, the time. A level of 0 is none. In a random order, each once
    before one comes again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left: list[int] = []

    def next(self) -> Delay:
        """Return the next one, as of now."""
        delays = _odd_delays(self._rng)
        if not self._left:
            self._left = self._rng.sample(range(len(delays)), len(delays))
        properties, seconds = delays[self._left.pop()]
        return Delay(properties=properties, seconds=seconds)


def _odd_delays(rng: random.Random) -> tuple[tuple[Mapping[str, str], float], ...]:
    past = str(wall_ms() - rng.choice((0, 1, 1_000, 86_400_000)))
    soon, later = str(wall_ms() + 20), str(wall_ms() + 900)
    return (
        ({PropertyName.DELAY: NO_LEVEL}, 0.0),
        ({PropertyName.TIMER_DELAY_MS: rng.choice(("0", "-500"))}, 0.0),
        ({PropertyName.TIMER_DELAY_SEC: "0"}, 0.0),
        ({PropertyName.TIMER_DELIVER_MS: past}, 0.0),
        ({PropertyName.DELAY: "1", PropertyName.TIMER_DELAY_MS: "20"}, LEVELS_S[0]),
        ({PropertyName.DELAY: "1", PropertyName.TIMER_DELIVER_MS: soon}, LEVELS_S[0]),
        ({PropertyName.TIMER_DELAY_SEC: "1", PropertyName.TIMER_DELAY_MS: "20"}, 1.0),
        ({PropertyName.TIMER_DELAY_SEC: "1", PropertyName.TIMER_DELIVER_MS: soon}, 1.0),
        ({PropertyName.TIMER_DELAY_MS: "900", PropertyName.TIMER_DELIVER_MS: soon}, 0.9),
        ({PropertyName.DELAY: NO_LEVEL, PropertyName.TIMER_DELAY_MS: "900"}, 0.9),
        ({PropertyName.DELAY: NO_LEVEL, PropertyName.TIMER_DELAY_SEC: "1"}, 1.0),
        ({PropertyName.DELAY: NO_LEVEL, PropertyName.TIMER_DELIVER_MS: later}, 0.9),
    )
