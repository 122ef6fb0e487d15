"""Planted violations: each breaks one rule in an otherwise clean run.

`live` plants act while the little cluster runs, so that logs, queues, traces and reads all show
what was done; the others change rows afterwards. `also` names the checks that rightly see the same
damage; no other may.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.verify.clean_runs import (
    again,
    change_voters,
    deliver_again,
    forget_fsyncs,
    hold,
    install,
    progress,
    retain_from,
    start_again,
    tell_and_truncate,
)
from tests.verify.synthetic import DISCARDED, MS, NODES, OP, TOPIC, Rec, Row, SyntheticRun

Plant = Callable[[SyntheticRun], None]


@dataclass(frozen=True)
class Planted:
    check: str
    name: str
    plant: Plant
    live: bool
    also: frozenset[str]
    witness: str  # what the witness must name
    sql_only: bool = False  # only the rule's file sees it, no check in Python

    def run(self) -> SyntheticRun:
        if self.live:
            return SyntheticRun(self.name, live=self.plant)
        run = SyntheticRun(self.name)
        self.plant(run)
        return run


PLANTS: list[Planted] = []


def plant(
    check: str, *also: str, witness: str, live: bool = False, sql_only: bool = False
) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        name = function.__name__.replace("_", "-")
        PLANTS.append(Planted(check, name, function, live, frozenset(also), witness, sql_only))
        return function

    return register


def _reads_of(run: SyntheticRun, value: str) -> list[Row]:
    named = f"{run.name}.{value}"
    return [
        op
        for op in run.ops
        if op["f"] in {"poll", "deliver"}
        and named in [message["value"] for message in op.get("messages") or ()]
    ]


def _unread(run: SyntheticRun, value: str, group: str | None = None) -> None:
    for op in _reads_of(run, value):
        if group in {None, op["client_group"]}:
            op["messages"] = [m for m in op["messages"] if m["value"] != f"{run.name}.{value}"]


def _record(run: SyntheticRun, kind: str, value: str, queue: int, **more: str) -> Rec:
    named = f"{run.name}.{value}"
    rec = Rec(kind, TOPIC, queue, named, f"K.{named}", **more)
    rec.digest = zlib.crc32(named.encode())  # that of every message of this value
    return rec


def _last(run: SyntheticRun, node: str) -> Row:
    return run.events(node, "commit")[-1]


def _trace(run: SyntheticRun, node: str, event: str, **columns: object) -> None:
    run.event(node, event, **columns)


@plant("A1", "A2", "A5", "A12", "A18", "S6", witness="v2")
def other_value_at_an_offset(run: SyntheticRun) -> None:
    (shown,) = run.find("deliver", "v2")["messages"]
    shown |= {"value": f"{run.name}.v4", "uniq_key": f"K.{run.name}.v4"}


@plant("A2", "A10", "A12", witness="v4", live=True)
def stored_twice(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "v4", 0)])


@plant("A2", "A11", "A1", "S2", witness="K.")
def one_key_at_two_places(run: SyntheticRun) -> None:
    for row in run.logged("v6", "message"):
        if row["node"] == "n2":
            row["uniq_key"] = f"K.{run.name}.v4"


@plant("A3", "A19", witness="v9", live=True)
def failed_send_is_read(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "v9", 1)])


@plant("A4", "A5", "A6", "A7", "A15", witness="v2")
def acknowledged_and_never_read(run: SyntheticRun) -> None:
    _unread(run, "v2")


@plant("A4", "A5", "A6", "A7", "A15", "S1", "S2", witness="v5")
def removed_from_a_replica_and_the_reads(run: SyntheticRun) -> None:
    _unread(run, "v5")
    (gone,) = (row for row in run.logged("v5", "message") if row["node"] == "n2")
    run.log.remove(gone)
    run.cq = [
        unit for unit in run.cq if (unit["node"], unit["position"]) != ("n2", gone["position"])
    ]


@plant("A5", "A6", "A7", witness="v13")
def unseen_by_one_group(run: SyntheticRun) -> None:
    _unread(run, "v13", "pull")


@plant("A5", "S1", "S6", "A15", "A21", witness="v12")
def acknowledged_beyond_the_end_and_lost(run: SyntheticRun) -> None:
    """The last message of queue 0 is in no log, and the queue ends before it."""
    offset = run.logged("v12", "message")[0]["queue_offset"]
    for row in run.logged("v12", "message"):
        row |= {"kind": "command", "topic": None, "queue": None, "queue_offset": None}
        row |= {"value": None, "uniq_key": None, "keys": None, "cq_ok": None, "size": None}
    for queue in run.manifest["queues"]:
        if (queue["topic"], queue["queue"]) == (TOPIC, 0):
            queue["max_offset"] = offset


@plant("A6", "A12", witness='"to_offset": 1')
def poll_begins_with_what_it_had(run: SyntheticRun) -> None:
    (again,) = run.find("poll", "v2", client_group="pull")["messages"][1:]
    later = run.find("poll", "v4", client_group="pull")
    later["messages"] = [again, *later["messages"]]


@plant("A6", "A5", witness="skipped")
def poll_begins_behind_a_message(run: SyntheticRun) -> None:
    later = run.find("poll", "v4", client_group="pull")
    later["messages"] = later["messages"][1:]


@plant("A6", "A12", witness='"to_offset": 1', sql_only=True)
def position_kept_by_an_assign_of_another_queue(run: SyntheticRun) -> None:
    poll_begins_with_what_it_had(run)
    owned = [{"broker_group": run.group, "topic": TOPIC, "queue": 1}]
    row = run.find("fetch_offset", queue=0)
    row |= {"f": "assign", "assigned": owned, "topic": None, "queue": None, "offset": None}


@plant("A7", "A13", witness='"to_offset": 1')
def poll_goes_back_within_itself(run: SyntheticRun) -> None:
    shown = run.find("poll", "v2", client_group="drain")["messages"]
    shown[1], shown[2] = shown[2], shown[1]


@plant("A8", witness="v2")
def later_send_stands_before(run: SyntheticRun) -> None:
    one, other = run.find("send", "v2"), run.find("send", "v6")
    one["op"], other["op"] = other["op"], one["op"]


@plant("A10", "A13", "A20", witness="v6")
def acknowledged_first_and_stands_behind(run: SyntheticRun) -> None:
    early, late = run.find("send", "v6"), run.find("send", "v2")
    early |= {"t_invoke": late["t_invoke"] - 2, "t_complete": late["t_invoke"] - 1}


@plant("A11", witness="K.ghost")
def key_that_nobody_sent(run: SyntheticRun) -> None:
    run.find("deliver", "v6")["messages"][0]["uniq_key"] = "K.ghost"


@plant("A11", witness="ghost", live=True)
def value_that_nobody_sent(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "ghost", 1)])


@plant("A12", witness="v0")
def delivered_twice(run: SyntheticRun) -> None:
    deliver_again(run, "d1", "v0")


@plant("A13", "A6", "A7", witness="v1")
def shard_out_of_order(run: SyntheticRun) -> None:
    shown = run.find("poll", "v1", client_group="pull")["messages"]
    shown[0], shown[2] = shown[2], shown[0]


@plant("A14", "A16", witness='"last_offset": 1', live=True)  # A16 in Python counts reads
def empty_poll_of_what_is_long_acknowledged(run: SyntheticRun) -> None:
    run.tick(6000)
    run.poll("c1", "pull", 0, 2, 2)


@plant("A14", "A16", witness='"last_offset": 2', live=True)  # A16 in Python counts reads
def poll_that_ends_early(run: SyntheticRun) -> None:
    """Another client of a broadcast group, which has read nothing yet."""
    run.tick(6000)
    run.poll("g1", "drain", 1, 0, 3)


@plant("A15", "A5", "A7", witness="v2")
def gone_from_the_final_read(run: SyntheticRun) -> None:
    _unread(run, "v2", "drain")


@plant("A15", "A7", witness="v3")
def gone_from_one_final_poll(run: SyntheticRun) -> None:
    """The queue was not drained, so the poll speaks for what it went over only."""
    for queue in run.manifest["queues"]:
        if (queue["topic"], queue["queue"]) == (TOPIC, 1):
            queue["drained"] = False
    _unread(run, "v3", "drain")


@plant("A15", witness="known_end")
def max_offset_of_a_deposed_leader(run: SyntheticRun) -> None:
    run.find("max_offset", queue=0)["offset"] -= 1


@plant("A16", witness="slow")
def client_without_an_answer(run: SyntheticRun) -> None:
    """A retry is answered with the old offset; the next one 6 s later."""
    retry = {"topic": TOPIC, "queue": 0, "messages": run.find("send", "v0")["messages"]}
    run.op("slow", "send", **retry)
    run.tick(6000)
    run.op("slow", "send", **retry)
    for number, op in enumerate(run.ops[-2:]):
        op["op"] = len(run.ops) + number


@plant("A16", witness='"measure": "recovery"', sql_only=True)
def first_answer_comes_late(run: SyntheticRun) -> None:
    """Of what was sent after the fault's effect, the first that was stored."""
    first = run.find("send", "v10")
    first |= {"process": f"{run.name}.late", "client": f"{run.name}.late"}
    first["t_complete"] += 6000 * MS


@plant("A17", witness="n2")
def replica_left_behind(run: SyntheticRun) -> None:
    run.manifest["left_behind"] = [{"broker_group": run.group, "node": "n2"}]


@plant("A18", witness="what was sent")
def other_contents_are_delivered(run: SyntheticRun) -> None:
    run.find("deliver", "v2")["messages"][0]["digest"] += 1


@plant("A18", witness="what was sent")
def other_contents_are_found_by_key(run: SyntheticRun) -> None:
    run.find("query")["messages"][0]["digest"] += 1


@plant("A18", witness="what was sent")
def other_contents_are_stored_everywhere(run: SyntheticRun) -> None:
    for row in run.logged("v6", "message"):
        row["digest"] += 1


@plant("A18", witness="can't be read")
def contents_can_be_read_nowhere(run: SyntheticRun) -> None:
    for row in run.logged("v6", "message"):
        row["digest"] = None


@plant("A18", witness="its half")
def final_is_not_its_half(run: SyntheticRun) -> None:
    for row in run.logged("x0.v", "half"):
        row["digest"] += 1


def appended(run: SyntheticRun, value: str) -> int:
    """When the message was first in any node's log."""
    index = run.logged(value, "message")[0]["index"]
    return min(e["t"] for e in run.raft if (e["event"], e.get("index")) == ("append", index))


@plant("A19", "A3", witness="all its attempts failed")
def failed_send_is_stored(run: SyntheticRun) -> None:
    run.find("send", "v8")["type"] = "fail"


@plant("A19", witness="it was not sent yet")
def stored_before_it_was_sent(run: SyntheticRun) -> None:
    run.find("send", "v6")["t_invoke"] = appended(run, "v6") + 1


@plant("A19", witness="it was not sent yet")
def stored_between_two_attempts(run: SyntheticRun) -> None:
    """The first had failed, as its sender was told; the second was acknowledged."""
    second = run.find("send", "v6")
    first = {"type": "fail", "process": f"{run.name}.p0", "t_complete": second["t_invoke"] + 1}
    run.ops.append(second | first)
    second |= {"op": len(run.ops), "t_invoke": appended(run, "v6") + 1}


def share_a_queue(run: SyntheticRun, outcome: str, ms: int) -> None:
    """Two members of the push group are given queue 0 and go on for `ms` from the second on."""
    run.assign("e1", "push", (0,))
    second = run.assign("e2", "push", (0,))
    if outcome == "info":
        second |= {"type": "info", "t_complete": None}
    end = {"client_group": "push", "topic": TOPIC, "queue": 0, "offset": len(run.stored(0))}
    since = second["t_invoke"] if outcome == "info" else second["t_complete"]
    for client in ("e1", "e2"):
        run.now = since + ms * MS - MS
        run.op(f"{client}b", "max_offset", **end)["client"] = f"{run.name}.{client}"
    for number, op in enumerate(run.ops[-4:]):
        op["op"] = len(run.ops) + number


@plant("A22", witness="e1")
def two_owners(run: SyntheticRun) -> None:
    share_a_queue(run, "ok", 25_001)


@plant("A22", witness="e2")
def two_owners_one_of_unknown_outcome(run: SyntheticRun) -> None:
    share_a_queue(run, "info", 26_000)


@plant("S1", witness="without its unit")
def unit_is_missing(run: SyntheticRun) -> None:
    run.cq.remove(next(unit for unit in run.cq if unit["node"] == "n1"))


@plant("S1", witness="without its message")
def unit_dangles(run: SyntheticRun) -> None:
    run.cq.append(run.cq[0] | {"queue_offset": 77})


@plant("S1", witness="two units")
def unit_stands_twice(run: SyntheticRun) -> None:
    run.cq.append(dict(run.cq[3]))


@plant("S1", witness="not the record")
def unit_has_another_tag(run: SyntheticRun) -> None:
    run.cq[5]["tag_hash"] = 99


@plant("S1", witness="cq_ok is false")
def unit_is_not_ok(run: SyntheticRun) -> None:
    next(row for row in run.log if row["cq_ok"])["cq_ok"] = False


@plant("S2", "R5", "R6", witness="n2")
def bytes_differ_below_the_commit_index(run: SyntheticRun) -> None:
    next(row for row in run.logged("v6", "message") if row["node"] == "n2")["chain"] += 1


@plant("S2", witness="keys")
def keys_differ(run: SyntheticRun) -> None:
    next(row for row in run.logged("v6", "message") if row["node"] == "n1")["keys"] = None


@plant("S2", "S1", witness='"missing_on": ["n2"]')
def missing_above_a_late_first_entry(run: SyntheticRun) -> None:
    retain_from(run, "n2", 12)
    run.log.remove(next(row for row in run.logged("v12", "message") if row["node"] == "n2"))


@plant("S3", witness="in the exported log", sql_only=True)
def truncated_entry_is_in_the_log(run: SyntheticRun) -> None:
    index = tell_and_truncate(run, "n2")
    hold(run, "n2", index)


@plant("S3", witness="found at a start", sql_only=True)
def truncated_entry_is_found_at_a_start(run: SyntheticRun) -> None:
    index = tell_and_truncate(run, "n2")
    start_again(run, "n2", index)
    hold(run, "n2", index)


@plant("S4", witness="the exported log ends", sql_only=True)
def log_that_ends_before_its_commit(run: SyntheticRun) -> None:
    last = _last(run, "n2")["index"]
    run.log = [row for row in run.log if (row["node"], row["index"]) != ("n2", last)]


@plant("S4", "R8", witness="cut below", sql_only=True)
def committed_end_is_cut_and_given_again(run: SyntheticRun) -> None:
    last = _last(run, "n2")
    _trace(run, "n2", "truncate", index=last["index"])
    entry = {name: last[name] for name in ("index", "entry_term", "chain")}
    _trace(run, "n2", "append", **entry)
    _trace(run, "n2", "fsync", index=last["index"])


@plant("S5", witness="a later commit had been acknowledged", live=True)
def fetch_of_an_overwritten_offset(run: SyntheticRun) -> None:
    run.commit_offset("c1", "pull", 0, 4)


@plant("S5", witness="nobody had committed")
def fetch_of_what_nobody_committed(run: SyntheticRun) -> None:
    run.find("fetch_offset", queue=0)["offset"] = 3


@plant("S5", witness="nothing was stored")
def fetch_of_nothing_after_a_commit(run: SyntheticRun) -> None:
    run.find("fetch_offset", queue=0)["offset"] = None


@plant("S5", witness="nobody committed the offset", live=True)
def stored_offset_that_nobody_committed(run: SyntheticRun) -> None:
    run.append([Rec("offset", TOPIC, 0, client_group="pull", queue_offset=1)])


def _stored_offsets(run: SyntheticRun, queue: int) -> list[Row]:
    return [row for row in run.log if row["kind"] == "offset" and row["queue"] == queue]


@plant("S5", "M6", witness="had been overwritten")
def last_stored_offset_is_an_old_one(run: SyntheticRun) -> None:
    rows = _stored_offsets(run, 0)
    for row in rows:
        row["queue_offset"] = min(other["queue_offset"] for other in rows)


@plant("S5", "M6", witness="no log stores any offset")
def acknowledged_offset_is_in_no_log(run: SyntheticRun) -> None:
    for row in _stored_offsets(run, 1):
        row |= {"kind": "command", "client_group": None, "topic": None, "queue": None}


@plant("S8", witness="left out")
def query_that_misses_a_message(run: SyntheticRun) -> None:
    run.find("query")["messages"] = []


@plant("S8", witness="not in the log")
def query_that_shows_another_place(run: SyntheticRun) -> None:
    run.find("query")["messages"][0]["offset"] += 7


@plant("S8", witness="not in the log", sql_only=True)
def query_that_shows_a_value_of_no_place(run: SyntheticRun) -> None:
    """It does not tell where the message stands, and its topic has no such value."""
    (shown,) = run.find("query")["messages"]
    unknown = {"value": f"{run.name}.v99", "queue": None, "offset": None}
    run.find("query")["messages"] = [shown, shown | unknown]


@plant("S8", witness="another key", sql_only=True)
def query_that_shows_a_message_of_another_key(run: SyntheticRun) -> None:
    (other,) = run.find("deliver", "v2")["messages"]
    run.find("query")["messages"].append(dict(other))


@plant("S7", witness="FLUSH_DISK_TIMEOUT", sql_only=True)
def send_on_no_disk_is_ok(run: SyntheticRun) -> None:
    run.find("send", "v4")["status"] = "FLUSH_DISK_TIMEOUT"


@plant("S7", witness="SLAVE_NOT_AVAILABLE", sql_only=True)
def half_on_one_replica_is_ok(run: SyntheticRun) -> None:
    run.find("half", tx=f"{run.name}.x0")["status"] = "SLAVE_NOT_AVAILABLE"


@plant("S6", "A15", witness="v99")
def read_of_what_no_log_has(run: SyntheticRun) -> None:
    sent = run.message(f"{run.name}.v99", 0)
    run.op("p9", "send", "info", topic=TOPIC, queue=0, messages=[sent])
    shown = run.find("deliver", "v0")
    shown["messages"] = [*shown["messages"], sent | {"offset": 50}]
    run.ops[-1]["op"] = len(run.ops)


@plant("T1", "A21", witness="x0")
def delivered_before_its_commit(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x0")
    early = run.find("deliver", "x0.v")
    early |= {"t_invoke": half["t_complete"], "t_complete": half["t_complete"] + 1}


@plant("T1", "A21", witness="x0")
def delivered_early_beside_an_open_read(run: SyntheticRun) -> None:
    """A read that never ended shows the same message; it must not hide the early one."""
    delivered_before_its_commit(run)
    early = run.find("deliver", "x0.v")
    never = {"op": len(run.ops), "process": "open", "client_group": "tools", "f": "poll"}
    run.ops.append({**early, **never, "type": "info", "t_complete": None})


@plant("T1", witness="x2")
def final_appended_before_the_check(run: SyntheticRun) -> None:
    index = run.logged("x2.v", "final")[0]["index"]
    asked = run.find("check", tx=f"{run.name}.x2")["t_invoke"]
    first = next(e for e in run.events("n0", "append") if e["index"] == index)
    first["t"] = asked - 1


@plant("T2", "T1", "T5", "T11", "T13", witness="x1", live=True)
def rolled_back_and_delivered(run: SyntheticRun) -> None:
    run.append([_record(run, "final", "x1.v", 0, tx=f"{run.name}.x1")])


@plant("T2", "T1", "S6", witness="x3")
def rolled_back_and_only_delivered(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x3")["messages"][0]
    shown = run.find("deliver", "v7")
    shown["messages"] = [*shown["messages"], {**half, "topic": "%RETRY%push", "queue": 0}]


@plant("T3", "A5", "T6", "T11", witness="x9", live=True)
def committed_and_nothing_stored(run: SyntheticRun) -> None:
    half = run.half("t9", "x9", 0)
    run.op("t9", "decide", tx=half["tx"], decision="commit")


@plant("T4", "A2", "A10", "A12", "T10", witness="x0", live=True)
def committed_twice(run: SyntheticRun) -> None:
    run.settle(run.find("half", tx=f"{run.name}.x0"), "commit")


@plant("T5", "T10", witness="rollback", live=True)
def rolled_back_after_its_commit(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x0")
    run.append([Rec("op", OP, 0, decision="rollback", half_offset=half["offset"], tx=half["tx"])])


@plant("T9", witness="x0", live=True)
def discarded_after_its_commit(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x0")
    rec = _record(run, "message", "x0.v", 0, tx=half["tx"])
    rec.topic = DISCARDED
    run.append([rec])


def stay_alive(run: SyntheticRun, tx: str, seconds: int) -> None:
    """Producers of the half's group, which is their own, ask something every twenty seconds."""
    half = run.find("half", tx=f"{run.name}.{tx}")
    half["client_group"] = f"{run.name}-producers"
    asked = {"client_group": half["client_group"], "topic": TOPIC, "key": "none"}
    for _ in range(0, seconds, 20):
        run.tick(20_000)
        run.op("t6", "query", messages=[], **asked)


@plant("T6", witness="its ack", live=True, sql_only=True)
def half_that_nobody_asks_about(run: SyntheticRun) -> None:
    run.half("t6", "x6", 0)
    stay_alive(run, "x6", 80)


@plant("T6", witness="a check", live=True, sql_only=True)
def half_that_nobody_asks_about_again(run: SyntheticRun) -> None:
    half = run.half("t6", "x6", 0)
    stay_alive(run, "x6", 40)
    run.check("t6-check", half, "unknown")
    stay_alive(run, "x6", 80)


def _add_check(run: SyntheticRun, tx: str, decision: str) -> None:
    run.op("checks", "check", tx=f"{run.name}.{tx}", decision=decision)
    run.ops[-1]["op"] = len(run.ops)


@plant("T7", witness="x0")
def asked_long_after_its_decision(run: SyntheticRun) -> None:
    run.tick(30_000)
    _add_check(run, "x0", "commit")


@plant("T7", witness='"node": "n')
def asked_behind_the_acknowledgement(run: SyntheticRun) -> None:
    """By the node that acknowledged the decision, of the client to which it had just done so."""
    check_behind_its_decision(run)


def check_behind_its_decision(run: SyntheticRun) -> Row:
    decide = run.find("decide", tx=f"{run.name}.x0")
    _add_check(run, "x0", "commit")
    at = decide["t_complete"] + 1
    run.ops[-1] |= {"client": decide["client"], "node": decide["node"]}
    run.ops[-1] |= {"t_invoke": at, "t_complete": at + MS}
    return run.ops[-1]


@plant("T8", witness="asked too often")
def asked_too_often(run: SyntheticRun) -> None:
    for _ in range(15):
        _add_check(run, "x2", "unknown")


@plant("T8", "T6", witness="discarded too early", live=True)
def discarded_without_a_question(run: SyntheticRun) -> None:
    discard_unasked(run)


def discard_unasked(run: SyntheticRun) -> Row:
    """Discard a half about which nobody was asked; return its operation."""
    half = run.half("t8", "x8", 0)
    rec = _record(run, "message", "x8.v", 0, tx=half["tx"])
    rec.topic = DISCARDED
    run.append([rec])
    return half


@plant("T13", witness="both decisions were acknowledged", live=True)
def contrary_decision_is_acknowledged(run: SyntheticRun) -> None:
    half = run.half("t13", "x13", 0)
    run.decide("t13", half, "commit")
    tell_in_vain(run, half, "rollback", "ok")


@plant("T13", witness="a rollback was acknowledged", live=True)
def rollback_behind_a_check_is_acknowledged(run: SyntheticRun) -> None:
    half = run.half("t13", "x13", 0)
    run.check("t13-check", half, "commit")
    tell_in_vain(run, half, "rollback", "ok")


def tell_in_vain(run: SyntheticRun, half: Row, decision: str, outcome: str) -> None:
    """Have a decision answered that changes nothing."""
    told = {"tx": half["tx"], "decision": decision, "node": run.leader}
    run.op("t13", "decide", outcome, **told)


@plant("T18", witness='"checks_early": 1', live=True)
def asked_about_before_its_time(run: SyntheticRun) -> None:
    immune_half(run, asked_after_ms=2_000)


def immune_half(run: SyntheticRun, asked_after_ms: int) -> None:
    """Have a half that wants to be left alone for 3 s, and is asked about."""
    half = run.half("t18", "x18", 0)
    half["due"] = half["t_invoke"] + 3_000 * MS
    run.tick(asked_after_ms)
    run.check("t18-check", half, "commit")


@plant("T10", witness="two op records", live=True)
def settled_twice(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x0")
    run.append([Rec("op", OP, 0, decision="commit", half_offset=half["offset"], tx=half["tx"])])


@plant("T10", witness="an op record of no half", live=True)
def settles_no_half(run: SyntheticRun) -> None:
    run.append([Rec("op", OP, 0, decision="rollback", half_offset=99)])


@plant("T10", witness="progress past a half", live=True)
def passes_an_undecided_half(run: SyntheticRun) -> None:
    half = run.half("t7", "x7", 0)
    run.append([progress(half["offset"] + 1)])
    run.decide("t7", half, "rollback")


@plant("T10", witness="progress past a half", live=True, sql_only=True)
def passes_a_half_and_appends_it_again(run: SyntheticRun) -> None:
    half = run.half("t7", "x7", 0)
    run.append([progress(half["offset"] + 1)])
    run.append([again(half)])
    run.decide("t7", half, "rollback")


@plant("T11", witness="x6", live=True)
def local_commit_rolled_back(run: SyntheticRun) -> None:
    half = run.half("t6", "x6", 0)
    run.local("t6", "x6", "commit")
    run.decide("t6", half, "rollback")


@plant("T12", "A11", "A20", witness="K.other", live=True)
def final_message_with_another_key(run: SyntheticRun) -> None:
    half = run.half("t5", "x5", 0)
    run.op("t5", "decide", tx=half["tx"], decision="commit")
    final = _record(run, "final", "x5.v", 0, tx=half["tx"])
    final.uniq_key = "K.other"
    op_rec = Rec("op", OP, 0, decision="commit", half_offset=half["offset"], tx=half["tx"])
    run.append([final, op_rec])


@plant("T12", "A20", witness="the op record is not", live=True, sql_only=True)
def op_record_with_another_key(run: SyntheticRun) -> None:
    half = run.half("t5", "x5", 0)
    told = {"half_offset": half["offset"], "tx": half["tx"], "uniq_key": "K.other"}

    def settle(row: Row) -> None:
        run.append([Rec("op", OP, 0, decision="rollback", **told)])

    run.op("t5", "decide", tx=half["tx"], decision="rollback", during=settle)


@plant("T12", "T1", "T3", "A5", "T6", witness='"resolved_instead"', live=True)
def decision_strays(run: SyntheticRun) -> None:
    meant = run.half("t5", "x5", 0)
    hit = run.half("t6", "x6", 0)
    run.op("t5", "decide", tx=meant["tx"], decision="commit")
    run.settle(hit, "commit")


@plant("T12", witness="names another's half")
def check_names_the_half_of_another(run: SyntheticRun) -> None:
    run.find("check", tx=f"{run.name}.x2")["offset"] = run.find("half", tx=f"{run.name}.x0")[
        "offset"
    ]


@plant("R1", witness='"term": 2')
def second_leader_in_a_term(run: SyntheticRun) -> None:
    _trace(run, "n2", "role", role="leader")


@plant("R2", witness="n2")
def second_vote_in_a_term(run: SyntheticRun) -> None:
    _trace(run, "n0", "vote", peer="n2", last_index=999, last_term=2)


@plant("R3", witness='"term": 1')
def term_falls(run: SyntheticRun) -> None:
    run.term = 1
    _trace(run, "n1", "fsync", index=1)


@plant("R4", "R8", "S3", "S4", witness="truncate")
def leader_truncates(run: SyntheticRun) -> None:
    _trace(run, "n1", "truncate", index=_last(run, "n1")["index"])


@plant("R5", witness="n2")
def other_chain_at_an_index(run: SyntheticRun) -> None:
    run.events("n2", "append")[7]["chain"] += 1


@plant("R6", witness="n2")
def other_entry_committed(run: SyntheticRun) -> None:
    changed = run.events("n2", "commit")[4]
    changed |= {"entry_term": 7, "chain": 7}


def _end_of_term_1(run: SyntheticRun) -> int:
    return max(entry.index for entry in run.entries if entry.term == 1)


@plant("R7", "R8", "S3", "S4", witness="n1")
def leader_without_the_last_committed_entry(run: SyntheticRun) -> None:
    """It had the entry, dropped it, and was elected."""
    for row in run.raft:
        row["seq"] *= 2
    (elected,) = (row for row in run.events("n1", "role") if row["role"] == "leader")
    cut = {"event": "truncate", "index": _end_of_term_1(run), "seq": elected["seq"] - 1}
    run.raft.append(elected | cut | {"role": None})


@plant("R7", "R5", witness="held")
def leader_with_another_entry_than_was_committed(run: SyntheticRun) -> None:
    end = _end_of_term_1(run)
    next(e for e in run.events("n1", "append") if e["index"] == end)["chain"] += 1


@plant("R9", witness='"durable"')
def committed_on_one_disk(run: SyntheticRun) -> None:
    index = _last(run, "n1")["index"] - 3
    for node in ("n0", "n2"):
        forget_fsyncs(run, node, index, index)


@plant("R9", witness='"n0"', live=True)
def disk_of_a_learner_counted(run: SyntheticRun) -> None:
    change_voters(run, ["n0", "n1"])
    entry = run.append([])
    run.append([])
    forget_fsyncs(run, "n0", entry.index, entry.index)


@plant("R9", witness='"last_term": 1')
def other_entries_counted(run: SyntheticRun) -> None:
    """Two logs are durable as far, but with what the leader of term 1 had written."""
    index = _end_of_term_1(run) + 1
    for node in ("n0", "n2"):
        entry = next(e for e in run.events(node, "append") if e["index"] == index)
        entry |= {"entry_term": 1, "chain": 5}
    next(e for e in run.events("n1", "commit") if e["index"] == index)["t"] -= 1


@plant("R9", witness='"durable"')
def counted_though_truncated(run: SyntheticRun) -> None:
    """Two followers drop the entry and write it again, and it is committed before they sync."""
    index = _last(run, "n1")["index"] - 3
    for row in run.raft:
        row["seq"] *= 3
    for node in ("n0", "n2"):
        fsync = next(e for e in run.events(node, "fsync") if e["index"] == index)
        again = next(e for e in run.events(node, "append") if e["index"] == index)
        run.raft.append(fsync | {"event": "truncate", "seq": fsync["seq"] + 1})
        run.raft.append(again | {"seq": fsync["seq"] + 2})


@plant("R9", witness='"node": "n2", "durable": 0')
def install_counted_before_its_fsync(run: SyntheticRun) -> None:
    install(run, "n2", 24, synced=False)
    forget_fsyncs(run, "n0", 24, 24)


@plant("R8", "S4", witness="beyond the log")
def commit_beyond_the_log(run: SyntheticRun) -> None:
    end = _last(run, "n2")["index"]
    _trace(run, "n2", "commit", index=end + 5, entry_term=2, chain=5)


@plant("R8", witness="below what it was")
def commit_falls(run: SyntheticRun) -> None:
    early = run.events("n2", "commit")[3]
    _trace(run, "n2", "commit", **{n: early[n] for n in ("index", "entry_term", "chain")})


@plant("R8", "S3", "S4", witness="cut below it")
def committed_end_is_truncated(run: SyntheticRun) -> None:
    _trace(run, "n2", "truncate", index=_last(run, "n2")["index"])


@plant("R8", "R5", "R6", witness="another term")
def leader_counts_an_older_term(run: SyntheticRun) -> None:
    run.events("n1", "commit")[-1]["entry_term"] = 1


@plant("R10", witness="applied_before")
def apply_skips(run: SyntheticRun) -> None:
    run.events("n0", "apply")[9]["first"] += 1


@plant("R11", witness="n1")
def vote_for_an_older_log(run: SyntheticRun) -> None:
    run.events("n2", "vote")[1] |= {"last_index": 1, "last_term": 1}


@plant("R12", witness='"term": 1')
def deposed_leader_answers_a_read(run: SyntheticRun) -> None:
    run.term = 1
    start = run.now + MS
    run.now += 2 * MS
    base = {"index": 2, "t_begin": start, "seq": 0, "incarnation": 1}
    _trace(run, "n0", "read", **base)
    run.raft[-1]["seq"] = 0


@plant("R14", witness="n2")
def state_of_a_replica_differs(run: SyntheticRun) -> None:
    run.events("n2", "state")[0]["chain"] += 1


@plant("R14", witness='"index"')
def states_differ_at_the_stop(run: SyntheticRun) -> None:
    index = _last(run, "n0")["index"]
    _trace(run, "n0", "state", index=index, chain=1)
    _trace(run, "n1", "state", index=index, chain=2)


@plant("R13", witness="more than one voter differs", live=True)
def two_voters_leave_at_once(run: SyntheticRun) -> None:
    change_voters(run, ["n1"])


@plant("R13", witness="more than one voter differs", live=True)
def one_voter_for_another(run: SyntheticRun) -> None:
    change_voters(run, ["n0", "n1"])
    change_voters(run, ["n0", "n2"])
    change_voters(run, list(NODES))


@plant("R13", "R10", witness="the one before it was not committed", live=True)
def voters_change_before_the_change_is_committed(run: SyntheticRun) -> None:
    change_voters(run, ["n0", "n1"])
    change_voters(run, list(NODES))
    first, second = (row["index"] for row in run.events("n1", "config"))
    commit = next(row for row in run.events("n1", "commit") if row["index"] == first)
    commit |= dict.fromkeys(("entry_term", "chain")) | {"event": "fsync"}
    assert second == first + 1


@plant("R13", witness="committed nothing in its term")
def voters_change_with_the_first_entry_of_a_term(run: SyntheticRun) -> None:
    run.term = 3
    index = _last(run, "n0")["index"] + 1
    _trace(run, "n0", "role", role="leader")
    _trace(run, "n0", "append", index=index, entry_term=3, chain=3)
    _trace(run, "n0", "config", index=index, voters=["n0", "n1"])


@plant("R10", witness="above the commit index", sql_only=True)
def applied_before_its_commit(run: SyntheticRun) -> None:
    apply, commit = run.events("n0", "apply")[12], run.events("n0", "commit")[12]
    apply["seq"], commit["seq"] = commit["seq"], apply["seq"]


@plant("R10", "R5", "R6", witness="another entry than elsewhere", sql_only=True)
def another_entry_applied(run: SyntheticRun) -> None:
    run.events("n2", "apply")[12]["chain"] += 1


@plant("R12", witness='"index": 5')
def read_just_after_a_newer_commit(run: SyntheticRun) -> None:
    """A leader of term 1 that was cut off, one nanosecond after the first commit of term 2."""
    first = min(row["t"] for row in run.raft if row["event"] == "commit" and row["term"] == 2)
    base = {"index": 5, "t_begin": first + 1, "t": first + 2, "term": 1, "seq": 0}
    _trace(run, "n0", "read", **base)


@plant("R3", witness='"term_before": 2')
def term_falls_at_a_restart(run: SyntheticRun) -> None:
    last = run.entries[-1]
    told = {"index": last.index, "entry_term": last.term, "chain": last.chain}
    _trace(run, "n2", "start", **told, term=1, incarnation=2, voters=list(NODES))


def _restart(run: SyntheticRun, node: str, index: int) -> None:
    """`node` finds the log up to `index` at its next start."""
    entry = next(each for each in run.entries if each.index == index)
    found = {"index": index, "entry_term": entry.term, "chain": entry.chain}
    _trace(run, node, "start", **found, incarnation=2, voters=list(NODES))


@plant("R9", "S4", witness='"event": "start"', sql_only=True)
def durable_end_is_gone_after_a_restart(run: SyntheticRun) -> None:
    _restart(run, "n2", _last(run, "n2")["index"] - 1)


@plant("R9", "S4", witness='"event": "start"', sql_only=True)
def durable_end_is_gone_after_a_second_restart(run: SyntheticRun) -> None:
    """A start takes nothing back: what the fsync before it told still holds."""
    index = _last(run, "n0")["index"]
    _restart(run, "n0", index)
    _restart(run, "n0", index - 2)
    run.raft[-1]["incarnation"] = 3


@plant("A20", witness="v6")
def send_answered_before_its_commit(run: SyntheticRun) -> None:
    _commit_late(run, run.logged("v6", "message")[0]["index"], run.find("send", "v6"))


@plant("A20", witness='"f": "half"')
def half_answered_before_its_commit(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x1")
    _commit_late(run, run.logged("x1.v", "half")[0]["index"], half)


@plant("A20", witness='"f": "decide"')
def decision_answered_before_its_commit(run: SyntheticRun) -> None:
    decide = run.find("decide", tx=f"{run.name}.x1")
    _commit_late(run, run.logged("x1.v", "op")[0]["index"], decide)


def _commit_late(run: SyntheticRun, index: int, op: Row) -> None:
    """All nodes commit the entry a nanosecond after the answer to `op`."""
    for row in run.raft:
        if row["event"] in {"commit", "apply"} and row["index"] == index:
            row["t"] = op["t_complete"] + 1


@plant("A20", "A21", "M6", witness='"t_committed": null')
def send_answered_and_never_committed(run: SyntheticRun) -> None:
    """Nobody ever tells a commit at or above the last entry that a send was answered for."""
    index = run.logged("v13", "message")[0]["index"]
    run.raft = [
        row for row in run.raft if row["event"] not in {"commit", "apply"} or row["index"] < index
    ]


@plant("A21", witness="v12")
def read_before_its_commit(run: SyntheticRun) -> None:
    """The read began before the answer to its send, and ended a nanosecond before the commit."""
    index = run.logged("v12", "message")[0]["index"]
    first = min(e["t"] for node in NODES for e in run.events(node, "commit") if e["index"] == index)
    run.find("deliver", "v12").update({"t_invoke": first - 2, "t_complete": first - 1})


@plant("A21", witness='"last_stored": 6')
def max_offset_of_an_uncommitted_end(run: SyntheticRun) -> None:
    """One more than what stood in the queue when it was answered, which is stored later."""
    asked = run.find("max_offset", queue=0)
    index = run.logged("v12", "message")[0]["index"]
    first = min(e["t"] for node in NODES for e in run.events(node, "commit") if e["index"] == index)
    asked |= {"t_invoke": first - 2, "t_complete": first - 1}


def number_checks(run: SyntheticRun, *told: str) -> None:
    """Let a half be asked about as often, by checks that tell these counts."""
    tx = f"{run.name}.x2"
    for _ in told[1:]:
        _add_check(run, "x2", "unknown")
    checks = [op for op in run.ops if op["f"] == "check" and op["tx"] == tx]
    for check, count in zip(checks, told, strict=True):
        check["status"] = count
        check["offset"] = checks[0].get("offset")


def ask_again(run: SyntheticRun, *asked: tuple[int, str]) -> None:
    """Have a half asked about, each time so many milliseconds later and by this node."""
    first = next(op for op in run.ops if op["f"] == "check" and op["tx"] == f"{run.name}.x2")
    for count, (wait_ms, node) in enumerate(asked, 2):
        run.tick(wait_ms)
        _add_check(run, "x2", "unknown")
        run.ops[-1] |= {"node": node, "offset": first.get("offset"), "status": str(count)}


@plant("T19", witness='"within_ns": 2')
def asked_thrice_in_an_interval(run: SyntheticRun) -> None:
    ask_again(run, (10_000, "n1"), (1_000, "n1"), (1_000, "n1"))


@plant("T14", witness='"told": "1"')
def checks_are_counted_anew(run: SyntheticRun) -> None:
    number_checks(run, "1", "1")
