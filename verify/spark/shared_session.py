"""A Spark session that judges many runs, one after another.

Place in the data path: `ledgermq.judge_server` has one for the runs of a campaign. Starting Spark,
and compiling its code and ours, is most of what a small run costs.

Invariants: one run at a time; a session that a run did not leave well, or that is not for the
machine and size asked for, is not used again; after _RUNS_MAX runs a new one is started, since each
run leaves generated classes behind. Its JVM has the settings for one small run: with the compiler
for long ones each of many took no less processor time, and three times the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from verify.spark.session import (
    SMALL_ROWS_MAX,
    OpenedSession,
    fit_session,
    is_small,
    open_session,
)

__all__ = ["SharedSession"]

_RUNS_MAX: Final = 100


class SharedSession:
    """A session of this machine. What it lends is returned when the borrower closes it."""

    def __init__(self) -> None:
        self._opened: OpenedSession | None = None
        self._runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(ended_well=False)

    def take(self, *, master: str | None, rows: int) -> OpenedSession | None:
        """Return the session, fitted to a run of `rows` rows; None where it is not for such a run.

        Raises:
            JavaError, SessionError: the session failed to start.
        """
        if master is not None or not is_small(rows):
            self._end(ended_well=True)  # a process has one session at a time
            return None
        if self._runs >= _RUNS_MAX:
            self._end(ended_well=True)
        if self._opened is None:
            self._opened = open_session(None, rows=SMALL_ROWS_MAX)
        self._runs += 1
        opened = self._opened
        fit_session(opened.session, rows)
        return _Lent(
            session=opened.session,
            folder=opened.folder,
            archive=opened.archive,
            returned=self._returned,
        )

    def _returned(self, *, ended_well: bool) -> None:
        if not ended_well:
            self._end(ended_well=False)

    def _end(self, *, ended_well: bool) -> None:
        opened, self._opened, self._runs = self._opened, None, 0
        if opened is not None:
            opened.close(ended_well=ended_well)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lent(OpenedSession):
    """A session whose end is its return."""

    returned: Callable[..., None]

    def close(self, *, ended_well: bool) -> None:
        self.returned(ended_well=ended_well)
