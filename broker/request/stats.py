"""Statistics of stored and delivered messages: counters by topic and by group, and totals.

Place in the data path: the leader counts each committed run (`put`) and each answered pull (`got`),
once per batch; the shell calls `sample` once a second; VIEW_BROKER_STATS_DATA, runtime info and
consume stats read. Soft state of one process, from its start on. The time is an argument.

The sum of a counter over the last minute, hour or day is the difference of its oldest and newest
sample; samples are 10 seconds, 10 minutes and an hour apart. Invariant: bounded by `items_max`; an
item without counts for a day is removed, and items beyond, and of names that none can have, are
counted in the totals only. Names and windows are RocketMQ's (BrokerStatsManager, StatsItem,
StoreStatsService).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Snapshot", "Stats", "StatsItem", "Totals"]

_SAMPLE_MINUTE_MS: Final = 10_000
_SAMPLE_HOUR_MS: Final = 600_000
_SAMPLE_DAY_MS: Final = 3_600_000
_DAY_MS: Final = 24 * 3_600_000
_TPS_SECONDS: Final = (10, 60, 600)
_KEY_SIZE_MAX: Final = 512  # characters: a topic and a group, and what is put before their names

Sample = tuple[int, int, int]  # ms, sum, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Snapshot of one window; `tps` is the sum per second, `avgpt` the sum per count."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class StatsItem:
    sum: int = 0
    times: int = 0
    changed_ms: int = 0
    minute: deque[Sample] = field(default_factory=lambda: deque(maxlen=7))
    hour: deque[Sample] = field(default_factory=lambda: deque(maxlen=7))
    day: deque[Sample] = field(default_factory=lambda: deque(maxlen=25))

    def add(self, amount: int, now_ms: int) -> None:
        if not self.minute:  # what it counts first belongs to its first window
            for samples in (self.minute, self.hour, self.day):
                samples.append((now_ms, self.sum, self.times))
        self.sum += amount
        self.times += 1
        self.changed_ms = now_ms

    def snapshot(self, samples: deque[Sample]) -> Snapshot:
        if not samples:
            return Snapshot()
        (first_ms, first_sum, first_times), (last_ms, last_sum, last_times) = (
            samples[0],
            samples[-1],
        )
        amount, times, span_ms = last_sum - first_sum, last_times - first_times, last_ms - first_ms
        return Snapshot(
            sum=amount,
            tps=amount * 1_000 / span_ms if span_ms else 0.0,
            avgpt=amount / times if times else 0.0,
        )


@dataclass(slots=True)
class Totals:
    """Totals of the broker since its start; a morning is midnight of local time."""

    put_count: int = 0
    put_size: int = 0
    get_found: int = 0  # pulls that brought messages
    get_miss: int = 0
    get_count: int = 0  # messages
    put_yesterday_morning: int = 0
    put_today_morning: int = 0
    get_yesterday_morning: int = 0
    get_today_morning: int = 0


class Stats:
    def __init__(self, *, items_max: int = 50_000) -> None:
        self._items_max = items_max
        self._items: dict[tuple[str, str], StatsItem] = {}
        self._seconds: deque[tuple[int, int, int, int, int]] = deque(maxlen=_TPS_SECONDS[-1] + 1)
        self._next_ms = dict.fromkeys(("minute", "hour", "day"), 0)
        self._now_ms = 0
        self._today: tuple[int, int] | None = None
        self.totals = Totals()
        # Of the totals, which are taken over once a second.
        self._broker = {name: StatsItem() for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")}

    # Counting ----------------------------------------------------------------------------------

    def put(self, topic: str, count: int, size: int) -> None:
        """Count a stored run."""
        totals = self.totals
        totals.put_count += count
        totals.put_size += size
        self._add("TOPIC_PUT_NUMS", topic, count)
        self._add("TOPIC_PUT_SIZE", topic, size)

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """Count a pull of the group that was answered with messages."""
        totals = self.totals
        totals.get_found += 1
        totals.get_count += count
        key = f"{topic}@{group}"
        self._add("GROUP_GET_NUMS", key, count)
        self._add("GROUP_GET_SIZE", key, size)

    def missed(self) -> None:
        """Count a pull that was answered without a message."""
        self.totals.get_miss += 1

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer of the group sent back."""
        self._add("SNDBCK_PUT_NUMS", f"{topic}@{group}", 1)

    def timers_delivered(self, count: int) -> None:
        """Count timer messages that were delivered to their real topics."""
        self._add("TIMER_DEQUEUE_NUMS", "rmq_sys_wheel_timer", count)

    def _add(self, name: str, key: str, amount: int) -> None:
        item = self._items.get((name, key))
        if item is None:
            # A pull may name any group, of any length: it is answered, and not counted by name.
            if len(self._items) >= self._items_max or len(key) > _KEY_SIZE_MAX:
                return
            item = self._items[name, key] = StatsItem()
        item.add(amount, self._now_ms)

    # Sampling ----------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Take samples; to be called once a second."""
        self._now_ms = now_ms
        totals = self.totals
        self._seconds.append(
            (now_ms, totals.put_count, totals.get_found, totals.get_miss, totals.get_count)
        )
        for name, total in (
            ("BROKER_PUT_NUMS", totals.put_count),
            ("BROKER_GET_NUMS", totals.get_count),
        ):
            if total > self._broker[name].sum:
                self._broker[name].add(total - self._broker[name].sum, now_ms)
        due: list[str] = []
        for window, interval_ms in (
            ("minute", _SAMPLE_MINUTE_MS),
            ("hour", _SAMPLE_HOUR_MS),
            ("day", _SAMPLE_DAY_MS),
        ):
            # Far behind: the clock that made it was wrong.
            if not self._next_ms[window] - interval_ms <= now_ms < self._next_ms[window]:
                self._next_ms[window] = now_ms - now_ms % interval_ms + interval_ms
                due.append(window)
        for window in due:
            for item in (*self._items.values(), *self._broker.values()):
                getattr(item, window).append((now_ms, item.sum, item.times))
        if "day" in due:
            self._forget_quiet(now_ms)
        self._turn_of_day(now_ms)

    def _forget_quiet(self, now_ms: int) -> None:
        self._items = {
            key: item for key, item in self._items.items() if item.changed_ms >= now_ms - _DAY_MS
        }

    def _turn_of_day(self, now_ms: int) -> None:
        local = time.localtime(now_ms // 1_000)
        today = (local.tm_year, local.tm_yday)
        totals = self.totals
        if self._today is not None and today != self._today:
            totals.put_yesterday_morning = totals.put_today_morning
            totals.get_yesterday_morning = totals.get_today_morning
            totals.put_today_morning, totals.get_today_morning = totals.put_count, totals.get_count
        self._today = today

    # Questions ---------------------------------------------------------------------------------

    def item(self, name: str, key: str) -> StatsItem | None:
        return self._items.get((name, key))

    def broker_item(self, name: str) -> StatsItem | None:
        """Return the counter of all topics, or None if there is none or it never counted."""
        item = self._broker.get(name)
        return None if item is None or not item.minute else item

    def tps(self, name: str, key: str) -> float:
        """Return a counter's rate per second over the last minute."""
        item = self._items.get((name, key))
        return 0.0 if item is None else item.snapshot(item.minute).tps

    def rates(self) -> dict[str, str]:
        """Return RocketMQ's "a b c": rates per second over the last 10, 60 and 600 seconds."""
        windows = [self._rates_over(seconds) for seconds in _TPS_SECONDS]
        return {name: " ".join(str(window[name]) for window in windows) for name in windows[0]}

    def _rates_over(self, seconds: int) -> dict[str, float]:
        samples = self._seconds
        last = samples[-1] if samples else (0, 0, 0, 0, 0)
        first = samples[max(0, len(samples) - 1 - seconds)] if samples else last
        span_ms = max(1, last[0] - first[0])
        put, found, missed, messages = (
            (after - before) * 1_000 / span_ms
            for before, after in zip(first[1:], last[1:], strict=True)
        )
        return {
            "putTps": put,
            "getFoundTps": found,
            "getMissTps": missed,
            "getTotalTps": found + missed,
            "getTransferredTps": messages,
        }
