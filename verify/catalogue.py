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

from pyspark.sql import DataFrame

from verify.checks import (
    availability,
    consensus,
    consumer_offsets,
    deliveries,
    durability,
    freshness,
    order,
    places,
    positions,
    queries,
    reads,
    replicas,
    settlement,
    transactions,
)
from verify.checks.finding import Check
from verify.counts import Counts
from verify.frames import RECORD_KINDS, Frames
from verify.manifest import Manifest

__all__ = ["CHECKS", "OWN_SYSTEM"]

OWN_SYSTEM: Final = "ledgermq"


def _ok_reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver", type="ok")


def _acked(counts: Counts) -> int:
    return counts.shown("send", type="ok") + counts.ops("decide", type="ok")


def _reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver")


def _answers(counts: Counts) -> int:
    return counts.ops("max_offset", type="ok") + counts.finals


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


def _has_polls(manifest: Manifest, counts: Counts) -> bool:
    return counts.ops("poll") > 0


def _told(*events: str) -> Callable[[Manifest, Counts], bool]:
    """Applies where our own engine ran, which traces all it does, or the events were told."""
    return lambda manifest, counts: manifest.engine == "raft" or counts.events(*events) > 0


def _has_ordered_shards(manifest: Manifest, counts: Counts) -> bool:
    return counts.sharded > 0 and any(group.ordered for group in manifest.consumer_groups)


def _of_transactions(
    check_id: str,
    name: str,
    find: Callable[[Frames], DataFrame],
    *,
    needs: tuple[str, ...] = ("ops", "log"),
    wants: tuple[str, ...] = (),
    asked: bool = False,
) -> Check:
    """`asked`: it is about halves that somebody was asked about."""
    return Check(
        id=check_id,
        name=name,
        promise="G4",
        needs=needs,
        wants=wants,
        applies=_has_checks if asked else _has_transactions,
        examined=_halves,
        nothing=_NO_HALF,
        find=find,
    )


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
        id="A6",
        name="reader jumps",
        promise="G3",
        needs=("ops",),
        wants=("log",),
        applies=_has_polls,
        examined=lambda counts: counts.shown("poll", type="ok"),
        nothing=_NO_READ,
        find=positions.poll_jumps,
    ),
    Check(
        id="A7",
        name="jump within a poll",
        promise="G3",
        needs=("ops",),
        wants=("log",),
        applies=_has_polls,
        examined=lambda counts: counts.shown("poll", type="ok"),
        nothing=_NO_READ,
        find=positions.polled_batch_jumps,
    ),
    Check(
        id="A8",
        name="sender goes back",
        promise="G3",
        needs=("ops",),
        applies=lambda manifest, counts: counts.ops("send") > 0,
        examined=lambda counts: counts.shown("send", type="ok"),
        nothing=_NO_ACK,
        find=positions.send_order,
    ),
    Check(
        id="A10",
        name="overtaken in the queue",
        promise="G3",
        needs=("ops",),
        wants=("log",),
        examined=_acked,
        nothing=_NO_ACK,
        find=positions.overtaken_values,
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
        id="A12",
        name="consumed twice",
        promise="G5",
        needs=("ops",),
        applies=lambda manifest, counts: bool(manifest.consumer_groups),
        examined=_ok_reads,
        nothing=_NO_READ,
        find=deliveries.repeated_consumptions,
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
        id="A15",
        name="stale or lost",
        promise="G6",
        needs=("ops",),
        applies=lambda manifest, counts: manifest.system == OWN_SYSTEM or _answers(counts) > 0,
        examined=_answers,
        nothing="there was no final read, and no max offset was asked for",
        find=freshness.stale_answers,
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
        id="S5",
        name="consumer offset rewound",
        promise="G5",
        needs=("ops",),
        wants=("log",),
        applies=lambda manifest, counts: (
            bool(manifest.consumer_groups) and counts.ops("fetch_offset") > 0
        ),
        examined=lambda counts: counts.ops("fetch_offset", "commit_offset", type="ok"),
        nothing="no offset was fetched or committed",
        find=consumer_offsets.consumer_offsets,
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
        id="S8",
        name="query by key differs from the log",
        promise="G5",
        needs=("ops", "log"),
        applies=lambda manifest, counts: counts.ops("query") > 0,
        examined=lambda counts: counts.ops("query", type="ok"),
        nothing="no query was answered",
        find=queries.query_answers,
    ),
    _of_transactions(
        "T1",
        "transaction visible early",
        transactions.early_visible,
        needs=("ops",),
        wants=("log", "raft"),
    ),
    _of_transactions(
        "T2",
        "rolled-back transaction visible",
        transactions.rolled_back_visible,
        needs=("ops",),
        wants=("log",),
    ),
    _of_transactions("T3", "committed half lost", transactions.committed_half_lost),
    _of_transactions("T4", "transaction committed twice", transactions.double_commits),
    _of_transactions("T5", "conflicting resolutions", transactions.conflicting_resolutions),
    _of_transactions(
        "T7",
        "asked about after its decision",
        settlement.checked_after_decision,
        needs=("ops",),
        wants=("log",),
        asked=True,
    ),
    _of_transactions(
        "T8",
        "wrong number of checks",
        settlement.wrong_check_counts,
        wants=("raft", "faults"),
        asked=True,
    ),
    _of_transactions(
        "T9", "committed half discarded", transactions.committed_half_discarded, asked=True
    ),
    _of_transactions("T10", "half and op records disagree", settlement.half_bookkeeping),
    _of_transactions("T11", "producer and message disagree", settlement.disagreeing_producers),
    _of_transactions("T12", "decision for another transaction", settlement.misdirected_decisions),
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
        id="R7",
        name="leader lacks committed entries",
        promise="G1",
        needs=("raft",),
        applies=_told("commit"),
        examined=lambda counts: counts.events_of("role", "leader"),
        nothing="no node became leader",
        find=consensus.incomplete_leaders,
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
        id="R9",
        name="committed before it was durable",
        promise="G1",
        needs=("raft",),
        applies=lambda manifest, counts: (
            manifest.engine == "raft"
            or (counts.events("commit") > 0 and counts.events("fsync") > 0)
        ),
        examined=lambda counts: counts.events("commit"),
        nothing="no commit was traced",
        find=durability.undurable_commits,
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
