"""Drills of held pulls that messages pass by, and of groups that pop and are reset: a broker that
is right is never accused, one with a mistake is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.request.long_polling import LongPolling
from broker.state.pop_state import PopState
from chaos.workload.parts.common.drill import Drill, Unsure
from chaos.workload.parts.drills import woken_pulls
from chaos.workload.parts.drills.popped_resets import PoppedResetDrill
from chaos.workload.parts.drills.woken_pulls import WokenPullDrill
from tests.chaos.drilled_broker import drilled
from tests.chaos.histories import ops_of


async def _run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Drill, str], WokenPullDrill | PoppedResetDrill],
    seed: int,
) -> list[tuple[str, str]]:
    """Run one drill; return what was expected and what was answered otherwise."""
    async with drilled(tmp_path, monkeypatch, seed) as (_, drill):
        with pytest.raises(Unsure):
            await make(drill, "drills-group").run()
    rows = list(ops_of(tmp_path / "history"))
    assert len(rows) > 3
    return [(row["ref"], row["status"]) for row in rows if row["status"] != row["ref"]]


@pytest.mark.parametrize("seed", range(3))
async def test_the_first_message_that_it_wants_wakes_a_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert await _run(tmp_path, monkeypatch, WokenPullDrill, seed) == []


async def test_a_pull_that_sleeps_on_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came in between makes the broker take the next one for old."""
    on_arrival = LongPolling.on_arrival

    def forgetful(self: LongPolling, run: object) -> None:
        held = self._held
        on_arrival(self, run)  # type: ignore[arg-type]
        for key, waiting in held.items():
            held[key] = [replace(pull, codes=frozenset()) for pull in waiting]

    monkeypatch.setattr(LongPolling, "on_arrival", forgetful)
    monkeypatch.setattr(woken_pulls, "HELD_MS", 2_000)
    monkeypatch.setattr(woken_pulls, "LATE_S", 0.5)
    monkeypatch.setattr(woken_pulls, "PAUSE_S", (0.02, 0.1))
    (seen,) = await _run(tmp_path, monkeypatch, WokenPullDrill, 1)
    assert seen[0].endswith("in time")
    assert seen[1].endswith("late")


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_popped_before_a_reset_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert await _run(tmp_path, monkeypatch, PoppedResetDrill, seed) == []


async def test_what_comes_again_behind_a_reset_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PopState, "drop_queue", lambda self, key: None)
    (seen,) = await _run(tmp_path, monkeypatch, PoppedResetDrill, 4)
    assert len(seen[1]) > len(seen[0])
