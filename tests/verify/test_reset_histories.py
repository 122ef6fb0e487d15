"""What a reset, or a seek, may have made of a history: a group that was sent back consumes again,
one that was sent on consumes nothing of what lies between.

Each history is legal with the reset, and a violation without it, or where it came too late.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.by_hand import appended, bare, judged_by, op, record, send, show
from tests.verify.few_rows import GROUP, FewRows, message, owned, queue
from tests.verify.synthetic import TOPIC, Row
from verify.verdict import Outcome


def reset(run: FewRows, at: float, offset: int, client: str = "admin") -> None:
    op(run, "reset", at, at + 1, client=client, topic=TOPIC, queue=0, offset=offset)


def pop(run: FewRows, at: float, value: str | None, offset: int = 0, acked: bool = True) -> None:
    """A pop that hides what it shows for thirty seconds, and the acknowledgement of that."""
    row = op(run, "pop", at, at + 0.001, topic=TOPIC, queue=None, ref=f"receipt of {at}")
    row |= {"due": row["t_invoke"] + 30 * 10**9, "messages": []}
    if value is not None:
        row["messages"] = [message(value, offset)]
        if acked:
            told = {"queue": 0, "ref": row["ref"], "messages": row["messages"]}
            op(run, "ack", at + 1, at + 1.001, topic=TOPIC, **told)


def popped_again(reset_at: float | None) -> FewRows:
    group = GROUP | {"topics": [TOPIC], "retries_max": 3}
    run = bare(queues=[queue(1)], consumer_groups={"g": group})
    send(run, 1, "v", 0)
    pop(run, 3, "v")
    pop(run, 13, "v", acked=False)
    if reset_at is not None:
        reset(run, reset_at, 0)
    return run


@pytest.mark.parametrize("rule", ["P2", "P5"])
def test_a_reset_has_a_group_pop_again(rule: str, tmp_path: Path) -> None:
    assert judged_by(rule, popped_again(10), tmp_path / "reset").verdict is Outcome.PASS
    assert judged_by(rule, popped_again(20), tmp_path / "later").verdict is Outcome.FAIL


def test_a_reset_ends_what_a_group_holds(tmp_path: Path) -> None:
    """P1: both pops of the message, not acknowledged, lie within its invisible time."""
    for name, at, expected in (("reset", 10, Outcome.PASS), ("later", 20, Outcome.FAIL)):
        run = popped_again(at)
        run.ops = [row for row in run.ops if row["f"] != "ack"]
        assert judged_by("P1", run, tmp_path / name).verdict is expected


def test_what_comes_again_does_so_in_its_own_topic(tmp_path: Path) -> None:
    """P5: counted anew behind a reset of the topic whose messages they are."""
    for name, at, expected in (("reset", 10, Outcome.PASS), ("later", 40, Outcome.FAIL)):
        run = popped_again(at)
        shown = [row["messages"][0] for row in run.ops if row["f"] == "pop"]
        shown[1] |= {"topic": f"%RETRY%g_{TOPIC}", "reconsume": 2}
        assert judged_by("P5", run, tmp_path / name).verdict is expected


@pytest.mark.parametrize("rule", ["P3", "P4"])
def test_a_group_that_pops_may_be_sent_on(rule: str, tmp_path: Path) -> None:
    group = GROUP | {"topics": [TOPIC], "ordered": True}
    for name, expected in (("reset", Outcome.PASS), ("none", Outcome.FAIL)):
        run = bare(queues=[queue(2)], consumer_groups={"g": group})
        send(run, 1, "v", 0)
        send(run, 2, "w", 1)
        record(run, 1, "v", 0)
        record(run, 2, "w", 1)
        if name == "reset":
            reset(run, 10, 1)
        pop(run, 13, "w", 1)
        pop(run, 150, None)
        assert judged_by(rule, run, tmp_path / name).verdict is expected


def test_what_was_dead_may_be_so_again(tmp_path: Path) -> None:
    for name, expected in (("reset", Outcome.PASS), ("none", Outcome.FAIL)):
        run = popped_again(10 if name == "reset" else None)
        record(run, 1, "v", 0)
        for number in (0, 1):
            found = message("v", number, topic="%DLQ%g", reconsume=4)
            told = {"topic": "%DLQ%g", "queue": 0, "offset": number, "messages": [found]}
            op(run, "poll", 150 + number, 151 + number, client_group="tool", **told)
        result = judged_by("P6", run, tmp_path / name)
        assert result.verdict is expected
        assert result.violations == (0 if name == "reset" else 2)


def poll_back(run: FewRows, *, process: str = "c", group: str = "g", at: float = 15) -> None:
    show(run, "poll", at, "v", 0, process=process, client_group=group)


def polled() -> FewRows:
    run = bare(queues=[queue(2)], consumer_groups={"g": GROUP, "h": GROUP})
    for number, value in enumerate("vw"):
        send(run, 1 + number, value, number)
        record(run, 1 + number, value, number)
        show(run, "poll", 5 + number, value, number)
    return run


def test_a_poller_that_seeks_starts_anew(tmp_path: Path) -> None:
    for name, client, expected in (
        ("own", "c", Outcome.PASS),
        ("administrator's", "admin", Outcome.PASS),
        ("another's", "other", Outcome.FAIL),
    ):
        run = polled()
        show(run, "poll", 3, "v", 0, client="other")
        reset(run, 10, 0, client)
        poll_back(run)
        assert judged_by("A6", run, tmp_path / name).verdict is expected


def test_a_seek_excuses_only_the_next_poll(tmp_path: Path) -> None:
    run = polled()
    reset(run, 10, 0, "c")
    poll_back(run, at=22)
    poll_back(run, at=40)
    result = judged_by("A6", run, tmp_path)
    assert result.verdict is Outcome.FAIL
    assert result.violations == 1


def test_the_assign_of_its_client_starts_a_process_anew(tmp_path: Path) -> None:
    for name, owner, expected in (("own", "c", Outcome.PASS), ("another's", "d", Outcome.FAIL)):
        run = polled()
        op(run, "assign", 10, 11, client=owner, process=f"{owner}.main", assigned=owned())
        poll_back(run)
        assert judged_by("A6", run, tmp_path / name).verdict is expected


def test_the_assign_of_its_client_is_nothing_to_a_process_with_its_own(tmp_path: Path) -> None:
    run = polled()
    op(run, "assign", 3, 4, assigned=owned())
    op(run, "assign", 10, 11, process="c.main", assigned=owned())
    poll_back(run)
    assert judged_by("A6", run, tmp_path).verdict is Outcome.FAIL


def test_a_process_that_polls_for_two_groups_is_two_readers(tmp_path: Path) -> None:
    for group, expected in (("h", Outcome.PASS), ("g", Outcome.FAIL)):
        run = polled()
        poll_back(run, group=group)
        assert judged_by("A6", run, tmp_path / group).verdict is expected


def test_a_group_that_was_sent_back_begins_its_order_anew(tmp_path: Path) -> None:
    for name, client, at, expected in (
        ("seek", "c", 15, Outcome.PASS),
        ("administrator's", "admin", 15, Outcome.PASS),
        ("later", "admin", 35, Outcome.FAIL),
    ):
        run = in_shard()
        consume(run, "w", 1, 10)
        reset(run, at, 0, client)
        consume(run, "v", 0, 30)
        assert judged_by("A13", run, tmp_path / name).verdict is expected


def test_order_counts_behind_a_reset(tmp_path: Path) -> None:
    """What lay ahead before the reset hides nothing of it."""
    for first, expected in ((20, Outcome.FAIL), (12, Outcome.PASS)):
        run = in_shard()
        consume(run, "x", 2, 5)
        reset(run, 7, 0, "c")
        consume(run, "w", 1, first)
        consume(run, "v", 0, 25)
        assert judged_by("A13", run, tmp_path / str(first)).verdict is expected


def in_shard() -> FewRows:
    run = bare(queues=[queue(3)], consumer_groups={"g": GROUP | {"ordered": True}})
    for number, value in enumerate("vwx"):
        sent = send(run, 1 + number, value, number)
        sent["messages"][0] |= {"shard": "s", "seq": number}
    op(run, "assign", 4, 4.5, process="c.main", assigned=owned())
    return run


def consume(run: FewRows, value: str, offset: int, at: float) -> None:
    show(run, "deliver", at, value, offset, process="c.q0")


@pytest.mark.parametrize("rule", ["A4", "A5", "C6", "C13"])
def test_a_group_is_owed_nothing_below_the_place_that_it_was_sent_to(
    rule: str, tmp_path: Path
) -> None:
    """v at 0 is owed to it unless it was sent beyond that."""
    kind: dict[str, Row] = {
        "A5": {"at_least_once": True},
        "C6": {"retries_max": 3},
        "C13": {"tags": ["a"]},
    }
    group = GROUP | {"topics": [TOPIC]} | kind.get(rule, {})
    for name, offset, expected in (
        ("beyond", 1, Outcome.PASS),
        ("before", 0, Outcome.PASS if rule == "A4" else Outcome.FAIL),
        ("none", None, Outcome.FAIL),
    ):
        run = bare(queues=[queue(2)], consumer_groups={"g": group})
        for number, value in enumerate("vw"):
            send(run, 1 + number, value, number)
            record(run, 1 + number, value, number, tag_hash=97)
        appended(run, [1, 2])
        if offset is not None:
            reset(run, 10, offset)
        show(run, "deliver", 30, "w", 1)
        assert judged_by(rule, run, tmp_path / name).verdict is expected


def test_who_was_not_reset_shows_what_stands_before(tmp_path: Path) -> None:
    run = bare(queues=[queue(2)], consumer_groups={"g": GROUP, "h": GROUP})
    for number, value in enumerate("vw"):
        send(run, 1 + number, value, number)
        record(run, 1 + number, value, number)
    reset(run, 10, 1)
    show(run, "deliver", 30, "w", 1, client="d", client_group="h")
    assert judged_by("A4", run, tmp_path).verdict is Outcome.FAIL


def test_what_was_interrupted_and_sent_over_need_not_come_again(tmp_path: Path) -> None:
    for offset, expected in ((1, Outcome.PASS), (0, Outcome.FAIL)):
        run = bare(consumer_groups={"g": GROUP | {"retries_max": 3}})
        send(run, 1, "v", 0)
        record(run, 1, "v", 0)
        appended(run, [1])
        show(run, "deliver", 5, "v", 0, type="info")
        reset(run, 10, offset)
        assert judged_by("C6", run, tmp_path / str(offset)).verdict is expected


def broadcast(*values: str) -> FewRows:
    kind = {"kind": "broadcast", "progress_ms": 1000}
    run = bare(queues=[queue(len(values))], consumer_groups={"g": GROUP | kind})
    for number, value in enumerate(values):
        send(run, 1 + number / 10, value, number)
    op(run, "assign", 3, 3.5, assigned=owned())
    return run


def test_a_broadcast_member_seeks_over_messages(tmp_path: Path) -> None:
    for client, offset, expected in (
        ("c", 3, Outcome.PASS),
        ("admin", 3, Outcome.PASS),
        ("other", 3, Outcome.FAIL),
        ("c", 1, Outcome.FAIL),
    ):
        run = broadcast("v", "w", "x", "y")
        op(run, "assign", 3.6, 3.7, client="other", assigned=owned())
        show(run, "deliver", 5, "v", 0)
        reset(run, 10, offset, client)
        show(run, "deliver", 30, "y", 3)
        assert judged_by("C5", run, tmp_path / f"{client}{offset}").verdict is expected


def test_a_broadcast_member_that_sought_back_goes_on_from_there(tmp_path: Path) -> None:
    for client, offset, expected in (
        ("c", 0, Outcome.PASS),
        ("admin", 0, Outcome.PASS),
        ("c", 2, Outcome.FAIL),
        (None, 0, Outcome.FAIL),
    ):
        run = broadcast("v", "w", "x")
        show(run, "deliver", 5, "v", 0)
        show(run, "deliver", 6, "w", 1)
        if client is not None:
            reset(run, 20, offset, client)
        op(run, "assign", 35, 36, assigned=[])
        op(run, "assign", 40, 41, assigned=owned())
        show(run, "deliver", 45, "v", 0)
        show(run, "deliver", 46, "w", 1)
        assert judged_by("C14", run, tmp_path / f"{client}{offset}").verdict is expected


def test_a_member_commits_where_it_sought_to(tmp_path: Path) -> None:
    for at, offset, expected in (
        (10, 2, Outcome.PASS),
        (10, 1, Outcome.FAIL),
        (25, 2, Outcome.FAIL),
    ):
        group = GROUP | {"topics": [TOPIC], "at_least_once": True}
        run = bare(queues=[queue(2)], consumer_groups={"g": group})
        for number, value in enumerate("vw"):
            send(run, 1 + number, value, number)
        show(run, "deliver", 5, "v", 0)
        reset(run, at, offset, "c")
        op(run, "commit_offset", 20, 21, topic=TOPIC, queue=0, offset=2)
        show(run, "deliver", 40, "w", 1)
        assert judged_by("C19", run, tmp_path / f"{at}{offset}").verdict is expected
