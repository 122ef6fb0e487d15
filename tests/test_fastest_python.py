"""Which Python the environment is made with."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.fastest_python import candidates, fastest


def test_the_fastest_is_chosen_where_it_is_worth_it() -> None:
    assert fastest("here", {"here": 1.0, "there": 0.7, "elsewhere": 0.8}) == "there"
    assert fastest("here", {"here": 1.0, "there": 0.95}) == "here"
    assert fastest("here", {"here": 1.0}) == "here"


def test_one_that_makes_no_environments_is_not_chosen() -> None:
    assert fastest("here", {"there": 1.0}) == "there"
    assert fastest("here", {}) == "here"


def test_candidates_are_of_one_version_and_each_is_another_file(tmp_path: Path) -> None:
    major, minor = sys.version_info[:2]
    same, other = tmp_path / "same", tmp_path / "other"
    same.mkdir()
    other.mkdir()
    (same / f"python{major}.{minor}").symlink_to(sys.executable)
    (other / f"python{major}.{minor}").write_text("")
    (other / f"python{major}.{minor + 1}").write_text("")
    found = candidates(sys.executable, (str(same), str(other), str(tmp_path / "none")))
    assert found == [sys.executable, str(other / f"python{major}.{minor}")]
