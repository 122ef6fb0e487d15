"""Seeds that failed once, cut to the faults that it took: each file must pass for ever.

A file's faults are those of the day on which it was found. Where the options of seeds change, it
still is a run with these faults, but may no longer be the one that failed; whoever changes the
drawing of options keeps the finding as a test of the part in which it was.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sim.campaign.campaign import run_schedule
from chaos.sim.seed.schedule import load_schedule

_FILES = sorted((Path(__file__).parent / "schedules").glob("*.json"))

_LONG = {"group-21-3"}


def test_there_are_some() -> None:
    assert _FILES


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * (path.stem in _LONG))
        for path in _FILES
    ],
)
def test_schedule_passes(path: Path) -> None:
    assert run_schedule(load_schedule(path)).failure is None
