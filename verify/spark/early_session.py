"""A Spark session that is started before the run that it will judge has ended.

Place in the data path: `ledgermq chaos run` starts one when its cluster is whole again and only
remains to be settled and read; `verify.run` takes it if it fits the run.

Invariants: nothing is started before `start`, and a session that nobody took ends with the block;
an error of the start is raised where the session is taken. pyspark, which imports slowly, is
imported where the session is started.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from verify.spark.session import OpenedSession

__all__ = ["EarlySession"]


class EarlySession:
    """A session for a small run on `master`, None: this machine. The run's size is not known yet
    when the session is started."""

    def __init__(self, master: str | None) -> None:
        self._master = master
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="early-session")
        self._opening: Future[OpenedSession] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._drop()
        self._thread.shutdown()

    def start(self) -> None:
        """Start the session in the background; return at once."""
        if self._opening is None:
            self._opening = self._thread.submit(self._open)

    def take(self, *, master: str | None, rows: int) -> OpenedSession | None:
        """Return the session, which the caller must close.

        None if it was not started, or does not suit a run of `rows` on `master`.

        Raises:
            JavaError, SessionError: the session failed to start.
        """
        from verify.spark.session import is_small  # noqa: PLC0415  # see above

        if self._opening is None or master != self._master or not is_small(rows):
            self._drop()
            return None
        opening, self._opening = self._opening, None
        return opening.result()

    def _open(self) -> OpenedSession:
        from verify.spark.session import SMALL_ROWS_MAX, open_session  # noqa: PLC0415  # see above

        return open_session(self._master, rows=SMALL_ROWS_MAX)

    def _drop(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and opening.exception() is None:
            opening.result().close(ended_well=False)
