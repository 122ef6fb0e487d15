"""A session that is started before its run has ended: taken once, or ended with the block."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from verify.spark import session
from verify.spark.early_session import EarlySession
from verify.spark.session import SMALL_ROWS_MAX, OpenedSession, SessionError

TAKEN = """
import time
from pathlib import Path
from verify.spark.early_session import EarlySession
from verify.spark.session import spark_session

def is_there(jvm):
    return Path(f"/proc/{jvm}").exists()

def ends(jvm):
    '''A JVM that is the first to leave an archive of its classes writes that after its session.'''
    until = time.monotonic() + 120
    while is_there(jvm) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_there(jvm)

def pid(opened):
    return opened.session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

with EarlySession(None) as early:
    early.start()
    opened = early.take(master=None, rows=5)
    jvm = pid(opened)
    with spark_session(rows=5, opened=opened) as session:
        print(session.sql("select sum(id) from range(5)").collect()[0][0])
    print(ends(jvm))
with EarlySession(None) as early:
    early.start()
    jvm = pid(early._opening.result())
    print(is_there(jvm))
print(ends(jvm))
"""


@dataclass
class Sessions:
    """In place of Spark: which sessions were opened, and how each was closed."""

    opened: list[int] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)

    def open_session(self, master: str | None, *, rows: int) -> OpenedSession:
        if master == "spark://nowhere":
            raise SessionError("nobody there")
        self.opened.append(rows)
        return self  # type: ignore[return-value]  # what is asked of one is `close`

    def close(self, *, ended_well: bool) -> None:
        self.closed.append(ended_well)


@pytest.fixture(name="sessions")
def _sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    sessions = Sessions()
    monkeypatch.setattr(session, "open_session", sessions.open_session)
    return sessions


def test_one_that_is_taken_is_the_takers(sessions: Sessions) -> None:
    with EarlySession(None) as early:
        early.start()
        early.start()
        assert early.take(master=None, rows=SMALL_ROWS_MAX) is not None
        assert early.take(master=None, rows=1) is None
    assert sessions == Sessions(opened=[SMALL_ROWS_MAX])


def test_none_that_was_not_started(sessions: Sessions) -> None:
    with EarlySession(None) as early:
        assert early.take(master=None, rows=1) is None
    assert sessions == Sessions()


@pytest.mark.parametrize(("master", "rows"), [(None, SMALL_ROWS_MAX + 1), ("spark://somewhere", 1)])
def test_one_that_does_not_fit_is_ended(sessions: Sessions, master: str | None, rows: int) -> None:
    with EarlySession(None) as early:
        early.start()
        assert early.take(master=master, rows=rows) is None
        assert sessions.closed == [False]
    assert sessions.closed == [False]


def test_what_nobody_took_ends_with_the_block(sessions: Sessions) -> None:
    def interrupted() -> None:
        with EarlySession(None) as early:
            early.start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sessions.closed == [False]


def test_what_goes_wrong_is_raised_where_it_is_taken(sessions: Sessions) -> None:
    with EarlySession("spark://nowhere") as early:
        early.start()
        with pytest.raises(SessionError, match="nobody there"):
            early.take(master="spark://nowhere", rows=1)
    with EarlySession("spark://nowhere") as early:
        early.start()
    assert sessions == Sessions()


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_spark_itself() -> None:
    done = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["10", "True", "True", "True"]
    assert done.stderr == ""
