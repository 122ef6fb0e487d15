"""A small run directory with everything that a report shows, written by the tests' own code."""

import json
import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MS = 1_000_000
S = 1_000 * MS

OPS = pa.schema(
    [
        ("op", pa.int64()),
        ("process", pa.string()),
        ("f", pa.string()),
        ("type", pa.string()),
        ("t_invoke", pa.int64()),
        ("t_complete", pa.int64()),
        ("broker_group", pa.string()),
        ("topic", pa.string()),
        ("decision", pa.string()),
    ]
)
FAULTS = pa.schema(
    [
        ("fault", pa.int64()),
        ("name", pa.string()),
        ("targets", pa.list_(pa.string())),
        ("params", pa.string()),
        ("t_start", pa.int64()),
        ("t_effect", pa.int64()),
        ("t_heal", pa.int64()),
        ("t_healed", pa.int64()),
        ("effect", pa.string()),
        ("evidence", pa.string()),
    ]
)
RAFT = pa.schema(
    [
        ("broker_group", pa.string()),
        ("node", pa.string()),
        ("incarnation", pa.int32()),
        ("seq", pa.int64()),
        ("t", pa.int64()),
        ("event", pa.string()),
        ("term", pa.int64()),
        ("role", pa.string()),
    ]
)

HOSTILE = "<script>alert(1)</script>&\"'"


class Trace:
    """Raft events of one group."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self._seq = dict.fromkeys(("n0", "n1", "n2"), 0)
        self._incarnation = dict.fromkeys(("n0", "n1", "n2"), 0)

    def tell(self, node: str, t: int, event: str, term: int, role: str | None = None) -> None:
        if event == "start":
            self._incarnation[node] += 1
        self._seq[node] += 1
        self.rows.append(
            {
                "broker_group": "broker-a",
                "node": node,
                "incarnation": self._incarnation[node],
                "seq": self._seq[node],
                "t": t,
                "event": event,
                "term": term,
                "role": role,
            }
        )


def fault_row(number: int, name: str, begin: int, end: int, **other: object) -> dict[str, object]:
    return {
        "fault": number,
        "name": name,
        "targets": ["broker-a/n0"],
        "params": "{}",
        "t_start": begin,
        "t_effect": begin + 20 * MS,
        "t_heal": end - 300 * MS,
        "t_healed": end,
        "effect": "taken",
        "evidence": "broker-a/n0: process gone",
        **other,
    }


def fault_rows() -> list[dict[str, object]]:
    return [
        fault_row(1, "kill", 10 * S, 16 * S, params='{"target": "leader"}'),
        fault_row(
            2,
            "partition_leader",
            24 * S,
            31 * S,
            targets=[f"broker-a/n1->broker-a/n{n}" for n in (0, 2)],
            evidence="broker-a/n1->broker-a/n0: silent for 600 ms; " * 5 + "the last of it",
        ),
        fault_row(3, "slow_links", 38 * S, 42 * S, effect="not_taken", t_effect=None),
        fault_row(4, HOSTILE, 46 * S, 50 * S, effect="unknown", t_effect=None, evidence=HOSTILE),
    ]


PAUSES = ((10 * S, 10 * S + 640 * MS), (24 * S, 24 * S + 910 * MS))


def op_rows() -> list[dict[str, object]]:
    """A steady load that stands still in PAUSES."""
    rng = random.Random(5)
    rows: list[dict[str, object]] = []

    def add(f: str, outcome: str, begin: int, end: int | None, decision: str | None = None) -> None:
        rows.append(
            {
                "op": len(rows),
                "process": f"p{len(rows) % 7}",
                "f": f,
                "type": outcome,
                "t_invoke": begin,
                "t_complete": end,
                "broker_group": "broker-a" if f != "local" else None,
                "topic": "orders",
                "decision": decision,
            }
        )

    time = 1 * S
    while time < 55 * S:
        time += int(rng.expovariate(1 / (4 * MS)))
        if any(begin <= time < end for begin, end in PAUSES):
            add("send", "info", time, None if rng.random() < 0.5 else time + 3 * S)
            time += 60 * MS
            continue
        spent = int(math.exp(rng.gauss(1.2, 0.5)) * MS)
        if any(begin <= time + spent < end for begin, end in PAUSES):
            continue
        kind = rng.choices(("send", "half", "poll", "deliver"), (4, 2, 3, 2))[0]
        add(kind, "ok" if rng.random() < 0.998 else "fail", time, time + spent)
        if kind == "half":
            add("decide", "ok", time + spent, time + 2 * spent, rng.choice(("commit", "rollback")))
    return rows


def raft_rows() -> list[dict[str, object]]:
    trace = Trace()
    for node in ("n0", "n1", "n2"):
        trace.tell(node, 200 * MS, "start", 0)
    trace.tell("n0", 600 * MS, "role", 1, "candidate")
    trace.tell("n0", 620 * MS, "role", 1, "leader")
    for second in range(1, 10):
        for node in ("n0", "n1", "n2"):
            trace.tell(node, second * S, "commit", 1)
    trace.tell("n1", 10 * S + 420 * MS, "role", 2, "candidate")
    trace.tell("n1", 10 * S + 520 * MS, "role", 2, "leader")
    trace.tell("n0", 15 * S + 500 * MS, "start", 1)
    for second in range(16, 24):
        for node in ("n0", "n1", "n2"):
            trace.tell(node, second * S, "commit", 2)
    trace.tell("n2", 24 * S + 500 * MS, "role", 3, "candidate")
    trace.tell("n2", 24 * S + 700 * MS, "role", 3, "leader")
    trace.tell("n1", 24 * S + 650 * MS, "role", 2, "follower")
    for second in range(31, 56):
        for node in ("n0", "n1", "n2"):
            trace.tell(node, second * S, "commit", 3)
    return trace.rows


def verdict(outcome: str = "fail") -> dict[str, object]:
    witnesses = [
        {
            "broker_group": "broker-a",
            "topic": "orders",
            "queue": 2,
            "offset": 117 + number,
            "value": f"p3-{number}",
            "process": "p3",
            "acked_op": 4711 + number,
        }
        for number in range(3)
    ]
    witnesses[1]["value"] = HOSTILE
    broken = outcome == "fail"
    return {
        "verdict": outcome,
        "promises": {
            "G1": outcome,
            "G2": "pass",
            "G3": "pass",
            "G4": "pass",
            "G5": "unknown",
            "G6": "pass",
            "G7": "pass",
            "G8": "pass",
        },
        "checks": [
            check("A1", "inconsistent offsets", "G3", 21000),
            check("A2", "stored twice", "G2", 21000),
            check(
                "A5",
                "acknowledged but unseen",
                "G1",
                12034,
                verdict="fail" if broken else "pass",
                violations=35 if broken else 0,
                witnesses=witnesses if broken else [],
            ),
            check("T1", "half visible early", "G4", 2107),
            check(
                "R1",
                "two leaders in a term",
                "G6",
                0,
                verdict="unknown",
                reason="the trace of broker-a/n2 ends before the run does",
            ),
        ],
        "coverage": {
            "operations": {
                "send": {"ok": 12034, "fail": 3, "info": 12},
                "poll": {"ok": 9000, "fail": 1, "info": 0},
            },
            "faults": {"kill": {"taken": 1}},
            "operations_in_fault_windows": 4321,
            "queues_not_drained": [],
            "info_share": 0.0012,
        },
        "not_shown": ["Only what this run did is judged.", f"A hostile line: {HOSTILE}"],
        "engines": ["duckdb", f"spark{HOSTILE}"],
    }


def check(name: str, title: str, promise: str, examined: int, **other: object) -> dict[str, object]:
    return {
        "id": name,
        "name": title,
        "promise": promise,
        "verdict": "pass",
        "reason": None,
        "examined": examined,
        "violations": 0,
        "witnesses": [],
        **other,
    }


def write_run(run: Path, outcome: str = "fail") -> Path:
    """Write the run directory; returns it."""
    tables: dict[str, object] = {}
    for name, folder, schema, rows in (
        ("ops", "history", OPS, op_rows()),
        ("faults", "faults", FAULTS, fault_rows()),
        ("raft", "raft", RAFT, raft_rows()),
    ):
        (run / folder).mkdir(parents=True)
        half = len(rows) // 2
        files = []
        for part, chosen in enumerate((rows[half:], rows[:half])):
            path = run / folder / f"part-{part}.parquet"
            pq.write_table(pa.Table.from_pylist(chosen, schema=schema), path)
            files.append({"name": f"{folder}/{path.name}", "rows": len(chosen), "sha256": "0" * 64})
        tables[name] = {"files": files}
    manifest = {
        "faults_possible": ["bit-rot", "kill", "partition-leader"],
        "world_settings": {"version": "5.3.3"},
        "format": 1,
        "complete": True,
        "system": "ledgermq",
        "version": "0.1.0",
        "world": "local",
        "scenario": {"name": "leader-partition", "text": "[[faults]]\nname = 'kill' # <b>\n"},
        "seed": 42,
        "started_at": "2026-11-21T03:00:00+00:00",
        "environment": {"python": "3.11.7", "cpus": 2, "note": HOSTILE},
        "phases": {"load": [S, 55 * S], "heal": [55 * S, 57 * S], "drain": [57 * S, 60 * S]},
        "groups": {"broker-a": ["n0", "n1", "n2"]},
        "queues": [
            {
                "broker_group": "broker-a",
                "topic": "orders",
                "queue": queue,
                "min_offset": 0,
                "max_offset": 3000,
                "drained": True,
            }
            for queue in range(4)
        ],
        "consumer_groups": {
            "readers": {"kind": "cluster", "at_least_once": True, "ordered": False}
        },
        "transactions": {"timeout_ms": 3000, "check_interval_ms": 2000, "check_max": 15},
        "dedupe": {"window_ms": 60000},
        "limits": None,
        "tables": tables,
    }
    (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    (run / "verdict.json").write_text(json.dumps(verdict(outcome)), encoding="utf-8")
    return run
