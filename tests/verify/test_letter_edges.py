"""Where the letter of the run format says how far a rule goes, and a neighbour says that it goes
there."""

from __future__ import annotations

from pathlib import Path

from tests.verify.by_hand import appended, bare, judged_by, op, record, send, show
from tests.verify.few_rows import AT, message, queue
from tests.verify.synthetic import TOPIC
from verify.verdict import Outcome

OTHER = "broker-b"
LIMITS = {"rto_ms": 5_000, "gap_ms": 10**9, "lag_ms": 10**9, "acked_share_min": 0.0, "late_ms": 0}


def test_a_group_without_sends_need_not_recover(tmp_path: Path) -> None:
    """A16: who never sends to it shows nothing of it."""
    for name, group, expected in (("none", AT, Outcome.PASS), ("some", OTHER, Outcome.FAIL)):
        run = bare(limits=LIMITS)
        run.faults[0] |= {"effect": "taken", "t_effect": 20 * 10**9, "t_healed": 30 * 10**9}
        send(run, 1, "v", 0, broker_group=group)
        for number in range(30):
            send(run, 21 + number, f"w{number}", 1 + number)
        assert judged_by("A16", run, tmp_path / name).verdict is expected


def test_two_broker_groups_do_not_know_one_anothers_halves(tmp_path: Path) -> None:
    for group, expected in ((OTHER, Outcome.PASS), (AT, Outcome.FAIL)):
        times = {"timeout_ms": 6_000, "check_interval_ms": 30_000, "check_max": 15}
        run = bare(transactions=times, dedupe={"window_ms": 600_000})
        for number, place in enumerate((AT, group)):
            told = {"topic": TOPIC, "queue": 0, "tx": "x", "offset": number}
            sent = [message("x.v", None, tx="x", broker_group=place)]
            op(run, "half", 1 + number, 1.5 + number, broker_group=place, messages=sent, **told)
        assert judged_by("T16", run, tmp_path / group).verdict is expected


def test_a_reply_to_a_request_of_two_rows_may_be_anothers(tmp_path: Path) -> None:
    for rows, expected in ((2, Outcome.PASS), (1, Outcome.FAIL)):
        run = bare()
        for number in range(rows):
            told = {
                "type": "info",
                "status": "GONE",
                "topic": TOPIC,
                "queue": 0,
                "process": f"p{number}",
            }
            op(run, "request", 1, 2, messages=[message("v", None)], **told)
        op(run, "reply", 10, 11, client="d", key="v", ref="answer")
        assert judged_by("C16", run, tmp_path / str(rows)).verdict is expected


def test_what_retention_left_bounds_the_earliest_time(tmp_path: Path) -> None:
    """M5: the message at the queue's floor was there at any time behind its answer."""
    for name, told, expected in (
        ("its own", None, Outcome.PASS),
        ("older", -1_000, Outcome.PASS),
        ("later", 1, Outcome.FAIL),
    ):
        run = bare(queues=[queue(2, min_offset=1)])
        for number, value in enumerate("vw"):
            send(run, 1 + number, value, number)
            record(run, 1 + number, value, number)
        appended(run, [1, 2])
        stored = run.log[-1]["stored_ms"]
        answer = stored + (told or 0)
        op(run, "search", 20, 21, topic=TOPIC, queue=0, ref="earliest", from_ms=answer)
        assert judged_by("M5", run, tmp_path / name).verdict is expected


def test_what_was_shown_of_a_queue_that_is_gone_stands_in_logs_that_were_not_cut(
    tmp_path: Path,
) -> None:
    for first, expected in ((2, Outcome.PASS), (1, Outcome.FAIL)):
        run = bare(queues=[queue(1, topic="Kept")])
        show(run, "poll", 5, "v", 0)
        send(run, 1, "w", 0, topic="Kept")
        record(run, first, "w", 0, topic="Kept")
        assert judged_by("S6", run, tmp_path / str(first)).verdict is expected
