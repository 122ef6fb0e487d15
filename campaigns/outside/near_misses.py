"""Legal oddities: what the format's page exempts, and what nobody may be accused of.

Place in the data path: a list for `campaign` and the tests. Each quotes the words that make it
legal; those that the page calls undecidable name the checks that have to be `unknown`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from campaigns.outside.near_miss_changes import (
    acked_again,
    acked_at,
    after_a_refusal,
    after_an_assign,
    decided_at_append,
    failed_first,
    fetched_from_info,
    found_later,
    fsync_in_the_same_moment,
    given_up_early,
    healed_too_late,
    in_grace,
    info_half,
    late_trace,
    leftover_units,
    listener_skips,
    manifest,
    no_digests,
    no_fault_taken,
    no_states,
    not_drained,
    not_drained_and_unread,
    open_for_ever,
    query_below_floor,
    read_in_the_same_moment,
    reconsumed,
    renamed,
    sees_what_is_on_its_way,
    sender_took_no_digest,
    sent_at_append,
    short_overlap,
    shown_at_commit,
    shuffled,
    under_a_fault,
    unlisted,
    votes_again,
)
from campaigns.outside.near_misses_consuming import CONSUMING_NEAR_MISSES
from campaigns.outside.near_misses_operating import OPERATING_NEAR_MISSES
from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, NearMiss
from campaigns.outside.plants_transactions import discarded_early
from campaigns.outside.run_rows import MS, SECOND
from campaigns.outside.second_round import SECOND_NEAR_MISSES

__all__ = ["NEAR_MISSES"]

_TRACED = frozenset(
    ["R5", "R6", "R7", "R8", "R9", "R10", "R11", "R13", "S3", "S4", "A20", "A21", "M6"]
)
MEMBERS = replace(PLAIN, members=True, remove_member=True, seed=15)
LIMITED = replace(PLAIN, limits=True)


def _legal(
    name: str, why: str, change: Any = None, base: Any = PLAIN, unknown: str = ""
) -> NearMiss:
    return NearMiss(
        name=name, why=why, base=base, change=change, unknown=frozenset(unknown.split())
    )


NEAR_MISSES: Final[tuple[NearMiss, ...]] = (
    _legal("acked in the moment of the commit", "Equal times are legal everywhere", acked_at(0)),
    _legal(
        "acked a moment before, by another clock",
        "further apart than clock_error_ns",
        acked_at(-MS, 2 * MS),
    ),
    _legal(
        "sent in the moment of the append",
        "Equal times are legal everywhere",
        sent_at_append(0),
        FIVE,
    ),
    _legal(
        "sent a moment after, by another clock",
        "further apart than clock_error_ns",
        sent_at_append(MS, 2 * MS),
    ),
    _legal(
        "shown in the moment of the commit",
        "Equal times are legal everywhere",
        shown_at_commit,
        TWO,
    ),
    _legal(
        "decided in the moment of the append",
        "Equal times are legal everywhere",
        decided_at_append,
    ),
    _legal(
        "a retry is answered with the old offset", "A8: an acked retry is left out", acked_again
    ),
    _legal("delivered again, reconsumed", "a cause: reconsume > 0", reconsumed),
    _legal(
        "delivered again after a refusal",
        "an earlier read of it with fail",
        after_a_refusal("fail"),
    ),
    _legal("delivered again after a crash", "or info", after_a_refusal("info")),
    _legal(
        "delivered again after an assign",
        "an assign row of a member that names its queue",
        after_an_assign,
    ),
    _legal(
        "infos are open for ever",
        "t_complete is null where no answer ever came",
        open_for_ever,
        FIVE,
    ),
    _legal("infos were given up at once", "whenever its caller gave up", given_up_early, TWO),
    _legal(
        "units below the floor",
        "Units below are left over and prove nothing",
        leftover_units,
        RETAINED,
    ),
    _legal(
        "queries without what retention took",
        "S8: what stands only below it",
        query_below_floor,
        RETAINED,
    ),
    _legal("fetched what an info had committed", "commit_offset (ok or info)", fetched_from_info),
    _legal(
        "a push group that may lose, and does",
        "at_least_once; deliver rows are exempt",
        listener_skips,
    ),
    _legal("no digests at all", "no digest in any read or row leaves A18 out", no_digests),
    _legal(
        "an attempt without a digest",
        "A value one of whose attempts has no digest is not judged",
        sender_took_no_digest,
    ),
    _legal("a check within the grace", "grace is one check_interval", in_grace),
    _legal("a half of type info, committed at home", "a half of type info is left out", info_half),
    _legal("each vote is sent again", "again each time it is re-sent", votes_again, FIVE),
    _legal("no states", "without a state event it is left out", no_states),
    _legal(
        "nobody looked who was left behind", "absent: A17 is left out", manifest(left_behind=...)
    ),
    _legal("no clock error told", "0 or absent: one clock", manifest(clock_error_ns=...)),
    _legal("a null clock error", "null: 0", manifest(clock_error_ns=None)),
    _legal(
        "no consumer groups told",
        "Empty: A12, A13 and S5 are left out",
        manifest(consumer_groups={}),
    ),
    _legal("transactions not told", "null: T* are left out", manifest(transactions=None)),
    _legal("no limits", "null: then A14 is left out", manifest(limits=None), LIMITED),
    _legal(
        "keys that nobody knows", "Columns may be added", manifest(colour="blue", engine_notes=[1])
    ),
    _legal("no engine told", "what replicates", manifest(engine=...)),
    _legal(
        "two owners for less than rebalance_ms",
        "in one stretch longer than rebalance_ms",
        short_overlap,
    ),
    _legal("rows in any order", "in which order its rows lie is free", shuffled, TWO),
    _legal(
        "another system without traces",
        "a table that is not listed leaves its checks out",
        unlisted("raft"),
    ),
    _legal(
        "another system without logs",
        "a table that is not listed leaves its checks out",
        unlisted("log", "cq"),
    ),
    _legal(
        "another system, its history alone", "leaves its checks out", unlisted("raft", "log", "cq")
    ),
    _legal("the second drain shows it", "and no later read shows it again", found_later),
    _legal("not drained, all read", "where all are read it passes", not_drained),
    _legal(
        "a read begun in the moment of a commit",
        "Equal times are legal everywhere",
        read_in_the_same_moment,
    ),
    _legal(
        "fsyncs in the moment of the commit",
        "Equal times are legal everywhere",
        fsync_in_the_same_moment,
    ),
    _legal("values that are no ASCII", "value string", renamed),
    _legal(
        "an attempt failed, the next did not",
        "failed only if all its attempts failed",
        failed_first,
    ),
    _legal(
        "a query asked before the acknowledgement", "before its t_invoke", sees_what_is_on_its_way
    ),
    _legal("members come and go", "two configurations that differ in one voter", None, MEMBERS),
    _legal(
        "the first leader's configuration",
        "it may come before that leader has committed anything",
        None,
        replace(FIVE, first_config=True),
    ),
    _legal(
        "halves appended anew at each check",
        "a half may be appended anew at each check",
        None,
        replace(PLAIN, puts_back=True),
    ),
    _legal(
        "stored twice without a window",
        "dedupe null: may stand at several places",
        None,
        replace(PLAIN, dedupe=False, seed=9),
    ),
    _legal(
        "replicas slow to apply",
        "above the node's applied index: owes no unit",
        None,
        replace(TWO, slow_apply=True),
    ),
    _legal(
        "the original topic, no offset",
        "with offset null where the client hides that",
        None,
        replace(PLAIN, push_hides=True),
    ),
    _legal(
        "something under way at the stop",
        "committed: at or below the commit index at the stop",
        None,
        replace(FIVE, last_breath=True),
    ),
    _legal(
        "a start finds more than was told",
        "killed between storing and telling",
        None,
        replace(PLAIN, seed=1, faults=("kill-leader",) * 3),
    ),
    NearMiss(
        name="asked too seldom under a fault",
        why="a failure only where no fault overlaps the time",
        base=PLAIN,
        change=under_a_fault,
        script=discarded_early("broker-a", 7 * SECOND),
    ),
    # What can't be decided.
    _legal(
        "not drained, and unread",
        "unknown for the values that are unread",
        not_drained_and_unread,
        unknown="A5",
    ),
    _legal(
        "no fault was taken",
        "a run with no fault taken is unknown by A16",
        no_fault_taken,
        unknown="A16",
    ),
    _legal("nothing acknowledged after the heal", "unknown by A16", healed_too_late, unknown="A16"),
    _legal(
        "traces that begin late",
        "else R5 to R11, R13, S3, S4, A20, A21 and M6 are unknown",
        late_trace,
        unknown=" ".join(sorted(_TRACED)),
    ),
    *SECOND_NEAR_MISSES,
    *CONSUMING_NEAR_MISSES,
    *OPERATING_NEAR_MISSES,
)
