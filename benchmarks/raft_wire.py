"""Microseconds that Raft's messages take: to make one, to encode it, to decode it.

Run: `python -m benchmarks.raft_wire`. Every figure is processor time, the best of twenty repeats,
so that other load on the machine matters least.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from raft.messages import AppendEntries, AppendEntriesReply, Entry, EntryKind, NodeId, PeerMessage
from raft.peers.frame_reader import PREFIX_SIZE
from raft.peers.wire import decode_message, encode_message


def report(name: str, call: Callable[[], object], number: int = 2_000) -> None:
    best = float("inf")
    for _ in range(20):
        began = time.process_time_ns()
        for _ in range(number):
            call()
        best = min(best, (time.process_time_ns() - began) / number)
    print(f"{name:40} {best / 1000:8.2f} us")


def reply() -> AppendEntriesReply:
    return AppendEntriesReply(
        sender=NodeId("n1"),
        receiver=NodeId("n0"),
        term=3,
        success=True,
        match_index=123_456,
        rejected_prev_index=0,
        conflict_index=0,
        conflict_term=0,
        read_round=5,
        writable=True,
    )


def append(count: int, size: int) -> AppendEntries:
    return AppendEntries(
        sender=NodeId("n0"),
        receiver=NodeId("n1"),
        term=3,
        prev_log_index=7,
        prev_log_term=3,
        entries=tuple(
            Entry(index=8 + place, term=3, kind=EntryKind.DATA, payload=bytes(size))
            for place in range(count)
        ),
        leader_commit=7,
        read_round=5,
    )


def carried(name: str, message: PeerMessage) -> None:
    frame = memoryview(b"".join(encode_message(message)))[PREFIX_SIZE:]
    report(f"encode {name}", lambda: encode_message(message))
    report(f"decode {name}", lambda: decode_message(frame))


def main() -> None:
    report("make AppendEntriesReply", reply)
    carried("AppendEntriesReply", reply())
    carried("AppendEntries, none", append(0, 0))
    carried("AppendEntries, one of 1,400 B", append(1, 1_400))
    carried("AppendEntries, 32 of 100 B", append(32, 100))


if __name__ == "__main__":
    main()
