"""A store crashed twice: wherever it dies, the next start finds what was promised.

A bounded part of `make crash-points`: after each crash a start, and for some of them a whole second
life that dies at each of its operations. Planted bugs show that it can say no.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from campaigns.crash_points.exploration import HOW_ALL, HOW_FEW, explore
from campaigns.crash_points.store_scripts import SCRIPTS, drawn_script
from raft.log import durable_record, segment_files
from raft.log.hard_state import HardStateFile
from raft.log.segment_files import SegmentFiles
from raft.log.segment_log import SegmentLog
from raft.storage import DiskFile


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each of some thousand starts would tell what it found."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


BY_NAME = {script.name: script for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_crash_of_a_script_is_survived(script, tmp_path: Path) -> None:
    done = explore(script, tmp_path, how_again=HOW_FEW, one_in=150)
    assert not done.findings, done.findings[0]
    assert done.operations > 50
    assert done.combinations > 100, "a second crash"
    assert set(done.kinds) == {"kill", "failed", "none", "all", "prefix", "scatter"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_crash_beside_the_kernels_fsyncs_is_survived(script, tmp_path: Path) -> None:
    done = explore(script, tmp_path, how=HOW_FEW, how_again=HOW_FEW, one_in=300, in_kernel=True)
    assert not done.findings, done.findings[0]
    assert done.kinds["failed"] > 0


@pytest.mark.parametrize("seed", range(1, 13))
def test_every_crash_of_a_drawn_script_is_survived(seed: int, tmp_path: Path) -> None:
    done = explore(
        drawn_script(seed),
        tmp_path,
        how=HOW_FEW,
        how_again=HOW_FEW,
        one_in=200,
        in_kernel=seed % 2 == 0,
    )
    assert not done.findings, done.findings[0]


def test_drawn_scripts_do_everything_that_a_node_does(tmp_path: Path) -> None:
    names = {action.name for seed in range(1, 13) for action in drawn_script(seed).actions}
    assert names >= {"append", "follow", "lead", "vote", "round", "snapshot", "drop", "install"}


# --- that it can say no ------------------------------------------------------------------------


def _only_fsync(file: DiskFile) -> None:
    file.sync()


def _rewrite(files: SegmentFiles, position: int, size: int, torn_size: int) -> None:
    """Open the last segment, and write again what stands in it."""
    _REOPEN_LAST(files, position, size, torn_size)
    if size:
        files.last.pwritev([files.last.pread(size, 0)], 0)


_REOPEN_LAST = SegmentFiles.reopen_last
_PLANTED = {
    "an entry counts before its hard state": (
        "a new term over the end of a segment",
        [patch.object(SegmentLog, "_before_claim", lambda log, term: None)],
        HOW_ALL,
        "follow",
    ),
    "a start claims entries of a term that it does not save": (
        "a new term's entries come at operation 3 of a round",
        [
            patch.object(HardStateFile, "enter", lambda file, term: None),
            patch.object(HardStateFile, "require", lambda file, term: None),
        ],
        HOW_ALL,
        "round",
    ),
    "a start acts on what is in the page cache": (
        "retention",
        [
            patch.object(durable_record, "settle", lambda file: None),
            patch.object(segment_files, "settle", lambda file: None),
        ],
        ("kill",),
        "drop",
    ),
    "a start believes the pages of a failed fsync": (
        "a new term over the end of a segment",
        [
            patch.object(durable_record, "settle", _only_fsync),
            patch.object(segment_files, "settle", _only_fsync),
        ],
        ("failed fsync",),
        "round",
    ),
    "a start writes its tail again": (
        "elections",
        [patch.object(SegmentFiles, "reopen_last", _rewrite)],
        HOW_ALL,
        "round",
    ),
}


@pytest.mark.parametrize("name", _PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    script, patches, how, doing = _PLANTED[name]
    one_in = 10**9 if how is HOW_ALL else 1  # the first start shows it, or a second life
    with ExitStack() as planted:
        for one in patches:
            planted.enter_context(one)
        done = explore(
            BY_NAME[script], tmp_path, how=how, doing=doing, one_in=one_in, findings_max=1
        )
    assert done.findings
