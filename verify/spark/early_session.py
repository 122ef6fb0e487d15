"""A Spark session that is started before the run that it will judge has ended.

Place in the data path: `ledgermq chaos run` starts one when its cluster has nothing left to do but
to be read; `verify.run` takes it where the run turns out to be one for it.

Invariants: nothing is started before `start`, and whatever nobody took ends with the block; what
goes wrong in the start is raised where the session is taken. pyspark, which takes long, is imported
where the session is started.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from verify.spark.session import OpenedSession

__all__ = ["EarlySession"]


class EarlySession:
    """A session for a small run on `master`, None: this machine. How large the run is nobody knows
    when it is started."""

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
        """Begins to start it, and returns at once."""
        if self._opening is None:
            self._opening = self._thread.submit(self._open)

    def take(self, *, master: str | None, rows: int) -> OpenedSession | None:
        """The session, which is the caller's from then on; None if it was not started, or is none
        for a run of `rows` on `master`.

        Raises:
            JavaError, SessionError: it did not come up.
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
