"""Planted violations: each breaks one rule in an otherwise clean run.

`live` plants act while the little cluster runs, so that logs, queues, traces and reads all show
what was done; the others change rows afterwards. `also` names the checks that rightly see the same
damage; no other may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.verify.clean_runs import retain_from
from tests.verify.synthetic import DISCARDED, MS, OP, TOPIC, Rec, Row, SyntheticRun

Plant = Callable[[SyntheticRun], None]


@dataclass(frozen=True)
class Planted:
    check: str
    name: str
    plant: Plant
    live: bool
    also: frozenset[str]
    witness: str  # what the witness must name

    def run(self) -> SyntheticRun:
        if self.live:
            return SyntheticRun(self.name, live=self.plant)
        run = SyntheticRun(self.name)
        self.plant(run)
        return run


PLANTS: list[Planted] = []


def plant(check: str, *also: str, witness: str, live: bool = False) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        name = function.__name__.replace("_", "-")
        PLANTS.append(Planted(check, name, function, live, frozenset(also), witness))
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
    return Rec(kind, TOPIC, queue, named, f"K.{named}", **more)


def _last(run: SyntheticRun, node: str) -> Row:
    return run.events(node, "commit")[-1]


def _trace(run: SyntheticRun, node: str, event: str, **columns: object) -> None:
    run.event(node, event, **columns)


@plant("A1", "A2", "A5", "S6", witness="v2")
def other_value_at_an_offset(run: SyntheticRun) -> None:
    (shown,) = run.find("deliver", "v2")["messages"]
    shown |= {"value": f"{run.name}.v4", "uniq_key": f"K.{run.name}.v4"}


@plant("A2", "A12", witness="v4", live=True)
def stored_twice(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "v4", 0)])


@plant("A2", "A11", "A1", "S2", witness="K.")
def one_key_at_two_places(run: SyntheticRun) -> None:
    for row in run.logged("v6", "message"):
        if row["node"] == "n2":
            row["uniq_key"] = f"K.{run.name}.v4"


@plant("A3", witness="v9", live=True)
def failed_send_is_read(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "v9", 1)])


@plant("A4", "A5", witness="v2")
def acknowledged_and_never_read(run: SyntheticRun) -> None:
    _unread(run, "v2")


@plant("A4", "A5", "S1", "S2", witness="v5")
def removed_from_a_replica_and_the_reads(run: SyntheticRun) -> None:
    _unread(run, "v5")
    (gone,) = (row for row in run.logged("v5", "message") if row["node"] == "n2")
    run.log.remove(gone)
    run.cq = [
        unit for unit in run.cq if (unit["node"], unit["position"]) != ("n2", gone["position"])
    ]


@plant("A5", witness="v13")
def unseen_by_one_group(run: SyntheticRun) -> None:
    _unread(run, "v13", "pull")


@plant("A5", "S1", "S6", "A15", witness="v12")
def acknowledged_beyond_the_end_and_lost(run: SyntheticRun) -> None:
    """The last message of queue 0 is in no log, and the queue ends before it."""
    offset = run.logged("v12", "message")[0]["queue_offset"]
    for row in run.logged("v12", "message"):
        row |= {"kind": "command", "topic": None, "queue": None, "queue_offset": None}
        row |= {"value": None, "uniq_key": None, "keys": None, "cq_ok": None, "size": None}
    for queue in run.manifest["queues"]:
        if (queue["topic"], queue["queue"]) == (TOPIC, 0):
            queue["max_offset"] = offset


@plant("A11", witness="K.ghost")
def key_that_nobody_sent(run: SyntheticRun) -> None:
    run.find("deliver", "v6")["messages"][0]["uniq_key"] = "K.ghost"


@plant("A11", witness="ghost", live=True)
def value_that_nobody_sent(run: SyntheticRun) -> None:
    run.append([_record(run, "message", "ghost", 1)])


@plant("A13", "A6", "A7", witness="v1")
def shard_out_of_order(run: SyntheticRun) -> None:
    shown = run.find("poll", "v1", client_group="pull")["messages"]
    shown[0], shown[2] = shown[2], shown[0]


@plant("A16", witness="slow")
def client_without_an_answer(run: SyntheticRun) -> None:
    run.op("slow", "query", topic=TOPIC, key="none", messages=[], client_group="tools")
    run.tick(6000)
    run.op("slow", "query", topic=TOPIC, key="none", messages=[], client_group="tools")
    for number, op in enumerate(run.ops[-2:]):
        op["op"] = len(run.ops) + number


@plant("A17", witness="n2")
def replica_left_behind(run: SyntheticRun) -> None:
    run.manifest["left_behind"] = [{"broker_group": run.group, "node": "n2"}]


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


@plant("S6", witness="v99")
def read_of_what_no_log_has(run: SyntheticRun) -> None:
    sent = run.message(f"{run.name}.v99", 0)
    run.op("p9", "send", "info", topic=TOPIC, queue=0, messages=[sent])
    shown = run.find("deliver", "v0")
    shown["messages"] = [*shown["messages"], sent | {"offset": 50}]
    run.ops[-1]["op"] = len(run.ops)


@plant("T1", witness="x0")
def delivered_before_its_commit(run: SyntheticRun) -> None:
    half = run.find("half", tx=f"{run.name}.x0")
    early = run.find("deliver", "x0.v")
    early |= {"t_invoke": half["t_complete"], "t_complete": half["t_complete"] + 1}


@plant("T1", witness="x0")
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


@plant("T2", "T1", "T5", witness="x1", live=True)
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


@plant("T4", "A2", "A12", "T10", witness="x0", live=True)
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


@plant("R4", "R8", witness="truncate")
def leader_truncates(run: SyntheticRun) -> None:
    _trace(run, "n1", "truncate", index=_last(run, "n1")["index"])


@plant("R5", witness="n2")
def other_chain_at_an_index(run: SyntheticRun) -> None:
    run.events("n2", "append")[7]["chain"] += 1


@plant("R6", witness="n2")
def other_entry_committed(run: SyntheticRun) -> None:
    changed = run.events("n2", "commit")[4]
    changed |= {"entry_term": 7, "chain": 7}


@plant("R8", witness="beyond the log")
def commit_beyond_the_log(run: SyntheticRun) -> None:
    end = _last(run, "n2")["index"]
    _trace(run, "n2", "commit", index=end + 5, entry_term=2, chain=5)


@plant("R8", witness="below what it was")
def commit_falls(run: SyntheticRun) -> None:
    early = run.events("n2", "commit")[3]
    _trace(run, "n2", "commit", **{n: early[n] for n in ("index", "entry_term", "chain")})


@plant("R8", witness="cut below it")
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
