"""Runs that broke no rule.

The plain one; one with delayed messages, recalls and requests; one with popped messages; one whose
topics, routes and users changed; one whose voters changed; one whose first leader restarted; and
two whose logs no longer begin at index 1.
"""

from __future__ import annotations

from tests.verify.delayed_rows import delayed_run
from tests.verify.management import manage
from tests.verify.pop_runs import popped_run
from tests.verify.synthetic import HALF, NODES, OP, TOPIC, Rec, Row, SyntheticRun

CLEAN = (
    "clean",
    "delayed",
    "installed",
    "managed",
    "popped",
    "reconfigured",
    "restarted",
    "retained",
)


def clean_runs() -> list[SyntheticRun]:
    """A plain run; one with a follower that was installed, and a consumer whose queues went to
    another; one with changes of topics and users; one whose voters changed; one with a restart;
    one cut by retention everywhere."""
    installed = SyntheticRun("installed")
    install(installed, "n2", 24)
    installed.assign("d2", "push", (0, 1))
    installed.ops[-1]["op"] = len(installed.ops)
    deliver_again(installed, "d2", "v0")
    installed.assign("c1", "pull", (0,))
    installed.ops[-1]["op"] = len(installed.ops)
    installed.poll("c1", "pull", 0, 0)
    installed.ops[-1]["op"] = len(installed.ops)
    managed = SyntheticRun("managed")
    manage(managed)
    return [
        SyntheticRun("clean"),
        delayed_run(),
        installed,
        managed,
        popped_run("popped"),
        _reconfigured(),
        _restarted(),
        _retained(),
    ]


def install(run: SyntheticRun, node: str, index: int, *, synced: bool = True) -> None:
    """`node` gets a snapshot at `index` in place of its log up to there, which it never had."""
    (entry,) = (row for row in run.events(node, "append") if row["index"] == index)
    told = {name: entry[name] for name in ("entry_term", "chain")}
    (fsync,) = (row for row in run.events(node, "fsync") if row["index"] == index)
    (commit,) = (row for row in run.events(node, "commit") if row["index"] == index)
    fsync |= {"event": "install"} | told
    commit |= {"event": "fsync", "entry_term": None, "chain": None}
    changed = [fsync, commit] if synced else [fsync]
    run.raft = [
        row
        for row in run.raft
        if row["node"] != node
        or any(row is other for other in changed)
        or row["event"] not in {"append", "fsync", "commit", "apply"}
        or row["index"] > index
    ]
    retain_from(run, node, index + 1)


def deliver_again(run: SyntheticRun, process: str, value: str) -> None:
    """A member of the push group gets a message that the group has consumed."""
    shown = run.find("deliver", value)
    place = {name: shown[name] for name in ("client_group", "topic", "queue", "messages")}
    run.op(process, "deliver", **place)
    run.ops[-1]["op"] = len(run.ops)


def change_voters(run: SyntheticRun, voters: list[str]) -> None:
    """A configuration of its own entry, in force on every node from its append on."""
    for node in NODES:
        run.event(node, "config", index=run.entries[-1].index + 1, voters=voters)
    run.append([], kind="config")


def forget_fsyncs(run: SyntheticRun, node: str, first: int, last: int) -> None:
    """What `node` wrote from `first` to `last` was never made durable by itself."""
    run.raft = [
        row
        for row in run.raft
        if (row["node"], row["event"]) != (node, "fsync") or not first <= row["index"] <= last
    ]


def tell_and_truncate(run: SyntheticRun, node: str) -> int:
    """`node` appends an entry that nobody commits and drops it again; its index."""
    index = run.entries[-1].index + 1
    run.event(node, "append", **_uncommitted(run, index))
    run.event(node, "truncate", index=index)
    return index


def hold(run: SyntheticRun, node: str, *indexes: int) -> None:
    """The exported log of `node` ends with these entries, which nobody committed."""
    for index in indexes:
        told = _uncommitted(run, index)
        row = {"broker_group": run.group, "node": node, "slot": 0, "kind": "noop"}
        place = {"index": index, "term": told["entry_term"], "chain": told["chain"]}
        run.log.append(row | place | {"committed": False, "cq_ok": None})


def start_again(run: SyntheticRun, node: str, index: int) -> None:
    """A start of `node` that finds an entry that nobody committed as its last."""
    found = _uncommitted(run, index)
    run.event(node, "start", incarnation=2, voters=list(NODES), **found)


def _uncommitted(run: SyntheticRun, index: int) -> Row:
    return {"index": index, "entry_term": run.term, "chain": 7_000 + index}


def progress(next_half: int) -> Rec:
    """Halves below `next_half` are done with."""
    group = "CID_RMQ_SYS_TRANS"
    return Rec("offset", HALF, 0, client_group=group, queue_offset=next_half)


def again(half: Row) -> Rec:
    """The record of a half that is appended anew, as a check does it."""
    (message,) = half["messages"]
    return Rec("half", HALF, 0, message["value"], message["uniq_key"], tx=half["tx"])


def _reconfigured() -> SyntheticRun:
    """n2 is no voter for a while, in which two disks are all; then it is one again.

    Meanwhile somebody fetches an offset whose commit nobody answered, and the half queue's progress
    passes halves that are settled, one of them in the same entry, and one that stands anew behind
    it. One send is stored and not
    yet on another disk, which its type says; one says nothing unsafe. In the end an entry that was
    truncated is given again, and one may have been: a start finds more than the trace told.
    """
    away: list[int] = []

    def live(run: SyntheticRun) -> None:
        change_voters(run, ["n0", "n1"])
        away.append(run.entries[-1].index)
        fetched = {"client_group": "pull", "topic": TOPIC, "queue": 0}
        run.commit_offset("c1", "pull", 0, 3)
        run.ops[-1] |= {"type": "info", "t_complete": None}
        run.op("c2", "fetch_offset", offset=3, **fetched)
        run.op("c2", "fetch_offset", offset=2, **fetched)
        half = run.half("t7", "x7", 0)
        settles = {"half_offset": half["offset"], "tx": half["tx"]}
        op_rec = Rec("op", OP, 0, half["messages"][0]["value"], decision="rollback", **settles)
        recs = [op_rec, progress(half["offset"] + 1)]

        def settle(row: Row) -> None:
            run.append(recs)

        run.op("t7", "decide", tx=half["tx"], decision="rollback", during=settle)
        anew = run.half("t8", "x8", 0)
        run.append([again(anew), progress(anew["offset"] + 1)])
        run.decide("t8", anew, "rollback")
        change_voters(run, list(NODES))
        away.append(run.entries[-1].index - 1)
        run.send("p2", "v20", 0, "info")["status"] = "FLUSH_SLAVE_TIMEOUT"
        run.send("p2", "v21", 0)["status"] = "SEND_OK"

    run = SyntheticRun("reconfigured", live=live)
    forget_fsyncs(run, "n2", *away)
    given_again = tell_and_truncate(run, "n0")
    run.event("n0", "append", **_uncommitted(run, given_again))
    tell_and_truncate(run, "n2")
    for node in ("n0", "n2"):
        start_again(run, node, given_again + 1)
        hold(run, node, given_again, given_again + 1)
    return run


def _restarted() -> SyntheticRun:
    """n0 writes down the voters as soon as it leads. It is killed as the leader of term 1 with an
    entry that nobody else has; at its restart it finds it, gives no vote to one who lacks it, and
    drops it for what the next leader sends; it does not find it any more at the next one."""
    run = SyntheticRun("restarted")
    run.raft = [
        row for row in run.raft if (row["node"], row["event"], row["term"]) != ("n0", "vote", 2)
    ]
    for row in run.raft:
        row["seq"] *= 8
    deposed = next(row for row in run.events("n0", "role") if row["term"] == 2)
    noop = next(row for row in run.events("n0", "append") if row["term"] == 2)
    for row in run.raft:
        if row["node"] == "n0" and row["seq"] >= deposed["seq"]:
            row["incarnation"] = 3 if row["seq"] >= noop["seq"] else 2
    kept = next(row for row in run.events("n0", "append") if row["index"] == noop["index"] - 1)
    kept = {name: kept[name] for name in ("index", "entry_term", "chain")}
    first = run.events("n0", "append")[0]
    founding = {"event": "config", "index": first["index"] + 1, "voters": list(NODES)}
    before = {name: deposed[name] for name in ("broker_group", "node")} | {"term": 1}
    before |= {"incarnation": 1, "t": deposed["t"] - 1, "index": noop["index"]}
    entry = {"entry_term": 1, "chain": 7}
    at = deposed["seq"]
    run.raft += [
        first | founding | {"seq": first["seq"] + 1, "entry_term": None, "chain": None},
        before | entry | {"event": "append", "seq": at - 3},
        before | {"event": "fsync", "seq": at - 2},
        before | entry | {"event": "start", "seq": at - 1, "incarnation": 2, "voters": list(NODES)},
        noop
        | {"event": "truncate", "seq": noop["seq"] - 2, "incarnation": 2}
        | {"entry_term": None, "chain": None},
        noop | kept | {"event": "start", "seq": noop["seq"] - 1, "voters": list(NODES)},
    ]
    return run


def retain_from(run: SyntheticRun, node: str, index: int) -> None:
    """Drops what a node held below `index`, and the ConsumeQueue units of it."""
    gone = {
        row["position"]
        for row in run.log
        if row["node"] == node and row["index"] < index and row["cq_ok"]
    }
    run.log = [row for row in run.log if row["node"] != node or row["index"] >= index]
    run.cq = [unit for unit in run.cq if unit["node"] != node or unit["position"] not in gone]


def retain_everywhere(run: SyntheticRun, index: int) -> None:
    """Drops what all replicas held below `index`, and lets their queues begin behind it."""
    for node in NODES:
        retain_from(run, node, index)
    for queue in run.manifest["queues"]:
        kept = [
            row["queue_offset"]
            for row in run.log
            if (row.get("topic"), row.get("queue")) == (queue["topic"], queue["queue"])
            and row["kind"] in {"message", "half", "op", "final"}
        ]
        queue["min_offset"] = min(kept, default=queue["max_offset"])


def _retained() -> SyntheticRun:
    run = SyntheticRun("retained")
    retain_from_third_message(run)
    return run


def retain_from_third_message(run: SyntheticRun) -> None:
    """Retention took two messages from all replicas: one unread, one read where nobody tells."""
    retain_everywhere(run, 12)
    unread, hidden = f"{run.name}.v0", f"{run.name}.v1"
    assert not {unread, hidden} & {row.get("value") for row in run.log}
    for op in run.ops:
        if op["f"] in {"poll", "deliver"} and op.get("messages"):
            op["messages"] = [
                m | {"offset": None} if m["value"] == hidden else m
                for m in op["messages"]
                if m["value"] != unread and (op["f"] == "deliver" or m["value"] != hidden)
            ]
