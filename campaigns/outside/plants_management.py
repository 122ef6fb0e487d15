"""Planted anomalies of consumption (C) and of topics, routes, users and offsets (M).

Place in the data path: as `plants_features`.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.feature_client import GROUP
from campaigns.outside.feature_surgery import (
    Change,
    add_op,
    drop_ops,
    first_value,
    ops_of,
    plants_of,
)
from campaigns.outside.planting import Plant
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import op_note, replace_row

__all__ = ["MANAGEMENT_PLANTS"]


# -- consumption


def _delivered(run: Run, group: str, value: str) -> list[Row]:
    return ops_of(run, "deliver", client_group=group, value=value)


def _lock_outlived(run: Run) -> str:
    (last,) = _delivered(run, "lockers", "lock-sender.locked-2")
    (first,) = _delivered(run, "lockers", "lock-sender.locked-3")
    last |= {"t_complete": first["t_invoke"] + MS, "process": "locker-1.listener"}
    return op_note(last)


def _two_consume(run: Run) -> str:
    (row,) = _delivered(run, "lockers", "lock-sender.locked-4")
    added = add_op(run, row, row["t_invoke"] + 100_000, client="locker-1")
    return op_note(added)


def _consumed_out_of_order(run: Run) -> str:
    (one,) = _delivered(run, "lockers", "lock-sender.locked-0")
    (other,) = _delivered(run, "lockers", "lock-sender.locked-1")
    one["messages"], other["messages"] = other["messages"], one["messages"]
    return "lock-sender.locked-1"


def _refused_and_passed_over(run: Run) -> str:
    (row,) = _delivered(run, "lockers", "lock-sender.locked-3")
    (last,) = _delivered(run, "lockers", "lock-sender.locked-5")
    row["type"] = "fail"
    add_op(run, row, last["t_complete"] + MS, type="ok")
    return "lock-sender.locked-"


def _not_heard(client: str, value: str) -> Change:
    def change(run: Run) -> str:
        drop_ops(run, ops_of(run, "deliver", client=client, value=value))
        return value

    return change


def _not_consumed(value: str, *, again: bool) -> Change:
    def change(run: Run) -> str:
        rows = _delivered(run, "refusers", value)
        if again:
            drop_ops(run, [rows[-1]])
        else:
            rows[0]["type"] = "fail"
        return value

    return change


def _dead_letter(type_: str | None) -> Change:
    def change(run: Run) -> str:
        row = _delivered(run, "refusers", "again-sender.again-2")[-1]
        if type_ is None:
            drop_ops(run, [row])
        else:
            row["type"] = type_
        return "again-sender.again-2"

    return change


def _count_jumps(run: Run) -> str:
    row = _delivered(run, "refusers", "again-sender.again-1")[-1]
    row["messages"][0]["reconsume"] = 2
    return "again-sender.again-1"


def _count_from_nowhere(run: Run) -> str:
    drop_ops(run, _delivered(run, "refusers", "again-sender.again-2")[:1])
    return "again-sender.again-2"


def _reset_ignored(run: Run) -> str:
    (reset,) = [r for r in ops_of(run, "reset", offset=2) if r.get("from_ms") is None]
    # What a member went over by itself is owed to nobody: it does not.
    (seek,) = ops_of(run, "reset", client="backer")
    behind = [
        r for r in ops_of(run, "deliver", client="backer") if r["t_invoke"] > reset["t_invoke"]
    ]
    not_followed = [
        r for r in behind if r["t_invoke"] > seek["t_invoke"] or r["messages"][0]["offset"] < 4
    ]
    drop_ops(run, [seek, *not_followed])
    return op_note(reset)


def _seek_ignored(run: Run) -> str:
    (seek,) = ops_of(run, "reset", client="backer")
    behind = [
        r for r in ops_of(run, "deliver", client="backer") if r["t_invoke"] > seek["t_invoke"]
    ]
    drop_ops(run, [row for row in behind if row["messages"][0]["offset"] == 4])
    return op_note(seek)


def _wrong_answer(run: Run) -> str:
    row = ops_of(run, "request")[1]
    row["ref"] = "answer-99"
    return first_value(row)


def _answer_before_it_was_given(run: Run) -> str:
    request = ops_of(run, "request")[2]
    (row,) = _delivered(run, "answerers", first_value(request))
    row |= {"t_invoke": row["t_invoke"] + SECOND, "t_complete": row["t_complete"] + SECOND}
    run.number_ops()
    return first_value(request)


# -- management


def _read_though_deleted(run: Run) -> str:
    (sent,) = ops_of(run, "send", value="gone-sender.gone-1")
    like = ops_of(run, "poll", client_group="later-readers")[0]
    at = run.manifest["phases"]["drain"][0] + SECOND
    place: Row = {"topic": "gone", "offset": 1, "messages": sent["messages"]}
    add_op(run, like, at, client_group="gone-readers", client="gone-reader", **place)
    return "gone-sender.gone-1"


def _delivered_though_deleted(run: Run) -> str:
    (sent,) = ops_of(run, "delay", value="delayer.later-5")
    (deleted,) = ops_of(run, "delete_topic", broker_group=GROUP)
    add_op(run, deleted, sent["t_complete"] + MS, topic="later")
    return "delayer.later-5"


def _drained_view(run: Run, topic: str, node: str | None) -> Row:
    at = run.manifest["phases"]["drain"][0]
    rows = [r for r in ops_of(run, "route", topic=topic) if r["t_invoke"] >= at]
    return next(r for r in rows if (r["node"] == node if node else r["key"] == "owner"))


def _permission_lost(run: Run) -> str:
    row = _drained_view(run, "perm", None)
    row["status"] = "6"
    return "another permission"


def _topic_is_back(run: Run) -> str:
    row = _drained_view(run, "gone", None)
    like = _drained_view(run, "perm", None)
    row |= {"assigned": [{**q, "topic": "gone"} for q in like["assigned"]], "status": "6"}
    row["ref"] = like["ref"]
    return "though it was deleted"


def _route_shows(node: str, **columns: Any) -> Change:
    def change(run: Run) -> str:
        row = _drained_view(run, "perm", node)
        row |= columns
        return node

    return change


def _another_leader(run: Run) -> str:
    row = _drained_view(run, "perm", "ns-1")
    leader, other, *rest = row["ref"].split(" ")
    row["ref"] = " ".join([other, *sorted([leader, *rest])])
    return "another leader"


def _right_was(change_of: str, decision: str) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, "account", ref=change_of)
        row["decision"] = decision
        return op_note(row).replace("op ", "")

    return change


def _found_at(ref: str, **columns: Any) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, "search", ref=ref)
        row |= columns
        return op_note(row)

    return change


def _commit_of_backers(run: Run) -> Row:
    (row,) = ops_of(run, "commit_offset", client_group="backers")
    return row


def _answered_at_once(run: Run) -> str:
    row = _commit_of_backers(run)
    row["t_complete"] = row["t_invoke"] + 1
    return op_note(row)


def _stored_for_another(run: Run) -> str:
    for row in run.log:
        if row["kind"] == "offset" and row["client_group"] == "backers":
            row["client_group"] = "nobody"
    return op_note(_commit_of_backers(run))


def _failed_and_stored(group: str) -> Change:
    def change(run: Run) -> str:
        for row in ops_of(run, "commit_offset", client_group=group):
            row["type"] = "fail"
        return group

    return change


def _reset_led_to(to: int, **wanted: Any) -> Change:
    def change(run: Run) -> str:
        row = ops_of(run, "reset", **wanted)[0]
        row["offset"] = to
        return op_note(row)

    return change


def _reads(type_: str, other: str) -> Change:
    def change(run: Run) -> str:
        row = next(
            r for r in ops_of(run, "poll", client_group="perm-readers") if r["type"] == type_
        )
        row["type"] = other
        row["messages"] = [] if other == "ok" else None
        row["status"] = None if other == "ok" else "16"
        return op_note(row)

    return change


def _dead_in_route(node: str) -> Change:
    def change(run: Run) -> str:
        row = _drained_view(run, "perm", node)
        dead = row["ref"].split(" ")[1]
        window: Row = {
            "t_start": row["t_invoke"] - 700 * MS,
            "t_effect": row["t_invoke"] - 600 * MS,
        }
        window |= {"t_heal": row["t_complete"] + MS, "t_healed": row["t_complete"] + 2 * MS}
        fault: Row = {"fault": len(run.faults), "name": "kill", "params": "{}", "evidence": "gone"}
        fault |= {"targets": [f"{GROUP}-{dead}"], "effect": "taken"}
        run.faults.append({**fault, **window})
        return str(dead)

    return change


def _older_leader(node: str) -> Change:
    """A follower had led in a term before all others, and is shown again."""

    def change(run: Run) -> str:
        row = _drained_view(run, "perm", node)
        row["status"] = "6"
        leader, other, *rest = row["ref"].split(" ")
        first = next(r for r in run.raft if r["event"] == "role" and r["node"] == other)
        replace_row(run.raft, first, first, {**first, "role": "leader", "term": 0})
        row["ref"] = " ".join([other, *sorted([leader, *rest])])
        return str(other)

    return change


MANAGEMENT_PLANTS: Final[tuple[Plant, ...]] = (
    *plants_of("C3", outlived=_lock_outlived, two_members=_two_consume),
    *plants_of("C4", exchanged=_consumed_out_of_order, passed_over=_refused_and_passed_over),
    *plants_of(
        "C5",
        between=_not_heard("hearer-1", "told-sender.told-2"),
        at_the_end=_not_heard("hearer-2", "told-sender.told-4"),
    ),
    *plants_of(
        "C6",
        never_came_back=_not_consumed("again-sender.again-1", again=True),
        refused_once=_not_consumed("again-sender.again-0", again=False),
    ),
    *plants_of("C7", not_refused=_dead_letter(None), consumed=_dead_letter("ok")),
    *plants_of("C8", jumps=_count_jumps, from_nowhere=_count_from_nowhere),
    *plants_of("C9", ignored=_reset_ignored, seek=_seek_ignored),
    *plants_of("C11", wrong=_wrong_answer, too_early=_answer_before_it_was_given),
    *plants_of("M1", read=_read_though_deleted, delivered=_delivered_though_deleted),
    *plants_of("M2", permission=_permission_lost, back=_topic_is_back),
    *plants_of("M3", permission=_route_shows("ns-0", status="6"), leader=_another_leader),
    *plants_of("M4", may=_right_was("revoke", "allow"), may_not=_right_was("grant", "deny")),
    *plants_of("M5", too_far=_found_at("first", offset=3), too_early=_found_at("last", offset=2)),
    *plants_of("M6", answered_early=_answered_at_once, never_stored=_stored_for_another),
    *plants_of("M7", backers=_failed_and_stored("backers"), ordered=_failed_and_stored("ordered")),
    *plants_of(
        "M8",
        older=_reset_led_to(2, ref="force", offset=3),
        forward=_reset_led_to(6, ref="no-force"),
    ),
    *plants_of("M9", read=_reads("fail", "ok"), refused=_reads("ok", "fail")),
    *plants_of("M10", one=_dead_in_route("ns-0"), other=_dead_in_route("ns-1")),
    *plants_of("M11", one=_older_leader("ns-0"), other=_older_leader("ns-1")),
)
