"""The retry decision after a failed attempt of a request: pure, time as an argument.

Place in the data path: `client.produce.producer` and `client.connection.broker_call` use one
`Retries` per request: before an attempt it says how long the attempt may take, after a failed one
whether, where and when to try again.

Invariants:
- Once an attempt had no definite outcome (it went unanswered, say), the request stays in its broker
  group and on its queue for all further attempts: only there can the broker see by the UNIQ_KEY
  that it has the message already. Another group is allowed only while every attempt was definitely
  refused.
- The error raised at the end is definite only if every attempt was.
- Attempts and waiting are bounded by the deadline and by `attempts_max`.

Source: RocketMQ's DefaultMQProducerImpl retries on another broker after any error, timeouts
included, and so may store a message twice; docs/DIVERGENCE.md lists that difference.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from client.errors import (
    BrokerUnreachableError,
    ClientError,
    ContraryDecisionError,
    DeadlineError,
    MaybeStoredError,
    NotLeaderError,
    OffsetNotFoundError,
    OutcomeUnknownError,
    UnansweredError,
)

__all__ = ["Place", "Retries", "RetryPolicy", "TryAgain"]

_HOPS_MAX: Final = 2
"""Leader hints followed in a row without waiting; later ones wait like any other attempt, so that
two nodes that name each other can't make a client spin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of one request's attempts.

    `attempt_timeout_ms` bounds one attempt, so that a node that swallows requests leaves time for
    its successor. `attempts_max` attempts last about a minute without a leader: normally the
    caller's deadline ends a request. Waits between attempts start at `backoff_ms_min`, double, and
    stay at `backoff_ms_max`; `jitter` is the part of each wait that is random.
    """

    attempt_timeout_ms: int = 1_000
    attempts_max: int = 512
    backoff_ms_min: int = 10
    backoff_ms_max: int = 160
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.attempt_timeout_ms < 1:
            raise ValueError(f"attempt_timeout_ms must be positive, not {self.attempt_timeout_ms}")
        if self.attempts_max < 1:
            raise ValueError(f"attempts_max must be positive, not {self.attempts_max}")
        if not 0 < self.backoff_ms_min <= self.backoff_ms_max:
            raise ValueError(
                f"backoff_ms_min {self.backoff_ms_min} must be positive and at most "
                f"backoff_ms_max {self.backoff_ms_max}"
            )
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter must be between 0 and 1, not {self.jitter}")


class Place(enum.Enum):
    """The target of the next attempt."""

    LEADER_HINT = "leader_hint"  # the same group, at the leader just named
    SAME_GROUP = "same_group"  # the same group, at the node most likely to lead it
    ANOTHER_GROUP = "another_group"  # preferably another group; every attempt was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgain:
    place: Place
    wait_ms: int
    refresh_route: bool


class Retries:
    """The attempts of one request.

    `may_move`: the request may go to another broker group (the caller named no queue).
    """

    __slots__ = ("_deadline_ms", "_hops", "_may_move", "_policy", "_unknown", "_waits", "attempts")

    def __init__(self, policy: RetryPolicy, *, deadline_ms: float, may_move: bool) -> None:
        self._policy = policy
        self._deadline_ms = deadline_ms
        self._may_move = may_move
        self._unknown = False
        self._hops = 0
        self._waits = 0
        self.attempts = 0

    def begin_attempt(self, now_ms: float) -> float:
        """Count an attempt and return the time it may take, in ms; 0: the deadline has passed."""
        left_ms = self._deadline_ms - now_ms
        if left_ms <= 0:
            return 0
        self.attempts += 1
        return min(left_ms, self._policy.attempt_timeout_ms)

    def after(self, error: ClientError, *, now_ms: float, luck: float) -> TryAgain | ClientError:
        """Return the next attempt after one that ended in `error`, or the error to raise.

        `luck` in [0, 1) spreads the waiting times of many clients.
        """
        if not error.definite:
            self._unknown = True
        if not error.retriable or self.attempts >= self._policy.attempts_max:
            return self._final(error)
        again = self._again(error, luck)
        if now_ms + again.wait_ms >= self._deadline_ms:
            return self.out_of_time(error)
        return again

    def out_of_time(self, last: ClientError | None) -> ClientError:
        """Return the error to raise after the deadline; `last` is the last attempt's error."""
        if self._unknown:
            assert last is not None, "an unknown outcome comes from an attempt"
            return OutcomeUnknownError("no definite answer in time", last, self.attempts)
        return DeadlineError(f"not done in time, {self.attempts} attempts refused", last)

    def _final(self, error: ClientError) -> ClientError:
        if isinstance(error, MaybeStoredError):
            return error  # its outcome is unknown too, but no further attempt can resolve it
        if self._unknown and not _settles(error):
            return OutcomeUnknownError("gave up", error, self.attempts)
        return error

    def _again(self, error: ClientError, luck: float) -> TryAgain:
        if isinstance(error, NotLeaderError) and error.leader is not None:
            self._hops += 1
            wait_ms = 0 if self._hops <= _HOPS_MAX else self._next_wait_ms(luck)
            return TryAgain(place=Place.LEADER_HINT, wait_ms=wait_ms, refresh_route=False)
        self._hops = 0
        if self._may_move and not self._unknown:
            # Another group may accept at once; waiting helps only when all of them refuse.
            wait_ms = 0 if self.attempts == 1 else self._next_wait_ms(luck)
            return TryAgain(place=Place.ANOTHER_GROUP, wait_ms=wait_ms, refresh_route=True)
        # A dead node is no reason to wait; a node that knows no leader yet is.
        gone = isinstance(error, BrokerUnreachableError | UnansweredError)
        if gone and self._waits == 0:
            self._waits = 1
            wait_ms = 0
        else:
            wait_ms = self._next_wait_ms(luck)
        return TryAgain(place=Place.SAME_GROUP, wait_ms=wait_ms, refresh_route=True)

    def _next_wait_ms(self, luck: float) -> int:
        assert 0.0 <= luck < 1.0
        policy = self._policy
        wait_ms = min(policy.backoff_ms_max, policy.backoff_ms_min << min(self._waits, 16))
        self._waits += 1
        return max(1, round(wait_ms * (1.0 - policy.jitter * luck)))


def _settles(error: ClientError) -> bool:
    """Return whether `error` also decides the outcome of the unanswered attempts before it."""
    return isinstance(error, ContraryDecisionError | OffsetNotFoundError)
