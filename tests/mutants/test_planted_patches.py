"""The bugs that are kept as patches fit the source as it is: a bug that can't be planted says
nothing of the checks that should see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "campaigns" / "planted").rglob("*.patch"))


def fits(patch: Path) -> bool:
    argv = ["git", "apply", "--check", str(patch)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_every_patch_fits() -> None:
    assert PATCHES
    assert [patch.name for patch in PATCHES if not fits(patch)] == []


def test_one_that_quotes_what_is_not_there_does_not_fit(tmp_path: Path) -> None:
    stale = tmp_path / "stale.patch"
    stale.write_text(PATCHES[0].read_text().replace("\n-", "\n-no such line "))
    assert not fits(stale)
