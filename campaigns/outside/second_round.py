"""A second round of plants and near misses, each on a sentence that is easily misread.

Place in the data path: lists for `catalogue` and `near_misses`. Written after the first round had
been judged, from the format's page alone as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, NearMiss, Plant
from campaigns.outside.plants_history import plain_reads
from campaigns.outside.run_rows import MS, SECOND, Run
from campaigns.outside.surgery import (
    attempts_of,
    events,
    first_commit,
    forget_reads,
    op_note,
    reads_of,
    records_of,
    renumber,
    replace_row,
    sends,
)

__all__ = ["SECOND_NEAR_MISSES", "SECOND_PLANTS"]


def _read_but_never_acked(run: Run) -> str:
    """A query lacks a message whose producer heard nothing, and which somebody had read."""
    for row in run.ops:
        if row["f"] == "query" and row["type"] == "ok" and len(row["messages"] or ()) == 1:
            value = row["messages"][0]["value"]
            read = [op for op, _ in reads_of(run, value) if op["t_complete"] < row["t_invoke"]]
            if read and len(attempts_of(run, value)) == 1:
                attempt = attempts_of(run, value)[0]
                if attempt["f"] == "send" and len(attempt["messages"]) == 1:
                    attempt.update(type="info", t_complete=None, status=None)
                    attempt["messages"][0]["offset"] = None
                    row["messages"] = []
                    return str(value)
    raise AssertionError("no such query")


def _between_fail_and_ok(run: Run) -> str:
    """An attempt failed, the record came, and only then was it sent again."""
    row = sends(run, topic="orders")[12]
    messages = [{**row["messages"][0], "offset": None}]
    run.ops.append(
        {**row, "type": "fail", "status": None, "error": "NO_LEADER", "messages": messages}
        | {
            "process": "p1.before",
            "t_invoke": row["t_invoke"] - 2,
            "t_complete": row["t_invoke"] - 1,
        }
    )
    row["t_invoke"], row["t_complete"] = row["t_complete"] + MS, row["t_complete"] + 2 * MS
    run.number_ops()
    return str(row["messages"][0]["value"])


def _delivered_early(run: Run) -> str:
    """A listener gets what is committed a millisecond later."""
    for row in plain_reads(run, "deliver")[5:]:
        value = row["messages"][0]["value"]
        found = records_of(run, value, kind="final") or records_of(run, value, kind="message")
        time = first_commit(run, found[0])
        if len(row["messages"]) == 1:
            row["t_invoke"], row["t_complete"] = time - 2 * MS, time - 1
            run.number_ops()
            return str(value)
    raise AssertionError("no such delivery")


def _checked_after_grace(run: Run) -> str:
    """A question one nanosecond after the grace."""
    row = next(r for r in run.ops if r["f"] == "decide" and r["type"] == "ok")
    time = row["t_complete"] + 1000 * MS + 1
    late = {"f": "check", "process": "b1.late", "t_invoke": time, "t_complete": time}
    run.ops.append({**row, **late})
    run.number_ops()
    return str(row["tx"])


def _acked_by_retry_elsewhere(run: Run) -> str:
    """A retry is answered with an offset where another message stands."""
    rows = sends(run, topic="orders", queue=0)
    row, other = rows[3], rows[8]
    again = [{**row["messages"][0], "offset": other["messages"][0]["offset"]}]
    time = rows[-1]["t_complete"]
    run.ops.append(
        {**row, "messages": again, "process": "p9", "client": "p9"}
        | {"t_invoke": time + MS, "t_complete": time + 2 * MS}
    )
    run.number_ops()
    return str(row["messages"][0]["value"])


def _half_lost(run: Run) -> str:
    """A transaction was committed, its final is there, and its op record is of another decision."""
    row = next(r for r in run.log if r["kind"] == "op" and r["decision"] == "commit")
    for other in run.log:
        if other["kind"] == "op" and other["tx"] == row["tx"]:
            other["decision"] = "rollback"
    return str(row["tx"])


def _start_below_its_fsync(run: Run) -> str:
    """A follower that starts without the last entry it had called durable."""
    start = next(r for r in events(run, "start", group="broker-a") if r["incarnation"] > 0)
    fsyncs = [
        row
        for row in events(run, "fsync", node=start["node"], group="broker-a")
        if row["seq"] < start["seq"]
    ]
    index = fsyncs[-1]["index"] - 1
    before = events(run, "append", node=start["node"], group="broker-a", index=index)[0]
    start.update(index=index, entry_term=before["entry_term"], chain=before["chain"])
    return str(start["node"])


def _fetch_overtaken(run: Run) -> str:
    """A fetch answers what a later commit, acknowledged long before, had overwritten."""
    for row in reversed(run.ops):
        if row["f"] == "fetch_offset" and row["type"] == "ok" and row["offset"]:
            commits = [
                c
                for c in run.ops
                if c["f"] == "commit_offset"
                and c["type"] == "ok"
                and all(c[k] == row[k] for k in ("client_group", "broker_group", "topic", "queue"))
                and c["t_complete"] < row["t_invoke"]
            ]
            if len({c["offset"] for c in commits}) > 1:
                row["offset"] = next(
                    c["offset"] for c in reversed(commits) if c["offset"] != row["offset"]
                )
                return op_note(row)
    raise AssertionError("no such fetch")


def _plant(rule: str, name: str, change: Callable[[Run], str], base: Any = PLAIN) -> Plant:
    return Plant(name=name, rule=rule, base=base, change=change)


SECOND_PLANTS: Final[tuple[Plant, ...]] = (
    _plant("S8", "a query lacks what was only read", _read_but_never_acked),
    _plant("A19", "stored between a failure and the next attempt", _between_fail_and_ok),
    _plant("A21", "a listener gets what is not committed yet", _delivered_early, FIVE),
    _plant("T7", "asked about a nanosecond after the grace", _checked_after_grace),
    _plant("A1", "a retry is answered with another's offset", _acked_by_retry_elsewhere),
    _plant("T5", "a final whose op says rollback", _half_lost, TWO),
    _plant("R9", "a start one entry short of its fsync", _start_below_its_fsync),
    _plant("S5", "a fetch answers the last commit but one", _fetch_overtaken, RETAINED),
)


def _truncated_then_started(run: Run) -> None:
    """What was durable was truncated; then the node starts with less."""
    cut = events(run, "truncate", group="broker-a")[-1]
    of_node = {"node": cut["node"], "group": "broker-a"}
    before = [r for r in events(run, "append", **of_node) if r["seq"] < cut["seq"]]
    last = next(r for r in reversed(before) if r["index"] == cut["index"] - 1)
    start = {**cut, "event": "start", "incarnation": cut["incarnation"] + 1}
    start |= {"index": last["index"], "entry_term": last["entry_term"], "chain": last["chain"]}
    start["voters"] = list(run.manifest["groups"]["broker-a"])
    for row in run.raft:
        is_later = row["node"] == cut["node"] and row["seq"] > cut["seq"]
        if is_later and row["broker_group"] == "broker-a":
            row["incarnation"] += 1
    replace_row(run.raft, cut, cut, start)
    renumber(run)


def _owners_under_a_fault(run: Run) -> None:
    """Two members hold all queues, in a time when a fault kept them from being notified."""
    rows = [r for r in run.ops if r["f"] == "assign" and r["client_group"] == "ordered"]
    queues = {(q["broker_group"], q["topic"], q["queue"]): q for r in rows for q in r["assigned"]}
    for row in rows:
        row["assigned"] = list(queues.values())
    run.faults[0].update(effect="unknown", t_start=0, t_healed=None)
    run.faults.append({**run.faults[0], "fault": 99, "effect": "taken", "t_healed": 5 * SECOND})
    run.faults[-1].update(t_start=2 * SECOND, t_effect=2 * SECOND)


def _max_below_the_log(run: Run) -> None:
    """The queue went on after it was read: not drained, and its last values unread by one group."""
    for queue in run.manifest["queues"]:
        if queue["topic"] == "pay":
            last = max(
                s["messages"][0]["offset"]
                for s in sends(run, topic="pay", group=queue["broker_group"])
            )
            queue["max_offset"] = last
            value = sends(run, topic="pay", group=queue["broker_group"])[-1]["messages"][0]["value"]
            forget_reads(run, value, group="ordered")


def _beyond_without_logs(run: Run) -> None:
    run.manifest["system"] = "other"
    run.unlisted = {"raft", "log", "cq"}
    _max_below_the_log(run)


def _fetched_while_committing(run: Run) -> None:
    """A fetch that overlaps a commit may answer either."""
    for row in run.ops:
        if row["f"] == "fetch_offset" and row["type"] == "ok" and row["offset"]:
            before = [
                c
                for c in run.ops
                if c["f"] == "commit_offset"
                and c["type"] == "ok"
                and all(c[k] == row[k] for k in ("client_group", "broker_group", "topic", "queue"))
                and c["t_complete"] <= row["t_invoke"]
            ]
            if len(before) > 1 and before[-1]["offset"] == row["offset"]:
                before[-1]["t_complete"] = row["t_invoke"]
                row["offset"] = before[-2]["offset"]
                return
    raise AssertionError("no such fetch")


def _one_place_of_two(run: Run) -> None:
    """Stored twice, where nothing promised once: a query that shows one of its places."""
    places: dict[str, set[Any]] = {}
    for record in run.log:
        if record["kind"] == "message" and record["topic"] in {"orders", "pay"}:
            places.setdefault(record["value"], set()).add(record["queue_offset"])
    twice = {value for value, offsets in places.items() if len(offsets) > 1}
    assert twice
    value = min(twice)
    row = next(r for r in reversed(run.ops) if r["f"] == "query" and r["type"] == "ok")
    record = next(r for r in run.log if r["value"] == value)
    sent = attempts_of(run, value)[0]["messages"][0]
    row.update(topic=record["topic"], broker_group=record["broker_group"], key=f"U-{value}")
    place = {"queue": record["queue"], "offset": record["queue_offset"]}
    row["messages"] = [{**sent, **place}]


def _op(**fields: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.ops[40].update(fields)

    return change


def _op_twice(run: Run) -> None:
    run.ops.append(dict(run.ops[3]))


def _unknown_event(run: Run) -> None:
    run.raft[9]["event"] = "promote"


def _unknown_kind(run: Run) -> None:
    run.log[3]["kind"] = "promise"


_EVERYTHING: Final = frozenset({"*"})
_TWICE = replace(
    PLAIN, dedupe=False, seed=3, faults=("cut-leader", "kill-leader", "pause-leader", "cut-leader")
)
SECOND_NEAR_MISSES: Final[tuple[NearMiss, ...]] = tuple(
    NearMiss(name=name, why=why, change=change, base=base, unknown=frozenset(unknown))
    for name, why, change, base, unknown in (
        (
            "a start after a truncation",
            "any fsync since the last truncation",
            _truncated_then_started,
            FIVE,
            (),
        ),
        ("two owners under faults", "fault windows taken out", _owners_under_a_fault, PLAIN, ()),
        (
            "the queue went on, unread",
            "A queue whose committed rows reach its max_offset",
            _max_below_the_log,
            PLAIN,
            ("A5",),
        ),
        (
            "the same without logs",
            "Without a log table an acked offset at or beyond",
            _beyond_without_logs,
            PLAIN,
            ("A5",),
        ),
        (
            "a fetch beside a commit",
            "did not end before the invoke of another",
            _fetched_while_committing,
            PLAIN,
            (),
        ),
        (
            "a query shows one place of two",
            "S8 wants one of its places",
            _one_place_of_two,
            _TWICE,
            (),
        ),
        ("an operation of no known f", "a harness error", _op(f="pup"), PLAIN, _EVERYTHING),
        ("a type that nobody knows", "a harness error", _op(type="maybe"), PLAIN, _EVERYTHING),
        (
            "ok without an end",
            "a harness error",
            _op(type="ok", t_complete=None),
            PLAIN,
            _EVERYTHING,
        ),
        ("no beginning", "a harness error", _op(t_invoke=None), PLAIN, _EVERYTHING),
        ("an end before its beginning", "a harness error", _op(t_complete=-5), PLAIN, _EVERYTHING),
        ("an operation twice", "a harness error", _op_twice, TWO, _EVERYTHING),
        ("an event that nobody knows", "a harness error", _unknown_event, PLAIN, _EVERYTHING),
        ("a kind that nobody knows", "a harness error", _unknown_kind, FIVE, _EVERYTHING),
    )
)
