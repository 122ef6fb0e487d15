"""For all tests: their lane; what they start ends with them, also where the run is killed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests import distribution, process_sweeper
from tests.lanes import guarded, is_unit

# No test fails because it took long: machines are shared.
settings.register_profile("no deadlines", deadline=None)
settings.load_profile("no deadlines")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what the core's scripts answer now"
    )


def pytest_sessionstart() -> None:
    process_sweeper.begin()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The unit lane does not import what it leaves out: Spark alone takes seconds."""
    if config.option.markexpr == "unit" and not is_unit(collection_path):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        others = (item.get_closest_marker(name) for name in ("spark", "cluster", "nightly"))
        test = item.nodeid.split("::")[1].partition("[")[0]
        if is_unit(item.path, test) and not any(others):
            item.add_marker("unit")
    distribution.longest_first(items)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> distribution.Scheduler | None:
    if config.option.dist != "loadfile":
        return None
    return distribution.Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _guarded(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _guarded(item))


def _guarded(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("unit") is None:
        return (yield)
    with guarded() as seen:
        result = yield
    assert not seen, f"no unit test does that: {seen}; name its module in tests/lanes.py"
    return result
