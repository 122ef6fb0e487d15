"""The trace: a full disk holds it, and loses none of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from raft.store import trace as trace_module
from raft.store.trace import RaftTrace


def failing_write(left: int, number: int) -> Callable[[int, bytes], int]:
    """Takes `left` bytes, then fails with error `number`."""
    room = [left]
    write = os.write

    def act(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(number, os.strerror(number))
        taken = write(fd, data[: room[0]])
        room[0] -= taken
        return taken

    return act


def indexes(directory: Path) -> list[int]:
    (file,) = directory.iterdir()
    return [event["index"] for event in msgpack.Unpacker(file.open("rb"))]


def test_what_found_no_room_is_written_once_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = RaftTrace(tmp_path, 1)
    trace.record("append", 1, index=1)
    trace.flush()
    with monkeypatch.context() as patch:
        patch.setattr(trace_module.os, "write", failing_write(10, errno.ENOSPC))
        for index in (2, 3):
            trace.record("append", 1, index=index)
            trace.flush()
    trace.record("append", 1, index=4)
    trace.flush()
    trace.close()
    assert indexes(tmp_path) == [1, 2, 3, 4]


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "_HELD_SIZE_BYTES_MAX", 1_000)
    monkeypatch.setattr(trace_module.os, "write", failing_write(0, errno.ENOSPC))
    trace = RaftTrace(tmp_path, 1)
    for index in range(100):
        trace.record("append", 1, index=index)
    with pytest.raises(OSError, match="No space left"):
        trace.flush()
    trace.close()


def test_another_error_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module.os, "write", failing_write(0, errno.EIO))
    trace = RaftTrace(tmp_path, 1)
    trace.record("append", 1, index=1)
    with pytest.raises(OSError, match="Input/output error"):
        trace.flush()
    trace.close()
