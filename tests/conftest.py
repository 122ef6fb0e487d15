"""For all tests: what they start ends with them, also where the run itself is killed."""

from __future__ import annotations

from tests import process_sweeper


def pytest_sessionstart() -> None:
    process_sweeper.begin()
