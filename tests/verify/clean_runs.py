"""Runs that broke no rule: the plain one, and two whose logs no longer begin at index 1."""

from __future__ import annotations

from tests.verify.synthetic import NODES, SyntheticRun

CLEAN = ("clean", "installed", "retained")


def clean_runs() -> list[SyntheticRun]:
    """A plain run; one with a follower that was installed; one cut by retention everywhere."""
    installed = SyntheticRun("installed")
    retain_from(installed, "n2", 25)
    return [SyntheticRun("clean"), installed, _retained()]


def retain_from(run: SyntheticRun, node: str, index: int) -> None:
    """Drops what a node held below `index`, and the ConsumeQueue units of it."""
    gone = {
        row["position"]
        for row in run.log
        if row["node"] == node and row["index"] < index and row["cq_ok"]
    }
    run.log = [row for row in run.log if row["node"] != node or row["index"] >= index]
    run.cq = [unit for unit in run.cq if unit["node"] != node or unit["position"] not in gone]


def _retained() -> SyntheticRun:
    """Retention took two messages from all replicas: one unread, one read where nobody tells."""
    run = SyntheticRun("retained")
    for node in NODES:
        retain_from(run, node, 12)
    for queue in run.manifest["queues"]:
        kept = [
            row["queue_offset"]
            for row in run.log
            if (row.get("topic"), row.get("queue")) == (queue["topic"], queue["queue"])
            and row["kind"] != "offset"
        ]
        queue["min_offset"] = min(kept, default=queue["max_offset"])
    unread, hidden = "retained.v0", "retained.v1"
    assert not {unread, hidden} & {row.get("value") for row in run.log}
    for op in run.ops:
        if op["f"] in {"poll", "deliver"} and op.get("messages"):
            op["messages"] = [
                m | {"offset": None} if m["value"] == hidden else m
                for m in op["messages"]
                if m["value"] != unread and (op["f"] == "deliver" or m["value"] != hidden)
            ]
    return run
