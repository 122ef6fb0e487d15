"""A session that judges one run after another: lent, returned, and left when it went wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.verify.synthetic import SyntheticRun
from verify.spark import shared_session
from verify.spark.session import SMALL_ROWS_MAX, OpenedSession
from verify.spark.shared_session import SharedSession

# The server with few of the rules: all of them take Spark half a minute, three times.
SERVER = """
import runpy
from dataclasses import replace
import verify.run
known = verify.run.load_rules()
some = replace(known, rules=[rule for rule in known.rules if rule.id in ("A4", "R9", "S1", "T6")])
verify.run.load_rules = lambda: some
runpy.run_module("ledgermq.judge_server", run_name="__main__")
"""


@dataclass
class Sessions:
    """In place of Spark: how many sessions were opened, fitted to what, and how they ended."""

    opened: int = 0
    fitted: list[int] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    session: Any = None
    folder: Any = None
    archive: Path | None = None

    def open_session(self, master: str | None, *, rows: int | None) -> OpenedSession:
        assert (master, rows) == (None, SMALL_ROWS_MAX)
        self.opened += 1
        return self  # type: ignore[return-value]  # what is asked of one is its fields and `close`

    def fit_session(self, session: object, rows: int) -> None:
        self.fitted.append(rows)

    def close(self, *, ended_well: bool) -> None:
        self.closed.append(ended_well)


@pytest.fixture(name="sessions")
def _sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    sessions = Sessions()
    monkeypatch.setattr(shared_session, "open_session", sessions.open_session)
    monkeypatch.setattr(shared_session, "fit_session", sessions.fit_session)
    return sessions


def judged(shared: SharedSession, rows: int = 5, *, well: bool = True) -> bool:
    """Take the session and return it; False where there is none."""
    lent = shared.take(master=None, rows=rows)
    if lent is not None:
        lent.close(ended_well=well)
    return lent is not None


def test_one_session_is_lent_again_and_again(sessions: Sessions) -> None:
    with SharedSession() as shared:
        assert all(judged(shared, rows) for rows in (7, 8, 9))
        assert sessions.closed == []
    assert (sessions.opened, sessions.fitted, sessions.closed) == (1, [7, 8, 9], [False])


def test_one_that_was_not_left_well_is_not_used_again(sessions: Sessions) -> None:
    with SharedSession() as shared:
        assert judged(shared, well=False)
        assert sessions.closed == [False]
        assert judged(shared)
    assert (sessions.opened, sessions.closed) == (2, [False, False])


def test_a_hundred_runs_are_enough_for_one(sessions: Sessions) -> None:
    with SharedSession() as shared:
        assert all(judged(shared) for _ in range(201))
    assert (sessions.opened, sessions.closed) == (3, [True, True, False])


@pytest.mark.parametrize(("master", "rows"), [(None, SMALL_ROWS_MAX + 1), ("spark://there", 1)])
def test_it_ends_where_another_is_wanted(sessions: Sessions, master: str | None, rows: int) -> None:
    """A process has one session at a time: the next would get this one."""
    with SharedSession() as shared:
        assert judged(shared)
        assert shared.take(master=master, rows=rows) is None
        assert sessions.closed == [True]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_server_judges_like_the_command(tmp_path: Path) -> None:
    """Runs that differ in one row get verdicts of their own, in either order."""
    SyntheticRun().write(tmp_path / "good")
    lossy = SyntheticRun()
    lost = next(row["value"] for row in lossy.log if row["kind"] == "message")
    lossy.log = [row for row in lossy.log if row.get("value") != lost]
    lossy.write(tmp_path / "bad")
    said = tmp_path / "said"
    said.touch()
    words = [
        ["verify", str(tmp_path / name), "--engine", "both"] for name in ("good", "bad", "good")
    ]
    words += [["report", str(tmp_path / "good")], ["sql", str(tmp_path / "good"), "select 1"]]
    done = subprocess.run(
        [sys.executable, "-c", SERVER],
        input="".join(json.dumps({"words": some, "said": str(said)}) + "\n" for some in words),
        capture_output=True,
        check=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["code"] for answer in answers if "code" in answer] == [0, 1, 0, 0, 64]
    verdict = json.loads((tmp_path / "good" / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["engines"]) == ("pass", ["duckdb", "spark"])
    assert (tmp_path / "good" / "report.html").is_file()
    assert said.read_text().count("starting Spark") == 3
