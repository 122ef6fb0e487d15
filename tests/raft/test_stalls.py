"""What is told of an event loop that was held up."""

from __future__ import annotations

import gc
import logging
import time

import pytest

from raft.stalls import SAMPLE_S, Stalls, section

STALL_S = 0.2


def held_up(stalls: Stalls, name: str | None = None) -> None:
    stalls.sample()
    with section(None if name is None else stalls, name or ""):
        time.sleep(SAMPLE_S + STALL_S)
    stalls.sample()


def test_a_stall_is_told_with_what_ran(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls()
    with caplog.at_level(logging.WARNING):
        held_up(stalls, "apply")
    (line,) = caplog.messages
    assert "the loop was held up for" in line
    assert ": apply " in line
    assert "its thread had the processor for" in line
    assert stalls.count == 1
    assert stalls.longest_ms["apply"] >= STALL_S * 1000
    assert stalls.longest_ms["loop"] >= STALL_S * 1000


def test_what_nobody_named_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls()
    with caplog.at_level(logging.WARNING):
        held_up(stalls)
    assert "by nothing that is named here" in caplog.text


def test_a_loop_at_work_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            stalls.sample()
            with stalls.section("apply"):
                pass
    assert caplog.messages == []
    assert stalls.count == 0
    assert "apply" in stalls.longest_ms


def test_a_flood_of_stalls_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            held_up(stalls, "flush")
    assert len(caplog.messages) < stalls.count == 3


def test_collections_are_measured() -> None:
    stalls = Stalls()
    before = list(gc.callbacks)
    with stalls.watching_collections():
        garbage = [[] for _ in range(100_000)]
        for each in garbage:
            each.append(each)
        del garbage
        gc.collect()
        assert stalls.longest_ms["gc"] > 0
    assert gc.callbacks == before, "whoever comes next in this process is not measured"


def test_what_a_section_raises_is_not_lost() -> None:
    stalls = Stalls()
    with pytest.raises(ZeroDivisionError), stalls.section("apply"):
        _ = 1 / 0
    assert "apply" in stalls.longest_ms
