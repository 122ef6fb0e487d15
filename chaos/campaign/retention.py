"""What stays of a run once it is judged, so that a campaign of any length fits on the disk.

Place in the data path: `chaos.campaign.campaign` calls it before a run counts as done.

Invariants: run.json, verdict.json and the scenario stay always, so that every run can be repeated
and told of; a passing run leaves nothing else but its report; another run stays whole until the
bounds are reached, and is then cut like a passing one.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from chaos.campaign.outcome import RunOutcome
from chaos.campaign.plan import BoundsSection

__all__ = ["retained"]

_ALWAYS: Final = frozenset({"run.json", "verdict.json", "scenario.toml"})
_REPORT: Final = "report.html"
_MEGABYTE: Final = 1_000_000
_BLOCK: Final = 512  # st_blocks counts these, whatever the file system's own are


@dataclasses.dataclass(frozen=True, slots=True)
class _Left:
    whole_runs: int
    whole_bytes: int
    reports: int


def retained(
    folder: Path, outcome: RunOutcome, *, before: Iterable[RunOutcome], bounds: BoundsSection
) -> RunOutcome:
    """Remove what shall not stay of a run; return its outcome with what is left.

    `before`: the runs that are done. Raises OSError.
    """
    if not folder.is_dir():
        return outcome
    left = _left(before)
    size = _size(folder)
    stays_whole = (
        outcome.verdict != "pass"
        and left.whole_runs < bounds.whole_runs_max
        and left.whole_bytes + size <= bounds.whole_megabytes_max * _MEGABYTE
    )
    if not stays_whole:
        _cut(folder, with_report=left.reports < bounds.reports_max)
        size = _size(folder)
    return msgspec.structs.replace(
        outcome, whole=stays_whole, bytes=size, has_report=(folder / _REPORT).is_file()
    )


def _left(before: Iterable[RunOutcome]) -> _Left:
    rows = list(before)
    whole = [row for row in rows if row.whole]
    return _Left(
        whole_runs=len(whole),
        whole_bytes=sum(row.bytes for row in whole),
        reports=sum(1 for row in rows if row.has_report and not row.whole),
    )


def _cut(folder: Path, *, with_report: bool) -> None:
    stays = _ALWAYS | {_REPORT} if with_report else _ALWAYS
    for path in folder.iterdir():
        if path.name in stays:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size(folder: Path) -> int:
    """Return the bytes on disk: stores have holes."""
    return sum(path.lstat().st_blocks * _BLOCK for path in folder.rglob("*"))
