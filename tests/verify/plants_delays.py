"""Planted violations of the rules on delays (D*) and on requests (C11, C16).

`tests.verify.plants` says what a plant is; importing this module adds these to its list.
"""

from __future__ import annotations

from tests.verify.delayed_rows import (
    LEVELS,
    WAITING,
    delay,
    fall_due,
    recall,
    record,
    reply,
    request,
    wait_until,
)
from tests.verify.plants import plant
from tests.verify.synthetic import MS, TOPIC, SyntheticRun


def _pass_time(run: SyntheticRun, ms: int = 60) -> None:
    wait_until(run, run.now + ms * MS)


@plant("D1", witness="d7", live=True)
def timer_delivered_before_it_was_due(run: SyntheticRun) -> None:
    fall_due(run, delay(run, "d7"), early_ms=2)


@plant("D1", witness="d7", live=True)
def retry_of_a_timer_delivered_before_the_first_attempt_was_due(run: SyntheticRun) -> None:
    """A level; the attempt that failed was due before that, and is none."""
    delay(run, "d7", ms=1, outcome="fail")
    fall_due(run, delay(run, "d7", topic=LEVELS), early_ms=5)


@plant("D1", "S6", witness="d7")
def read_before_it_was_due(run: SyntheticRun) -> None:
    """Only a read tells of it: no log has it on a user topic, or tells when."""
    row = delay(run, "d7", ms=4_000)
    row |= {"op": len(run.ops)}
    shown = row["messages"][0] | {"offset": None}
    read = run.op("c9", "deliver", client_group="others", topic=TOPIC, queue=0, messages=[shown])
    read["op"] = len(run.ops)
    row["type"] = "info"


@plant("D2", witness="d7", live=True)
def recalled_and_delivered(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    recall(run, "d7")
    fall_due(run, row)


@plant("D2", witness="d7", live=True)
def recalled_by_the_second_try_and_delivered(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    recall(run, "d7", "info", process="p8b")
    recall(run, "d7")
    recall(run, "d7", "fail")
    fall_due(run, row)


@plant("D3", witness="d7", live=True)
def timer_that_never_came(run: SyntheticRun) -> None:
    delay(run, "d7")
    _pass_time(run)


@plant("D3", "A6", "A7", "A15", witness="d7")
def timer_that_one_group_never_read(run: SyntheticRun) -> None:
    """Delivered, and left out of what the group `pull` and the drain were shown."""
    row = delayed_away(run)
    named = row["messages"][0]["value"]
    for op in run.ops:
        if op["client_group"] == "pull" and op["f"] == "poll":
            op["messages"] = [m for m in op["messages"] if m["value"] != named]


@plant("D4", "S2", witness="d7", live=True)
def waits_at_two_places(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    run.append([record(run, "d7", 0, WAITING)])
    fall_due(run, row)


@plant("D4", witness="d7", live=True)
def waits_twice_and_was_recalled(run: SyntheticRun) -> None:
    delay(run, "d7", topic=LEVELS)
    run.append([record(run, "d7", 3, LEVELS)])
    recall(run, "d7")


@plant("D5", witness="d7", live=True)
def timer_delivered_far_too_late(run: SyntheticRun) -> None:
    _pass_time(run, 100)  # away from the fault
    row = delay(run, "d7")
    wait_until(run, row["due"] + 5_100 * MS)
    fall_due(run, row)


@plant("D5", witness="d7", live=True)
def level_delivered_far_too_late(run: SyntheticRun) -> None:
    _pass_time(run, 100)
    row = delay(run, "d7", topic=LEVELS)
    wait_until(run, row["t_complete"] + 20 * MS + 5_001 * MS)
    fall_due(run, row)


@plant("D6", witness="d7", live=True)
def recall_refused_and_it_never_came(run: SyntheticRun) -> None:
    delay(run, "d7")
    recall(run, "d7", "fail")
    _pass_time(run)


@plant("D6", witness="d7", live=True)
def two_recalls_refused_and_it_never_came(run: SyntheticRun) -> None:
    delay(run, "d7", topic=LEVELS)
    recall(run, "d7", "fail")
    recall(run, "d7", "fail")
    _pass_time(run)


@plant("C11", witness="given to another", live=True)
def answer_to_another_request(run: SyntheticRun) -> None:
    request(run, "q7", "a-q7")
    request(run, "q8", "a-q7")


@plant("C11", witness="nobody gave it", live=True)
def answer_that_nobody_gave(run: SyntheticRun) -> None:
    request(run, "q7", "a-q9")


@plant("C11", witness="given later", live=True)
def answer_that_came_before_it_was_given(run: SyntheticRun) -> None:
    row = request(run, "q7", "a-q7")
    row["t_complete"] = row["t_invoke"] + 1


@plant("C16", witness="the client was gone", live=True)
def reply_to_a_client_that_is_gone_is_acknowledged(run: SyntheticRun) -> None:
    request(run, "q7", None, "info", status="GONE")
    reply(run, "q7")


@plant("C16", witness="the client waited on", live=True)
def reply_that_nobody_took_is_acknowledged(run: SyntheticRun) -> None:
    row = request(run, "q7", None, "info", status="NO_REPLY")
    row["t_complete"] = reply(run, "q7")["t_complete"] + 1


@plant("A5", "A6", "A7", "A15", witness="q7", live=False)
def request_that_a_group_never_read(run: SyntheticRun) -> None:
    row = run.find("send", "v13")
    row |= {"f": "request", "type": "info", "status": "NO_REPLY"}
    row["messages"][0]["offset"] = None
    for op in run.ops:
        if op["client_group"] == "pull" and op["f"] == "poll":
            op["messages"] = [m for m in op["messages"] if m["value"] != f"{run.name}.v13"]


@plant("A19", witness="d7", live=True)
def failed_delay_waits(run: SyntheticRun) -> None:
    delay(run, "d7", outcome="fail")
    run.append([record(run, "d7", 0, WAITING)])


@plant("A2", "A10", "A12", witness="d7", live=True)
def timer_delivered_twice(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    fall_due(run, row)
    run.append([record(run, "d7", 0)])


@plant("A20", witness="d7", live=True)
def delay_answered_before_its_commit(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    fall_due(run, row)
    row["t_complete"] = row["t_invoke"] + 1


def delayed_away(run: SyntheticRun) -> dict[str, object]:
    """v13, as if it had been delayed and delivered at its place."""
    row = run.find("send", "v13")
    row |= {"f": "delay", "due": row["t_invoke"]}
    row["messages"][0]["offset"] = None
    return row
