"""A master's or slave's store crashed twice: wherever it dies, the next start finds what was
promised.

A bounded part of `make crash-points`, as `tests/raft/test_crash_points.py` is for Raft's store.
Planted bugs show that it can say no.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.ha import commit_log
from broker.ha.commit_log import CommitLog
from broker.ha.log_files import LogFiles
from campaigns.crash_points.exploration import HOW_ALL, HOW_FEW, explore
from campaigns.crash_points.ha_life import HA_SCRIPTS, drawn_ha_script
from chaos.sim.machine.disk import SimDisk
from raft.log.durable_mark import DurableMark

BY_NAME = {script.name: script for script in HA_SCRIPTS}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each of some thousand starts would tell what it found."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("script", HA_SCRIPTS, ids=lambda script: script.name)
def test_every_crash_of_a_script_is_survived(script, tmp_path: Path) -> None:
    done = explore(script, tmp_path, how_again=HOW_FEW, one_in=150, is_ha=True)
    assert not done.findings, done.findings[0]
    assert done.operations > 50
    assert set(done.kinds) == {"kill", "failed", "none", "all", "prefix", "scatter"}


def test_every_fsync_that_fails_is_survived(tmp_path: Path) -> None:
    """Those few images all live on: what the fsync of a file that was just made did not make
    durable shows when that file ends."""
    done = explore(
        BY_NAME["a master"], tmp_path, how=("failed fsync",), how_again=HOW_FEW, is_ha=True
    )
    assert not done.findings, done.findings[0]
    assert done.kinds["failed"] > 5


@pytest.mark.parametrize("seed", range(1, 7))
def test_every_crash_of_a_drawn_script_is_survived(seed: int, tmp_path: Path) -> None:
    script = drawn_ha_script(seed)
    done = explore(script, tmp_path, how=HOW_FEW, how_again=HOW_FEW, one_in=200, is_ha=True)
    assert not done.findings, done.findings[0]


def test_drawn_scripts_do_everything_that_a_node_does() -> None:
    names = {action.name for seed in range(1, 7) for action in drawn_ha_script(seed).actions}
    assert names == {"append", "receive", "fsync", "cut", "snapshot", "drop", "restart"}


# --- that it can say no ------------------------------------------------------------------------


def _sync_all_but_the_root(real: Any) -> Any:
    return lambda disk, path: real(disk, path) if path else None


def _roll_unsynced(log: CommitLog) -> None:
    left = log._files.left(log.end.position)
    if left < log._files.size:
        log._begin_file(log.end.position + left)


def _keep(files: LogFiles, position: int) -> int:
    begin = files.begin_of(position)
    if begin in files.begins():
        files.last, files._last_begin = files.at(begin), begin
    return 0


_PLANTED = {
    "a start believes the pages of a failed fsync": (
        "a master",
        [patch.object(commit_log, "settle", lambda file: file.sync())],
        ("failed fsync",),
    ),
    "the folder of the log is not durable": (
        "a master",
        [patch.object(SimDisk, "sync_directory", _sync_all_but_the_root(SimDisk.sync_directory))],
        ("none",),
    ),
    "the log is cut before its mark is lowered": (
        "a slave that is cut",
        [patch.object(DurableMark, "reset", lambda mark, value: mark.raise_to(value))],
        HOW_ALL,
    ),
    "the end of a file is claimed before it is fsynced": (
        "fsyncs over the end of a file",
        [patch.object(CommitLog, "roll", _roll_unsynced)],
        ("none",),
    ),
    "a torn tail is left": (
        "a master",
        [patch.object(LogFiles, "cut", _keep)],
        HOW_ALL,
    ),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    script, patches, how = _PLANTED[name]
    one_in = 10**9 if how is HOW_ALL else 3  # the first start shows it, or a second life
    with ExitStack() as planted:
        for one in patches:
            planted.enter_context(one)
        done = explore(
            BY_NAME[script], tmp_path, how=how, one_in=one_in, findings_max=1, is_ha=True
        )
    assert done.findings
