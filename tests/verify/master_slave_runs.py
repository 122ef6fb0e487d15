"""The little cluster as one of a master and its slaves: same operations, same records, no votes.

n0 is the master from its start to the fault in the middle, at which the plain run changes its
leader; here it goes on, or n1 takes over by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.verify.synthetic import MS, NODES, Row, SyntheticRun

__all__ = ["FAULT", "lose", "master_slave_run", "strike", "take_over"]

FAULT = "kill"
_TOLD = {"start", "append", "commit", "apply", "role", "truncate", "state"}


def master_slave_run(
    engine: str = "async", flush: str | None = "async", name: str = "a"
) -> SyntheticRun:
    """A run without a fault but one kill of the master, which comes back with all it had."""
    run = SyntheticRun(name)
    run.manifest |= {"engine": engine}
    if flush is not None:
        run.manifest["flush"] = flush
    run.raft = [row for row in run.raft if row["event"] in _TOLD and row.get("role") != "candidate"]
    run.raft = [row for row in run.raft if row["event"] != "commit" or row["node"] == "n0"]
    for row in run.raft:
        row["term"] = 1
        if row.get("entry_term"):
            row["entry_term"] = 1
        if row["event"] == "role":
            row["role"] = "leader" if row["node"] == "n0" else "follower"
    for row in run.log:
        row["term"] = 1
    fault = run.faults[0]
    fault |= {"name": FAULT, "targets": [f"{run.group}-n0"]}
    return run


def strike(run: SyntheticRun, name: str, nodes: Sequence[str] = ("n0",), **more: object) -> Row:
    """Another fault took effect, after the kill."""
    after = run.faults[-1]["t_healed"]
    fault = {
        **run.faults[0],
        "fault": len(run.faults) + 1,
        "name": name,
        "targets": [f"{run.group}-{node}" for node in nodes],
        **{key: after + place * 10 for place, key in enumerate(("t_start", "t_effect", "t_heal"))},
        "t_healed": after + 100,
        **more,
    }
    run.faults.append(fault)
    return fault


def take_over(run: SyntheticRun, node: str, t: int) -> None:
    """From `t` on `node` says that it is the master."""
    mine = [row["seq"] for row in run.raft if row["node"] == node and row["t"] <= t]
    run.raft = [
        row if row["node"] != node or row["t"] <= t else row | {"seq": row["seq"] + 1}
        for row in run.raft
    ]
    told = {"broker_group": run.group, "node": node, "incarnation": 1, "seq": max(mine) + 1}
    run.raft.append(told | {"t": t, "event": "role", "term": 1, "role": "leader"})


def lose(run: SyntheticRun, value: str) -> None:
    """No log and no reader has it, though it was acknowledged: the queue is shorter by it."""
    named = f"{run.name}.{value}"
    (gone, *_) = [row for row in run.log if row.get("value") == named]
    place = {key: gone[key] for key in ("topic", "queue", "queue_offset")}
    assert all(
        row["queue_offset"] <= place["queue_offset"]
        for row in run.log
        if (row.get("topic"), row.get("queue")) == (place["topic"], place["queue"])
        and row["kind"] in {"message", "final"}
    ), "the last one of its queue"
    run.log = [
        row if row.get("value") != named else row | {"kind": "command"} | dict.fromkeys(_OF_RECORD)
        for row in run.log
    ]
    run.cq = [row for row in run.cq if {key: row[key] for key in place} != place]
    for op in run.ops:
        if op["f"] in {"poll", "deliver"}:
            op["messages"] = [m for m in op["messages"] if m["value"] != named]
        if op["f"] == "max_offset" and op["queue"] == place["queue"]:
            op["offset"] -= 1
    run.ops = [op for op in run.ops if op["f"] != "deliver" or op["messages"]]
    for queue in run.manifest["queues"]:
        if (queue["topic"], queue["queue"]) == (place["topic"], place["queue"]):
            queue["max_offset"] -= 1


_OF_RECORD = (
    "topic", "queue", "queue_offset", "value", "uniq_key", "keys", "digest", "tx", "size",
    "tag_hash", "stored_ms", "cq_ok",
)  # fmt: skip
assert MS
assert NODES
