"""Tables that are made while a run goes on are those that are made at its end."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.rig.waiting import await_until
from chaos.recording import table_converter
from chaos.recording.history import COMPLETE, FAULT, INVOKE, HistoryError
from chaos.recording.live_tables import LiveTables
from chaos.recording.table_converter import (
    HISTORY_FILE,
    ConvertedTables,
    RunSources,
    TableConverter,
)
from chaos.recording.trace_rows import TraceChangedError, TraceFolder

NODES = ("n0", "n1")
ROOT = Path(__file__).parents[2]


class Run:
    """A run folder whose history and traces are written piece by piece."""

    def __init__(self, path: Path) -> None:
        self.sources = RunSources(
            run=path,
            traces=tuple(
                TraceFolder(group="broker-a", node=node, path=path / "nodes" / node / "trace")
                for node in NODES
            ),
            started_ns=100,
        )

    def trace_path(self, node: str, incarnation: int) -> Path:
        return self.sources.run / "nodes" / node / "trace" / f"{incarnation:06d}"

    def append(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def append_history(self, *records: Sequence[object]) -> None:
        packed = b"".join(msgpack.packb(record) for record in records)
        self.append(self.sources.run / HISTORY_FILE, packed)

    def append_events(self, node: str, incarnation: int, count: int, *, t: int = 500) -> None:
        path = self.trace_path(node, incarnation)
        told = path.stat().st_size if path.exists() else 0
        events = (
            {
                "incarnation": incarnation,
                "seq": told + at,
                "t": t + at,
                "event": "commit",
                "term": 1,
            }
            for at in range(count)
        )
        self.append(path, b"".join(msgpack.packb(event) for event in events))


def _op(handle: int, t_invoke: int, f: str) -> list[object]:
    return [INVOKE, handle, t_invoke, {"f": f, "process": "p", "topic": "orders"}]


def _completion(handle: int, t_complete: int) -> list[object]:
    message = ["v", "U", ["k"], "broker-a", "orders", 1, handle, *[None] * 6]
    return [COMPLETE, handle, t_complete, "ok", {"messages": [message]}]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def _tables(made: ConvertedTables) -> list[pa.Table]:
    raft = pq.read_table(made.raft.path).sort_by(
        [("node", "ascending"), ("incarnation", "ascending"), ("seq", "ascending")]
    )
    tables = [pq.read_table(made.ops.path), pq.read_table(made.faults.path), raft]
    assert [table.num_rows for table in tables] == [
        made.ops.rows,
        made.faults.rows,
        made.raft.rows,
    ]
    return tables


# (a file's number, how much is written of what is left of it) or None: the converter catches up.
STEPS = st.lists(st.none() | st.tuples(st.integers(0, 3), st.integers(1, 120)), max_size=30)


@given(
    steps=STEPS,
    ops=st.lists(
        st.tuples(st.integers(0, 50), st.none() | st.integers(0, 50), st.integers(0, 3)),
        max_size=12,
    ),
    rows_per_batch=st.integers(1, 5),
)
def test_tables_are_the_same_however_often_it_caught_up(
    steps: list[tuple[int, int] | None],
    ops: list[tuple[int, int | None, int]],
    rows_per_batch: int,
) -> None:
    records: list[list[object]] = []
    for handle, (t_invoke, took, behind) in enumerate(ops):
        records.append(_op(handle, t_invoke, "send"))
        if took is not None:  # completions come in another order than invocations
            records.append(_completion(handle, t_invoke + took))
            moved = records.pop()
            open_from = next(at for at, record in enumerate(records) if record[1] == handle)
            records.insert(max(open_from + 1, len(records) - behind), moved)
    records.append([FAULT, 0, {"name": "kill", "targets": ["n0"]}])
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_converter, "_ROWS_PER_BATCH", rows_per_batch)
        whole, pieces = Run(Path(folder) / "whole"), Run(Path(folder) / "pieces")
        whole.append_history(*records)
        for node, incarnation in (("n0", 1), ("n0", 2), ("n1", 1)):
            whole.append_events(node, incarnation, 4)
        at_once = _tables(TableConverter(whole.sources).finish())
        names = [
            HISTORY_FILE,
            *(f"nodes/{node}/trace/{number:06d}" for node, number in (("n0", 1), ("n0", 2))),
            "nodes/n1/trace/000001",
        ]
        left = {name: (whole.sources.run / name).read_bytes() for name in names}
        converter = TableConverter(pieces.sources)
        for step in steps:
            if step is None:
                converter.catch_up()
                continue
            name = names[step[0]]
            pieces.append(pieces.sources.run / name, left[name][: step[1]])
            left[name] = left[name][step[1] :]
        for name, data in left.items():
            pieces.append(pieces.sources.run / name, data)
        assert _tables(converter.finish()) == at_once


def test_a_trace_that_was_read_and_has_gone(run: Run) -> None:
    run.append_events("n0", 1, 3)
    converter = TableConverter(run.sources)
    converter.catch_up()
    shutil.rmtree(run.trace_path("n0", 1).parent)
    with pytest.raises(TraceChangedError, match="000001 has gone"):
        converter.catch_up()


@pytest.mark.parametrize("count", [1, 5])
def test_a_trace_that_is_another_file(run: Run, count: int) -> None:
    run.append_events("n0", 1, 3)
    converter = TableConverter(run.sources)
    converter.catch_up()
    path = run.trace_path("n0", 1)
    path.rename(path.with_suffix(".old"))
    run.append_events("n0", 1, count)
    path.with_suffix(".old").unlink()
    with pytest.raises(TraceChangedError, match="000001 is another file"):
        converter.catch_up()


@pytest.mark.parametrize("count", [3, 5])
def test_a_trace_that_is_another_file_of_the_same_inode(run: Run, count: int) -> None:
    """Some file systems give the number of a deleted file to the next one."""
    run.append_events("n0", 1, 3)
    converter = TableConverter(run.sources)
    converter.catch_up()
    os.truncate(run.trace_path("n0", 1), 0)
    run.append_events("n0", 1, count, t=700)
    with pytest.raises(TraceChangedError, match="000001 is another file"):
        converter.catch_up()


def test_what_is_no_event(run: Run) -> None:
    run.append(run.trace_path("n1", 1), msgpack.packb(7))
    with pytest.raises(HistoryError, match="no event before byte 1"):
        TableConverter(run.sources).finish()


# The process -------------------------------------------------------------------------------------


@contextmanager
def _live(run: Run) -> Iterator[tuple[LiveTables, int]]:
    """And its pid."""
    with LiveTables(run.sources) as live:
        live.start()
        assert live._process is not None
        yield live, live._process.pid


def _begins(run: Run) -> Callable[[], bool]:
    """Whether the converter has opened its file."""
    return (run.sources.run / "raft" / "raft.parquet").exists


def test_a_process_makes_them_meanwhile(run: Run) -> None:
    with _live(run) as (live, pid):
        run.append_history(_op(0, 5, "send"), _op(1, 7, "poll"))
        run.append_events("n0", 1, 3)
        await_until(_begins(run), "nothing is converted")
        run.append_history(_completion(1, 9), _completion(0, 11))
        run.append_events("n0", 2, 2)
        made = live.finish()
    assert not Path(f"/proc/{pid}").exists()
    ops, faults, raft = _tables(made)
    assert [row["f"] for row in ops.to_pylist()] == ["send", "poll"]
    assert (faults.num_rows, raft.num_rows) == (0, 5)


def test_a_process_that_is_killed_costs_nothing(run: Run) -> None:
    with _live(run) as (live, pid):
        run.append_history(_op(0, 5, "send"))
        run.append_events("n0", 1, 3)
        await_until(_begins(run), "nothing is converted")
        os.kill(pid, signal.SIGKILL)
        made = live.finish()
    assert [table.num_rows for table in _tables(made)] == [1, 0, 3]


def test_a_replica_whose_store_was_replaced(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    with _live(run) as (live, _):
        run.append_history(_op(0, 5, "send"))
        run.append_events("n0", 1, 3)
        process = live._process
        assert process is not None
        await_until(_begins(run), "nothing is converted")
        times = itertools.count(1_000, 10)

        def replaced() -> bool:
            """Replace the file by one with other times, until the process has read one before."""
            shutil.rmtree(run.trace_path("n0", 1).parent)
            run.append_events("n0", 1, 2, t=next(times))
            return process.poll() is not None

        await_until(replaced, "it goes on")
        made = live.finish()
    assert [table.num_rows for table in _tables(made)] == [1, 0, 2]
    assert "tables are made at the end" in capfd.readouterr().err


def test_what_can_not_be_converted_is_told_at_the_end(run: Run) -> None:
    run.append_history(_completion(0, 9))
    with _live(run) as (live, pid), pytest.raises(HistoryError, match="was not open"):
        live.finish()
    assert not Path(f"/proc/{pid}").exists()
    assert not (run.sources.run / "raft").exists()


def test_what_is_given_up_leaves_neither_process_nor_file(run: Run) -> None:
    run.append_history(_op(0, 5, "send"))
    with _live(run) as (_, pid):
        await_until(_begins(run), "nothing is converted")
    assert not Path(f"/proc/{pid}").exists()
    assert not (run.sources.run / "raft").exists()


STARTER = """
import sys, time
from pathlib import Path
from chaos.recording.live_tables import LiveTables
from chaos.recording.table_converter import RunSources
with LiveTables(RunSources(run=Path(sys.argv[1]), traces=(), started_ns=0)) as live:
    live.start()
    print(live._process.pid, flush=True)
    time.sleep(60)
"""


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    await_until(lambda: not Path(f"/proc/{pid}").exists(), "the converter lives on")
