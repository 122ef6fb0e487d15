"""A run of a few operations and records, written row by row: what a rule says of just these.

All its tables are listed, those without a row, too. Own code: nothing of the laboratory or of the
broker is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.verify.synthetic import MS, NODES, SCHEMAS, STARTED_MS, TOPIC, Row, SyntheticRun

__all__ = ["AT", "GROUP", "FewRows", "S", "message", "owned", "queue"]

S = 1_000 * MS
AT = "broker-a"
GROUP: Row = {"kind": "cluster", "at_least_once": False, "ordered": False}
_PHASES = {"load": [0, 100 * S], "heal": [100 * S, 101 * S], "drain": [101 * S, 200 * S]}


def message(value: str, offset: int | None, **columns: Any) -> Row:
    """Return a message of an operation, in queue 0 of the topic where nothing else is told."""
    base = {"value": value, "uniq_key": f"K.{value}", "broker_group": AT, "topic": TOPIC}
    return base | {"queue": 0, "offset": offset, "reconsume": 0} | columns


def queue(max_offset: int, **columns: Any) -> Row:
    """Return a drained queue of run.json, as `message` has its place."""
    base = {"broker_group": AT, "topic": TOPIC, "queue": 0, "min_offset": 0}
    return base | {"max_offset": max_offset, "drained": True} | columns


def owned(topic: str = TOPIC) -> list[Row]:
    """Return that queue as an assign names it."""
    return [{"broker_group": AT, "topic": topic, "queue": 0}]


class FewRows(SyntheticRun):
    """A run without a row; operations are numbered by their invokes when it is written."""

    def __init__(self, **manifest: Any) -> None:
        super().__init__("a")
        for table in SCHEMAS:
            setattr(self, table, [])
        self.manifest |= {"queues": [], "consumer_groups": {}, "phases": _PHASES} | manifest

    def did(
        self, f: str, t_invoke: int, t_complete: int | None, outcome: str = "ok", **columns: Any
    ) -> Row:
        """Add an operation of the group g on queue 0 of the topic, a process of its own."""
        row: Row = {
            "process": f"{f}-{t_invoke}",
            "client": f"{f}-{t_invoke}",
            "client_group": "g",
            "f": f,
            "type": outcome,
            "t_invoke": t_invoke,
            "t_complete": t_complete,
            "broker_group": AT,
            "topic": TOPIC,
            "queue": 0,
        } | columns
        self.ops.append(row)
        return row

    def sent(self, t_invoke: int, value: str, offset: int | None, **columns: Any) -> Row:
        """Add a send that was ok and took five nanoseconds."""
        messages = [message(value, offset)]
        return self.did(
            "send",
            t_invoke,
            t_invoke + 5,
            **{"client_group": "producers", "messages": messages} | columns,
        )

    def delivered(self, t_invoke: int, value: str, offset: int, **columns: Any) -> Row:
        """Add a delivery of one message to the client c, that took five nanoseconds."""
        base = {"client": "c", "outcome": "ok", "messages": [message(value, offset)]}
        return self.did("deliver", t_invoke, t_invoke + 5, **base | columns)

    def record(
        self,
        index: int,
        kind: str,
        offset: int | None,
        value: str | None = None,
        nodes: Iterable[str] = NODES,
        **columns: Any,
    ) -> None:
        """Add a committed record of queue 0 of the topic to the logs of `nodes`."""
        base: Row = {
            "broker_group": AT,
            "index": index,
            "term": 1,
            "slot": 0,
            "chain": 1000 + index,
            "position": 100 * index,
            "size": 100,
            "tag_hash": 0,
            "kind": kind,
            "topic": TOPIC,
            "queue": 0,
            "queue_offset": offset,
            "value": value,
            "uniq_key": value and f"K.{value}",
            "committed": True,
            "cq_ok": True,
            "stored_ms": STARTED_MS + index,
        }
        self.log.extend(base | {"node": node} | columns for node in nodes)

    def traced(self, appends: Mapping[int, int], group: str = AT, found: int = 0) -> None:
        """Tell when each index was appended, and committed a nanosecond later, on every node.

        `found` is the last index that the nodes' starts found.
        """
        for node in NODES:
            end = (
                {"entry_term": 1, "chain": 1000 + found} if found else {"entry_term": 0, "chain": 0}
            )
            rows: list[tuple[int, str, Row]] = [
                (0, "start", {"index": found, "voters": list(NODES), **end})
            ]
            for index, t in sorted(appends.items()):
                entry: Row = {"index": index, "entry_term": 1, "chain": 1000 + index}
                rows += [(t, "append", entry), (t, "fsync", {"index": index})]
                rows.append((t + 1, "commit", entry))
            for seq, (t, event, columns) in enumerate(rows):
                base = {"broker_group": group, "node": node, "incarnation": 1, "seq": seq, "t": t}
                self.raft.append(base | {"event": event, "term": 1} | columns)

    def faulty(self, t_start: int, t_healed: int) -> None:
        """Add a fault window."""
        self.faults.append(
            {
                "fault": len(self.faults),
                "name": "kill",
                "targets": ["broker-a-n0"],
                "params": "{}",
                "t_start": t_start,
                "t_effect": t_start,
                "t_heal": t_healed,
                "t_healed": t_healed,
                "effect": "taken",
                "evidence": "",
            }
        )

    def write(self, run: Path, *, tables: Iterable[str] = SCHEMAS, files: int = 1) -> Path:
        """Write the directory with all its tables, whichever are named."""
        self.ops.sort(key=lambda row: row["t_invoke"])
        for number, row in enumerate(self.ops):
            row["op"] = number
        return super().write(run, files=files)
