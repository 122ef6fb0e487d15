"""Planted anomalies of what clients saw: A1 to A12.

Place in the data path: a list for `catalogue`. What a witness must show is a value, an operation or
a place, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from campaigns.outside.model_cluster import ModelCluster
from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import (
    at,
    attempts_of,
    forget_reads,
    op_note,
    reads_of,
    records_of,
    sends,
)
from campaigns.outside.virtual_time import Process

__all__ = ["HISTORY_PLANTS", "add_stored", "plain_reads"]

_CONTENT = ("value", "uniq_key", "keys", "digest", "shard", "seq", "tx")


def plain_reads(run: Run, f: str, type_: str = "ok", count: int = 1, **wanted: Any) -> list[Row]:
    """Reads of user queues with at least `count` messages whose offsets are reported."""
    return [
        row
        for row in run.ops
        if row["f"] == f and row["type"] == type_ and len(row["messages"] or ()) >= count
        if row["topic"] in {"orders", "pay"}
        and all(m["offset"] is not None for m in row["messages"])
        if all(row.get(key) == value for key, value in wanted.items())
    ]


def _other_content(f: str, place: float, type_: str = "ok", **wanted: Any) -> Callable[[Run], str]:
    """A reader is shown another message, which was sent too, at somebody's offset."""

    def change(run: Run) -> str:
        row = at(plain_reads(run, f, type_, **wanted), place)
        message = row["messages"][0]
        other = next(
            s["messages"][0]
            for s in sends(run, group=row["broker_group"])
            if s["messages"][0]["value"] != message["value"] and s["t_complete"] < row["t_invoke"]
        )
        message.update({key: other[key] for key in _CONTENT})
        return str(message["value"])

    return change


def _acked_at_anothers(place: float, group: str = "broker-a") -> Callable[[Run], str]:
    """Two producers got the same offset."""

    def change(run: Run) -> str:
        rows = sends(run, group=group, topic="orders", queue=0)
        row = at(rows[1:], place)
        before = rows[next(n for n, r in enumerate(rows) if r is row) - 1]
        row["messages"][0]["offset"] = before["messages"][0]["offset"]
        return str(row["messages"][0]["value"])

    return change


def add_stored(
    group: str,
    after: int,
    change: Callable[[Row, list[tuple[int, Row]]], None],
    note: Callable[[Row], str],
    *,
    queue: tuple[str, int] = ("orders", 0),
    to: tuple[str, int] | None = None,
) -> Callable[[ModelCluster], Process]:
    """The broker stores a message again, changed somehow; everybody reads what comes of it."""

    def script(cluster: ModelCluster) -> Process:
        yield after
        broker = cluster.world.brokers[group]
        leader = broker.group.leader()
        while leader is None or len(broker.queues.get(queue, ())) < 3:
            yield 20 * MS
            leader = broker.group.leader()
        rows = broker.queues[queue]
        old = rows[len(rows) // 2][1]
        topic, number = to or queue
        made = {**old, "kind": "message", "topic": topic, "queue": number, "tx": None}
        made["message"] = {**old["message"], "topic": topic, "queue": number}
        change(made, rows)
        for key in ("value", "uniq_key", "keys", "digest"):
            made["message"][key] = made[key]
        broker.add(leader, [made])
        cluster.note = note(made)

    return script


def _same(made: Row, rows: list[tuple[int, Row]]) -> None:
    """Nothing is changed."""


def _first(made: Row, rows: list[tuple[int, Row]]) -> None:
    made.update({key: rows[0][1][key] for key in ("value", "uniq_key", "keys", "digest")})


def _unsent(made: Row, rows: list[tuple[int, Row]]) -> None:
    made.update(value="p1.v900", uniq_key="U-p1.v900", keys=[])


def _other_uniq_key(made: Row, rows: list[tuple[int, Row]]) -> None:
    made["uniq_key"] = "U-of-nobody"


def _only_uniq_key(made: Row, rows: list[tuple[int, Row]]) -> None:
    """Another value, under the uniq_key of one that is stored: its content got exchanged."""
    made["value"] = rows[0][1]["value"] + ".again"


def _value(made: Row) -> str:
    return str(made["value"])


def _uniq_key(made: Row) -> str:
    return str(made["uniq_key"])


def _stored_twice(run: Run) -> str:
    """A retry was stored again: the value at two places (the broker's window did not work)."""
    seen: dict[str, set[Any]] = {}
    for row in run.log:
        if row["kind"] == "message" and row["topic"] in {"orders", "pay"}:
            place = (row["topic"], row["queue"], row["queue_offset"])
            seen.setdefault(row["value"], set()).add(place)
    return next(value for value, places in sorted(seen.items()) if len(places) > 1)


def _called_failed(f: str, place: float, group: str | None = None) -> Callable[[Run], str]:
    """A producer got the answer that it surely is not stored; it is, and was read."""

    def change(run: Run) -> str:
        rows = [
            row
            for row in sends(run, f=f, group=group)
            if reads_of(run, row["messages"][0]["value"])
        ]
        row = at(rows, place)
        row.update(type="fail", status=None, error="NOT_STORED")
        row["messages"][0]["offset"] = None
        if f == "half":
            row["offset"] = None
        return str(row["messages"][0]["value"])

    return change


def _never_read(reader: str | None, place: float, **wanted: Any) -> Callable[[Run], str]:
    """Acknowledged, and read by nobody (of that group), while later ones were."""

    def change(run: Run) -> str:
        rows = [r for r in sends(run, **wanted) if reads_of(run, r["messages"][0]["value"])]
        value = str(at(rows, place)["messages"][0]["value"])
        forget_reads(run, value, group=reader)
        return value

    return change


def _last_is_gone(group: str) -> Callable[[Run], str]:
    """A queue's last acknowledged message is on no replica, and max_offset never counted it."""

    def change(run: Run) -> str:
        queue = next(
            q for q in run.manifest["queues"] if q["broker_group"] == group and q["topic"] == "pay"
        )
        last = queue["max_offset"] - 1
        row = next(
            s
            for s in run.ops
            if s["f"] == "send"
            and s["type"] == "ok"
            and s["broker_group"] == group
            and any(m["topic"] == "pay" and m["offset"] == last for m in s["messages"])
        )
        value = row["messages"][-1]["value"]
        gone = {(r["node"], r["position"]) for r in records_of(run, value) if r["topic"] == "pay"}
        run.cq[:] = [
            r
            for r in run.cq
            if (r["node"], r["position"]) not in gone or r["broker_group"] != group
        ]
        for table in (run.log,):
            table[:] = [r for r in table if r["value"] != value]
        forget_reads(run, value)
        for op in run.ops:
            if op["f"] == "max_offset" and op["type"] == "ok" and op["topic"] == "pay":
                op["offset"] = min(op["offset"], last)
        queue["max_offset"] = last
        return str(value)

    return change


def _unread_transaction(run: Run) -> str:
    """A committed transaction never reaches one group."""
    acked = {
        r["tx"]
        for r in run.ops
        if r["f"] == "decide" and r["type"] == "ok" and r["decision"] == "commit"
    }
    half = next(r for r in run.ops if r["f"] == "half" and r["tx"] in acked and r["type"] == "ok")
    value = str(half["messages"][0]["value"])
    forget_reads(run, value, group="ordered")
    return value


def _successive(run: Run, group: str, count: int) -> list[tuple[Row, Row]]:
    """Neighbouring ok polls of one process on one queue, each with messages."""
    last: dict[Any, Row] = {}
    found = []
    for row in run.ops:
        if row["f"] == "assign":
            last = {key: r for key, r in last.items() if key[0] != row["process"]}
        if row["f"] == "poll" and row["type"] == "ok" and row["client_group"] == group:
            key = (row["process"], row["broker_group"], row["topic"], row["queue"])
            if len(row["messages"]) >= count:
                if key in last:
                    found.append((last[key], row))
                last[key] = row
    return found


def _skip(group: str, place: float) -> Callable[[Run], str]:
    """A poll goes on behind messages that this process was never shown."""

    def change(run: Run) -> str:
        pairs = _successive(run, group, 2)
        _, second = pairs[round(place * (len(pairs) - 1))]
        del second["messages"][0]
        return str(second["process"])

    return change


def _step_back(group: str, place: float) -> Callable[[Run], str]:
    """A poll shows again what the one before it had shown."""

    def change(run: Run) -> str:
        pairs = _successive(run, group, 1)
        first, second = pairs[round(place * (len(pairs) - 1))]
        second["messages"].insert(0, dict(first["messages"][-1]))
        second["offset"] = first["messages"][-1]["offset"]
        return str(second["process"])

    return change


def _within_poll(what: str, group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = at(plain_reads(run, "poll", count=3, client_group=group), place)
        if what == "skip":
            del row["messages"][1]
        else:
            row["messages"][0:2] = [row["messages"][1], row["messages"][0]]
        return op_note(row)

    return change


def _swap_times(place: float, *, same_process: bool, base_group: str) -> Callable[[Run], str]:
    """Acknowledged, then another was sent: yet the later one stands before it in the queue."""

    def change(run: Run) -> str:
        rows = sends(run, group=base_group, topic="orders")
        pairs = [
            (one, two)
            for one, two in pairwise(rows)
            if (one["process"] == two["process"]) == same_process
            and one["queue"] == two["queue"]
            and one["t_complete"] < two["t_invoke"]
        ]
        one, two = pairs[round(place * (len(pairs) - 1))]
        times = [(r["t_invoke"], r["t_complete"]) for r in (one, two)]
        (two["t_invoke"], two["t_complete"]), (one["t_invoke"], one["t_complete"]) = times
        run.number_ops()
        return str(one["messages"][0]["value"])

    return change


def _late_transaction(run: Run) -> str:
    """A message sent after a transaction was acknowledged stands before it."""
    for decide in run.ops:
        if decide["f"] == "decide" and decide["type"] == "ok" and decide["decision"] == "commit":
            finals = [r for r in run.log if r["tx"] == decide["tx"] and r["kind"] == "final"]
            before = [
                s
                for s in sends(run, topic=finals[0]["topic"], queue=finals[0]["queue"])
                if s["messages"][0]["offset"] < finals[0]["queue_offset"]
            ]
            if before and len(attempts_of(run, finals[0]["value"])) == 1:
                row = before[-1]
                row["t_invoke"] = decide["t_complete"] + MS
                row["t_complete"] = decide["t_complete"] + 2 * MS
                run.number_ops()
                return str(row["messages"][0]["value"])
    raise AssertionError("no transaction with a message before it")


def _shown_unsent(f: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        message = at(plain_reads(run, f), place)["messages"][-1]
        message["uniq_key"] = "U-garbage"
        return "U-garbage"

    return change


def _twice(f: str, group: str, place: float) -> Callable[[Run], str]:
    """The same client consumes a message again, and nothing gave it a cause."""

    def change(run: Run) -> str:
        rows = plain_reads(run, f, client_group=group)
        row = at(rows, place)
        message = row["messages"][0]
        copies = [r for r, _ in reads_of(run, message["value"], group=group, type_=None)]
        assert len([r for r in copies if r["client"] == row["client"]]) == 1
        names = [r for r in run.ops if r["process"] == row["process"] and r["op"] > row["op"]]
        free = row["t_complete"]
        if names:
            free = min(free, names[0]["t_invoke"])
        again = {**row, "messages": [dict(message)], "t_invoke": free, "t_complete": free}
        run.ops.insert(run.ops.index(row) + 1, again)
        run.number_ops()
        return str(message["value"])

    return change


def _alter(rule: str, name: str, change: Callable[[Run], str], base: Any = PLAIN) -> Plant:
    return Plant(name=name, rule=rule, base=base, change=change)


def _act(rule: str, name: str, script: Any, base: Any = PLAIN, **more: Any) -> Plant:
    return Plant(name=name, rule=rule, base=base, script=script, **more)


_A, _B = "broker-a", "broker-b"
HISTORY_PLANTS: Final[tuple[Plant, ...]] = (
    _alter("A1", "a poll shows another message at an offset", _other_content("poll", 0.3)),
    _alter("A1", "a listener is given another message", _other_content("deliver", 0.5), FIVE),
    _alter("A1", "so it is, and refuses it", _other_content("deliver", 1, "fail")),
    _alter(
        "A1", "the last poll of the drain, second group", _other_content("poll", 1, final=True), TWO
    ),
    _alter("A1", "two sends told one offset", _acked_at_anothers(0.5)),
    _alter("A1", "the last send told another's offset", _acked_at_anothers(1, _B), TWO),
    _act("A2", "stored again in its queue", add_stored(_A, 6 * SECOND, _same, _value)),
    _act(
        "A2",
        "the first message, again in another queue",
        add_stored(_A, 9 * SECOND, _first, _value, to=("orders", 1)),
        FIVE,
    ),
    _act(
        "A2",
        "stored again in another topic, second group",
        add_stored(_B, 12 * SECOND, _same, _value, to=("pay", 0)),
        TWO,
    ),
    _act(
        "A2",
        "its uniq_key alone, under another value",
        add_stored(_A, 7 * SECOND, _only_uniq_key, _uniq_key),
    ),
    Plant(
        name="retries are stored again",
        rule="A2",
        base=PLAIN,
        change=_stored_twice,
        defects=frozenset({"no_dedupe"}),
    ),
    _alter("A3", "a send called failed was read", _called_failed("send", 0.5)),
    _alter("A3", "the first send, second group", _called_failed("send", 0, _B), TWO),
    _alter("A3", "a half called failed was read", _called_failed("half", 0.5), FIVE),
    _alter("A4", "read by nobody", _never_read(None, 0.5)),
    _alter("A4", "a queue's first message read by nobody", _never_read(None, 0, topic="pay"), FIVE),
    _alter("A4", "read by nobody, second group", _never_read(None, 0.7, group=_B), TWO),
    _alter("A5", "never read by the ordered group", _never_read("ordered", 0.5)),
    _alter("A5", "a queue's last message not read by it", _never_read("ordered", 1), TWO),
    _alter("A5", "never delivered to the listeners", _never_read("push", 0.2), FIVE),
    _alter("A5", "kept by retention, never read", _never_read("watchers", 1), RETAINED),
    _alter("A5", "a transaction never read", _unread_transaction),
    _alter("A5", "the last message is lost everywhere", _last_is_gone(_A)),
    _alter("A5", "the same, second group", _last_is_gone(_B), TWO),
    _alter("A6", "a poll skips a message", _skip("ordered", 0.5)),
    _alter("A6", "the drain skips one", _skip("drain", 0), FIVE),
    _alter("A6", "a poll steps back", _step_back("ordered", 0.7)),
    _alter("A6", "a broadcast client steps back", _step_back("watchers", 0.3), TWO),
    _alter("A7", "a poll leaves one out", _within_poll("skip", "ordered", 0.4)),
    _alter("A7", "a poll of a watcher leaves one out", _within_poll("skip", "watchers", 0.9), FIVE),
    _alter("A7", "a poll turns two around", _within_poll("turned", "drain", 0.5)),
    _alter(
        "A8",
        "a producer's next send stands before",
        _swap_times(0.5, same_process=True, base_group=_A),
    ),
    _alter("A8", "the same, second group", _swap_times(1, same_process=True, base_group=_B), TWO),
    _alter("A10", "sent later, stands before", _swap_times(0.3, same_process=False, base_group=_A)),
    _alter("A10", "the same, of five", _swap_times(0.9, same_process=False, base_group=_A), FIVE),
    _alter("A10", "sent after a commit, stands before", _late_transaction),
    _act("A11", "a stored value nobody sent", add_stored(_A, 8 * SECOND, _unsent, _value)),
    _act(
        "A11",
        "a stored uniq_key nobody sent",
        add_stored(_A, 8 * SECOND, _other_uniq_key, _uniq_key),
        FIVE,
    ),
    _alter("A11", "a poll shows a uniq_key of nobody", _shown_unsent("poll", 0.5)),
    _alter("A11", "a listener is shown one", _shown_unsent("deliver", 0), TWO),
    _alter("A12", "delivered twice", _twice("deliver", "push", 0.5)),
    _alter("A12", "delivered twice, five", _twice("deliver", "push", 0.2), FIVE),
    _alter("A12", "a broadcast client polls it twice", _twice("poll", "watchers", 0.6)),
    _alter("A12", "polled twice by the ordered group", _twice("poll", "ordered", 0.5), TWO),
)
