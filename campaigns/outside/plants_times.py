"""Planted anomalies of order, time and content: A13 to A22.

Place in the data path: a list for `catalogue`. What a witness must show is a value, an operation or
a name, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from campaigns.outside.plants_history import plain_reads
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import (
    at,
    first_commit,
    forget_reads,
    op_note,
    reads_of,
    records_of,
    retimed,
    sends,
)

__all__ = ["TIME_PLANTS"]

BUSY = replace(PLAIN, seed=26, faults=("cut-leader", "kill-leader", "pause-leader"))
LIMITED = replace(PLAIN, limits=True)
LIMITED_TWO = replace(TWO, limits=True)


def _shard_pairs(run: Run) -> list[tuple[str, str]]:
    """Values of one shard, the first acknowledged before the second was sent."""
    by_shard: dict[str, list[Row]] = {}
    for row in run.ops:
        if row["f"] == "send" and row["type"] == "ok" and row["messages"][0]["shard"]:
            by_shard.setdefault(row["messages"][0]["shard"], []).append(row)
    return [
        (one["messages"][0]["value"], two["messages"][0]["value"])
        for _, rows in sorted(by_shard.items())
        for one, two in pairwise(rows)
        if one["t_complete"] < two["t_invoke"]
    ]


def _shard_turned(place: float, *, within: bool) -> Callable[[Run], str]:
    """An ordered group's member is given two messages of a shard the wrong way round."""

    def change(run: Run) -> str:
        found = []
        for first, second in _shard_pairs(run):
            ones = reads_of(run, first, group="ordered", f=("poll",))
            twos = reads_of(run, second, group="ordered", f=("poll",))
            if len(ones) == len(twos) == 1:
                (op1, m1), (op2, m2) = ones[0], twos[0]
                if op1["process"] == op2["process"] and (op1 is op2) == within:
                    between = [
                        r
                        for r in run.ops
                        if r["f"] == "assign"
                        and r["process"] == op1["process"]
                        and op1["t_invoke"] <= r["t_invoke"] <= op2["t_complete"]
                    ]
                    if not between:
                        found.append((m1, m2, first))
        m1, m2, first = found[round(place * (len(found) - 1))]
        one, two = dict(m1), dict(m2)
        for message, other in ((m1, two), (m2, one)):
            message.clear()
            message.update(other)
        return first

    return change


def _stalls(run: Run, group: str, reader: str, seconds: int) -> None:
    """From the middle of the load on a reader's polls of `pay` show nothing new for so long.

    It requests the same offset again and again, and is given everything at last.
    """
    begins = 6 * SECOND
    stalled: dict[str, int] = {}
    retained: dict[str, list[Row]] = {}
    for op in run.ops:
        is_here = op["f"] == "poll" and (op["broker_group"], op["topic"]) == (group, "pay")
        if not is_here or op["client_group"] != reader or op["type"] != "ok":
            continue
        who = op["process"]
        if begins < op["t_invoke"] < begins + seconds * SECOND:
            op["offset"] = stalled.setdefault(who, op["offset"])
            retained.setdefault(who, []).extend(op["messages"])
            op["messages"] = []
        elif who in retained:
            op["offset"], op["messages"] = stalled[who], [*retained.pop(who), *op["messages"]]


def _lags(group: str, reader: str, seconds: int) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        run.manifest["limits"]["lag_ms"] = 1500
        _stalls(run, group, reader, seconds)
        return "pay"

    return change


def _drain_lacks(place: float, group: str | None = None) -> Callable[[Run], str]:
    """Read once, missing from the final drain, and never seen again."""

    def change(run: Run) -> str:
        rows = [
            r
            for r in sends(run, group=group)
            if reads_of(run, r["messages"][0]["value"], final=True)
        ]
        value = str(at(rows, place)["messages"][0]["value"])
        forget_reads(run, value, final=True)
        drain = min(r["t_invoke"] for r in run.ops if r["f"] == "poll" and r["final"])
        for op in run.ops:
            if op["f"] in {"poll", "deliver"} and op["t_invoke"] > drain and op.get("messages"):
                op["messages"] = [m for m in op["messages"] if m["value"] != value]
        return value

    return change


def _stale_max(place: float) -> Callable[[Run], str]:
    """A max_offset below what had been acknowledged before it was queried."""

    def change(run: Run) -> str:
        rows = []
        for row in run.ops:
            if row["f"] == "max_offset" and row["type"] == "ok" and row["offset"] > 1:
                acked = [
                    s["messages"][0]["offset"]
                    for s in sends(
                        run, group=row["broker_group"], topic=row["topic"], queue=row["queue"]
                    )
                    if s["t_complete"] < row["t_invoke"]
                ]
                if acked:
                    rows.append((row, max(acked)))
        row, highest = rows[round(place * (len(rows) - 1))]
        row["offset"] = highest  # the next to be written is one more
        return op_note(row)

    return change


def _gap(run: Run) -> str:
    """A producer hears nothing for longer than the limit."""
    run.manifest["limits"]["gap_ms"] = 3000
    for row in run.ops:
        if (
            row["client"] == "p1"
            and row["f"] == "send"
            and row["type"] == "ok"
            and 6 * SECOND < row["t_invoke"] < 11 * SECOND
        ):
            row.update(type="info", t_complete=None, status=None, error="TIMEOUT")
    return "p1"


def _slow_recovery(run: Run) -> str:
    run.manifest["limits"]["rto_ms"] = 2500
    fault = next(row for row in run.faults if row["effect"] == "taken")
    for row in run.ops:
        is_close = 0 <= row["t_invoke"] - fault["t_effect"] < 3 * SECOND
        if row["f"] == "send" and row["type"] == "ok" and is_close:
            row.update(type="info", t_complete=None, status=None, error="TIMEOUT")
    return "recovery"


def _few_acked(run: Run) -> str:
    run.manifest["limits"]["acked_share_min"] = 0.95
    calm = [r for r in run.ops if r["f"] == "send" and r["t_invoke"] > 8 * SECOND]
    for place, row in enumerate(calm):
        if place % 4 == 0 and row["type"] == "ok":
            row.update(type="info", t_complete=None, status=None, error="TIMEOUT")
    return "share"


def _left(group: str, node: str) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        run.manifest["left_behind"] = [{"broker_group": group, "node": node}]
        return node

    return change


def _flipped(f: str, place: float) -> Callable[[Run], str]:
    """A bit of the body flipped on its way: the digest is another."""

    def change(run: Run) -> str:
        rows = [r for r in run.ops if r["f"] == f and r["type"] == "ok" and r["messages"]]
        message = at(rows, place)["messages"][-1]
        message["digest"] ^= 1 << 40
        return str(message["value"])

    return change


def _stored_flipped(kind: str, place: float) -> Callable[[Run], str]:
    """Every replica stores another content than was sent."""

    def change(run: Run) -> str:
        rows = [r for r in run.log if r["kind"] == kind and r["committed"] and r["digest"]]
        value = at(rows, place)["value"]
        for row in run.log:
            if row["value"] == value and row["kind"] == kind:
                row["digest"] ^= 1
        return str(value)

    return change


def _never_ok(f: str, place: float) -> Callable[[Run], str]:
    """All attempts failed, nobody reads it, and yet it is committed."""

    def change(run: Run) -> str:
        rows = sends(run, f=f)
        if f == "half":  # one that was rolled back, which nobody ever sees
            back = {r["tx"] for r in run.log if r["decision"] == "rollback"}
            stored = {r["tx"] for r in run.log if r["kind"] == "half"}
            rows = [r for r in rows if r["tx"] in back & stored]
        row = at(rows, place)
        row.update(type="fail", status=None, error="NOT_STORED")
        row["messages"][0]["offset"] = None
        value = str(row["messages"][0]["value"])
        forget_reads(run, value)
        return value

    return change


def _before_it_was_sent(place: float, group: str | None = None) -> Callable[[Run], str]:
    """The record was there before anybody had sent it."""

    def change(run: Run) -> str:
        row = at(sends(run, group=group), place)
        retimed(run, row, row["t_complete"] + 50 * MS, row["t_complete"] + 51 * MS)
        return str(row["messages"][0]["value"])

    return change


def _answered_early(f: str, place: float, by: int = 1, base_group: str | None = None) -> Any:
    """The client had its answer before the entry was committed anywhere."""

    def change(run: Run) -> str:
        def record_of(row: Row) -> Row | None:
            if f == "decide":
                ops = [r for r in run.log if r["tx"] == row["tx"] and r["kind"] == "op"]
            else:
                kind = "half" if f == "half" else "message"
                ops = records_of(run, row["messages"][0]["value"], kind=kind)
            return ops[0] if ops else None

        if f == "decide":
            rows = [r for r in run.ops if r["f"] == f and r["type"] == "ok"]
            rows = [r for r in rows if sum(o.get("tx") == r["tx"] for o in rows) == 1]
        else:
            rows = sends(run, f=f, group=base_group)
        rows = [
            r
            for r in rows
            if (found := record_of(r)) is not None
            and r["t_invoke"] < first_commit(run, found) - by
            and first_commit(run, found) <= r["t_complete"]
        ]
        row = at(rows, place)
        found = record_of(row)
        assert found is not None
        row["t_complete"] = first_commit(run, found) - by
        return op_note(row)

    return change


def _shown_early(place: float, base_group: str = "broker-a") -> Callable[[Run], str]:
    """A poll shows what was committed a moment later: a dirty read."""

    def change(run: Run) -> str:
        for row in plain_reads(run, "poll", broker_group=base_group)[round(place * 10) :]:
            record = next(iter(records_of(run, row["messages"][-1]["value"])), None)
            if record is not None and record["kind"] in {"message", "final"}:
                kind = record["kind"]
                final = records_of(run, record["value"], kind="final") or [record]
                time = first_commit(run, final[0])
                assert kind
                row["t_invoke"], row["t_complete"] = time - 2 * MS, time - MS
                op = row
                run.number_ops()
                return str(op["messages"][-1]["value"])
        raise AssertionError("no poll")

    return change


def _max_too_high(place: float) -> Callable[[Run], str]:
    """A max_offset that counts what is not committed yet."""

    def change(run: Run) -> str:
        rows = [r for r in run.ops if r["f"] == "max_offset" and r["type"] == "ok"]
        row = at(rows, place)
        row["offset"] += 1
        return op_note(row)

    return change


def _two_owners(group: str, topic: str, place: float) -> Callable[[Run], str]:
    """A member that was notified to give a queue up keeps it, beside its new owner."""

    def change(run: Run) -> str:
        rows = [r for r in run.ops if r["f"] == "assign" and r["client_group"] == group]
        ends: dict[str, Row] = {}
        for row in rows:
            ends[row["client"]] = row
        last = [ends[client] for client in sorted(ends) if ends[client]["assigned"]]
        mine = last[0]
        other = next(r for r in last if not any(q in mine["assigned"] for q in r["assigned"]))
        queue = at([q for q in other["assigned"] if q["topic"] == topic], place)
        run.manifest["consumer_groups"][group]["rebalance_ms"] = 2000
        for row in rows:
            if row["client"] == mine["client"] and row["t_invoke"] >= 8 * SECOND:
                row["assigned"] = [*row["assigned"], dict(queue)]
        return str(mine["client"])

    return change


def _alter(
    rule: str, name: str, change: Callable[[Run], str], base: Any = PLAIN, **more: Any
) -> Plant:
    return Plant(name=name, rule=rule, base=base, change=change, **more)


TIME_PLANTS: Final[tuple[Plant, ...]] = (
    _alter("A13", "a shard turned within a poll", _shard_turned(0.5, within=True), BUSY),
    _alter("A13", "a shard turned over two polls", _shard_turned(0.5, within=False)),
    _alter("A13", "the first pair of a shard, five", _shard_turned(0, within=False), FIVE),
    _alter(
        "A14",
        "a watcher is shown nothing new for seconds",
        _lags("broker-a", "watchers", 4),
        LIMITED,
    ),
    _alter("A14", "the same, second group", _lags("broker-b", "watchers", 5), LIMITED_TWO),
    _alter("A14", "a queue stalls for the whole load", _lags("broker-a", "ordered", 8), LIMITED),
    _alter("A15", "missing from both drains", _drain_lacks(0.5)),
    _alter(
        "A15", "a queue's first message missing, second group", _drain_lacks(0, "broker-b"), TWO
    ),
    _alter("A15", "the last message that retention kept missing", _drain_lacks(1), RETAINED),
    _alter("A15", "a max_offset from the past", _stale_max(0.5)),
    _alter("A15", "the last max_offset is too low", _stale_max(1), FIVE),
    _alter("A16", "a producer hears nothing for seconds", _gap, LIMITED),
    _alter("A16", "slow to recover", _slow_recovery, LIMITED),
    _alter("A16", "too few acknowledged", _few_acked, LIMITED_TWO),
    _alter("A17", "a replica left behind", _left("broker-a", "n2")),
    _alter("A17", "a replica of five left behind", _left("broker-a", "n5"), FIVE),
    _alter("A18", "a bit flipped in a poll", _flipped("poll", 0.4)),
    _alter("A18", "a bit flipped in a delivery", _flipped("deliver", 1), FIVE),
    _alter("A18", "a bit flipped in a query's answer", _flipped("query", 0.5), TWO),
    _alter("A18", "stored with another content", _stored_flipped("message", 0.7)),
    _alter("A18", "a final with another content", _stored_flipped("final", 0), RETAINED),
    _alter("A18", "a half with another content", _stored_flipped("half", 0.5)),
    _alter("A19", "called failed, and stored", _never_ok("send", 0.5)),
    _alter("A19", "a half called failed, and stored", _never_ok("half", 1), FIVE),
    _alter("A19", "stored before it was sent", _before_it_was_sent(0.4)),
    _alter("A19", "the same, the last of all", _before_it_was_sent(1, "broker-b"), TWO),
    _alter("A20", "a send answered before its commit", _answered_early("send", 0.5)),
    _alter("A20", "the first send, by a hair", _answered_early("send", 0), FIVE),
    _alter("A20", "a half answered before its commit", _answered_early("half", 0.6)),
    _alter("A20", "a decision answered before its commit", _answered_early("decide", 0.5), TWO),
    _alter("A20", "the last send that retention kept", _answered_early("send", 1), RETAINED),
    Plant(
        name="a broker that answers before it replicates",
        rule="A20",
        base=FIVE,
        change=lambda run: "broker-a",
        defects=frozenset({"early_ack"}),
    ),
    _alter("A21", "a poll shows what is not committed yet", _shown_early(0.5)),
    _alter("A21", "the same, second group", _shown_early(1, "broker-b"), TWO),
    _alter("A21", "a max_offset counts what is not committed", _max_too_high(0.5)),
    _alter("A21", "the first max_offset does", _max_too_high(0), FIVE),
    _alter("A21", "the last max_offset does", _max_too_high(1), RETAINED),
    _alter("A22", "two members own a queue", _two_owners("ordered", "orders", 0)),
    _alter("A22", "two listeners own a queue", _two_owners("push", "orders", 1), FIVE),
)
