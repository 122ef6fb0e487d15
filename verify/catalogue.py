"""All checks, in the order in which a verdict lists them.

Place in the data path: `verify.run` goes through it; a check that is not here is not run. Which
promise a check belongs to, which tables it needs, and what makes it apply are told here and
nowhere else.

The promises are those of the design: G1 durable, G2 once, G3 order, G4 atomic transactions, G5
replicated state, G6 no stale answers, G7 honest outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from verify.checks import (
    availability,
    consensus,
    order,
    places,
    reads,
    replicas,
    transactions,
)
from verify.checks.finding import Check
from verify.counts import Counts
from verify.frames import RECORD_KINDS
from verify.manifest import Manifest

__all__ = ["CHECKS"]


def _ok_reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver", type="ok")


def _acked(counts: Counts) -> int:
    return counts.shown("send", type="ok") + counts.ops("decide", type="ok")


def _reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver")


_NO_READ: Final = "no operation read anything"
_NO_ACK: Final = "nothing was acknowledged"
_NO_HALF: Final = "no transaction was begun"
_NO_EVENT: Final = "no event was traced"


def _halves(counts: Counts) -> int:
    return counts.ops("half")


def _has_transactions(manifest: Manifest, counts: Counts) -> bool:
    return manifest.transactions is not None


def _has_checks(manifest: Manifest, counts: Counts) -> bool:
    """T6 to T9 are about halves that were asked for."""
    return manifest.transactions is not None and counts.ops("check") > 0


def _told(*events: str) -> Callable[[Manifest, Counts], bool]:
    """Applies where our own engine ran, which traces all it does, or the events were told."""
    return lambda manifest, counts: manifest.engine == "raft" or counts.events(*events) > 0


def _has_ordered_shards(manifest: Manifest, counts: Counts) -> bool:
    return counts.sharded > 0 and any(group.ordered for group in manifest.consumer_groups)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="A1",
        name="inconsistent offsets",
        promise="G3",
        needs=("ops",),
        wants=("log",),
        examined=lambda counts: _reads(counts) + counts.committed("message", "final"),
        nothing=_NO_READ,
        find=places.inconsistent_offsets,
    ),
    Check(
        id="A2",
        name="stored twice",
        promise="G2",
        needs=("ops",),
        wants=("log",),
        examined=lambda counts: _reads(counts) + counts.committed("message", "final"),
        nothing=_NO_READ,
        find=places.duplicates,
    ),
    Check(
        id="A3",
        name="aborted read",
        promise="G7",
        needs=("ops",),
        examined=_ok_reads,
        nothing=_NO_READ,
        find=reads.aborted_reads,
    ),
    Check(
        id="A4",
        name="lost write",
        promise="G1",
        needs=("ops",),
        wants=("log",),
        examined=_ok_reads,
        nothing=_NO_READ,
        find=reads.lost_writes,
    ),
    Check(
        id="A5",
        name="acknowledged but unseen",
        promise="G1",
        needs=("ops",),
        wants=("log",),
        examined=_acked,
        nothing=_NO_ACK,
        find=reads.unseen_values,
    ),
    Check(
        id="A11",
        name="unexpected value",
        promise="G7",
        needs=("ops",),
        wants=("log",),
        examined=_reads,
        nothing=_NO_READ,
        find=reads.unexpected_values,
    ),
    Check(
        id="A13",
        name="disorder within a shard",
        promise="G3",
        needs=("ops",),
        applies=_has_ordered_shards,
        examined=_ok_reads,
        nothing=_NO_READ,
        find=order.shard_disorder,
    ),
    Check(
        id="A16",
        name="unavailability",
        promise=None,
        needs=("ops",),
        wants=("faults",),
        examined=lambda counts: counts.ops(type="ok"),
        nothing="no operation was ok",
        find=availability.unavailability,
    ),
    Check(
        id="A17",
        name="replica left behind",
        promise=None,
        needs=("ops",),
        applies=lambda manifest, counts: manifest.left_behind is not None,
        examined=lambda counts: counts.ops(),
        nothing="nothing was done",
        find=availability.left_behind,
    ),
    Check(
        id="S1",
        name="ConsumeQueue differs from the log",
        promise="G3",
        needs=("log", "cq"),
        examined=lambda counts: counts.committed(*RECORD_KINDS) + counts.units,
        nothing="no replica has a committed record",
        find=replicas.consume_queues,
    ),
    Check(
        id="S2",
        name="replicas differ",
        promise="G3",
        needs=("log",),
        examined=lambda counts: counts.committed(),
        nothing="no replica has a committed entry",
        find=replicas.replica_differences,
    ),
    Check(
        id="S6",
        name="phantom read",
        promise="G1",
        needs=("ops", "log"),
        examined=_reads,
        nothing=_NO_READ,
        find=replicas.phantom_reads,
    ),
    Check(
        id="T1",
        name="transaction visible early",
        promise="G4",
        needs=("ops",),
        wants=("log", "raft"),
        applies=_has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.early_visible,
    ),
    Check(
        id="T2",
        name="rolled-back transaction visible",
        promise="G4",
        needs=("ops",),
        wants=("log",),
        applies=_has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.rolled_back_visible,
    ),
    Check(
        id="T3",
        name="committed half lost",
        promise="G4",
        needs=("ops", "log"),
        applies=_has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.committed_half_lost,
    ),
    Check(
        id="T4",
        name="transaction committed twice",
        promise="G4",
        needs=("ops", "log"),
        applies=_has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.double_commits,
    ),
    Check(
        id="T5",
        name="conflicting resolutions",
        promise="G4",
        needs=("ops", "log"),
        applies=_has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.conflicting_resolutions,
    ),
    Check(
        id="T9",
        name="committed half discarded",
        promise="G4",
        needs=("ops", "log"),
        applies=_has_checks,
        examined=_halves,
        nothing=_NO_HALF,
        find=transactions.committed_half_discarded,
    ),
    Check(
        id="R1",
        name="two leaders in a term",
        promise="G6",
        needs=("raft",),
        examined=lambda counts: counts.events_of("role", "leader"),
        nothing="no node became leader",
        find=consensus.two_leaders,
    ),
    Check(
        id="R2",
        name="two votes in a term",
        promise="G6",
        needs=("raft",),
        applies=_told("vote"),
        examined=lambda counts: counts.events("vote"),
        nothing="no vote was traced",
        find=consensus.two_votes,
    ),
    Check(
        id="R3",
        name="term decreases",
        promise="G6",
        needs=("raft",),
        examined=lambda counts: counts.events(),
        nothing=_NO_EVENT,
        find=consensus.term_decreases,
    ),
    Check(
        id="R4",
        name="leader overwrites its log",
        promise="G1",
        needs=("raft",),
        examined=lambda counts: counts.events("append", "truncate"),
        nothing=_NO_EVENT,
        find=consensus.leader_overwrites,
    ),
    Check(
        id="R5",
        name="logs do not match",
        promise="G3",
        needs=("raft",),
        wants=("log",),
        examined=lambda counts: counts.events("append") + counts.records(),
        nothing="no append was traced",
        find=consensus.chains_differ,
    ),
    Check(
        id="R6",
        name="two entries committed at an index",
        promise="G1",
        needs=("raft",),
        wants=("log",),
        examined=lambda counts: counts.events("commit", "apply"),
        nothing="no commit was traced",
        find=consensus.committed_twice,
    ),
    Check(
        id="R8",
        name="commit index goes wrong",
        promise="G1",
        needs=("raft",),
        applies=_told("commit"),
        examined=lambda counts: counts.events("commit"),
        nothing="no commit was traced",
        find=consensus.commit_index_errors,
    ),
    Check(
        id="R10",
        name="applied out of order",
        promise="G5",
        needs=("raft",),
        examined=lambda counts: counts.events("apply"),
        nothing="nothing was applied",
        find=consensus.applied_in_order,
    ),
    Check(
        id="R11",
        name="vote for an older log",
        promise="G1",
        needs=("raft",),
        # Other engines' votes are told without the candidate's log, in whose indexes they think.
        applies=lambda manifest, counts: manifest.engine == "raft",
        examined=lambda counts: counts.events("vote"),
        nothing="no vote was traced",
        find=consensus.votes_for_old_logs,
    ),
    Check(
        id="R12",
        name="stale read",
        promise="G6",
        needs=("raft",),
        applies=lambda manifest, counts: counts.events("read") > 0,
        examined=lambda counts: counts.events("read"),
        nothing="no read was traced",
        find=consensus.stale_reads,
    ),
)
