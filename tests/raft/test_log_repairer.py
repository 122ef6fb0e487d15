"""What a node hands out of a damaged log, and what it concludes from what peers send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgpack
import pytest

from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import (
    Entry,
    EntryKind,
    FetchEntries,
    FetchEntriesReply,
    Index,
    LogBase,
    NodeId,
    PeerMessage,
)
from raft.node.trace_events import TraceEvents
from raft.repair.log_repairer import LogRepairer
from raft.store.trace import RaftTrace

SIZE = 100
FULL = HEADER_SIZE + SIZE
PER_SEGMENT = 10


def entries(first: Index, last: Index, fill: bytes = b"x") -> list[Entry]:
    return [
        Entry(index=index, term=1, kind=EntryKind.DATA, payload=fill * SIZE)
        for index in range(first, last + 1)
    ]


def opened(store: Path) -> SegmentLog:
    return SegmentLog(OsDisk(store), "commitlog", segment_size_bytes_max=PER_SEGMENT * FULL)


def write(store: Path, written: Sequence[Entry]) -> None:
    log = opened(store)
    log.append(written)
    log.sync()
    log.close()


def spoil(store: Path, offset: int, data: bytes) -> None:
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offset)
        file.write(data)


class Node:
    """A log with its repairer, and what that has sent and done."""

    def __init__(self, name: str, store: Path, *, commit_index: Index) -> None:
        self.node_id = NodeId(name)
        self.now_ms = 0
        self.sent: list[PeerMessage] = []
        self.truncated: list[Index] = []
        self.in_vain = 0
        self.passed_over = {NodeId("c")}
        self.log = opened(store)
        self.repairer = LogRepairer(
            self.node_id,
            self.log,
            scrub_rate_bytes_per_s=0,
            scrub_interval_s=0,
            now_ms=lambda: self.now_ms,
            peers=lambda: {NodeId("a"), NodeId("b"), NodeId("c")} - self.passed_over,
            commit_index=lambda: commit_index,
            send=self.sent.append,
            end_at=self.end_at,
            repaired=lambda: None,
            in_vain=self.count_in_vain,
        )

    def count_in_vain(self) -> None:
        self.in_vain += 1

    def end_at(self, cut: LogBase) -> None:
        self.truncated.append(cut.index + 1)
        self.log.end_at(cut)

    def answer_to(self, request: PeerMessage) -> FetchEntriesReply:
        assert isinstance(request, FetchEntries)
        self.repairer.on_fetch(request)
        reply = self.sent.pop()
        assert isinstance(reply, FetchEntriesReply)
        return reply


def damages(log: SegmentLog) -> list[tuple[Index, Index]]:
    return [(damage.first_index, damage.last_index) for damage in log.damages]


def find(node: Node) -> None:
    """As a scrub does."""
    step = node.log.scrub().step(1 << 20)
    node.log.note_damages(step.damages)


def mend(asking: Node, answering: Node) -> None:
    """As long as it asks for something."""
    for _ in range(100):
        asking.now_ms += 1_000
        asking.repairer._check_damages()
        if not asking.sent:
            return
        asking.repairer.on_reply(answering.answer_to(asking.sent.pop()))


def traced_start(node: Node, directory: Path) -> list[tuple[str, Index]]:
    """What a node with this log tells as it starts."""
    directory.mkdir()
    trace = RaftTrace(directory, 1)
    TraceEvents(trace, node.log, node.node_id, 1).started(1, [node.node_id])
    trace.flush()
    trace.close()
    (file,) = directory.iterdir()
    return [(event["event"], event["index"]) for event in msgpack.Unpacker(file.open("rb"))]


def test_a_good_copy_mends(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, entries(1, 20))
    spoil(tmp_path / "a", 3 * FULL + HEADER_SIZE, b"?")
    a, b = Node("a", tmp_path / "a", commit_index=0), Node("b", tmp_path / "b", commit_index=20)
    find(a)
    assert damages(a.log) == [(4, 4)]
    mend(a, b)
    assert damages(a.log) == []
    assert a.log.entries(1, 21, 1 << 20) == tuple(entries(1, 20))


def test_nobody_counts_as_silent_while_the_log_is_left_alone(tmp_path: Path) -> None:
    """Replies are thrown away meanwhile, so that nothing is asked, and nothing begun is lost."""
    for name in ("a", "b"):
        write(tmp_path / name, entries(1, 20))
    spoil(tmp_path / "a", 3 * FULL + HEADER_SIZE, b"?")
    a, b = Node("a", tmp_path / "a", commit_index=0), Node("b", tmp_path / "b", commit_index=20)
    find(a)
    a.repairer._check_damages()
    reply = b.answer_to(a.sent.pop())
    with a.repairer.leaving_alone():
        a.repairer.on_reply(reply)
        for _ in range(100):
            a.now_ms += 1_000
            a.repairer._check_damages()
        assert (a.sent, a.in_vain) == ([], 0)
    mend(a, b)
    assert (damages(a.log), a.in_vain) == ([], 0)


def test_what_others_have_committed_instead_was_never_committed_here(tmp_path: Path) -> None:
    write(tmp_path / "a", entries(1, 20))
    write(tmp_path / "b", entries(1, 4) + entries(5, 22, b"y"))
    spoil(tmp_path / "a", 6 * FULL + HEADER_SIZE, b"?")
    a, b = Node("a", tmp_path / "a", commit_index=4), Node("b", tmp_path / "b", commit_index=22)
    find(a)
    mend(a, b)
    assert a.truncated == [6], "they are for the leader to send"
    assert damages(a.log) == []
    assert a.log.entries(1, 6, 1 << 20) == tuple(entries(1, 5)), "and so is the fifth"
    assert traced_start(a, tmp_path / "raft") == [("start", 20), ("truncate", 6)]
    a.log.close()
    again = Node("a", tmp_path / "a", commit_index=4)
    assert traced_start(again, tmp_path / "again") == [("start", 5)]


def test_entries_that_may_be_stale_prove_nothing(tmp_path: Path) -> None:
    """The peer's first entries are an earlier writing, whole in itself; what follows contradicts
    them. It knows that, and that it had committed all of them: the right ones."""
    for name in ("a", "b"):
        write(tmp_path / name, entries(1, 20))
    write(tmp_path / "stale", entries(1, 5, b"s"))
    stale = (tmp_path / "stale" / "commitlog" / f"{0:020d}").read_bytes()[: 5 * FULL]
    spoil(tmp_path / "b", 0, stale)
    spoil(tmp_path / "b", 5 * FULL + HEADER_SIZE, b"?")
    (tmp_path / "b" / "commitlog" / f"{0:020d}.index").unlink()
    spoil(tmp_path / "a", 3 * FULL + HEADER_SIZE, b"?")
    a, b = Node("a", tmp_path / "a", commit_index=0), Node("b", tmp_path / "b", commit_index=20)
    find(a)
    (damage,) = b.log.damages
    assert (damage.suspect_index, damage.first_index) == (1, 6)
    mend(a, b)
    assert a.truncated == [], "it may have acknowledged them"
    assert damages(a.log) == [(4, 4)]
    assert a.log.entries(5, 21, 1 << 20) == tuple(entries(5, 20))


@pytest.mark.parametrize("wrong", ["b", "c"])
@pytest.mark.parametrize("committed", [0, 20])
def test_a_wrong_peer_has_what_was_confirmed_doubted_no_more(
    tmp_path: Path, wrong: str, committed: Index
) -> None:
    """One has another tail, never committed, the other the right entries. Asking both in turn was
    endless where what stands before the damage was doubted and confirmed again and again."""
    right = "c" if wrong == "b" else "b"
    for name in ("a", right):
        write(tmp_path / name, entries(1, 20))
    write(tmp_path / wrong, entries(1, 1) + entries(2, 20, b"y"))
    spoil(tmp_path / "a", 3 * FULL + HEADER_SIZE, b"?")
    (tmp_path / "a" / "commitlog" / f"{0:020d}.index").unlink()
    nodes = {
        right: Node(right, tmp_path / right, commit_index=committed),
        wrong: Node(wrong, tmp_path / wrong, commit_index=1),
    }
    a = Node("a", tmp_path / "a", commit_index=0)
    a.passed_over.clear()
    (damage,) = a.log.damages
    assert (damage.suspect_index, damage.first_index) == (1, 4)
    a.repairer._check_damages()
    count = 0
    while a.sent:
        request = a.sent.pop()
        count += 1
        assert count < 10, "at once, and for ever"
        a.repairer.on_reply(nodes[request.receiver].answer_to(request))
    assert (damages(a.log), a.in_vain) == ([], 0)
    assert a.log.entries(1, 21, 1 << 20) == tuple(entries(1, 20))
