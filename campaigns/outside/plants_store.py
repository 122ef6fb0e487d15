"""Planted anomalies of the store: S1 to S8, in logs, ConsumeQueues, offsets and queries.

Place in the data path: a list for `catalogue`. What a witness must show is an offset, a value, a
node or an index, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from campaigns.outside.run_rows import MS, Row, Run
from campaigns.outside.surgery import (
    at,
    events,
    forget_reads,
    op_note,
    other_value,
    read_values,
    renumber,
    replace_row,
    sends,
)

__all__ = ["STORE_PLANTS"]


def _units(run: Run, topic: str | None, group: str | None) -> list[Row]:
    """Units of one replica, whose queue is one of the manifest's."""
    floors = {
        (q["broker_group"], q["topic"], q["queue"]): q["min_offset"] for q in run.manifest["queues"]
    }
    rows = [
        row
        for row in run.cq
        if topic in {None, row["topic"]} and group in {None, row["broker_group"]}
        if row["queue_offset"] >= floors[row["broker_group"], row["topic"], row["queue"]]
    ]
    node = max(row["node"] for row in rows)
    return sorted(
        (row for row in rows if row["node"] == node),
        key=lambda row: (row["broker_group"], row["topic"], row["queue"], row["queue_offset"]),
    )


def _unit(field: str, place: float, topic: str | None = None, group: str | None = None) -> Any:
    """A unit that points elsewhere, or is not there (`gone`), or is there twice (`twice`)."""

    def change(run: Run) -> str:
        unit = at(_units(run, topic, group), place)
        if field == "gone":
            replace_row(run.cq, unit)
        elif field == "twice":
            run.cq.append(dict(unit))
        elif field == "beyond":
            unit = max(
                (
                    row
                    for row in run.cq
                    if row["node"] == unit["node"] and row["topic"] == unit["topic"]
                ),
                key=lambda row: (row["queue"], row["queue_offset"]),
            )
            run.cq.append({**unit, "queue_offset": unit["queue_offset"] + 1})
        elif field == "cq_ok":
            for row in run.log:
                if all(
                    row[key] == unit[key] for key in ("broker_group", "node", "position", "topic")
                ):
                    row["cq_ok"] = False
        else:
            unit[field] += 4
        return str(unit["topic"])[:6]

    return change


def _queue_hole(place: float) -> Callable[[Run], str]:
    """On every replica an offset is left out: the queue is not dense."""

    def change(run: Run) -> str:
        row = at(sends(run, topic="orders", queue=0), place)
        offset = row["messages"][0]["offset"]
        last = max(r["queue_offset"] for r in run.cq if (r["topic"], r["queue"]) == ("orders", 0))
        for table in (run.log, run.cq):
            for other in table:
                is_here = (other["topic"], other["queue"]) == ("orders", 0)
                if is_here and other.get("kind") != "offset" and other["queue_offset"] >= offset:
                    other["queue_offset"] += 1
        for op in run.ops:
            for message in op.get("messages") or ():
                is_here = (message["topic"], message["queue"]) == ("orders", 0)
                if is_here and message["offset"] is not None and message["offset"] >= offset:
                    message["offset"] += 1
        for queue in run.manifest["queues"]:
            if (queue["topic"], queue["queue"]) == ("orders", 0):
                queue["max_offset"] = last + 2
        return str(offset + 1)  # the first message behind the hole

    return change


def _log_differs(
    field: str, new: object, place: float, kind: str = "message", group: str = "broker-a"
) -> Callable[[Run], str]:
    """One replica has something else at one index."""

    def change(run: Run) -> str:
        node = max(row["node"] for row in run.log if row["broker_group"] == group)
        first = max(
            min(r["index"] for r in run.log if r["node"] == n and r["broker_group"] == group)
            for n in {r["node"] for r in run.log if r["broker_group"] == group}
        )
        rows = [
            row
            for row in run.log
            if row["node"] == node and row["broker_group"] == group and row["kind"] == kind
            if row["committed"] and row["index"] >= first
        ]
        row = at(rows, place)
        row[field] = other_value(row[field]) if new is None else new
        return str(row["index"])

    return change


def _entry_gone(place: float, base_node: str) -> Callable[[Run], str]:
    """One replica lost an entry from the middle of its log."""

    def change(run: Run) -> str:
        rows = [r for r in run.log if r["node"] == base_node and r["broker_group"] == "broker-a"]
        index = at(rows[5:-5], place)["index"]
        gone = [r for r in rows if r["index"] == index]
        positions = {r["position"] for r in gone}
        run.log[:] = [r for r in run.log if not any(r is lost for lost in gone)]
        run.cq[:] = [
            r
            for r in run.cq
            if not (
                r["node"] == base_node
                and r["broker_group"] == "broker-a"
                and r["position"] in positions
            )
        ]
        return str(index)

    return change


def _dropped(run: Run, cut: Row) -> Row:
    """The first entry that a truncation dropped: traced by its append, or by a start alone."""
    of_node = {"node": cut["node"], "group": cut["broker_group"]}
    rows = [*events(run, "append", **of_node), *events(run, "start", **of_node)]
    return next(row for row in rows if row["index"] >= cut["index"] and row["seq"] < cut["seq"])


def _truncated_is_there(run: Run) -> str:
    """What the trace had dropped is in the exported log: the truncation was not on disk."""
    cut = events(run, "truncate")[-1]
    dropped = _dropped(run, cut)
    for row in run.log:
        is_here = row["node"] == cut["node"] and row["broker_group"] == cut["broker_group"]
        if is_here and row["index"] == dropped["index"]:
            row["chain"], row["term"] = dropped["chain"], dropped["entry_term"]
    return str(dropped["index"])


def _truncated_comes_back(run: Run) -> str:
    """Killed after a truncation that was not durable: the start finds what was dropped."""
    cut = events(run, "truncate")[-1]
    dropped = _dropped(run, cut)
    place = next(n for n, row in enumerate(run.raft) if row is cut)
    own = [
        row
        for row in run.raft[place + 1 :]
        if row["node"] == cut["node"] and row["broker_group"] == cut["broker_group"]
    ]
    voters = run.manifest["groups"][cut["broker_group"]]
    start = {
        **cut,
        "event": "start",
        "incarnation": cut["incarnation"] + 1,
        "index": dropped["index"],
        "entry_term": dropped["entry_term"],
        "chain": dropped["chain"],
        "voters": list(voters),
    }
    again = {**cut, "incarnation": cut["incarnation"] + 1, "index": cut["index"]}
    for row in own:
        row["incarnation"] += 1
    replace_row(run.raft, cut, cut, start, again)
    renumber(run)
    return str(cut["node"])


def _cut_below_commit(place: float, group: str = "broker-a") -> Callable[[Run], str]:
    """A follower drops what it had called committed, and is given it again."""

    def change(run: Run) -> str:
        leader = events(run, "role", role="leader", group=group)[-1]["node"]
        commits = [
            row
            for row in events(run, "commit", group=group)
            if row["node"] != leader and row["index"] > 3
        ]
        commit = at(commits, place)
        append = next(
            row
            for row in run.raft
            if row["event"] == "append"
            and row["node"] == commit["node"]
            and row["broker_group"] == group
            and row["index"] == commit["index"]
        )
        last = max(
            row["index"]
            for row in run.raft
            if row["event"] == "append"
            and row["node"] == commit["node"]
            and row["broker_group"] == group
            and row["seq"] < commit["seq"]
        )
        back = [
            {**row, "t": commit["t"], "incarnation": commit["incarnation"], "term": commit["term"]}
            for row in run.raft
            if row["event"] == "append"
            and row["node"] == commit["node"]
            and row["broker_group"] == group
            and append["index"] <= row["index"] <= last
            and append["seq"] <= row["seq"] < commit["seq"]
        ]
        cut = {key: commit[key] for key in ("broker_group", "node", "incarnation", "t", "term")}
        cut |= {"event": "truncate", "index": commit["index"]}
        fsync = {**cut, "event": "fsync", "index": last}
        replace_row(run.raft, commit, commit, cut, *back, fsync)
        renumber(run)
        return str(commit["index"])

    return change


def _log_ends_early(count: int, node: str) -> Callable[[Run], str]:
    """A store that lacks the last entries which its node had called committed."""

    def change(run: Run) -> str:
        rows = [r for r in run.log if r["node"] == node and r["broker_group"] == "broker-a"]
        end = max(row["index"] for row in rows)
        gone = {row["position"] for row in rows if row["index"] > end - count}
        for table in (run.log, run.cq):
            table[:] = [
                row
                for row in table
                if row["node"] != node
                or row["broker_group"] != "broker-a"
                or row["position"] not in gone
            ]
        return node

    return change


def _fetches(run: Run) -> list[Row]:
    """Fetches that answered an offset, and not the first one."""
    return [
        row
        for row in run.ops
        if row["f"] == "fetch_offset" and row["type"] == "ok" and (row["offset"] or 0) > 1
    ]


def _fetch(new: object, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = at(_fetches(run), place)
        if new == "old":
            before = [
                c["offset"]
                for c in run.ops
                if c["f"] == "commit_offset"
                and c["type"] == "ok"
                and all(c[k] == row[k] for k in ("client_group", "broker_group", "topic", "queue"))
                and c["t_complete"] < row["t_invoke"]
            ]
            row["offset"] = before[0] if before[0] != row["offset"] else 0
        elif new == "beyond":
            row["offset"] += 500
        else:
            row["offset"] = None
        return op_note(row)

    return change


def _stored_offset(what: str, place: float) -> Callable[[Run], str]:
    """The logs have an offset that nobody committed, or have lost the last one."""

    def change(run: Run) -> str:
        rows = [
            row
            for row in run.log
            if row["kind"] == "offset" and row["client_group"] == "ordered" and row["node"] == "n1"
        ]
        last: dict[tuple[str, int], Row] = {}
        for row in rows:
            last[row["topic"], row["queue"]] = row
        row = at([last[key] for key in sorted(last)], place)
        for other in run.log:
            if other["kind"] == "offset" and other["index"] == row["index"]:
                other["queue_offset"] = 9000 if what == "nobody" else 0
        if what == "rewound":  # an old commit's value, stored again last
            old = next(
                c
                for c in run.ops
                if c["f"] == "commit_offset"
                and c["client_group"] == "ordered"
                and (c["topic"], c["queue"]) == (row["topic"], row["queue"])
            )
            for other in run.log:
                if other["kind"] == "offset" and other["index"] == row["index"]:
                    other["queue_offset"] = old["offset"]
        return str(row["topic"])

    return change


def _phantom(f: str, place: float, group: str | None = None) -> Callable[[Run], str]:
    """A reader got a message that no replica's committed log has: truncated later, say."""

    def change(run: Run) -> str:
        stored = {row["value"] for row in run.log}
        lost = [
            row
            for row in run.ops
            if row["f"] == "send"
            and row["type"] == "info"
            and group in {None, row["broker_group"]}
            and not stored & set(read_values(row))
        ]
        if lost:
            message = dict(at(lost, place)["messages"][0])
        else:  # one that a producer tried to send and heard nothing of
            like = at(sends(run), place)
            message = {
                **like["messages"][0],
                "value": "p1.lost",
                "uniq_key": "U-p1.lost",
                "offset": None,
            }
            run.ops.append(
                {**like, "type": "info", "messages": [dict(message)], "process": "p1.lost"}
            )
        reads = [
            row
            for row in run.ops
            if row["f"] == f
            and row["type"] == "ok"
            and row["messages"]
            and not row.get("final")
            and row["t_invoke"] > 6_000 * MS
            and row["broker_group"] == message["broker_group"]
        ]
        row = at(reads, place)
        row["messages"].append(
            {**message, "topic": row["topic"], "queue": row["queue"], "offset": 700, "keys": []}
        )
        run.number_ops()
        return str(message["value"])

    return change


def _status(f: str, status: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        rows = [row for row in run.ops if row["f"] == f and row["type"] == "ok"]
        row = at(rows, place)
        row["status"] = status
        return op_note(row)

    return change


def _query(what: str, place: float, *, by_key: bool = False) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        rows = [
            row
            for row in run.ops
            if row["f"] == "query" and row["type"] == "ok" and len(row["messages"] or ()) >= 1
            if row["key"].startswith("k") == by_key
        ]
        row = at(rows, place)
        message = row["messages"][-1]
        if what == "lacks":
            row["messages"].remove(message)
            return str(message["value"])
        if what == "phantom":
            message["value"] = message["uniq_key"] = "nobody.1"
        elif what == "offset":
            message["offset"] += 1
        elif what == "other key":
            other = next(
                s
                for s in sends(run, topic=row["topic"], group=row["broker_group"])
                if not s["messages"][0]["keys"]
                and s["messages"][0]["uniq_key"] != row["key"]
                and s["t_complete"] < row["t_invoke"]
            )
            row["messages"].append(dict(other["messages"][0]))
            return str(other["messages"][0]["value"])
        elif what == "queue":
            message["queue"] += 1
        return op_note(row)

    return change


def _query_in_vain(run: Run) -> str:
    """A query for a key that is stored and was read answers nothing at all."""
    row = next(
        row for row in run.ops if row["f"] == "query" and row["type"] == "ok" and row["messages"]
    )
    value = row["messages"][0]["value"]
    row["messages"] = []
    return str(value)


def _phantom_for_one(run: Run) -> str:
    """Read before a failover, gone after it: no replica has it, and nobody else read it."""
    row = next(row for row in sends(run, topic="pay")[-1:])
    message = row["messages"][0]
    forget_reads(run, message["value"], final=True)
    for table in (run.log, run.cq):
        positions = {(r["node"], r["position"]) for r in run.log if r["value"] == message["value"]}
        if table is run.cq:
            table[:] = [r for r in table if (r["node"], r["position"]) not in positions]
    run.log[:] = [r for r in run.log if r["value"] != message["value"]]
    return str(message["value"])


def _plant(rule: str, name: str, change: Callable[[Run], str], base: Any = PLAIN) -> Plant:
    return Plant(name=name, rule=rule, base=base, change=change)


STORE_PLANTS: Final[tuple[Plant, ...]] = (
    _plant("S1", "a unit is missing, user queue", _unit("gone", 0.5, "orders")),
    _plant(
        "S1", "the first unit is missing, second group", _unit("gone", 0, "pay", "broker-b"), TWO
    ),
    _plant("S1", "a unit is missing at the retention floor", _unit("gone", 0, "orders"), RETAINED),
    _plant("S1", "a unit is missing, half queue", _unit("gone", 0.5, "RMQ_SYS_TRANS_HALF_TOPIC")),
    _plant("S1", "a unit is missing, retry queue", _unit("gone", 1, "%RETRY%push")),
    _plant("S1", "a unit is there twice", _unit("twice", 0.3, "pay")),
    _plant("S1", "a unit without a message", _unit("beyond", 1, "orders"), FIVE),
    _plant("S1", "another position", _unit("position", 0.7, "orders")),
    _plant("S1", "another size", _unit("size", 0, "orders")),
    _plant("S1", "another tag hash", _unit("tag_hash", 1, "pay"), RETAINED),
    _plant("S1", "the exporter saw a wrong unit", _unit("cq_ok", 0.5, "pay")),
    _plant("S1", "a hole in the offsets of every replica", _queue_hole(0.5)),
    _plant("S2", "another value", _log_differs("value", "p1.other", 0.5)),
    _plant("S2", "another digest", _log_differs("digest", None, 1), RETAINED),
    _plant("S2", "other keys", _log_differs("keys", ["k9"], 0, "message", "broker-b"), TWO),
    _plant(
        "S2", "another group's offset", _log_differs("client_group", "push9", 0.5, "offset"), FIVE
    ),
    _plant("S2", "another offset of a group", _log_differs("queue_offset", None, 0.2, "offset")),
    _plant("S2", "another decision", _log_differs("decision", None, 0.5, "op")),
    _plant("S2", "another transaction", _log_differs("tx", "b9-x9", 0.9, "half")),
    _plant("S2", "another kind", _log_differs("kind", "command", 0.0, "noop")),
    _plant("S2", "an entry is missing on one replica", _entry_gone(0.5, "n3")),
    _plant("S2", "an entry is missing on one of five", _entry_gone(0.1, "n4"), FIVE),
    _plant("S3", "a truncated entry in the exported log", _truncated_is_there),
    _plant("S3", "the same of five", _truncated_is_there, FIVE),
    _plant("S3", "a truncated entry comes back at a start", _truncated_comes_back),
    _plant("S3", "the same, second group", _truncated_comes_back, TWO),
    _plant("S4", "a follower drops what is committed", _cut_below_commit(0.5)),
    _plant("S4", "the same, at the end, second group", _cut_below_commit(1, "broker-b"), TWO),
    _plant("S4", "a log that ends below its commit", _log_ends_early(4, "n3")),
    _plant("S4", "by one entry, of five", _log_ends_early(1, "n2"), FIVE),
    _plant("S5", "a fetch answers an older offset", _fetch("old", 1)),
    _plant("S5", "a fetch answers nothing", _fetch("null", 0.5)),
    _plant("S5", "a fetch answers what nobody committed", _fetch("beyond", 0), RETAINED),
    _plant("S5", "a fetch answers an older offset, five", _fetch("old", 0.5), FIVE),
    _plant("S5", "an offset in the log that nobody committed", _stored_offset("nobody", 0)),
    _plant("S5", "the last offset in the log is an old one", _stored_offset("rewound", 1)),
    _plant("S6", "a poll showed what no log has", _phantom("poll", 0.5)),
    _plant("S6", "a listener got what no log has", _phantom("deliver", 0), FIVE),
    _plant("S6", "a poll in the second group", _phantom("poll", 1, "broker-b"), TWO),
    _plant("S6", "acked, read, and gone from every log", _phantom_for_one),
    _plant("S7", "a send is ok, its disk timed out", _status("send", "FLUSH_DISK_TIMEOUT", 0)),
    _plant("S7", "a half is ok, no slave there", _status("half", "SLAVE_NOT_AVAILABLE", 0.5)),
    _plant(
        "S7", "the last send, its slave timed out", _status("send", "FLUSH_SLAVE_TIMEOUT", 1), TWO
    ),
    _plant("S8", "a query lacks what is there", _query("lacks", 0.5)),
    _plant("S8", "a query by key lacks one", _query("lacks", 1, by_key=True)),
    _plant("S8", "a query answers nothing", _query_in_vain, FIVE),
    _plant("S8", "a query shows what is not there", _query("phantom", 0)),
    _plant("S8", "a query shows another offset", _query("offset", 0.5), TWO),
    _plant("S8", "a query shows another queue", _query("queue", 1)),
    _plant("S8", "a query shows a message without the key", _query("other key", 0.7)),
)
