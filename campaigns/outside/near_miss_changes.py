"""What makes a run odd, and leaves it legal.

Place in the data path: the changes that `near_misses` lists, each with the words of the format's
page that allow it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import (
    attempts_of,
    events,
    first_commit,
    forget_reads,
    reads_of,
    records_of,
    renumber,
    replace_row,
    sends,
)

__all__ = [
    "acked_again",
    "acked_at",
    "after_a_refusal",
    "after_an_assign",
    "again",
    "decided_at_append",
    "failed_first",
    "fetched_from_info",
    "found_later",
    "fsync_in_the_same_moment",
    "given_up_early",
    "healed_too_late",
    "in_grace",
    "info_half",
    "late_trace",
    "leftover_units",
    "listener_skips",
    "manifest",
    "no_digests",
    "no_fault_taken",
    "no_states",
    "not_drained",
    "not_drained_and_unread",
    "open_for_ever",
    "query_below_floor",
    "read_in_the_same_moment",
    "reconsumed",
    "renamed",
    "sees_what_is_on_its_way",
    "sender_took_no_digest",
    "sent_at_append",
    "short_overlap",
    "shown_at_commit",
    "shuffled",
    "under_a_fault",
    "unlisted",
    "votes_again",
]


def acked_at(shift: int, clock_error: int = 0) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["clock_error_ns"] = clock_error
        for row in sends(run):
            record = records_of(run, row["messages"][0]["value"])[0]
            time = first_commit(run, record) + shift
            if row["t_invoke"] <= time <= row["t_complete"]:
                row["t_complete"] = time

    return change


def sent_at_append(shift: int, clock_error: int = 0) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["clock_error_ns"] = clock_error
        for f in ("send", "half"):
            for row in sends(run, f=f):
                record = records_of(run, row["messages"][0]["value"])[0]
                appends = [
                    e["t"]
                    for e in events(
                        run, "append", group=record["broker_group"], index=record["index"]
                    )
                    if e["entry_term"] == record["term"]
                ]
                if row["t_invoke"] <= min(appends) + shift <= row["t_complete"]:
                    row["t_invoke"] = min(appends) + shift
        run.number_ops()

    return change


def shown_at_commit(run: Run) -> None:
    """Polls that begin and end in the very moment of the commit."""
    for row in run.ops:
        if row["f"] == "poll" and row["type"] == "ok" and row["messages"]:
            value = row["messages"][-1]["value"]
            found = records_of(run, value, kind="final") or records_of(run, value, kind="message")
            if found:
                time = first_commit(run, found[0])
                if row["t_invoke"] <= time <= row["t_complete"]:
                    row["t_complete"] = time


def decided_at_append(run: Run) -> None:
    for row in run.ops:
        if row["f"] == "decide" and row["type"] == "ok" and row["decision"] == "commit":
            finals = [r for r in run.log if r["tx"] == row["tx"] and r["kind"] == "final"]
            index = finals[0]["index"]
            time = min(
                e["t"] for e in events(run, "append", index=index, group=row["broker_group"])
            )
            if row["t_invoke"] < time < row["t_complete"]:
                row["t_invoke"] = time
    run.number_ops()


def acked_again(run: Run) -> None:
    """A successor repeats an old message and is answered with its old offset."""
    row = sends(run, topic="orders", queue=0)[0]
    late = sends(run, topic="orders", queue=0)[-1]
    run.ops.append(
        {
            **row,
            "t_invoke": late["t_complete"] + MS,
            "t_complete": late["t_complete"] + 2 * MS,
            "process": f"{row['process']}.again",
            "client": f"{row['client']}.again",
        }
    )
    row.update(type="info", t_complete=None, status=None)
    row["messages"] = [{**row["messages"][0], "offset": None}]
    run.number_ops()


def again(run: Run, row: Row, message: Row, **fields: Any) -> None:
    """The same client of a listener gets a message again, later."""
    last = max(r["t_complete"] or r["t_invoke"] for r in run.ops if r["process"] == row["process"])
    run.ops.append(
        {
            **row,
            "messages": [{**message, **fields}],
            "t_invoke": last + MS,
            "t_complete": last + 2 * MS,
        }
    )
    run.number_ops()


def deliveries(run: Run) -> list[tuple[Row, Row]]:
    return [
        (row, row["messages"][0])
        for row in run.ops
        if row["f"] == "deliver"
        and row["type"] == "ok"
        and len(row["messages"]) == 1
        and len(reads_of(run, row["messages"][0]["value"], group="push", type_=None)) == 1
        and row["messages"][0]["offset"] is not None
    ]


def reconsumed(run: Run) -> None:
    row, message = deliveries(run)[2]
    again(run, row, message, reconsume=2, offset=None)


def after_a_refusal(type_: str) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        row, message = deliveries(run)[3]
        again(run, row, message)
        row["type"] = type_
        if type_ == "info":
            row["t_complete"] = None
            late = [r for r in run.ops if r["process"] == row["process"] and r["op"] > row["op"]]
            for other in late:
                other["process"] = f"{row['process']}.next"

    return change


def after_an_assign(run: Run) -> None:
    row, message = deliveries(run)[4]
    last = max(r["t_complete"] or r["t_invoke"] for r in run.ops if r["process"] == row["process"])
    assigns = [r for r in run.ops if r["f"] == "assign" and r["process"] == row["process"]]
    named = {key: row[key] for key in ("broker_group", "topic", "queue")}
    run.ops.append({**assigns[-1], "t_invoke": last, "t_complete": last, "assigned": [named]})
    again(run, row, message)


def open_for_ever(run: Run) -> None:
    for row in run.ops:
        if row["type"] == "info":
            row["t_complete"] = None


def given_up_early(run: Run) -> None:
    """Callers that gave up at once; what they requested happened later."""
    for row in run.ops:
        if row["type"] == "info":
            row["t_complete"] = row["t_invoke"]


def leftover_units(run: Run) -> None:
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


def query_below_floor(run: Run) -> None:
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


def fetched_from_info(run: Run) -> None:
    """Every offset that is fetched was committed by an operation of unknown end."""
    for row in run.ops:
        if row["f"] == "commit_offset" and row["client_group"] == "ordered":
            row.update(type="info", t_complete=None)


def listener_skips(run: Run) -> None:
    """A push group that may lose: A6 leaves deliveries out, A5 such groups."""
    run.manifest["consumer_groups"]["push"]["at_least_once"] = False
    for value in [s["messages"][0]["value"] for s in sends(run)][::7]:
        forget_reads(run, value, group="push")


def no_digests(run: Run) -> None:
    for row in run.ops:
        for message in row.get("messages") or ():
            message["digest"] = None
    for record in run.log:
        record["digest"] = None


def sender_took_no_digest(run: Run) -> None:
    value = sends(run)[5]["messages"][0]["value"]
    for row in attempts_of(run, value):
        row["messages"][0]["digest"] = None
    for _, message in reads_of(run, value):
        message["digest"] = 99


def in_grace(run: Run) -> None:
    """A question to another client of the group, on its way as the decision was acknowledged."""
    row = next(
        r for r in run.ops if r["f"] == "decide" and r["type"] == "ok" and r["decision"] == "commit"
    )
    time = row["t_complete"] + 1000 * MS
    run.ops.append(
        {**row, "f": "check", "process": "b1.late", "client": "b1.late"}
        | {"t_invoke": time, "t_complete": time + MS}
    )
    run.number_ops()


def under_a_fault(run: Run) -> None:
    """Checked too seldom, while a fault of another group kept questions from arriving."""
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


def info_half(run: Run) -> None:
    """Its producer committed at home; whether the half was ever stored is not known."""
    half = next(r for r in run.ops if r["f"] == "half" and r["type"] == "ok")
    like = {
        **half,
        "type": "info",
        "t_complete": None,
        "tx": "b1-x900",
        "offset": None,
        "process": "b1.lost",
        "status": None,
    }
    like["messages"] = [
        {**half["messages"][0], "value": "b1.t900", "uniq_key": "U-b1.t900", "tx": "b1-x900"}
    ]
    run.ops.append(like)
    run.ops.append(
        {
            **half,
            "f": "local",
            "messages": None,
            "offset": None,
            "tx": "b1-x900",
            "decision": "commit",
            "process": "b1.lost2",
            "status": None,
        }
    )
    run.number_ops()


def votes_again(run: Run) -> None:
    for vote in events(run, "vote"):
        replace_row(run.raft, vote, vote, dict(vote))
    renumber(run)


def no_states(run: Run) -> None:
    run.raft[:] = [row for row in run.raft if row["event"] != "state"]
    renumber(run)


def manifest(**changes: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        for key, value in changes.items():
            if value is ...:
                run.manifest.pop(key)
            else:
                run.manifest[key] = value

    return change


def short_overlap(run: Run) -> None:
    """Two members hold a queue for less than rebalance_ms."""
    for settings in run.manifest["consumer_groups"].values():
        settings["rebalance_ms"] = 30_000
    rows = [r for r in run.ops if r["f"] == "assign" and r["client_group"] == "ordered"]
    everything = [q for r in rows for q in r["assigned"]]
    unique = {(q["broker_group"], q["topic"], q["queue"]): q for q in everything}
    for row in rows:
        row["assigned"] = list(unique.values())


def shuffled(run: Run) -> None:
    rng = random.Random(5)
    for table in (run.ops, run.raft, run.log, run.cq, run.faults):
        rng.shuffle(table)


def unlisted(*tables: str, system: str = "other") -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.manifest["system"] = system
        run.unlisted = set(tables)

    return change


def found_later(run: Run) -> None:
    """The first drain stopped short of a message; the second one showed it."""
    polls = [r for r in run.ops if r["f"] == "poll" and r["final"] and r["client"] == "drain1"]
    last = [r for r in polls if r["messages"] and r["topic"] == "pay"][-1]
    last["messages"] = last["messages"][:-1]


def not_drained(run: Run) -> None:
    for queue in run.manifest["queues"]:
        queue["drained"] = False


def not_drained_and_unread(run: Run) -> None:
    not_drained(run)
    value = sends(run, topic="pay")[-1]["messages"][0]["value"]
    forget_reads(run, value, group="push")


def no_fault_taken(run: Run) -> None:
    for row in run.faults:
        row["effect"] = "not_taken"


def healed_too_late(run: Run) -> None:
    for row in run.faults:
        row["t_healed"] = 26 * SECOND


def late_trace(run: Run) -> None:
    """Traces that begin only after the first entries."""
    run.raft[:] = [row for row in run.raft if not (row["event"] == "append" and row["index"] == 12)]
    renumber(run)


def read_in_the_same_moment(run: Run) -> None:
    """A stale leader is queried in the very moment in which its successor commits."""
    leaders = events(run, "role", role="leader", group="broker-a")
    old, new = leaders[0], leaders[1]
    read = events(run, "read", node=old["node"], term=old["term"])[-1]
    commits = events(run, "commit", node=new["node"], term=new["term"])
    first = next(row for row in commits if row["index"] > read["index"])
    read["t_begin"] = first["t"]
    read["t"] = first["t"] + MS


def fsync_in_the_same_moment(run: Run) -> None:
    """Followers report their fsyncs in the moment of the commit that counts them."""
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


def renamed(run: Run) -> None:
    """Values and keys that are no ASCII."""

    def other(name: str | None) -> str | None:
        return None if name is None else name.replace(".v", ".\u00fc\u20ac'\"\U0001f600")

    for row in [*run.ops, *run.log]:
        for message in [row, *(row.get("messages") or ())]:
            for key in ("value", "uniq_key", "key"):
                if key in message:
                    message[key] = other(message[key])


def failed_first(run: Run) -> None:
    """An attempt that surely failed, then one that was acknowledged."""
    for row in sends(run)[::9]:
        messages = [{**row["messages"][0], "offset": None}]
        run.ops.append(
            {
                **row,
                "type": "fail",
                "status": None,
                "error": "NO_LEADER",
                "messages": messages,
                "process": f"{row['process']}-{row['op']}",
                "t_invoke": row["t_invoke"] - 4,
                "t_complete": row["t_invoke"] - 1,
            }
        )
    run.number_ops()


def sees_what_is_on_its_way(run: Run) -> None:
    """Queries that were sent before the acknowledgement, and lack the message."""
    for row in run.ops:
        if row["f"] == "query" and row["type"] == "ok" and len(row["messages"]) == 1:
            message = row["messages"][0]
            acks = [
                a
                for a in attempts_of(run, message["value"])
                if a["f"] == "send" and a["type"] == "ok"
            ]
            if acks and len(acks[0]["messages"]) == 1:
                time = acks[0]["t_invoke"]
                row.update(
                    t_invoke=time, t_complete=time + MS, messages=[], process=f"tool-{row['op']}"
                )
                break
    run.number_ops()
