"""For all tests: what they start ends with them, also where the run itself is killed."""

from __future__ import annotations

import pytest

from tests import process_sweeper


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what the core's scripts answer now"
    )


def pytest_sessionstart() -> None:
    process_sweeper.begin()
