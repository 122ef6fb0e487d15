"""What rules say of histories of a few operations: what is legal, and what is not beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.by_hand import appended, bare, judged_by, op, record, send, show
from tests.verify.few_rows import GROUP, FewRows, message, owned, queue
from tests.verify.synthetic import JOBS, MS, TOPIC, Row
from verify.verdict import Outcome

BROADCAST = GROUP | {"kind": "broadcast"}


def _takes(run: FewRows, at: float, client: str, outcome: str = "ok", **columns: str) -> None:
    """A member takes the queue, and is still there behind the drain's end."""
    ended = at + 0.001 if outcome == "ok" else None
    told = {"client": client, "type": outcome, "broker_group": None} | columns
    op(run, "assign", at, ended, **told, assigned=owned())
    op(run, "fetch_offset", 201, 202, client=client, topic=TOPIC, queue=0, **columns)


def test_who_may_have_taken_a_queue_is_owed_nothing(tmp_path: Path) -> None:
    """Nor does it hide what is owed to another member."""
    run = bare(queues=[queue(1)], consumer_groups={"g": BROADCAST})
    _takes(run, 1, "unsure", "info")
    _takes(run, 1, "sure")
    send(run, 90, "v0", 0)
    show(run, "deliver", 92, "v0", 0, client="other")
    found = judged_by("C5", run, tmp_path)
    assert found.verdict is Outcome.FAIL, found.reason
    assert [witness["client"] for witness in found.witnesses] == ["sure"]


def test_a_member_of_two_groups_takes_a_queue_for_each(tmp_path: Path) -> None:
    run = bare(queues=[queue(1)], consumer_groups={"g": BROADCAST, "late": BROADCAST})
    _takes(run, 1, "both")
    _takes(run, 90, "both", client_group="late")
    send(run, 50, "v0", 0)
    show(run, "deliver", 52, "v0", 0, client="other")
    (witness,) = judged_by("C5", run, tmp_path).witnesses
    assert (witness["client_group"], witness["client"]) == ("g", "both")


@pytest.mark.parametrize("topics", [None, [TOPIC], [JOBS]], ids=str)
@pytest.mark.parametrize(
    ("rule_id", "wants"), [("C6", {"retries_max": 2}), ("C13", {"tags": ["a"]})]
)
def test_a_group_that_lists_no_topics_is_to_read_all_that_users_made(
    rule_id: str, wants: Row, topics: list[str] | None, tmp_path: Path
) -> None:
    group = GROUP | wants | ({} if topics is None else {"topics": topics})
    queues = [queue(2), queue(1, topic=JOBS), queue(1, topic="%RETRY%other")]
    run = bare(queues=queues, consumer_groups={"g": group})
    for number, (topic, offset) in enumerate([(TOPIC, 0), (TOPIC, 1), (JOBS, 0)]):
        send(run, 2 + number, f"v{number}", offset, topic=topic)
        record(run, 1 + number, f"v{number}", offset, topic=topic, tag_hash=ord("a"))
    record(run, 4, "w", 0, topic="%RETRY%other", tag_hash=ord("a"))
    show(run, "deliver", 10, "v0", 0)
    show(run, "deliver", 11, "v2", 0, topic=JOBS)
    found = judged_by(rule_id, run, tmp_path)
    missed = [] if topics == [JOBS] else ["v1"]
    assert [witness["value"] for witness in found.witnesses] == missed, found.reason


ONCE = GROUP | {"at_least_once": True}


def _unread(run: FewRows, folder: Path) -> list[tuple[object, object]]:
    found = judged_by("A5", run, folder)
    return [(witness["client_group"], witness["value"]) for witness in found.witnesses]


@pytest.mark.parametrize("number", [1, 62, 70])
def test_what_a_group_of_another_topic_was_shown_is_unread_by_those_of_its_own(
    number: int, tmp_path: Path
) -> None:
    """However many groups there are."""
    jobs = {f"j{place:02}": ONCE | {"topics": [JOBS]} for place in range(number)}
    groups = jobs | {"last": ONCE | {"topics": [TOPIC]}}
    run = bare(queues=[queue(2), queue(1, topic=JOBS)], consumer_groups=groups)
    send(run, 1, "v0", 0)
    send(run, 2, "v1", 1)
    send(run, 3, "j", 0, topic=JOBS)
    for name in jobs:
        show(run, "poll", 10, "v0", 0, client_group=name)
        show(run, "poll", 11, "j", 0, client_group=name, topic=JOBS)
    show(run, "poll", 12, "v1", 1, client_group="last")
    assert _unread(run, tmp_path / "one") == [("last", "v0")]
    show(run, "poll", 13, "v0", 0, client_group="last")
    assert _unread(run, tmp_path / "none") == []


@pytest.mark.parametrize("f", ["deliver", "pop", "ack"])
@pytest.mark.parametrize(
    ("outcome", "ended", "is_told"),
    [("ok", 6, True), ("fail", 6, True), ("ok", 22, False), ("info", None, False)],
)
def test_what_had_ended_before_a_deletion_wrote_no_offset_behind_it(
    f: str, outcome: str, ended: float | None, is_told: bool, tmp_path: Path
) -> None:
    run = bare(queues=[queue(2)])
    at = {"topic": TOPIC, "queue": 0}
    told = [message("v0", 0)]
    op(run, f, 5, ended, **at, client="worker", type=outcome, ref="receipt", messages=told)
    op(run, "delete_group", 20, 21, client="admin", decision="clean", node="n0")
    op(run, "fetch_offset", 30, 31, **at, client="asker", offset=1, node="n0")
    found = judged_by("M17", run, tmp_path)
    assert found.verdict is (Outcome.FAIL if is_told else Outcome.PASS), found.reason


@pytest.mark.parametrize(
    ("deletions", "read", "is_told"),
    [
        ([(50, 51)], 112, True),
        ([(50, 51), (115, 120)], 112, True),
        ([(110, 120)], 112, False),  # the read may have come first
        ([(110, 120), (50, 130)], 125, True),
        ([(115, 120)], 112, False),
    ],
)
def test_a_read_behind_any_deletion_of_its_topic_shows_nothing_of_it(
    deletions: list[tuple[float, float]], read: float, *, is_told: bool, tmp_path: Path
) -> None:
    run = bare(queues=[queue(1)])
    send(run, 1, "v0", 0)
    for begun, ended in deletions:
        op(run, "delete_topic", begun, ended, client=f"admin-{begun}", topic=TOPIC, node="n0")
    show(run, "poll", read, "v0", 0)
    found = judged_by("M1", run, tmp_path)
    assert [witness["problem"] for witness in found.witnesses] == ["shown"] * is_told, found.reason


@pytest.mark.parametrize(
    ("tags", "late"), [(None, ["a", "b"]), (["b"], ["b"]), (["a", "b"], ["a", "b"]), (["c"], [])]
)
def test_a_poll_is_woken_by_what_its_group_wants(
    tags: list[str] | None, late: list[str], tmp_path: Path
) -> None:
    group = GROUP | {"wake_ms": 1000} | ({} if tags is None else {"tags": tags})
    run = bare(queues=[queue(2)], consumer_groups={"g": group})
    due = 25_000 * MS
    for offset, tag in enumerate("ab"):
        asked = {"client": f"c{tag}", "topic": TOPIC, "queue": 0, "offset": offset, "due": due}
        op(run, "poll", 10, 25, **asked, messages=[])
        record(run, 1 + offset, tag, offset, tag_hash=ord(tag))
    appended(run, [12, 13])
    found = judged_by("C15", run, tmp_path)
    assert [witness["value"] for witness in found.witnesses] == late, found.reason


def _reset(run: FewRows, at: float, offset: int | None, client: str = "admin") -> Row:
    return op(run, "reset", at, at + 1, client=client, topic=TOPIC, queue=0, offset=offset)


def _sent_three() -> FewRows:
    run = bare(queues=[queue(3)])
    for offset in range(3):
        send(run, 0.1 + offset / 10, f"v{offset}", offset)
        record(run, 1 + offset, f"v{offset}", offset)
    show(run, "deliver", 1, "v0", 0)
    return run


def _not_followed(run: FewRows, folder: Path) -> list[object]:
    found = judged_by("C9", run, folder)
    assert found.verdict in {Outcome.PASS, Outcome.FAIL}, found.reason
    return [witness["problem"] for witness in found.witnesses]


@pytest.mark.parametrize(
    ("at", "offset", "is_told"), [(12, 2, False), (12, 1, True), (12, None, False), (2, 2, True)]
)
def test_a_member_may_go_elsewhere_behind_an_administrators_reset(
    at: float, offset: int | None, *, is_told: bool, tmp_path: Path
) -> None:
    """What it went over is owed to nobody; all else is."""
    run = _sent_three()
    show(run, "deliver", 8, "v1", 1)
    _reset(run, 10, 0)
    show(run, "deliver", 20, "v2", 2)
    told = ["nobody was delivered what stands there"]
    assert _not_followed(run, tmp_path / "not followed") == told
    _reset(run, at, offset, "c")
    problems = _not_followed(run, tmp_path / "left")
    assert (told[0] in problems) is is_told, problems


@pytest.mark.parametrize(("at", "offset", "is_told"), [(22, 0, False), (22, 1, True), (2, 0, True)])
def test_a_member_may_go_back_behind_an_administrators_reset(
    at: float, offset: int, *, is_told: bool, tmp_path: Path
) -> None:
    run = _sent_three()
    _reset(run, 10, 2)
    show(run, "deliver", 12, "v2", 2)
    for place in range(3):
        show(run, "deliver", 25 + place, f"v{place}", place)
    told = "the group went on before it"
    assert _not_followed(run, tmp_path / "by itself") == [told]
    _reset(run, at, offset, "c")
    assert (told in _not_followed(run, tmp_path / "sought")) is is_told


@pytest.mark.parametrize(
    ("at", "client", "is_told"),
    [(12, "admin", False), (9.5, "admin", False), (2, "admin", True), (12, "other", True)],
)
def test_an_administrator_may_send_a_member_elsewhere_behind_its_seek(
    at: float, client: str, *, is_told: bool, tmp_path: Path
) -> None:
    """Another member's seek is nothing to it."""
    run = _sent_three()
    show(run, "deliver", 1.5, "v1", 1, client="other")
    _reset(run, 10, 0, "c")
    _reset(run, at, 2, client)
    show(run, "deliver", 15, "v2", 2)
    assert ("the member went on elsewhere" in _not_followed(run, tmp_path)) is is_told


@pytest.mark.parametrize(("at", "is_told"), [(10.5, False), (11, False), (11.5, True)])
def test_what_is_delivered_while_a_seek_goes_on_may_be_of_the_old_place(
    at: float, *, is_told: bool, tmp_path: Path
) -> None:
    run = _sent_three()
    _reset(run, 10, 0, "c")
    show(run, "deliver", at, "v1", 1)
    show(run, "deliver", 15, "v0", 0)
    assert _not_followed(run, tmp_path) == ["the member went on elsewhere"] * is_told


def test_what_is_delivered_while_a_seek_goes_on_may_be_of_the_new_place(tmp_path: Path) -> None:
    run = _sent_three()
    _reset(run, 10, 0, "c")
    show(run, "deliver", 10.5, "v0", 0)
    show(run, "deliver", 15, "v1", 1)
    assert _not_followed(run, tmp_path) == []
