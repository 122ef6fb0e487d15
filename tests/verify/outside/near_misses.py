"""Legal oddities: what the format's page exempts, and what nobody may be accused of.

Place in the data path: a list for `campaign` and the tests. Each quotes the words that make it
legal; those that the page calls undecidable name the checks that have to be `unknown`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.verify.outside.planting import FIVE, PLAIN, RETAINED, TWO, NearMiss
from tests.verify.outside.plants_transactions import discarded_early
from tests.verify.outside.run_rows import MS, SECOND, Row, Run
from tests.verify.outside.surgery import (
    at,
    attempts_of,
    events,
    forget_reads,
    reads_of,
    records_of,
    renumber,
    replace_row,
    sends,
)

__all__ = ["NEAR_MISSES"]

_TRACED = frozenset("R5 R6 R7 R8 R9 R10 R11 R13 S3 S4 A20 A21".split())
MEMBERS = replace(PLAIN, members=True, remove_member=True, seed=15)
LIMITED = replace(PLAIN, limits=True)


def _commit_time(run: Run, record: Row) -> int:
    return min(
        row["t"]
        for row in events(run, "commit", group=record["broker_group"])
        if row["index"] >= record["index"]
    )


def _acked_at(shift: int, clock_error: int = 0) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["clock_error_ns"] = clock_error
        for row in sends(run):
            record = records_of(run, row["messages"][0]["value"])[0]
            time = _commit_time(run, record) + shift
            if row["t_invoke"] <= time <= row["t_complete"]:
                row["t_complete"] = time

    return change


def _sent_at_append(shift: int, clock_error: int = 0) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["clock_error_ns"] = clock_error
        for f in ("send", "half"):
            for row in sends(run, f=f):
                record = records_of(run, row["messages"][0]["value"])[0]
                appends = [
                    e["t"]
                    for e in events(run, "append", group=record["broker_group"], index=record["index"])
                    if e["entry_term"] == record["term"]
                ]
                if row["t_invoke"] <= min(appends) + shift <= row["t_complete"]:
                    row["t_invoke"] = min(appends) + shift
        run.number_ops()

    return change


def _shown_at_commit(run: Run) -> None:
    """Polls that begin and end in the very moment of the commit."""
    for row in run.ops:
        if row["f"] == "poll" and row["type"] == "ok" and row["messages"]:
            value = row["messages"][-1]["value"]
            found = records_of(run, value, kind="final") or records_of(run, value, kind="message")
            if found:
                time = _commit_time(run, found[0])
                if row["t_invoke"] <= time <= row["t_complete"]:
                    row["t_complete"] = time


def _decided_at_append(run: Run) -> None:
    for row in run.ops:
        if row["f"] == "decide" and row["type"] == "ok" and row["decision"] == "commit":
            finals = [r for r in run.log if r["tx"] == row["tx"] and r["kind"] == "final"]
            index = finals[0]["index"]
            time = min(e["t"] for e in events(run, "append", index=index, group=row["broker_group"]))
            if row["t_invoke"] < time < row["t_complete"]:
                row["t_invoke"] = time
    run.number_ops()


def _acked_again(run: Run) -> None:
    """A successor repeats an old message and is answered with its old offset."""
    row = sends(run, topic="orders", queue=0)[0]
    late = sends(run, topic="orders", queue=0)[-1]
    run.ops.append({**row, "t_invoke": late["t_complete"] + MS, "t_complete": late["t_complete"] + 2 * MS,
                    "process": f"{row['process']}.again", "client": f"{row['client']}.again"})
    row.update(type="info", t_complete=None, status=None)
    row["messages"] = [{**row["messages"][0], "offset": None}]
    run.number_ops()


def _again(run: Run, row: Row, told: Row, **fields: Any) -> None:
    """The same client of a listener gets a message again, later."""
    last = max(r["t_complete"] or r["t_invoke"] for r in run.ops if r["process"] == row["process"])
    run.ops.append(
        {**row, "messages": [{**told, **fields}], "t_invoke": last + MS, "t_complete": last + 2 * MS}
    )
    run.number_ops()


def _deliveries(run: Run) -> list[tuple[Row, Row]]:
    return [
        (row, row["messages"][0])
        for row in run.ops
        if row["f"] == "deliver" and row["type"] == "ok" and len(row["messages"]) == 1
        and len(reads_of(run, row["messages"][0]["value"], group="push", type_=None)) == 1
        and row["messages"][0]["offset"] is not None
    ]


def _reconsumed(run: Run) -> None:
    row, told = _deliveries(run)[2]
    _again(run, row, told, reconsume=2, offset=None)


def _after_a_refusal(type_: str) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        row, told = _deliveries(run)[3]
        _again(run, row, told)
        row["type"] = type_
        if type_ == "info":
            row["t_complete"] = None
            late = [r for r in run.ops if r["process"] == row["process"] and r["op"] > row["op"]]
            for other in late:
                other["process"] = f"{row['process']}.next"

    return change


def _after_an_assign(run: Run) -> None:
    row, told = _deliveries(run)[4]
    last = max(r["t_complete"] or r["t_invoke"] for r in run.ops if r["process"] == row["process"])
    assigns = [r for r in run.ops if r["f"] == "assign" and r["process"] == row["process"]]
    named = {key: row[key] for key in ("broker_group", "topic", "queue")}
    run.ops.append({**assigns[-1], "t_invoke": last, "t_complete": last, "assigned": [named]})
    _again(run, row, told)


def _open_for_ever(run: Run) -> None:
    for row in run.ops:
        if row["type"] == "info":
            row["t_complete"] = None


def _given_up_early(run: Run) -> None:
    """Callers that gave up at once; what they asked for happened later."""
    for row in run.ops:
        if row["type"] == "info":
            row["t_complete"] = row["t_invoke"]


def _leftover_units(run: Run) -> None:
    """ConsumeQueues still have units of what retention took from the log."""
    floors = {
        (q["broker_group"], q["topic"], q["queue"]): q["min_offset"] for q in run.manifest["queues"]
    }
    lowest: dict[tuple[str, str, int, str], Row] = {}
    for row in run.cq:
        key = (row["broker_group"], row["topic"], row["queue"], row["node"])
        if key not in lowest or row["queue_offset"] < lowest[key]["queue_offset"]:
            lowest[key] = row
    left = 0
    for (group, topic, queue, _), row in lowest.items():
        first = row["queue_offset"] - 1
        if 0 <= first < floors[group, topic, queue]:
            run.cq.append({**row, "queue_offset": first, "position": row["position"] - 500})
            left += 1
    assert left


def _query_below_floor(run: Run) -> None:
    """Queries don't show what retention has taken."""
    floors = {
        (q["broker_group"], q["topic"], q["queue"]): q["min_offset"] for q in run.manifest["queues"]
    }
    for row in run.ops:
        if row["f"] == "query" and row["type"] == "ok":
            row["messages"] = [
                m
                for m in row["messages"]
                if m["offset"] >= floors[m["broker_group"], m["topic"], m["queue"]]
            ]


def _fetched_from_info(run: Run) -> None:
    """Every offset that is fetched was committed by an operation of unknown end."""
    for row in run.ops:
        if row["f"] == "commit_offset" and row["client_group"] == "ordered":
            row.update(type="info", t_complete=None)


def _listener_skips(run: Run) -> None:
    """A push group that may lose: A6 leaves deliveries out, A5 such groups."""
    run.manifest["consumer_groups"]["push"]["at_least_once"] = False
    for value in [s["messages"][0]["value"] for s in sends(run)][::7]:
        forget_reads(run, value, group="push")


def _no_digests(run: Run) -> None:
    for row in run.ops:
        for told in row.get("messages") or ():
            told["digest"] = None
    for record in run.log:
        record["digest"] = None


def _sender_took_no_digest(run: Run) -> None:
    value = sends(run)[5]["messages"][0]["value"]
    for row in attempts_of(run, value):
        row["messages"][0]["digest"] = None
    for _, told in reads_of(run, value):
        told["digest"] = 99


def _in_grace(run: Run) -> None:
    """A question that was on its way when the decision was acknowledged."""
    row = next(
        r for r in run.ops if r["f"] == "decide" and r["type"] == "ok" and r["decision"] == "commit"
    )
    time = row["t_complete"] + 1000 * MS
    run.ops.append({**row, "f": "check", "process": "b1.late", "t_invoke": time, "t_complete": time + MS})
    run.number_ops()


def _under_a_fault(run: Run) -> None:
    """Asked too seldom, while a fault of another group kept questions from arriving."""
    run.faults.append(
        {
            "fault": len(run.faults),
            "name": "cut-client",
            "targets": ["b1"],
            "params": "{}",
            "t_start": SECOND,
            "t_effect": None,
            "t_heal": None,
            "t_healed": None,
            "effect": "unknown",
            "evidence": "nobody looked",
        }
    )


def _info_half(run: Run) -> None:
    """Its producer committed at home; whether the half was ever stored is not known."""
    half = next(r for r in run.ops if r["f"] == "half" and r["type"] == "ok")
    like = {**half, "type": "info", "t_complete": None, "tx": "b1-x900", "offset": None,
            "process": "b1.lost", "status": None}
    like["messages"] = [{**half["messages"][0], "value": "b1.t900", "uniq_key": "U-b1.t900",
                         "tx": "b1-x900"}]
    run.ops.append(like)
    run.ops.append({**half, "f": "local", "messages": None, "offset": None, "tx": "b1-x900",
                    "decision": "commit", "process": "b1.lost2", "status": None})
    run.number_ops()


def _votes_again(run: Run) -> None:
    for vote in events(run, "vote"):
        replace_row(run.raft, vote, vote, dict(vote))
    renumber(run)


def _no_states(run: Run) -> None:
    run.raft[:] = [row for row in run.raft if row["event"] != "state"]
    renumber(run)


def _manifest(**changes: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        for key, value in changes.items():
            if value is ...:
                run.manifest.pop(key)
            else:
                run.manifest[key] = value

    return change


def _short_overlap(run: Run) -> None:
    """Two members hold a queue for less than rebalance_ms."""
    for told in run.manifest["consumer_groups"].values():
        told["rebalance_ms"] = 30_000
    rows = [r for r in run.ops if r["f"] == "assign" and r["client_group"] == "ordered"]
    everything = [q for r in rows for q in r["assigned"]]
    unique = {(q["broker_group"], q["topic"], q["queue"]): q for q in everything}
    for row in rows:
        row["assigned"] = list(unique.values())


def _shuffled(run: Run) -> None:
    rng = random.Random(5)
    for table in (run.ops, run.raft, run.log, run.cq, run.faults):
        rng.shuffle(table)


def _unlisted(*tables: str, system: str = "other") -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["system"] = system
        run.unlisted = set(tables)

    return change


def _found_later(run: Run) -> None:
    """The first drain stopped short of a message; the second one showed it."""
    polls = [r for r in run.ops if r["f"] == "poll" and r["final"] and r["client"] == "drain1"]
    last = [r for r in polls if r["messages"] and r["topic"] == "pay"][-1]
    last["messages"] = last["messages"][:-1]


def _not_drained(run: Run) -> None:
    for queue in run.manifest["queues"]:
        queue["drained"] = False


def _not_drained_and_unread(run: Run) -> None:
    _not_drained(run)
    value = sends(run, topic="pay")[-1]["messages"][0]["value"]
    forget_reads(run, value, group="push")


def _no_fault_taken(run: Run) -> None:
    for row in run.faults:
        row["effect"] = "not_taken"


def _healed_too_late(run: Run) -> None:
    for row in run.faults:
        row["t_healed"] = 26 * SECOND


def _late_trace(run: Run) -> None:
    """Traces that begin only after the first entries."""
    run.raft[:] = [row for row in run.raft if not (row["event"] == "append" and row["index"] == 12)]
    renumber(run)


def _read_in_the_same_moment(run: Run) -> None:
    """A stale leader is asked in the very moment in which its successor commits."""
    leaders = events(run, "role", role="leader", group="broker-a")
    old, new = leaders[0], leaders[1]
    read = events(run, "read", node=old["node"], term=old["term"])[-1]
    commits = events(run, "commit", node=new["node"], term=new["term"])
    first = next(row for row in commits if row["index"] > read["index"])
    read["t_begin"] = first["t"]
    read["t"] = first["t"] + MS


def _fsync_in_the_same_moment(run: Run) -> None:
    """Followers tell their fsyncs in the moment of the commit that counts them."""
    first: dict[tuple[str, int], Row] = {}
    for commit in sorted(events(run, "commit"), key=lambda row: -row["t"]):
        first[commit["broker_group"], commit["index"]] = commit
    following = {(r["broker_group"], r["node"], r["seq"] - 1): r for r in run.raft}
    for row in events(run, "fsync"):
        group = row["broker_group"]
        # An fsync covers all before it: the earliest commit that may have counted it.
        waiting = [first.get((group, row["index"] - back)) for back in range(4)]
        times = [commit["t"] for commit in waiting if commit and commit["t"] > row["t"]]
        after = following.get((group, row["node"], row["seq"]))
        if times and after is not None and after["t"] >= min(times):
            row["t"] = min(times)
    run.raft.sort(key=lambda row: (row["broker_group"], row["node"], row["seq"]))


def _renamed(run: Run) -> None:
    """Values and keys that are no ASCII."""
    def other(name: str | None) -> str | None:
        return None if name is None else name.replace(".v", ".\u00fc\u20ac'\"\U0001f600")

    for row in [*run.ops, *run.log]:
        for told in [row, *(row.get("messages") or ())]:
            for key in ("value", "uniq_key", "key"):
                if key in told:
                    told[key] = other(told[key])


def _failed_first(run: Run) -> None:
    """An attempt that surely failed, then one that was acknowledged."""
    for row in sends(run)[::9]:
        told = [{**row["messages"][0], "offset": None}]
        run.ops.append({**row, "type": "fail", "status": None, "error": "NO_LEADER", "messages": told,
                        "process": f"{row['process']}-{row['op']}",
                        "t_invoke": row["t_invoke"] - 4, "t_complete": row["t_invoke"] - 1})
    run.number_ops()


def _sees_what_is_on_its_way(run: Run) -> None:
    """Queries that were asked before the acknowledgement, and lack the message."""
    for row in run.ops:
        if row["f"] == "query" and row["type"] == "ok" and len(row["messages"]) == 1:
            told = row["messages"][0]
            acks = [a for a in attempts_of(run, told["value"]) if a["f"] == "send" and a["type"] == "ok"]
            if acks and len(acks[0]["messages"]) == 1:
                time = acks[0]["t_invoke"]
                row.update(t_invoke=time, t_complete=time + MS, messages=[], process=f"tool-{row['op']}")
                break
    run.number_ops()


def _legal(name: str, why: str, change: Any = None, base: Any = PLAIN, unknown: str = "") -> NearMiss:
    return NearMiss(name=name, why=why, base=base, change=change, unknown=frozenset(unknown.split()))


NEAR_MISSES: Final[tuple[NearMiss, ...]] = (
    _legal("acked in the moment of the commit", "Equal times are legal everywhere", _acked_at(0)),
    _legal("acked a moment before, by another clock", "further apart than clock_error_ns", _acked_at(-MS, 2 * MS)),
    _legal("sent in the moment of the append", "Equal times are legal everywhere", _sent_at_append(0), FIVE),
    _legal("sent a moment after, by another clock", "further apart than clock_error_ns", _sent_at_append(MS, 2 * MS)),
    _legal("shown in the moment of the commit", "Equal times are legal everywhere", _shown_at_commit, TWO),
    _legal("decided in the moment of the append", "Equal times are legal everywhere", _decided_at_append),
    _legal("a retry is answered with the old offset", "A8: an acked retry is left out", _acked_again),
    _legal("delivered again, reconsumed", "a cause: reconsume > 0", _reconsumed),
    _legal("delivered again after a refusal", "an earlier read of it with fail", _after_a_refusal("fail")),
    _legal("delivered again after a crash", "or info", _after_a_refusal("info")),
    _legal("delivered again after an assign", "an assign row of a member that names its queue", _after_an_assign),
    _legal("infos are open for ever", "t_complete is null where no answer ever came", _open_for_ever, FIVE),
    _legal("infos were given up at once", "whenever its caller gave up", _given_up_early, TWO),
    _legal("units below the floor", "Units below are left over and prove nothing", _leftover_units, RETAINED),
    _legal("queries without what retention took", "S8: what stands only below it", _query_below_floor, RETAINED),
    _legal("fetched what an info had committed", "commit_offset (ok or info)", _fetched_from_info),
    _legal("a push group that may lose, and does", "at_least_once; deliver rows are exempt", _listener_skips),
    _legal("no digests at all", "no digest in any read or row leaves A18 out", _no_digests),
    _legal("an attempt without a digest", "A value one of whose attempts has no digest is not judged", _sender_took_no_digest),
    _legal("a check within the grace", "grace is one check_interval", _in_grace),
    _legal("a half of type info, committed at home", "a half of type info is left out", _info_half),
    _legal("each vote is sent again", "again each time it is re-sent", _votes_again, FIVE),
    _legal("no states", "without a state event it is left out", _no_states),
    _legal("nobody looked who was left behind", "absent: A17 is left out", _manifest(left_behind=...)),
    _legal("no clock error told", "0 or absent: one clock", _manifest(clock_error_ns=...)),
    _legal("a null clock error", "null: 0", _manifest(clock_error_ns=None)),
    _legal("no consumer groups told", "Empty: A12, A13 and S5 are left out", _manifest(consumer_groups={})),
    _legal("transactions not told", "null: T* are left out", _manifest(transactions=None)),
    _legal("no limits", "null: then A14 is left out", _manifest(limits=None), LIMITED),
    _legal("keys that nobody knows", "Columns may be added", _manifest(colour="blue", engine_notes=[1])),
    _legal("no engine told", "what replicates", _manifest(engine=...)),
    _legal("two owners for less than rebalance_ms", "in one stretch longer than rebalance_ms", _short_overlap),
    _legal("rows in any order", "in which order its rows lie is free", _shuffled, TWO),
    _legal("another system without traces", "a table that is not listed leaves its checks out", _unlisted("raft")),
    _legal("another system without logs", "a table that is not listed leaves its checks out", _unlisted("log", "cq")),
    _legal("another system, its history alone", "leaves its checks out", _unlisted("raft", "log", "cq")),
    _legal("the second drain shows it", "and no later read shows it again", _found_later),
    _legal("not drained, all read", "where all are read it passes", _not_drained),
    _legal("a read begun in the moment of a commit", "Equal times are legal everywhere", _read_in_the_same_moment),
    _legal("fsyncs in the moment of the commit", "Equal times are legal everywhere", _fsync_in_the_same_moment),
    _legal("values that are no ASCII", "value string", _renamed),
    _legal("an attempt failed, the next did not", "failed only if all its attempts failed", _failed_first),
    _legal("a query asked before the acknowledgement", "before its t_invoke", _sees_what_is_on_its_way),
    _legal("members come and go", "two configurations that differ in one voter", None, MEMBERS),
    _legal("the first leader's configuration", "it may come before that leader has committed anything", None, replace(FIVE, first_config=True)),
    _legal("halves appended anew at each check", "a half may be appended anew at each check", None, replace(PLAIN, puts_back=True)),
    _legal("stored twice without a window", "dedupe null: may stand at several places", None, replace(PLAIN, dedupe=False, seed=9)),
    _legal("replicas slow to apply", "above the node's applied index: owes no unit", None, replace(TWO, slow_apply=True)),
    _legal("the original topic, no offset", "with offset null where the client hides that", None, replace(PLAIN, push_hides=True)),
    _legal("something under way at the stop", "committed: at or below the commit index at the stop", None, replace(FIVE, last_breath=True)),
    _legal("a start finds more than was told", "killed between storing and telling", None, replace(PLAIN, seed=1, faults=("kill-leader",) * 3)),
    NearMiss(
        name="asked too seldom under a fault",
        why="a failure only where no fault overlaps the time",
        base=PLAIN,
        change=_under_a_fault,
        script=discarded_early("broker-a", 7 * SECOND),
    ),
    # What can't be decided.
    _legal("not drained, and unread", "unknown for the values that are unread", _not_drained_and_unread, unknown="A5"),
    _legal("no fault was taken", "a run with no fault taken is unknown by A16", _no_fault_taken, unknown="A16"),
    _legal("nothing acknowledged after the heal", "unknown by A16", _healed_too_late, unknown="A16"),
    _legal("traces that begin late", "else R5 to R11, R13, S3, S4, A20 and A21 are unknown", _late_trace, unknown=" ".join(sorted(_TRACED))),
)
