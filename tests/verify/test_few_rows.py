"""Legal histories of a few rows, each beside the violation that it must not be taken for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.few_rows import GROUP, FewRows, S, message, queue
from tests.verify.one_rule import judged, result
from tests.verify.synthetic import HALF, MS, NODES, OP, SCHEMAS, STARTED_MS, TOPIC
from verify.verdict import Outcome

TRANSACTIONS = {"timeout_ms": 6_000, "check_interval_ms": 30_000, "check_max": 15}
ERROR = 10 * MS  # between the clocks of two hosts
Made = Callable[[str], FewRows]
CASES: list[tuple[str, Made, str, int]] = []


def case(rule_id: str, **variants: int) -> Callable[[Made], Made]:
    """Register a run, made by the name of its variant, with how many violations each has."""

    def register(made: Made) -> Made:
        CASES.extend((rule_id, made, variant, count) for variant, count in variants.items())
        return made

    return register


def _three_messages(**manifest: object) -> FewRows:
    """Three messages of queue 0, sent and stored in the first four seconds."""
    run = FewRows(queues=[queue(3)], consumer_groups={"g": GROUP}, **manifest)
    for offset in range(3):
        run.sent((1 + offset) * S, f"v{offset}", offset)
        run.record(1 + offset, "message", offset, f"v{offset}")
    run.traced({1 + offset: (1 + offset) * S + 2 for offset in range(3)})
    return run


def _offset_written(run: FewRows, t: int, variant: str, offset: int) -> None:
    """An offset that rode on a poll, or one that was committed with an unknown or known outcome."""
    if variant == "rode":
        read = [message(f"v{offset}", offset)]
        run.did("poll", t, t + 5, offset=offset, commit_offset=offset, messages=read)
    elif variant == "unknown":
        run.did("commit_offset", t, None, "info", offset=offset)
    elif variant == "acknowledged":
        run.did("commit_offset", t, t + 5, offset=offset)


@case("C9", rode=0, unknown=0, acknowledged=1, nothing=1)
def offset_was_written_behind_the_reset(variant: str) -> FewRows:
    run = _three_messages()
    for offset in range(2):
        run.delivered((5 + offset) * S, f"v{offset}", offset)
    run.did("reset", 10 * S, 11 * S, offset=0)
    _offset_written(run, 12 * S, variant, 2)
    run.delivered(14 * S, "v2", 2, client="d")
    return run


@case("M8", rode=0, unknown=0, acknowledged=0, nothing=1)
def group_may_have_been_there_before_a_gentle_reset(variant: str) -> FewRows:
    run = _three_messages()
    run.did("commit_offset", 10 * S, 11 * S, offset=0)
    _offset_written(run, 12 * S, variant, 2)
    run.did("reset", 20 * S, 21 * S, offset=2, from_ms=STARTED_MS + 3, ref="no-force")
    return run


@case("M5", told=0, first_untold=0, another_time=1, not_stored=1)
def search_shows_a_record(variant: str) -> FewRows:
    run = _stored_at_times(variant)
    found = [message(f"v{offset}", offset, keys=["k"]) for offset in range(2)]
    times = {"from_ms": STARTED_MS - 10, "to_ms": STARTED_MS + 10}
    run.did("search", 50 * S, 51 * S, queue=None, key="k", ref="range", messages=found, **times)
    return run


@case("M5", told=0, first_untold=0, another_time=1, not_stored=1)
def search_tells_when_the_first_was_stored(variant: str) -> FewRows:
    run = _stored_at_times(variant)
    run.did("search", 50 * S, 51 * S, ref="earliest", from_ms=STARTED_MS)
    return run


def _stored_at_times(variant: str) -> FewRows:
    """Two messages; of the first a time is told, none, another one, or no log has it."""
    run = FewRows(queues=[queue(2)])
    times = {"told": STARTED_MS, "first_untold": None, "another_time": STARTED_MS - 20}
    for offset in range(2):
        value = f"v{offset}"
        run.sent((2 + offset) * S, value, offset, messages=[message(value, offset, keys=["k"])])
        if offset == 0 and variant == "not_stored":
            run.record(1, "noop", None, topic=None, queue=None, cq_ok=None)
        else:
            time = STARTED_MS + 1 if offset else times[variant]
            run.record(1 + offset, "message", offset, value, keys=["k"], stored_ms=time)
    return run


@case("D5", in_time=0, late=1, untold=0)
def delayed_message_was_read_in_the_drain_alone(variant: str) -> FewRows:
    """A start found its record, of which no append tells, or it was appended `late`."""
    run = _delayed()
    if variant == "untold":
        run.traced({}, found=2)
    else:
        run.traced({1: S + 10, 2: 40 * S if variant == "late" else 10 * S + 10})
    run.did("poll", 150 * S, 151 * S, offset=0, final=True, messages=[message("d", 0)])
    return run


def _delayed() -> FewRows:
    """A message that falls due at ten seconds, and may come five seconds later."""
    run = FewRows(queues=[queue(1)], limits={"late_ms": 5_000})
    run.did("delay", S, S + 100, due=10 * S, messages=[message("d", None)])
    run.record(1, "message", 0, "d", topic="SCHEDULE_TOPIC_XXXX")
    run.record(2, "message", 0, "d")
    return run


@case("M7", none=1, ok=0, unknown=0, fail=1, elsewhere=1)
def offset_of_a_failed_commit_is_stored(variant: str) -> FewRows:
    """An administrator may have reset the group to that offset."""
    run = FewRows(queues=[queue(2), queue(2, queue=1)], consumer_groups={"g": GROUP})
    run.did("commit_offset", 5 * S, 6 * S, "fail", offset=1)
    if variant != "none":
        outcome = {"fail": "fail", "unknown": "info"}.get(variant, "ok")
        number = 1 if variant == "elsewhere" else 0
        run.did("reset", 10 * S, 11 * S, outcome, offset=1, queue=number)
    run.record(1, "offset", 1, client_group="g", cq_ok=None)
    return run


def _of_two_groups() -> FewRows:
    both = {group: list(NODES) for group in ("broker-a", "broker-b")}
    return FewRows(groups=both, transactions=TRANSACTIONS)


@case("A20", told=0, untold=0, untold_and_late=1, told_elsewhere=1)
def decision_where_two_groups_have_the_half(variant: str) -> FewRows:
    """The half at broker-a was asked about, and committed, long after the producer's decision."""
    run = _of_two_groups()
    answered = {"untold": None, "untold_and_late": None, "told_elsewhere": "broker-a"}
    for group, t in (("broker-a", 10), ("broker-b", 12)):
        half = {"tx": "x", "broker_group": group, "messages": [message("v", None, tx="x")]}
        stored = {"broker_group": group, "tx": "x"}
        outcome, offset = ("info", None) if group == "broker-a" else ("ok", 0)
        run.did("half", t * S, (t + 1) * S, outcome, offset=offset, **half)
        run.record(1, "half", 0, "v", topic=HALF, **stored)
        run.record(2, "op", 0, "v", topic=OP, decision="commit", **stored)
        run.record(3, "final", 0, "v", **stored)
        in_time = group == "broker-b" and variant != "untold_and_late"
        settled = 14 * S + 10 if in_time else 61 * S
        run.traced({1: t * S + 5, 2: settled, 3: settled + 2}, group)
    run.did(
        "decide",
        14 * S,
        15 * S,
        tx="x",
        decision="commit",
        broker_group=answered.get(variant, "broker-b"),
    )
    return run


@case("A20", in_time=0, late=1)
def send_whose_answer_told_no_place(variant: str) -> FewRows:
    """Its second attempt stored it again, in the other group."""
    run = _of_two_groups()
    nowhere = message("v", None, broker_group=None, queue=None)
    run.sent(S, "v", None, broker_group=None, queue=None, messages=[nowhere])
    run.sent(5 * S, "v", 0, broker_group="broker-b")
    first = S + 2 if variant == "in_time" else 2 * S
    for group, t in (("broker-a", first), ("broker-b", 5 * S + 2)):
        run.record(1, "message", 0, "v", broker_group=group)
        run.traced({1: t}, group)
    return run


@case("T10", neither=1, half_elsewhere=1, settled_elsewhere=1, settled=0, appended_anew=0)
def progress_went_past_a_half(variant: str) -> FewRows:
    """Of another broker group's records of the transaction none settles a half of this one."""
    run = _of_two_groups()
    told = [message("v", None, tx="x")]
    run.did("half", S, S + 5, tx="x", offset=0, messages=told)
    run.record(5, "half", 0, "v", topic=HALF, tx="x")
    run.record(50, "offset", 1, topic=HALF, cq_ok=None)
    if variant in {"half_elsewhere", "settled_elsewhere"}:
        run.record(6, "half", 0, "v", topic=HALF, tx="x", broker_group="broker-b")
    if variant == "appended_anew":
        run.record(6, "half", 1, "v", topic=HALF, tx="x")
    if variant in {"settled", "settled_elsewhere"}:
        group = "broker-a" if variant == "settled" else "broker-b"
        decided = {"topic": OP, "decision": "rollback", "broker_group": group}
        run.record(7, "op", 0, "v", tx="x", **decided)
    return run


@case("C8", one_refusal_of_both=0, two_refusals=0, one_refusal=1)
def came_again_at_two_places(variant: str) -> FewRows:
    """The value was tried twice, and stands at two places."""
    group = GROUP | {"retries_max": 3}
    run = FewRows(queues=[queue(2)], consumer_groups={"g": group}, dedupe=None)
    run.sent(1_000, "v", 0)
    run.sent(2_000, "v", None, outcome="info")
    shown = [message("v", offset) for offset in range(2)]
    if variant == "one_refusal_of_both":
        run.delivered(S, "v", 0, outcome="fail", messages=shown)
    else:
        run.delivered(S, "v", 0, outcome="fail")
    if variant == "two_refusals":
        run.delivered(2 * S, "v", 1, outcome="fail")
    for offset in range(2):
        again = message("v", offset, topic="%RETRY%g", reconsume=1)
        run.delivered((40 + offset) * S, "v", offset, topic="%RETRY%g", messages=[again])
    return run


@case("S1", gone=0, listed=3, no_deletion=3, failed=3, deleted_elsewhere=3)
def record_without_its_unit(variant: str) -> FewRows:
    """Its topic was deleted, with its ConsumeQueue, and not made again."""
    run = FewRows(queues=[queue(1, topic="U")])
    if variant == "listed":
        run.manifest["queues"].append(queue(1))
    run.sent(S, "v", 0)
    if variant != "no_deletion":
        group = "broker-b" if variant == "deleted_elsewhere" else "broker-a"
        outcome = "fail" if variant == "failed" else "ok"
        run.did("delete_topic", 50 * S, 51 * S, outcome, broker_group=group, queue=None)
    run.record(1, "message", 0, "v", cq_ok=False)
    run.record(2, "message", 0, "w", topic="U")
    run.cq = [
        {name: row[name] for name in SCHEMAS["cq"].names} for row in run.log if row["topic"] == "U"
    ]
    return run


@case("A4", gone=0, unknown=0, before=1, no_deletion=1, made_again=1)
def unread_before_what_was_read(variant: str) -> FewRows:
    """Nobody can drain a topic that was deleted."""
    run = FewRows(queues=[queue(2)] if variant == "made_again" else [])
    for offset in range(2):
        run.sent((2 + offset) * S, f"v{offset}", offset)
        run.record(1 + offset, "message", offset, f"v{offset}")
    run.did("poll", 5 * S, 6 * S, offset=1, messages=[message("v1", 1)])
    if variant == "unknown":
        run.did("delete_topic", 10 * S, None, "info")
    elif variant != "no_deletion":
        at = S if variant == "before" else 10 * S
        run.did("delete_topic", at, at + 5)
    return run


@case("T3", before=0, unknown=0, before_half=1, behind=1, no_deletion=1)
def commit_of_a_deleted_topic(variant: str) -> FewRows:
    """What was acknowledged before the deletion was stored before it, too."""
    run = FewRows(transactions=TRANSACTIONS)
    told = [message("v", None, tx="x")]
    run.did("half", 2 * S, 2 * S + 5, tx="x", offset=0, messages=told)
    run.did("decide", 5 * S, 6 * S, tx="x", decision="commit")
    if variant == "unknown":
        run.did("delete_topic", 3 * S, None, "info")
    elif variant != "no_deletion":
        at = {"before": 3 * S, "before_half": S, "behind": 7 * S}[variant]
        run.did("delete_topic", at, at + 5)
    run.record(1, "half", 0, "v", topic=HALF, tx="x")
    run.record(2, "op", 0, "v", topic=OP, tx="x", decision="commit")
    return run


@case("P3", send=0, transaction=0, request=0, not_made_again=1, of_the_new_one=1)
def owed_to_poppers_by_a_topic_made_again(variant: str) -> FewRows:
    """The new topic's queue begins behind the message, but for one that was sent to the new one."""
    popping = GROUP | {"topics": [TOPIC]}
    made = queue(2, min_offset=0 if variant == "not_made_again" else 1)
    run = FewRows(queues=[made], consumer_groups={"g": popping}, transactions=TRANSACTIONS)
    run.sent(S, "u", 0, topic="U", messages=[message("u", 0, topic="U")])
    if variant == "send":
        run.sent(S, "v", 0)
    elif variant == "request":
        told = [message("v", None)]
        run.did("request", S, S + 5, "info", status="NO_REPLY", messages=told)
    else:
        run.did("half", S, S + 5, tx="x", offset=0, messages=[message("v", None, tx="x")])
        run.did("decide", 2 * S, 2 * S + 5, tx="x", decision="commit")
        run.record(3, "half", 0, "v", topic=HALF, tx="x")
        run.record(4, "op", 0, "v", topic=OP, tx="x", decision="commit")
    place = 1 if variant == "of_the_new_one" else 0
    run.record(1, "message" if variant in {"send", "request"} else "final", place, "v")
    if variant != "not_made_again":
        run.did("delete_topic", 10 * S, 11 * S)
    run.did("pop", 150 * S, 150 * S + 5, queue=None, due=180 * S, messages=[])
    return run


@case("C12", at_its_end=0, behind_it=1)
def lock_was_requested_as_another_was_granted(variant: str) -> FewRows:
    run = FewRows(queues=[queue(1)], consumer_groups={"g": GROUP | {"exclusive": True}})
    run.did("lock", 10 * S, 11 * S)
    run.did("lock", 11 * S + (variant == "behind_it"), 12 * S)
    return run


@case("P1", at_its_end=0, behind_it=1)
def popped_again_as_the_time_was_changed(variant: str) -> FewRows:
    """A change to a longer time counts alone once it had ended before the second pop."""
    run = FewRows(queues=[queue(1)], consumer_groups={"g": GROUP | {"topics": [TOPIC]}})
    run.sent(1, "v", 0)
    shown = [message("v", 0)]
    run.did("pop", 10, 20, queue=None, due=10 + 10 * S, ref="r1", messages=shown)
    run.did("change", S, 2 * S, ref="r1", key="r2", due=101 * S, messages=shown)
    again = 2 * S + (variant == "behind_it")
    run.did("pop", again, 12 * S, queue=None, due=again + 10 * S, ref="r3", messages=shown)
    return run


@case("P4", before=0, at_its_end=0, behind_it=1)
def acknowledged_as_a_pop_behind_it_ended(variant: str) -> FewRows:
    popping = GROUP | {"topics": [TOPIC], "ordered": True}
    run = FewRows(queues=[queue(2)], consumer_groups={"g": popping})
    for offset in range(2):
        run.sent((1 + offset) * S, f"v{offset}", offset)
        run.record(1 + offset, "message", offset, f"v{offset}")
    first = [message("v0", 0)]
    run.did("pop", 13 * S, 13 * S + 5, queue=None, due=43 * S, ref="r1", messages=first)
    acked = 14 * S + {"before": -1, "at_its_end": 0, "behind_it": 1}[variant]
    run.did("ack", acked, acked + 5, ref="r1", messages=first)
    second = [message("v1", 1)]
    run.did("pop", 13 * S + 6, 14 * S, queue=None, due=44 * S, ref="r2", messages=second)
    return run


@case("M12", before=1, at_the_first=0, at_the_last=0, behind=1, first_of_all=1)
def leader_elected_at_the_edge_of_a_question(variant: str) -> FewRows:
    """One that was deposed may answer otherwise from two seconds before it until its answer."""
    times = {"before": 48 * S - 1, "at_the_first": 48 * S, "at_the_last": 51 * S}
    times["first_of_all"] = 50 * S
    run = FewRows()
    run.did("ask", 50 * S, 51 * S, key="what", ref="1", status="2", decision="calm")
    run.traced({})
    leads = run.raft[0] | {"event": "role", "role": "leader", "voters": None}
    if variant != "first_of_all":  # which nobody was deposed for
        run.raft.append(leads | {"node": "n0", "seq": 8, "t": S, "term": 1})
    elected = {"node": "n1", "seq": 9, "t": times.get(variant, 51 * S + 1), "term": 2}
    run.raft.append(leads | elected)
    return run


@case("D5", ends_before=1, ends_as_it_falls_due=0, begins_at_the_latest=0, begins_behind=1)
def fault_at_the_edge_of_the_time_to_deliver(variant: str) -> FewRows:
    run = _delayed()
    run.traced({1: S + 10, 2: 40 * S})
    latest = 10 * S + 100 + 5 * S
    windows = {
        "ends_before": (5 * S, 10 * S - 1),
        "ends_as_it_falls_due": (5 * S, 10 * S),
        "begins_at_the_latest": (latest, 60 * S),
        "begins_behind": (latest + 1, 60 * S),
    }
    run.faulty(*windows[variant])
    return run


def _by_two_clocks(variant: str, **manifest: object) -> FewRows:
    """Variants with `far` are a nanosecond further apart than the hosts' clocks may differ."""
    error = 0 if variant.startswith("one_clock") else ERROR
    return FewRows(
        queues=[queue(2)], consumer_groups={"g": GROUP}, clock_error_ns=error, **manifest
    )


def _later(variant: str) -> int:
    return ERROR + 1 if variant == "far" else ERROR


@case("A10", near=0, far=1, one_clock=1, one_client=1)
def overtaken_by_another_clock(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    clients = ("p", "p") if variant == "one_client" else ("p", "o")
    run.sent(10 * S, "a", 1, client=clients[0])
    run.sent(10 * S + 5 + _later(variant), "b", 0, client=clients[1])
    for offset, value in enumerate("ba"):
        run.record(1 + offset, "message", offset, value)
    return run


@case("A15", near=0, far=1, one_clock=1)
def max_offset_by_another_clock(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    run.sent(10 * S, "a", 0)
    run.record(1, "message", 0, "a")
    asked = 10 * S + 5 + _later(variant)
    run.did("max_offset", asked, asked + 5, offset=0)
    return run


@case("A15", near=0, far=1, one_clock=1)
def final_read_by_another_clock(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    run.manifest["queues"] = [queue(1)]
    run.sent(10 * S, "a", 0)
    run.record(1, "message", 0, "a")
    asked = 10 * S + 5 + _later(variant)
    run.did("poll", asked, asked + 5, offset=0, final=True, messages=[])
    return run


@case("S5", near=0, far=1, one_clock=1)
def fetched_nothing_by_another_clock(variant: str) -> FewRows:
    run = _offset_committed(variant)
    asked = 21 * S + _later(variant)
    run.did("fetch_offset", asked, asked + 5, offset=None)
    return run


@case("S5", near=0, far=1, one_clock=1)
def fetched_too_early_by_another_clock(variant: str) -> FewRows:
    """The offset's commit was invoked only behind the answer."""
    run = _offset_committed(variant)
    run.did("fetch_offset", 19 * S, 20 * S - _later(variant), offset=1)
    return run


@case("S5", near=0, far=1, one_clock=1)
def fetched_what_was_overwritten_by_another_clock(variant: str) -> FewRows:
    run = _offset_committed(variant)
    run.did("commit_offset", 21 * S + _later(variant), 22 * S, offset=2)
    run.did("fetch_offset", 30 * S, 31 * S, offset=1)
    run.record(2, "offset", 2, client_group="g", cq_ok=None)
    return run


@case("S5", near=0, far=1, one_clock=1)
def stored_last_what_was_overwritten_by_another_clock(variant: str) -> FewRows:
    run = _offset_committed(variant)
    run.did("commit_offset", 20 * S - 5 - _later(variant), 20 * S - _later(variant), offset=2)
    run.did("fetch_offset", 30 * S, 31 * S, offset=1)
    run.log.clear()
    for index, offset in enumerate((1, 2)):
        run.record(1 + index, "offset", offset, client_group="g", cq_ok=None)
    return run


def _offset_committed(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    run.did("commit_offset", 20 * S, 21 * S, offset=1)
    run.record(1, "offset", 1, client_group="g", cq_ok=None)
    return run


@case("C4", near=0, far=1, one_clock=1, one_client=1, one_clock_at_once=0)
def consumed_out_of_order_by_another_clock(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    run.manifest["consumer_groups"] = {"g": GROUP | {"exclusive": True}}
    later = 0 if variant == "one_clock_at_once" else _later(variant)
    run.delivered(10 * S, "v1", 1)
    client = "c" if variant == "one_client" else "d"
    run.delivered(10 * S + later, "v0", 0, client=client)
    return run


@case("C12", near=0, far=1, one_clock=1)
def lock_was_granted_twice_by_another_clock(variant: str) -> FewRows:
    run = _by_two_clocks(variant)
    run.manifest["consumer_groups"] = {"g": GROUP | {"exclusive": True}}
    run.did("lock", 10 * S, 11 * S)
    run.did("lock", 11 * S + _later(variant), 12 * S)
    return run


@pytest.mark.parametrize(
    ("rule_id", "made", "variant", "violations"),
    [pytest.param(*it, id=f"{it[0]}-{it[1].__name__}-{it[2]}") for it in CASES],
)
def test_of_few_rows(
    rule_id: str, made: Made, variant: str, violations: int, tmp_path: Path
) -> None:
    found = result(judged(rule_id, made(variant), tmp_path))
    assert found.violations == violations, (found.reason, found.witnesses)
    assert found.verdict is (Outcome.FAIL if violations else Outcome.PASS), found.reason
    assert found.examined > 0
