"""Time of a broker group, for the stamps of its log and for its deadlines.

Place in the data path: the leader stamps entries with it (`broker.leader.proposer`) and compares
deadlines with it: delays, timers, check-backs, popped messages. `broker.request.clock_exchange`
feeds it. Pure: clocks are arguments.

Group time passes as the monotonic clock does. A wall clock that jumps moves it only where no
minority of wrong clocks could be the reason: of `n` replicas at most `f = (n - 1) // 2` are taken
to be wrong, and among the clocks that answer, those that `f` wrong ones can't have moved bound the
true time from below and from above. An answer gives a clock to within half of its delay: a link
may be slow in one direction alone. Between the bounds nothing is corrected, nor beyond one before
every answer that counts was given since: a clock that is right again may be known by a wrong answer
until then, and another one be wrong meanwhile. Nor is more corrected than the bounds asked for all
that time: what they ask for on top of it has to wait for new answers itself. Then group
time runs 0.5 % faster or slower until it is back, 5 % where it is more than a second off. More than
ten seconds are a jump: nothing is done for a minute; if it lasts, what is behind takes the lower
bound at once. Group time never goes back, nor behind the log's last stamp: from a stamp that lies
ahead it goes on.

A follower takes its leader's group time over: each answer bounds it, as if all that the answer took
had been the way back, or the way there, and a follower's time that lies between stays. So a slow
answer makes it no worse than a faster one left it, and a new leader goes on where the old one was,
whatever its own wall clock says. A replica that has heard of no group time since it began (all have
restarted) starts from the lower bound, and is sure of it once the bounds are as near as those of
clocks that are right, or all replicas have answered: of two clocks that are seconds apart one is
wrong, and the third may be about to say which. A clock that is more than ten seconds behind the
log's last stamp is wrong, and the others bound the time without it: where two of three have
restarted and one is behind, the other one is right. To begin with, every clock has to say so twice.

Invariants: `now_ms` never falls while this replica leads; while at most `f` of the wall clocks are
wrong, no jump of theirs moves group time.
Sources: Marzullo and Owicki, "Maintaining the time in a distributed system" (PODC '83), for the
bounds; RocketMQ has one wall clock per broker, and trusts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ClockReading", "GroupClock"]

_READING_MS_MAX: Final = 10_000  # an older one is void: the clock may have jumped since
_ROUND_TRIP_MS_MAX: Final = 1_000
_SURE_MS_MAX: Final = 10_000  # bounds of all this close together are a time to begin with
_FAR_MS: Final = 10_000  # what drift explains is nearer; a jump has to last before it counts
_FAR_FOR_MS: Final = 60_000
_NEAR_MS: Final = 1_000  # clocks that are right may be so far apart
_SLEW_NEAR: Final = 0.005
_SLEW: Final = 0.05
_TICK_MS_MAX: Final = 1_000  # of a replica that was paused no more is corrected at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Answer of a replica: its wall clock, and the group's time if it knows that."""

    wall_ms: int
    group_ms: int | None


@dataclass(frozen=True, slots=True)
class _Heard:
    """Bounds of how far a wall clock is ahead of this replica's monotonic clock."""

    least_ms: float
    most_ms: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Claim:
    """The nearest time that the bounds have asked for since group time left them."""

    ahead_ms: float
    since_ms: int

    def seen_from(self, ahead_ms: float, target_ms: float, monotonic_ms: int) -> _Claim:
        """Return the claim of bounds that ask for `target_ms` where group time is at `ahead_ms`."""
        nearest_ms = sorted((ahead_ms, self.ahead_ms, target_ms))[1]
        if nearest_ms == ahead_ms:  # all of it was done, or they ask for the other direction now
            return _Claim(target_ms, monotonic_ms)
        return _Claim(nearest_ms, self.since_ms)


class GroupClock:
    """Group clock of one replica; `replica_count` counts all wall clocks, its own included.

    All `monotonic_ms` are of this replica's monotonic clock, `last_stamp_ms` is the stamp of the
    last entry that it has applied; 0: none.
    """

    def __init__(self, replica_count: int) -> None:
        if replica_count < 1:
            raise ValueError("a group clock needs one replica at least")
        self._replica_count = replica_count
        self._wrong_max = (replica_count - 1) // 2
        self._heard: dict[str, _Heard] = {}
        self._ahead_ms = 0.0  # group time less the monotonic clock
        self._highest_ms = 0
        self._has_begun = False
        self._ticked_ms: int | None = None
        self._begins_from: tuple[float, float] | None = None  # bounds before it is sure
        self._begins_from_since_ms = 0
        self._claim: _Claim | None = None  # while group time is beyond the bounds
        self._far_since_ms: int | None = None
        self._lead_ms = 0
        self.is_sure = False
        """Whether it goes on from a time that the group had, or that enough clocks agree on."""
        self.is_own = False
        """Whether this replica started group time by itself, as no other reported the group's."""
        self.is_checking = False
        """Whether it would be sure if the clocks still say in their next answers what they said."""

    @property
    def lead_ms(self) -> int:
        """Return how far group time certainly is ahead of the replicas' wall clocks, if that is
        more than drift explains, else 0."""
        return self._lead_ms

    def now_ms(self, monotonic_ms: int, last_stamp_ms: int) -> int:
        """Return group time in Unix milliseconds."""
        now_ms = int(monotonic_ms + self._ahead_ms)
        if now_ms < last_stamp_ms:
            self._ahead_ms = last_stamp_ms - monotonic_ms
            now_ms = last_stamp_ms
        if now_ms < self._highest_ms:  # it was slowed down a moment ago
            return self._highest_ms
        self._highest_ms = now_ms
        return now_ms

    def stamp_ms(self, monotonic_ms: int, last_stamp_ms: int) -> int:
        """Return group time for an entry of the log; group time never falls below it afterwards."""
        self.is_sure = True
        return self.now_ms(monotonic_ms, last_stamp_ms)

    def reading(self, monotonic_ms: int, wall_ms: int, last_stamp_ms: int) -> ClockReading:
        """Return the answer of this replica to another one."""
        group_ms = self.now_ms(monotonic_ms, last_stamp_ms) if self.is_sure else None
        return ClockReading(wall_ms=wall_ms, group_ms=group_ms)

    def heard(
        self,
        replica: str,
        reading: ClockReading,
        *,
        queried_ms: int,
        monotonic_ms: int,
        is_leader: bool,
    ) -> None:
        """Take the answer of another replica to a request sent at `queried_ms`."""
        if monotonic_ms - queried_ms > _ROUND_TRIP_MS_MAX:
            return
        self._heard[replica] = _Heard(
            reading.wall_ms - monotonic_ms, reading.wall_ms - queried_ms, monotonic_ms
        )
        if reading.group_ms is not None and (is_leader or not self.is_sure):
            low, high = reading.group_ms - monotonic_ms, reading.group_ms - queried_ms
            ahead_ms = min(max(self._ahead_ms, low), high) if self.is_sure else low
            self._begin(ahead_ms, is_sure=True)
            self.is_own = False

    def tick(self, monotonic_ms: int, wall_ms: int, last_stamp_ms: int, *, leads: bool) -> None:
        """Correct group time if this replica leads; to be called a few times a second."""
        last_ms = monotonic_ms if self._ticked_ms is None else self._ticked_ms
        self._ticked_ms = monotonic_ms
        bounds = self._bounds(monotonic_ms, wall_ms, last_stamp_ms)
        self.is_checking = False
        if not self.is_sure:
            if bounds is not None:
                self._begin(bounds[0], is_sure=self._is_narrow(bounds, monotonic_ms))
            elif not self._has_begun:
                self._begin((last_stamp_ms or wall_ms) - monotonic_ms, is_sure=False)
        elif leads and bounds is not None:
            self._correct(bounds, monotonic_ms, min(monotonic_ms - last_ms, _TICK_MS_MAX))
        else:
            self._claim = self._far_since_ms = None
        lead_ms = 0 if bounds is None else int(self._ahead_ms - bounds[1])
        # What drift explains comes and goes: a birth that is compared with stamps would be called
        # newer by a lead that there was not when its message was stored.
        self._lead_ms = lead_ms if lead_ms > _FAR_MS else 0

    def _begin(self, ahead_ms: float, *, is_sure: bool) -> None:
        self._ahead_ms = ahead_ms
        self._highest_ms = 0
        self._has_begun = True
        self.is_sure = is_sure
        self.is_own = True

    def _is_narrow(self, bounds: tuple[float, float], monotonic_ms: int) -> bool:
        """Return whether group time may begin from these bounds."""
        before = self._begins_from
        if before is None or any(abs(bounds[at] - before[at]) > _NEAR_MS for at in (0, 1)):
            self._begins_from, self._begins_from_since_ms = bounds, monotonic_ms
        apart_ms_max = _SURE_MS_MAX if self._all_answered(monotonic_ms) else _NEAR_MS
        if bounds[1] - bounds[0] > apart_ms_max:
            return False
        # A clock may be right again since it answered, and another one be wrong in its place.
        self.is_checking = not self._are_newer(self._begins_from_since_ms, monotonic_ms)
        return not self.is_checking

    def _bounds(
        self, monotonic_ms: int, wall_ms: int, last_stamp_ms: int
    ) -> tuple[float, float] | None:
        """Return the bounds of how far the true time is ahead of the monotonic clock, while no more
        clocks are wrong than may be; None if too few have answered."""
        own_ms = wall_ms - monotonic_ms
        clocks = [*self._heard_lately(monotonic_ms), _Heard(own_ms, own_ms, monotonic_ms)]
        wrong_max = self._wrong_max
        if len(clocks) <= wrong_max:
            return None
        stamped_ms = last_stamp_ms - _FAR_MS - monotonic_ms
        possible = [each for each in clocks if each.most_ms >= stamped_ms]
        behind = len(clocks) - len(possible)
        if behind <= wrong_max:  # more of them: the stamp itself is wrong
            clocks = possible
            wrong_max -= behind
        least = sorted(each.least_ms for each in clocks)
        most = sorted(each.most_ms for each in clocks)
        bounds = least[len(clocks) - 1 - wrong_max], most[wrong_max]
        return min(bounds), max(bounds)

    def _all_answered(self, monotonic_ms: int) -> bool:
        return 1 + len(self._heard_lately(monotonic_ms)) >= self._replica_count

    def _heard_lately(self, monotonic_ms: int) -> list[_Heard]:
        """Return the readings of other replicas that are recent enough."""
        oldest_ms = monotonic_ms - _READING_MS_MAX
        return [heard for heard in self._heard.values() if heard.at_ms >= oldest_ms]

    def _are_newer(self, since_ms: int, monotonic_ms: int) -> bool:
        """Return whether every reading that counts was taken after `since_ms`."""
        return all(each.at_ms > since_ms for each in self._heard_lately(monotonic_ms))

    def _correct(self, bounds: tuple[float, float], monotonic_ms: int, elapsed_ms: int) -> None:
        low, high = bounds
        target_ms = min(max(self._ahead_ms, low), high)
        off_ms = target_ms - self._ahead_ms
        if not off_ms:
            self._claim = self._far_since_ms = None
            return
        if abs(off_ms) <= _FAR_MS:
            self._far_since_ms = None
        elif self._far_since_ms is None:
            self._far_since_ms = monotonic_ms
            self._claim = None
        claim = self._claim or _Claim(target_ms, monotonic_ms)
        self._claim = claim = claim.seen_from(self._ahead_ms, target_ms, monotonic_ms)
        if self._far_since_ms is not None:
            if monotonic_ms - self._far_since_ms < _FAR_FOR_MS:
                return
            if off_ms > 0:
                self._ahead_ms = claim.ahead_ms
                self._far_since_ms = None
                return
        if not self._are_newer(claim.since_ms, monotonic_ms):
            return
        slew_ms = elapsed_ms * (_SLEW_NEAR if abs(off_ms) <= _NEAR_MS else _SLEW)
        left_ms = claim.ahead_ms - self._ahead_ms
        self._ahead_ms += min(max(left_ms, -slew_ms), slew_ms)
