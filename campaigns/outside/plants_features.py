"""Planted anomalies of delays (D) and of POP (P).

Place in the data path: a list for `catalogue`. Each changes a few rows of one run in which every
feature is used once; what a witness must show is a value, an operation or a place, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from campaigns.outside.broker_model import of_message
from campaigns.outside.feature_client import GROUP, WHEEL
from campaigns.outside.feature_surgery import (
    Change,
    add_op,
    drop_ops,
    first_value,
    ops_of,
    plants_of,
)
from campaigns.outside.model_cluster import ModelCluster
from campaigns.outside.planting import FEATURES, Plant
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.virtual_time import Process

__all__ = ["FEATURE_PLANTS"]

_LIMITED: Final = replace(FEATURES, limits=True)


# -- delays


def _due_later(value: str, by: int) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, "delay", value=value)
        row["due"] += by
        return value

    return change


def _recall_counts(run: Run) -> str:
    (row,) = ops_of(run, "recall", type="fail")
    row["type"] = "ok"
    return str(row["ref"])


def _recall_of_another(run: Run) -> str:
    (row,) = ops_of(run, "recall", type="ok")
    row["ref"] = "delayer.later-1"
    return "delayer.later-1"


def _recall_forgotten(run: Run) -> str:
    (row,) = ops_of(run, "recall", type="ok")
    drop_ops(run, [row])
    return str(row["ref"])


def _delayed_not_read(run: Run) -> str:
    for row in ops_of(run, "poll", client_group="later-readers", value="delayer.later-5"):
        row["messages"] = []
    return "delayer.later-5"


def _waits_twice(place: int) -> Callable[[ModelCluster], Process]:
    def script(cluster: ModelCluster) -> Process:
        broker = cluster.world.brokers[GROUP]
        while (WHEEL, place) not in broker.found:
            yield 5 * MS
        again = broker.found[WHEEL, place]
        leader = broker.group.leader()
        assert leader is not None
        broker.add(leader, [of_message("message", again, WHEEL, 0)])
        cluster.note = again["value"]

    return script


def _late(value: str) -> Change:
    def change(run: Run) -> str:
        run.manifest["limits"] = {**run.manifest["limits"], "late_ms": 100}
        (row,) = ops_of(run, "delay", value=value)
        row["due"] -= 300 * MS
        return value

    return change


def _recall_refused(run: Run) -> str:
    (row,) = ops_of(run, "recall", type="ok")
    row["type"] = "fail"
    return str(row["ref"])


def _recall_refused_of_another(run: Run) -> str:
    (ok,), (failed,) = ops_of(run, "recall", type="ok"), ops_of(run, "recall", type="fail")
    failed["ref"] = ok["ref"]
    drop_ops(run, [ok])
    return str(ok["ref"])


# -- POP


def _pop(run: Run, ref: str) -> Row:
    (row,) = ops_of(run, "pop", ref=ref)
    return row


def _invisible_longer(run: Run) -> str:
    _pop(run, "r1")["due"] += 10 * SECOND
    return "pop-sender.popped-2"


def _popped_at_once_again(run: Run) -> str:
    row = _pop(run, "r5")
    add_op(run, row, row["t_complete"] + 10_000, ref="r9", t_complete=row["t_complete"] + 20_000)
    return first_value(row)


def _acked_before_it_came_again(run: Run) -> str:
    (ack,) = ops_of(run, "ack", ref="r1")
    popped = _pop(run, "r1")
    add_op(run, ack, ack["t_complete"] + MS, messages=[popped["messages"][2]])
    return "pop-sender.popped-2"


def _acked_in_order_and_again(run: Run) -> str:
    row = _pop(run, "q0")
    (ack,) = ops_of(run, "ack", ref="q0")
    add_op(run, row, ack["t_complete"] + 10_000, ref="q9", t_complete=ack["t_complete"] + 20_000)
    return first_value(row)


def _never_acked(run: Run) -> str:
    drop_ops(run, ops_of(run, "ack", ref="r3"))
    return "pop-sender.popped-4"


def _never_popped(run: Run) -> str:
    drop_ops(run, [*ops_of(run, "pop", ref="r5"), *ops_of(run, "ack", ref="r5")])
    return "pop-sender.popped-5"


def _order_ack_lost(run: Run) -> str:
    drop_ops(run, ops_of(run, "ack", ref="q1"))
    return "order-sender.inorder-2"


def _order_skips(run: Run) -> str:
    drop_ops(run, [*ops_of(run, "pop", ref="q0"), *ops_of(run, "ack", ref="q0")])
    return "order-sender.inorder-1"


def _popped_with(count: int) -> Change:
    def change(run: Run) -> str:
        row = _pop(run, "r4")
        row["messages"][0]["reconsume"] = count
        return first_value(row)

    return change


def _dead_too_early(run: Run) -> str:
    (row,) = ops_of(run, "poll", client_group="dead-readers")
    row["messages"][0]["reconsume"] = 1
    return first_value(row)


def _dead_though_acked(run: Run) -> str:
    (ack,) = ops_of(run, "ack", ref="r4")
    add_op(run, ack, ack["t_complete"] + MS, messages=[_pop(run, "r4")["messages"][0]])
    return "pop-sender.popped-2"


def _receipt_of_nobody(f: str, ref: str, other: str) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, f, ref=ref)
        row["ref"] = other
        return first_value(row)

    return change


_SCRIPTED: Final = [
    Plant(name=f"D4-waits-twice-{place}", rule="D4", base=FEATURES, script=_waits_twice(place))
    for place in (3, 5)
]
_OF_LIMITS: Final = [
    Plant(
        name=f"D5-late-{number}", rule="D5", base=_LIMITED, change=_late(f"delayer.later-{number}")
    )
    for number in (1, 3)
]
FEATURE_PLANTS: Final[tuple[Plant, ...]] = (
    *plants_of(
        "D1",
        shown_early=_due_later("delayer.later-0", 5 * SECOND),
        shown_a_little_early=_due_later("delayer.later-3", 200 * MS),
    ),
    *plants_of("D2", recalled_and_shown=_recall_counts, shown_and_recalled=_recall_of_another),
    *plants_of("D3", never_came=_recall_forgotten, never_read=_delayed_not_read),
    *_SCRIPTED,
    *_OF_LIMITS,
    *plants_of("D6", refused_and_gone=_recall_refused, refused_late=_recall_refused_of_another),
    *plants_of("P1", invisible=_invisible_longer, twice_at_once=_popped_at_once_again),
    *plants_of(
        "P2", acked_and_again=_acked_before_it_came_again, in_order=_acked_in_order_and_again
    ),
    *plants_of("P3", never_acked=_never_acked, never_popped=_never_popped),
    *plants_of("P4", ack_lost=_order_ack_lost, skipped=_order_skips),
    *plants_of("P5", count_stands=_popped_with(0), count_jumps=_popped_with(3)),
    *plants_of("P6", too_early=_dead_too_early, though_acked=_dead_though_acked),
    *plants_of(
        "P7",
        ack=_receipt_of_nobody("ack", "r5", "r77"),
        change=_receipt_of_nobody("change", "r2", "r1"),
    ),
)
