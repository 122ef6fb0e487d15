"""Planted violations of the rules on topics, routes, users, searches and offsets (M), and of what
only several broker groups show (A23)."""

from __future__ import annotations

from tests.verify.clean_runs import retain_from_third_message
from tests.verify.management import (
    FAULT_OVER_MS,
    account,
    ask_all,
    change_group,
    change_topic,
    delete_route,
    down,
    expect,
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
from tests.verify.plants import plant
from tests.verify.synthetic import MS, TOPIC, Row, SyntheticRun

_BEHIND_ALL = 200_000 * MS


def _deleted(run: SyntheticRun, t_invoke: int) -> None:
    """The topic of all messages was deleted then."""
    row = change_topic(run, "delete_topic")
    row |= {"topic": TOPIC, "t_invoke": t_invoke, "t_complete": t_invoke + 1}


def _postpone(run: SyntheticRun, f: str) -> None:
    """Let what such operations showed come behind the drain of any run beside it."""
    for row in run.ops:
        if row["f"] == f:
            row["t_invoke"] += _BEHIND_ALL
            row["t_complete"] += _BEHIND_ALL


@plant("M1", witness="v7")
def read_though_its_topic_was_deleted(run: SyntheticRun) -> None:
    _deleted(run, run.find("send", "v7")["t_complete"] + 1)
    _postpone(run, "deliver")


@plant("M1", witness='"f": "query"')
def found_by_its_key_though_its_topic_was_deleted(run: SyntheticRun) -> None:
    """Its topic was deleted in the drain, behind all reads, and then a query shows it."""
    _deleted(run, run.tick())
    query = run.find("query")
    query |= {"t_invoke": run.tick(3), "t_complete": run.tick()}
    _postpone(run, "query")


@plant("M1", witness='"f": "query"')
def found_by_its_key_between_two_deletions_of_its_topic(run: SyntheticRun) -> None:
    found_by_its_key_though_its_topic_was_deleted(run)
    _deleted(run, run.find("query")["t_complete"] + 1)


@plant("M1", witness="stored again")
def half_of_a_deleted_topic_is_delivered(run: SyntheticRun) -> None:
    """Its topic was deleted between its acknowledgement and its commit."""
    _deleted(run, run.find("half", "x2.v")["t_complete"] + 1)


@plant("M2", witness="gone though it was made")
def created_topic_is_gone(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    view(run, "n1", ())
    _postpone(run, "route")


@plant("M2", witness="there though it was deleted")
def deleted_topic_is_there(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "delete_topic")
    view(run, "n1")
    _postpone(run, "route")


@plant("M2", witness="another permission")
def changed_permission_is_lost(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "create_topic", perm="4")
    view(run, "n1")
    _postpone(run, "route")


@plant("M2", witness="gone though it was made")
def failed_deletion_took_the_topic(run: SyntheticRun) -> None:
    change_topic(run, "create_topic")
    change_topic(run, "delete_topic", "fail")
    view(run, "n1", ())
    _postpone(run, "route")


@plant("M3", witness="lacks the topic")
def name_server_lacks_a_topic(run: SyntheticRun) -> None:
    ask_all(run, queues=())


@plant("M3", witness="other queues")
def name_server_keeps_queues_though_a_creation_is_unknown(run: SyntheticRun) -> None:
    change_topic(run, "create_topic", "info")
    run.tick(1)
    ask_all(run, queues=(0, 1, 2, 3))


@plant("M3", witness="another leader")
def name_server_keeps_an_old_leader(run: SyntheticRun) -> None:
    ask_all(run, members="n0 n1 n2")


@plant("M3", witness="other members")
def name_server_keeps_a_broker_that_is_gone(run: SyntheticRun) -> None:
    ask_all(run, members="n1 n0 n2 n7")


@plant("M3", witness="another permission")
def name_server_keeps_an_old_permission(run: SyntheticRun) -> None:
    ask_all(run, perm="2")


@plant("M3", witness="deleted topic")
def name_server_shows_a_deleted_topic(run: SyntheticRun) -> None:
    change_topic(run, "delete_topic")
    delete_route(run, "ns-0")
    view(run, "n1", ())
    run.tick(10)
    view(run, "ns-0")
    view(run, "n1", ())


@plant("M4", witness="may not send")
def revoked_user_still_sends(run: SyntheticRun) -> None:
    account(run, "grant", "allow")
    account(run, "revoke", "deny")
    send_as_user(run, "ok")


@plant("M4", witness="may not send")
def deleted_user_still_sends(run: SyntheticRun) -> None:
    account(run, "grant", "allow")
    account(run, "delete", "deny")
    account(run, "grant", "allow", "fail")
    send_as_user(run, "ok")


@plant("M4", witness="though it may send")
def granted_user_is_refused(run: SyntheticRun) -> None:
    run.tick(6_000)
    account(run, "grant", "allow")
    send_as_user(run, "fail")


def _use(run: SyntheticRun, f: str, outcome: str, perm: str) -> Row:
    """Change the topic's permission, at the replica that leads, and read it there."""
    change_topic(run, "create_topic", perm=perm)["node"] = "n1"
    return use_topic(run, f, outcome)


@plant("M9", witness='"f": "poll"')
def topic_is_read_though_nobody_may(run: SyntheticRun) -> None:
    run.tick(6_000)
    _use(run, "poll", "ok", "2")


@plant("M9", witness='"f": "pop"')
def topic_is_popped_though_nobody_may(run: SyntheticRun) -> None:
    run.tick(6_000)
    _use(run, "pop", "ok", "2")


@plant("M9", witness="though it may be read")
def pop_is_refused_that_is_allowed(run: SyntheticRun) -> None:
    run.tick(6_000)
    _use(run, "pop", "fail", "6")


@plant("M9", witness="though it may be read")
def read_is_refused_that_is_allowed(run: SyntheticRun) -> None:
    run.tick(6_000)
    _use(run, "poll", "fail", "4")


@plant("M10", witness='"member": "n2"')
def name_server_keeps_a_dead_follower(run: SyntheticRun) -> None:
    run.tick(300_000)  # alone in its fault window
    down(run, "n2")
    run.tick(3_000)
    view(run, "ns-0", members="n1 n0 n2")


@plant("M10", witness='"name": "terminate"')
def name_server_keeps_the_leader_that_has_left(run: SyntheticRun) -> None:
    run.tick(320_000)
    down(run, "n1", name="terminate")
    run.tick(3_000)
    view(run, "ns-0", members="n1 n0 n2")


@plant("M11", witness='"leader": "n0"')
def name_server_takes_a_deposed_leader_again(run: SyntheticRun) -> None:
    view(run, "ns-0")
    view(run, "ns-0", members="- n0 n2")
    view(run, "ns-0", members="n0 n2")


@plant("M11", witness='"earlier_term": 2')
def late_registration_takes_the_leaders_place(run: SyntheticRun) -> None:
    view(run, "ns-0")
    view(run, "ns-0", members="n0 n1 n2")


@plant("M5", witness="stored then too")
def search_answers_too_far_on(run: SyntheticRun) -> None:
    search(run, "first", from_ms=stored_ms(run, 2), offset=3)


@plant("M5", witness="an older message")
def search_answers_too_far_back(run: SyntheticRun) -> None:
    search(run, "first", from_ms=stored_ms(run, 2), offset=1)


@plant("M5", witness="a newer message")
def search_upwards_goes_too_far(run: SyntheticRun) -> None:
    search(run, "last", from_ms=stored_ms(run, 2), offset=3)


@plant("M5", witness="stored before, too")
def search_upwards_ends_too_early(run: SyntheticRun) -> None:
    search(run, "last", from_ms=stored_ms(run, 2), offset=1)


@plant("M5", witness="there is no such place")
def search_answers_beyond_the_end(run: SyntheticRun) -> None:
    search(run, "first", from_ms=stored_ms(run, 2) + 10**9, offset=len(run.stored(0)) + 1)


@plant("M5", witness="another time")
def first_message_has_another_time(run: SyntheticRun) -> None:
    search(run, "earliest", from_ms=stored_ms(run, 0) - 1)


@plant("M5", witness="no message was stored then")
def first_message_behind_retention_has_no_time(run: SyntheticRun) -> None:
    retain_from_third_message(run)
    search(run, "earliest", from_ms=0)


@plant("M5", witness="an older message was there")
def first_message_behind_retention_is_a_later_one(run: SyntheticRun) -> None:
    later_ms = stored_ms(run, 5)
    retain_from_third_message(run)
    search(run, "earliest", from_ms=later_ms)


@plant("M5", witness="there was a message")
def queue_behind_retention_is_called_empty(run: SyntheticRun) -> None:
    retain_from_third_message(run)
    search(run, "earliest", from_ms=-1)


@plant("M5", witness="there was a message")
def queue_is_called_empty(run: SyntheticRun) -> None:
    search(run, "earliest", from_ms=-1)


@plant("M5", witness="it was left out")
def query_within_a_time_leaves_a_message_out(run: SyntheticRun) -> None:
    at = stored_ms(run, 1)
    key = f"key-{run.name}.v2"
    search(run, "range", queue=None, key=key, from_ms=at, to_ms=at, messages=[])


@plant("M5", witness="stored at another time")
def query_shows_what_was_stored_later(run: SyntheticRun) -> None:
    at = stored_ms(run, 1)
    shown = [run.shown(run.stored(0)[1])]
    key = f"key-{run.name}.v2"
    search(run, "range", queue=None, key=key, from_ms=at - 9, to_ms=at - 1, messages=shown)


def _first_commit(run: SyntheticRun) -> tuple[Row, int]:
    """The first commit of an offset, and the index of its record."""
    op = next(op for op in run.ops if op["f"] == "commit_offset")
    row = next(
        row
        for row in run.log
        if row["kind"] == "offset" and row["queue_offset"] == op["offset"] and row["queue"] == 0
    )
    return op, row["index"]


@plant("M6", witness="committed later")
def offset_answered_before_its_commit(run: SyntheticRun) -> None:
    op, index = _first_commit(run)
    for row in run.raft:
        if row["event"] in {"commit", "apply"} and row["index"] == index:
            row["t"] = op["t_complete"] + 1


@plant("M6", witness="in no log")
def offset_acknowledged_and_never_stored(run: SyntheticRun) -> None:
    """Its record is that of another group."""
    _, index = _first_commit(run)
    for row in run.log:
        if row["kind"] == "offset" and row["index"] == index:
            row["client_group"] = "nobody"


@plant("M7", "S5", witness='"offset": 2')
def failed_commit_of_an_offset_is_stored(run: SyntheticRun) -> None:
    op, _ = _first_commit(run)
    op["type"] = "fail"


@plant("M7", "S5", witness=f'"{TOPIC}"')
def refused_offset_is_stored_in_the_end(run: SyntheticRun) -> None:
    commits = [op for op in run.ops if op["f"] == "commit_offset"]
    commits[-1]["type"] = "fail"


@plant("M16", witness="lacks the topic")
def created_topic_is_not_in_a_route(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    change_topic(run, "create_topic")
    view(run, "ns-0", ())


@plant("M16", witness="another permission")
def changed_permission_is_not_in_a_route(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    change_topic(run, "create_topic")
    view(run, "ns-0")
    change_topic(run, "create_topic", perm="4")
    view(run, "ns-0")


@plant("M16", witness="other queues")
def added_queues_are_not_in_a_route(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    change_topic(run, "create_topic")
    view(run, "ns-0", (0,))


@plant("M12", witness='"answered": "5"')
def model_expects_another_answer(run: SyntheticRun) -> None:
    expect(run, "4", "5")


@plant("M17", witness="configured otherwise")
def group_keeps_its_old_configuration(run: SyntheticRun) -> None:
    change_group(run, "create_group")
    change_group(run, "create_group", status="retryMaxTimes=5")
    show_group(run)


@plant("M17", witness="gone though it was made")
def configured_group_is_gone(run: SyntheticRun) -> None:
    change_group(run, "create_group")
    show_group(run, None)


@plant("M17", witness="there though it was deleted")
def deleted_group_is_there(run: SyntheticRun) -> None:
    change_group(run, "create_group")
    change_group(run, "delete_group")
    show_group(run)


@plant("M17", witness="though those were cleaned")
def offset_outlives_its_group(run: SyntheticRun) -> None:
    change_group(run, "delete_group", decision="clean")
    use_offset(run, "fetch_offset", 7)


@plant("M17", witness="though those were cleaned")
def offset_outlives_its_group_that_had_consumed(run: SyntheticRun) -> None:
    use_offset(run, "deliver", None)["messages"] = []
    change_group(run, "delete_group", decision="clean")
    use_offset(run, "fetch_offset", 7)


@plant("M4", witness="though it may send")
def replica_refuses_what_it_has_just_granted(run: SyntheticRun) -> None:
    run.tick(FAULT_OVER_MS)
    account(run, "grant", "allow")["node"] = "n1"
    send_as_user(run, "fail")["node"] = "n1"


@plant("M14", witness="read=4 write=4")
def setting_keeps_its_old_value(run: SyntheticRun) -> None:
    set_value(run, "read=4 write=4")
    set_value(run, "read=4 write=2")
    show_value(run, "read=4 write=4")


@plant("M14", witness="a value of nobody")
def linearizable_answer_shows_what_nobody_set(run: SyntheticRun) -> None:
    set_value(run, "1")
    set_value(run, "2", "info")
    show_value(run, "a value of nobody", node="n2", decision="now")


@plant("M14", witness="it is there")
def deleted_setting_is_there(run: SyntheticRun) -> None:
    set_value(run, "it is there")
    set_value(run, "-")
    show_value(run, "it is there")


@plant("M14", witness="not yet heard of")
def other_node_never_hears_of_a_setting(run: SyntheticRun) -> None:
    set_value(run, "not yet heard of")
    set_value(run, "2")
    run.tick(5_100 + FAULT_OVER_MS)
    show_value(run, "not yet heard of", node="ns-0")


@plant("A23", "S6", witness="v6")
def stored_in_another_group_too(run: SyntheticRun) -> None:
    read_elsewhere(run, "v6")
