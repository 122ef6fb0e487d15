"""Where the rules on topics, routes, users and offsets (M) stay silent or are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.clean_runs import retain_everywhere, retain_from_third_message
from tests.verify.management import (
    FAULT_OVER_MS,
    account,
    ask_all,
    change_group,
    change_topic,
    delete_route,
    down,
    expect,
    later,
    managed,
    read_elsewhere,
    search,
    send_as_user,
    set_value,
    show_group,
    show_value,
    stored_ms,
    use_offset,
    use_topic,
    view,
)
from tests.verify.one_rule import judged, result
from tests.verify.synthetic import MS, STARTED_MS, TOPIC, Row, SyntheticRun
from verify.verdict import Outcome

Change = Callable[[SyntheticRun], None]
SILENT: list[tuple[str, Change]] = []


def silent(rule_id: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        SILENT.append((rule_id, change))
        return change

    return register


def _nothing_is_read_in_the_drain(run: SyntheticRun) -> None:
    run.manifest["phases"]["drain"] = [run.now + MS, run.now + 2 * MS]


def _delete_all(run: SyntheticRun, t_invoke: int, outcome: str = "ok") -> None:
    row = change_topic(run, "delete_topic", outcome)
    row |= {"topic": TOPIC, "t_invoke": t_invoke, "t_complete": t_invoke + 1}


@silent("M12")
def nobody_can_know_the_answer(run: SyntheticRun) -> None:
    expect(run, None, "5")
    expect(run, "4", "4")


@silent("M12")
def answer_did_not_come(run: SyntheticRun) -> None:
    expect(run, "4", "4")
    expect(run, "4", "5")["type"] = "info"


@silent("M1")
def deletion_was_invoked_before_the_last_answer(run: SyntheticRun) -> None:
    """Which of its sends came first nobody knows: the last may stand in the topic made anew."""
    sends = [op for op in run.ops if op["f"] == "send" and op["type"] == "ok"]
    _delete_all(run, min(op["t_complete"] for op in sends) - 1)


@silent("M1")
def deletion_of_another_group(run: SyntheticRun) -> None:
    _delete_all(run, run.find("send", "v13")["t_complete"] + 1)
    run.ops[-1]["broker_group"] = "another"


@silent("M1")
def deleted_message_was_read_before_the_drain(run: SyntheticRun) -> None:
    """A replica that is behind may still show it."""
    _delete_all(run, run.find("send", "v7")["t_complete"] + 1)
    _nothing_is_read_in_the_drain(run)


@silent("M1")
def deletion_whose_outcome_is_unknown(run: SyntheticRun) -> None:
    change_topic(run, "delete_topic")  # of another topic, so that there is something to examine
    _delete_all(run, run.find("send", "v7")["t_complete"] + 1, "info")


@silent("M1")
def replica_was_left_behind(run: SyntheticRun) -> None:
    _delete_all(run, run.find("send", "v7")["t_complete"] + 1)
    run.manifest["left_behind"] = [{"broker_group": run.group, "node": "n2"}]


@silent("M1")
def half_was_decided_before_its_topic_was_deleted(run: SyntheticRun) -> None:
    """The deletion was answered only when the final message was stored already."""
    half = run.find("half", "x0.v")
    _delete_all(run, half["t_complete"] + 1)
    run.ops[-1]["t_complete"] = run.find("decide", tx=half["tx"])["t_complete"]
    _nothing_is_read_in_the_drain(run)


@silent("M1")
def trace_does_not_tell_when_it_was_first_stored(run: SyntheticRun) -> None:
    half = run.find("half", "x0.v")
    _delete_all(run, half["t_complete"] + 1)
    (index,) = {row["index"] for row in run.logged("x0.v", "final")}
    run.raft = [
        row
        for row in run.raft
        if not (row["event"] == "append" and row["index"] == index and row["node"] == run.leader)
    ]
    _nothing_is_read_in_the_drain(run)


@silent("T11")
def half_went_with_its_topic(run: SyntheticRun) -> None:
    half = run.find("half", "x1.v")
    run.find("local", tx=half["tx"])["decision"] = "commit"
    _delete_all(run, half["t_complete"] + 1)


@silent("M2")
def deletion_of_unknown_outcome_may_have_come_last(run: SyntheticRun) -> None:
    change_topic(run, "delete_topic", "info")["t_complete"] = None
    change_topic(run, "create_topic")
    view(run, "n1", ())


@silent("M2")
def two_changes_at_once(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "delete_topic")["t_invoke"] = run.ops[-2]["t_complete"]
    view(run, "n1")


@silent("M2")
def failed_change_changes_nothing(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "create_topic", "fail", perm="2")
    view(run, "n1")


@silent("M2")
def send_may_have_made_its_topic_anew(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "delete_topic")
    send_as_user(run, "fail")["topic"] = managed(run)
    view(run, "n1")


@silent("M3")
def changes_of_unknown_outcome_may_come_at_any_time(run: SyntheticRun) -> None:
    """The topic may have gone and come back between the leader's answers."""
    change_topic(run, "delete_topic", "info")["t_complete"] = None
    change_topic(run, "create_topic", "info")["t_complete"] = None
    ask_all(run, queues=())


@silent("M3")
def route_is_wrong_for_a_moment(run: SyntheticRun) -> None:
    view(run, "n1", ())
    run.tick(10)
    view(run, "n1")
    view(run, "ns-0", ())
    view(run, "n1")


@silent("M3")
def route_is_wrong_while_the_leader_changes(run: SyntheticRun) -> None:
    view(run, "n1")
    run.tick(10)
    view(run, "ns-0", members="n0 n1 n2")
    view(run, "n1", members="n2 n0 n1")


@silent("M3")
def route_is_wrong_during_a_fault(run: SyntheticRun) -> None:
    t_start = run.now
    ask_all(run, queues=())
    window = {"t_start": t_start, "t_effect": t_start, "t_heal": run.now, "t_healed": run.now}
    run.faults.append(run.faults[0] | {"fault": 2} | window)


@silent("M3")
def topic_comes_while_it_is_asked_for(run: SyntheticRun) -> None:
    view(run, "n1")
    run.tick(10)
    change_topic(run, "delete_topic")
    view(run, "ns-0", ())
    change_topic(run, "create_topic")
    view(run, "n1")


@silent("M3")
def name_server_was_not_told_of_the_deletion(run: SyntheticRun) -> None:
    delete_route(run, "ns-0")  # before the leader deleted it, so that it may have come back
    change_topic(run, "delete_topic")
    delete_route(run, "ns-1")
    view(run, "n1", ())
    run.tick(10)
    view(run, "ns-0")
    view(run, "n1", ())


@silent("M4")
def change_under_way_may_have_come_first(run: SyntheticRun) -> None:
    account(run, "grant", "allow")
    revoked = account(run, "revoke", "deny")
    send_as_user(run, "ok")["t_invoke"] = revoked["t_complete"]


@silent("M4")
def change_of_unknown_outcome(run: SyntheticRun) -> None:
    account(run, "grant", "allow", "info")["t_complete"] = None
    account(run, "revoke", "deny")
    send_as_user(run, "ok")


@silent("M4")
def replica_refuses_that_is_behind(run: SyntheticRun) -> None:
    """The fault is over for less than five seconds."""
    account(run, "grant", "allow")["node"] = "n1"
    send_as_user(run, "fail")["node"] = "n2"


@silent("M4")
def replica_that_had_granted_began_anew(run: SyntheticRun) -> None:
    account(run, "grant", "allow")["node"] = "n1"
    down(run, "n1")
    send_as_user(run, "fail")["node"] = "n1"


@silent("M4")
def user_is_refused_for_another_reason(run: SyntheticRun) -> None:
    run.tick(6_000)
    account(run, "grant", "allow")
    send_as_user(run, "fail")["status"] = "215"


@silent("M9")
def another_replica_may_be_behind(run: SyntheticRun) -> None:
    run.tick(6_000)
    change_topic(run, "create_topic", perm="2")["node"] = "n1"
    use_topic(run, "poll", "ok", node="n2")
    change_topic(run, "create_topic", perm="4")["node"] = "n1"
    use_topic(run, "poll", "fail", node="n2")


@silent("M9")
def replica_was_restarted_since(run: SyntheticRun) -> None:
    change_topic(run, "create_topic", perm="2")["node"] = "n1"
    window = {"t_start": run.now, "t_effect": run.now, "t_heal": run.now, "t_healed": run.tick()}
    run.faults.append(run.faults[0] | {"fault": 2} | window)
    use_topic(run, "poll", "ok")


@silent("M9")
def permission_changes_meanwhile(run: SyntheticRun) -> None:
    run.tick(6_000)
    change_topic(run, "create_topic", perm="6")["node"] = "n1"
    taken = change_topic(run, "create_topic", perm="2")
    taken["node"] = "n1"
    use_topic(run, "poll", "ok")["t_invoke"] = taken["t_complete"]


@silent("M9")
def change_of_unknown_outcome_may_have_come_last(run: SyntheticRun) -> None:
    run.tick(6_000)
    change_topic(run, "create_topic", "info", perm="6")["t_complete"] = None
    change_topic(run, "create_topic", perm="2")["node"] = "n1"
    use_topic(run, "poll", "ok")


@silent("M9")
def replica_refuses_just_after_a_fault(run: SyntheticRun) -> None:
    """The fault is over for less than five seconds."""
    change_topic(run, "create_topic", perm="6")["node"] = "n1"
    use_topic(run, "poll", "fail")


@silent("M10")
def name_server_has_some_time_to_notice(run: SyntheticRun) -> None:
    down(run, "n2")
    run.tick(1_000)
    view(run, "ns-0")


@silent("M10")
def broker_is_back(run: SyntheticRun) -> None:
    fault = down(run, "n2")
    run.tick(3_000)
    fault |= {"t_heal": run.now, "t_healed": run.now}
    view(run, "ns-0")


@silent("M10")
def name_server_may_not_have_heard_of_it(run: SyntheticRun) -> None:
    """Its link to the broker was cut meanwhile."""
    down(run, "n2")
    run.tick(3_000)
    down(run, "n0", "unknown", name="cut-registration")
    view(run, "ns-0")


@silent("M10")
def kill_was_not_seen(run: SyntheticRun) -> None:
    down(run, "n2", "unknown")
    run.tick(3_000)
    view(run, "ns-0")


@silent("M11")
def it_led_again_since(run: SyntheticRun) -> None:
    view(run, "ns-0")
    run.elect("n0", 3)
    view(run, "ns-0", members="n0 n1 n2")


@silent("M11")
def name_server_was_restarted(run: SyntheticRun) -> None:
    view(run, "ns-0")
    down(run, "ns-0", name="kill-name-server", targets=["ns-0"])
    view(run, "ns-0", members="n0 n1 n2")


@silent("M11")
def name_server_may_have_forgotten_the_group(run: SyntheticRun) -> None:
    """No member was there all the while."""
    view(run, "ns-0", members="n1 n0")
    view(run, "ns-0", members="n0 n2")


@silent("M11")
def group_is_shown_with_an_acting_leader(run: SyntheticRun) -> None:
    view(run, "ns-0")
    view(run, "ns-0", perm="4", members="n0 n2")


@silent("M11")
def another_name_server_is_behind(run: SyntheticRun) -> None:
    view(run, "ns-0")
    view(run, "ns-1", members="n0 n1 n2")


@silent("M5")
def end_of_the_queue_has_moved_since(run: SyntheticRun) -> None:
    """Nothing that young was there: the answer was the end, where an older one came to stand."""
    op = search(run, "first", from_ms=STARTED_MS + 10**9, offset=3)
    sent = run.find("send", "v6")
    op |= {"t_invoke": sent["t_invoke"] - 2, "t_complete": sent["t_invoke"] - 1}


@silent("M5")
def nothing_was_there_yet(run: SyntheticRun) -> None:
    sent = run.find("send", "v0")
    for row in (
        search(run, "earliest", from_ms=-1),
        search(run, "last", from_ms=stored_ms(run, 5), offset=0),
        search(run, "range", queue=None, key=f"key-{run.name}.v0", from_ms=0, to_ms=1 << 60),
    ):
        row |= {"t_invoke": sent["t_invoke"] - 2, "t_complete": sent["t_invoke"] - 1}


@silent("M5")
def older_messages_were_there_before_retention(run: SyntheticRun) -> None:
    oldest_ms = stored_ms(run, 0)
    retain_from_third_message(run)
    search(run, "earliest", from_ms=oldest_ms)


@silent("M6")
def offset_was_committed_before_by_another(run: SyntheticRun) -> None:
    """Twice the same offset: each has its own record."""
    first = next(op for op in run.ops if op["f"] == "commit_offset")
    again = {"t_invoke": first["t_invoke"] - 9, "t_complete": first["t_complete"]}
    run.ops.append(first | again | {"op": len(run.ops), "process": "another"})


@silent("M7")
def offset_failed_and_was_committed_then(run: SyntheticRun) -> None:
    first = next(op for op in run.ops if op["f"] == "commit_offset")
    run.ops.append(first | {"op": len(run.ops), "type": "fail", "process": "another"})


def _let_it_ride(run: SyntheticRun, commit: Row) -> None:
    """Add a poll on which the commit's offset rode before it."""
    place = {name: commit[name] for name in ("client_group", "broker_group", "topic", "queue")}
    told = {"type": "info", "messages": None, "commit_offset": commit["offset"], "f": "poll"}
    run.ops.append(commit | place | told | {"op": len(run.ops), "process": "another"})


@silent("M6")
def offset_had_been_stored_by_the_way(run: SyntheticRun) -> None:
    """What rode on a poll was stored before, so that the commit stored nothing anew."""
    first = next(op for op in run.ops if op["f"] == "commit_offset")
    _let_it_ride(run, first)
    first |= {"t_invoke": first["t_complete"] + 9 * MS, "t_complete": first["t_complete"] + 10 * MS}


@silent("M7")
def offset_failed_and_rode_on_a_poll(run: SyntheticRun) -> None:
    first = next(op for op in run.ops if op["f"] == "commit_offset")
    _let_it_ride(run, first)
    for op in run.ops:
        if op["f"] == "commit_offset" and op["offset"] == first["offset"]:
            op["type"] = "fail"


def _two_groups(run: SyntheticRun) -> None:
    run.manifest["groups"] = run.manifest["groups"] | {"another": ["m0"]}


@silent("A23")
def message_of_another_group_alone(run: SyntheticRun) -> None:
    _two_groups(run)


@silent("A23")
def application_sent_it_again_to_another_group(run: SyntheticRun) -> None:
    _two_groups(run)
    read_elsewhere(run, "v6")
    sent = run.find("send", "v6")
    again = later(run, "p9", "send", "info", topic=TOPIC, messages=sent["messages"])
    again["t_complete"] = None


@silent("M16")
def name_server_was_asked_while_the_change_went_on(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    row = change_topic(run, "create_topic")
    view(run, "ns-0", ())["t_invoke"] = row["t_complete"]


@silent("M16")
def another_change_may_have_come_behind(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    change_topic(run, "create_topic")
    change_topic(run, "create_topic", "info", perm="4")
    view(run, "ns-0", perm="4")


@silent("M16")
def route_was_deleted_at_that_name_server(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    change_topic(run, "create_topic")
    delete_route(run, "ns-0")
    view(run, "ns-0", ())


@silent("M16")
def leader_gave_up_to_wait_for_a_name_server(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    row = change_topic(run, "create_topic")
    row["t_complete"] = row["t_invoke"] + 1_000 * MS
    run.tick(1_000)
    view(run, "ns-0", ())


@silent("M16")
def name_server_may_not_have_been_reached(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    down(run, "n2", name="cut-one-name-server")
    change_topic(run, "create_topic")
    view(run, "ns-0", ())


@silent("M17")
def group_is_shown_by_another_node(run: SyntheticRun) -> None:
    change_group(run, "create_group")
    show_group(run, None, node="n2")


@silent("M17")
def node_began_anew_behind_the_change(run: SyntheticRun) -> None:
    change_group(run, "create_group")
    down(run, "n1")
    show_group(run, None)


@silent("M17")
def another_change_of_the_group_is_open(run: SyntheticRun) -> None:
    change_group(run, "delete_group", "info")
    change_group(run, "create_group")
    show_group(run, None)


@silent("M17")
def offsets_of_a_deleted_group_were_to_stay(run: SyntheticRun) -> None:
    use_offset(run, "commit_offset", 7)
    change_group(run, "delete_group")
    use_offset(run, "fetch_offset", 7)


@silent("M17")
def commit_of_unknown_outcome_may_have_come_behind_the_deletion(run: SyntheticRun) -> None:
    use_offset(run, "commit_offset", 7, "info")["t_complete"] = None
    change_group(run, "delete_group", decision="clean")
    use_offset(run, "fetch_offset", 7)


@silent("M14")
def other_node_has_not_heard_of_the_setting_yet(run: SyntheticRun) -> None:
    set_value(run, "1")
    run.tick(5_100 + FAULT_OVER_MS)
    set_value(run, "2")
    show_value(run, "1", node="n2")


@silent("M14")
def other_node_may_not_have_been_reached(run: SyntheticRun) -> None:
    set_value(run, "1")
    run.tick(5_100 + FAULT_OVER_MS)
    set_value(run, "2")
    run.tick(5_100)
    down(run, "n2")
    run.tick(2_000)
    show_value(run, "1", node="n2")


@silent("M14")
def node_began_anew_behind_the_setting(run: SyntheticRun) -> None:
    set_value(run, "1")
    set_value(run, "2")
    down(run, "n1")
    show_value(run, "1")


@silent("M14")
def setting_of_unknown_outcome_may_come_late(run: SyntheticRun) -> None:
    set_value(run, "1", "info")["t_complete"] = None
    set_value(run, "2")
    show_value(run, "1", decision="now")


@silent("M14")
def setting_of_unknown_outcome_may_never_come(run: SyntheticRun) -> None:
    set_value(run, "1")
    set_value(run, "2", "info")
    show_value(run, "1", decision="now")


@silent("M14")
def setting_that_failed_counts_for_nothing(run: SyntheticRun) -> None:
    set_value(run, "1")
    set_value(run, "2", "fail")
    show_value(run, "1", decision="now")


@silent("S5")
def offset_went_with_its_group(run: SyntheticRun) -> None:
    fetched = run.find("fetch_offset", queue=0)
    fetched["offset"] = None
    row = change_group(run, "delete_group", decision="clean")
    row |= {"client_group": fetched["client_group"], "t_complete": None, "type": "info"}


@silent("S5")
def offset_went_with_its_topic(run: SyntheticRun) -> None:
    fetched = run.find("fetch_offset", queue=0)
    fetched["offset"] = None
    _delete_all(run, fetched["t_invoke"], "info")


@silent("S8")
def key_went_with_its_topic(run: SyntheticRun) -> None:
    _delete_for_good(run)
    key = f"key-{run.name}.v0"
    later(run, "q1", "query", client_group="tools", topic=TOPIC, key=key, messages=[])


@silent("M5")
def key_within_a_time_went_with_its_topic(run: SyntheticRun) -> None:
    _delete_for_good(run)
    key, at = f"key-{run.name}.v2", stored_ms(run, 1)
    search(run, "range", queue=None, key=key, from_ms=at, to_ms=at, messages=[])


@silent("A5")
def unread_message_went_with_its_topic(run: SyntheticRun) -> None:
    _unread_by_one_group(run)
    _delete_for_good(run)


@silent("S6")
def read_of_what_went_with_its_topic_and_retention(run: SyntheticRun) -> None:
    _hide_a_read(run)
    retain_everywhere(run, 12)
    _delete_for_good(run)


@silent("S8")
def key_of_what_went_with_its_topic_and_retention(run: SyntheticRun) -> None:
    retain_everywhere(run, 12)
    _delete_for_good(run)


@silent("M5")
def time_of_what_went_with_its_topic_and_retention(run: SyntheticRun) -> None:
    key, at = f"key-{run.name}.v0", stored_ms(run, 0)
    found = [run.shown(run.stored(0)[0])]
    search(run, "range", queue=None, key=key, from_ms=at, to_ms=at, messages=found)
    retain_everywhere(run, 12)
    _delete_for_good(run)


@pytest.mark.parametrize("rule_id", ["S6", "S8"])
def test_without_retention_a_deleted_topic_is_in_the_logs(rule_id: str, tmp_path: Path) -> None:
    run = SyntheticRun()
    _hide_a_read(run)
    _delete_for_good(run)
    run.log = [row for row in run.log if row.get("value") != f"{run.name}.v0"]
    assert result(judged(rule_id, run, tmp_path)).verdict is Outcome.FAIL


def _hide_a_read(run: SyntheticRun) -> None:
    """Of one message nobody tells the place."""
    for op in run.ops:
        for message in op.get("messages") or ():
            if message["value"] == f"{run.name}.v1":
                message["offset"] = None


def _delete_for_good(run: SyntheticRun) -> None:
    change_topic(run, "delete_topic")["topic"] = TOPIC
    run.manifest["queues"] = [q for q in run.manifest["queues"] if q["topic"] != TOPIC]


def _unread_by_one_group(run: SyntheticRun) -> None:
    for op in run.ops:
        if op["f"] in {"poll", "deliver"} and op["client_group"] == "pull":
            op["messages"] = [m for m in op["messages"] if m["value"] != f"{run.name}.v5"]


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_deletion_that_ended_before_excuses_nothing(outcome: str, tmp_path: Path) -> None:
    """What was sent, or stored, behind a topic's deletion is there, or its absence is judged."""
    run = SyntheticRun()
    first = min(op["t_invoke"] for op in run.ops if op["f"] == "send")
    _delete_all(run, first - 2, outcome)
    run.find("fetch_offset", queue=0)["offset"] = None
    key = f"key-{run.name}.v0"
    later(run, "q1", "query", client_group="tools", topic=TOPIC, key=key, messages=[])
    wanted = Outcome.FAIL if outcome == "ok" else Outcome.PASS
    for rule_id in ("S5", "S8"):
        assert result(judged(rule_id, run, tmp_path / rule_id)).verdict is wanted, rule_id


def test_deleted_topic_that_was_drained_is_owed(tmp_path: Path) -> None:
    run = SyntheticRun()
    _unread_by_one_group(run)
    change_topic(run, "delete_topic")["topic"] = TOPIC
    assert result(judged("A5", run, tmp_path)).verdict is Outcome.FAIL


@pytest.mark.parametrize(
    ("rule_id", "change"), SILENT, ids=lambda case: getattr(case, "__name__", None)
)
def test_stays_silent(rule_id: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun()
    change(run)
    found = result(judged(rule_id, run, tmp_path))
    assert found.verdict is Outcome.PASS, (found.reason, found.witnesses)
    assert found.examined > 0


@pytest.mark.parametrize(
    "rule_id", ["M1", "M2", "M3", "M4", "M5", "M9", "M10", "M11", "M14", "M16", "M17"]
)
def test_is_left_out_where_nothing_of_it_was_done(rule_id: str, tmp_path: Path) -> None:
    found = judged(rule_id, SyntheticRun(), tmp_path)
    assert [rule.id for rule in found.left_out] == [rule_id]


def test_slow_registration_is_no_excuse(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.tick(FAULT_OVER_MS)
    down(run, "n1", name="slow-registration")
    change_topic(run, "create_topic")
    view(run, "ns-0", (0,))
    assert result(judged("M16", run, tmp_path)).verdict is Outcome.FAIL


def test_one_group_has_no_other(tmp_path: Path) -> None:
    run = SyntheticRun()
    read_elsewhere(run, "v6")
    assert judged("A23", run, tmp_path).left_out


def test_without_times_of_storing_searches_are_not_judged(tmp_path: Path) -> None:
    run = SyntheticRun()
    search(run, "first", from_ms=stored_ms(run, 2), offset=1)
    for row in run.log:
        row["stored_ms"] = None
    assert judged("M5", run, tmp_path).left_out


def test_without_a_time_routes_are_not_judged(tmp_path: Path) -> None:
    run = SyntheticRun()
    ask_all(run, queues=())
    del run.manifest["routes"]
    assert judged("M3", run, tmp_path).left_out


def test_sends_that_may_be_refused_break_no_limit(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.manifest["limits"] = run.manifest["limits"] | {"acked_share_min": 0.9}
    run.manifest["phases"]["load"] = [0, run.now]
    for _ in range(20):
        send_as_user(run, "fail")
    assert result(judged("A16", run, tmp_path)).verdict is Outcome.PASS
