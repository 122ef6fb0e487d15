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

__all__ = ["LEVELS_S", "Delay", "odd_delay"]

LEVELS_S: Final = (1, 5, 10, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A message's delay as its properties tell it, and the seconds from its send to its time."""

    properties: Mapping[str, str]
    seconds: float

    @property
    def time(self) -> int | None:
        """Return the time told, in Unix milliseconds; None where a delay counts."""
        told = list(self.properties)
        return int(self.properties[told[0]]) if told == [PropertyName.TIMER_DELIVER_MS] else None

    @property
    def has_level(self) -> bool:
        return list(self.properties) == [PropertyName.DELAY] and self.seconds > 0


def odd_delay(rng: random.Random) -> Delay:
    """Draw what delays nothing, or several delays, of which the first in RocketMQ's order counts:
    the level, seconds, milliseconds, the time."""
    past = str(wall_ms() - rng.choice((0, 1, 1_000, 86_400_000)))
    nothing: tuple[Mapping[str, str], ...] = (
        {PropertyName.DELAY: "0"},
        {PropertyName.TIMER_DELAY_MS: "0"},
        {PropertyName.TIMER_DELAY_MS: "-500"},
        {PropertyName.TIMER_DELAY_SEC: "0"},
        {PropertyName.TIMER_DELIVER_MS: past},
    )
    if rng.random() < 0.5:
        return Delay(properties=rng.choice(nothing), seconds=0.0)
    soon = str(wall_ms() + 20)
    several: tuple[tuple[Mapping[str, str], float], ...] = (
        ({PropertyName.DELAY: "1", PropertyName.TIMER_DELAY_MS: "20"}, LEVELS_S[0]),
        ({PropertyName.DELAY: "1", PropertyName.TIMER_DELIVER_MS: soon}, LEVELS_S[0]),
        ({PropertyName.TIMER_DELAY_SEC: "1", PropertyName.TIMER_DELAY_MS: "20"}, 1.0),
        ({PropertyName.TIMER_DELAY_SEC: "1", PropertyName.TIMER_DELIVER_MS: soon}, 1.0),
        ({PropertyName.TIMER_DELAY_MS: "900", PropertyName.TIMER_DELIVER_MS: soon}, 0.9),
        ({PropertyName.DELAY: "0", PropertyName.TIMER_DELAY_MS: "900"}, 0.9),
    )
    properties, seconds = rng.choice(several)
    return Delay(properties=properties, seconds=seconds)
