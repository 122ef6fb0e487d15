"""A clean run directory made by hand: a little cluster that did everything right.

One group of three replicas, two user queues, plain and transactional producers, an ordered pull
group and a push group with one retry, a change of leader in the middle. Tests plant one violation
into `rows` (or into the stores) and write the directory.

Own code: nothing of the laboratory or of the broker is used.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

NODES = ("n0", "n1", "n2")
TOPIC = "Orders"
JOBS = "Jobs"  # what POP groups read, in runs that have any
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
RETRY = "%RETRY%push"
MS = 1_000_000
STARTED_MS = 1_700_000_000_000  # Unix time at the run's start

_MESSAGE = pa.struct(
    [
        ("value", pa.string()),
        ("uniq_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("broker_group", pa.string()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("digest", pa.int64()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("tx", pa.string()),
        ("reconsume", pa.int32()),
        ("origin", pa.string()),
    ]
)
_OWNED = pa.struct([("broker_group", pa.string()), ("topic", pa.string()), ("queue", pa.int32())])


def _schema(text: str, **special: pa.DataType) -> pa.Schema:
    kinds = {"s": pa.string(), "l": pa.int64(), "i": pa.int32(), "b": pa.bool_()}
    fields = [word.split(":") for word in text.split()]
    return pa.schema([(name, special.get(name) or kinds[kind]) for name, kind in fields])


SCHEMAS = {
    "ops": _schema(
        "op:l process:s client:s client_group:s f:s type:s t_invoke:l t_complete:l broker_group:s "
        "topic:s queue:i offset:l messages:x assigned:x key:s tx:s decision:s final:b node:s "
        "term:l status:s error:s due:l ref:s from_ms:l to_ms:l "
        "commit_offset:l",
        messages=pa.list_(_MESSAGE),
        assigned=pa.list_(_OWNED),
    ),
    "faults": _schema(
        "fault:l name:s targets:x params:s t_start:l t_effect:l t_heal:l t_healed:l effect:s "
        "evidence:s",
        targets=pa.list_(pa.string()),
    ),
    "raft": _schema(
        "broker_group:s node:s incarnation:i seq:l t:l event:s term:l index:l first:l "
        "entry_term:l chain:l last_index:l last_term:l t_begin:l role:s peer:s voters:x",
        voters=pa.list_(pa.string()),
    ),
    "log": _schema(
        "broker_group:s node:s index:l term:l slot:i chain:l position:l size:i tag_hash:l kind:s "
        "topic:s queue:i queue_offset:l client_group:s value:s uniq_key:s keys:x digest:l tx:s "
        "decision:s committed:b cq_ok:b stored_ms:l",
        keys=pa.list_(pa.string()),
    ),
    "cq": _schema(
        "broker_group:s node:s topic:s queue:i queue_offset:l position:l size:i tag_hash:l"
    ),
}

_SOME = {"kind": "cluster", "at_least_once": False, "ordered": False}
CONSUMERS: Row = {
    "orderly": _SOME | {"exclusive": True, "topics": ["Orderly"]},
    "broadcast": _SOME | {"kind": "broadcast", "topics": ["Broadcast"], "progress_ms": 3_000},
    "filters": _SOME | {"topics": ["Tagged"], "tags": ["a", "c"]},
    "longpolls": _SOME | {"topics": ["Held"], "wake_ms": 1_000},
    "retries": _SOME | {"retries_max": 2, "retry_delay_ms": 2, "topics": ["Retried"]},
    "resets": _SOME | {"topics": ["Reset"]},
}
"""The groups of `consumer_runs`, which have nothing to do in other runs."""


@dataclass
class Rec:
    """A record of an entry, or a command (`kind` offset, command) that rides with it."""

    kind: str
    topic: str | None = None
    queue: int | None = None
    value: str | None = None
    uniq_key: str | None = None
    keys: list[str] | None = None
    digest: int | None = None
    tx: str | None = None
    decision: str | None = None
    client_group: str | None = None
    queue_offset: int | None = None
    half_offset: int | None = None
    from_check: bool = False
    tags: str | None = None
    reconsume: int = 0
    position: int = 0
    size: int | None = None
    tag_hash: int | None = None
    stored_ms: int | None = None


@dataclass
class Entry:
    index: int
    term: int
    kind: str  # noop, config, data
    recs: list[Rec] = field(default_factory=list)
    chain: int = 0
    position: int = 0
    t_append: int = 0


class SyntheticRun:
    """Tables as lists of rows, ready to be damaged, and the manifest as a dict."""

    def __init__(self, name: str = "a", live: Callable[[SyntheticRun], None] | None = None) -> None:
        """`name` keeps runs apart that are merged: it is in every value, process and group.

        `live` is called before consumers read, and may do what a broken cluster would.
        """
        self._planted = live
        self.name = name
        self.group = f"broker-{name}"
        self.ops: list[Row] = []
        self.faults: list[Row] = []
        self.raft: list[Row] = []
        self.entries: list[Entry] = []
        self.log: list[Row] = []
        self.cq: list[Row] = []
        self.now = 0
        self.term = 1
        self.leader = "n0"
        self._seq = dict.fromkeys(NODES, 0)
        self._ends: dict[tuple[str, int], int] = {}
        self._process_free: dict[str, int] = {}
        self._commit_index = 0
        self._applied = 0
        self.manifest: Row = {}
        self._live()
        self._fill_tables()

    # What the parts of the little cluster do.

    def tick(self, ms: int = 1) -> int:
        self.now += ms * MS
        return self.now

    def event(self, node: str, event: str, **columns: Any) -> None:
        self._seq[node] += 1
        base = {"broker_group": self.group, "node": node, "incarnation": 1, "seq": self._seq[node]}
        self.raft.append(base | {"t": self.now, "event": event, "term": self.term} | columns)

    def state(self, nodes: Iterable[str]) -> None:
        """Each of `nodes` tells a digest of its state after what it has applied."""
        last = self.entries[-1]
        for node in nodes:
            self.event(node, "state", index=last.index, chain=zlib.crc32(b"%d" % last.chain))

    def elect(self, node: str, term: int) -> None:
        self.tick()
        last = self.entries[-1] if self.entries else None
        self.term, self.leader = term, node
        ends = {
            "last_index": last.index if last else 0,
            "last_term": last.term if last else 0,
        }
        for other in NODES:
            self.event(other, "role", role="candidate" if other == node else "follower")
            self.event(other, "vote", peer=node, **ends)
        self.event(node, "role", role="leader")
        self.append([], kind="noop")

    def append(self, recs: list[Rec], kind: str = "data") -> Entry:
        """One entry, replicated everywhere and committed."""
        self.tick()
        before = self.entries[-1] if self.entries else None
        entry = Entry(
            index=(before.index if before else 0) + 1,
            term=self.term,
            kind=kind,
            recs=recs,
            t_append=self.now,
            position=before.position + _entry_size(before) if before else 0,
        )
        place = entry.position + 52
        for rec in recs:
            if rec.kind in {"message", "half", "op", "final"}:
                assert rec.topic is not None
                assert rec.queue is not None
                at = (rec.topic, rec.queue)
                rec.queue_offset = self._ends.get(at, 0)
                self._ends[at] = rec.queue_offset + 1
                rec.position, rec.size = place, 100 + len(rec.value or "")
                rec.stored_ms = STARTED_MS + self.now // MS
                rec.tag_hash = 0 if rec.tags is None else ord(rec.tags)  # Java's, of one letter
                place += rec.size
        told = f"{entry.index} {entry.term} {before.chain if before else 0} {recs}"
        entry.chain = zlib.crc32(told.encode())
        self.entries.append(entry)
        at_entry = {"index": entry.index, "entry_term": entry.term, "chain": entry.chain}
        for node in NODES:
            self.event(node, "append", **at_entry)
            self.event(node, "fsync", index=entry.index)
        self.tick()
        for node in (self.leader, *(n for n in NODES if n != self.leader)):
            self.event(node, "commit", **at_entry)
            self.event(node, "apply", first=entry.index, **at_entry)
        return entry

    def op(self, process: str, f: str, outcome: str = "ok", ms: int = 2, **columns: Any) -> Row:
        """An operation that begins now; its completion is `ms` later, after what `during` does."""
        during: Callable[[Row], None] | None = columns.pop("during", None)
        row: Row = {
            "process": f"{self.name}.{process}",
            "client": f"{self.name}.{process}",
            "client_group": columns.pop("client_group", "producers"),
            "f": f,
            "type": outcome,
            "t_invoke": self.tick(),
            "broker_group": self.group,
        } | columns
        self.ops.append(row)
        if during is not None:
            during(row)
        row["t_complete"] = self.tick(ms)
        return row

    def message(self, value: str, queue: int | None, **columns: Any) -> Row:
        base = {
            "value": value,
            "uniq_key": f"K.{value}",
            "broker_group": self.group,
            "topic": TOPIC,
            "digest": zlib.crc32(value.encode()),
        }
        return base | {"queue": queue, "offset": None, "reconsume": 0} | columns

    def send(self, process: str, value: str, queue: int, outcome: str = "ok", **extra: Any) -> Row:
        value = f"{self.name}.{value}"
        message = self.message(value, queue, keys=[f"key-{value}"], **extra)

        def store(row: Row) -> None:
            if outcome != "fail":
                rec = Rec(
                    "message", TOPIC, queue, value, message["uniq_key"], message["keys"], tags="a"
                )
                rec.digest = message["digest"]
                self.append([rec])
                message["offset"] = rec.queue_offset if outcome == "ok" else None

        return self.op(
            process, "send", outcome, topic=TOPIC, queue=queue, messages=[message], during=store
        )

    def half(self, process: str, tx: str, queue: int) -> Row:
        tx = f"{self.name}.{tx}"
        message = self.message(f"{tx}.v", queue, tx=tx)

        def store(row: Row) -> None:
            rec = Rec("half", HALF, 0, message["value"], message["uniq_key"], tx=tx)
            rec.digest = message["digest"]
            self.append([rec])
            row["offset"] = rec.queue_offset

        return self.op(
            process, "half", topic=TOPIC, queue=queue, tx=tx, messages=[message], during=store
        )

    def settle(self, half: Row, decision: str, *, from_check: bool = False) -> None:
        """Op record and, for a commit, the final message in one entry."""
        message, tx = half["messages"][0], half["tx"]
        same = {"value": message["value"], "uniq_key": message["uniq_key"], "tx": tx}
        op_rec = Rec("op", OP, 0, decision=decision, half_offset=half["offset"], **same)
        op_rec.from_check = from_check
        recs = [op_rec]
        if decision == "commit":
            final = Rec("final", TOPIC, message["queue"], digest=message["digest"], **same)
            recs.insert(0, final)
        self.append(recs)

    def decide(self, process: str, half: Row, decision: str, outcome: str = "ok") -> Row:
        def store(row: Row) -> None:
            if outcome == "ok" and decision != "unknown":
                self.settle(half, decision)

        told = {"tx": half["tx"], "decision": decision, "node": self.leader}
        return self.op(process, "decide", outcome, during=store, **told)

    def local(self, process: str, tx: str, decision: str) -> Row:
        return self.op(
            process, "local", tx=f"{self.name}.{tx}", decision=decision, broker_group=None
        )

    def check(self, process: str, half: Row, decision: str) -> Row:
        entry = Rec("command")
        self.append([entry])
        asked = {"offset": half["offset"], "node": self.leader}
        row = self.op(process, "check", tx=half["tx"], decision=decision, **asked)
        if decision != "unknown":
            self.settle(half, decision, from_check=True)
        return row

    def stored(self, queue: int, topic: str = TOPIC) -> list[Rec]:
        return [
            rec
            for entry in self.entries
            for rec in entry.recs
            if rec.topic == topic and rec.queue == queue and rec.kind in {"message", "final"}
        ]

    def shown(self, rec: Rec) -> Row:
        sent = next(
            (
                message
                for op in self.ops
                for message in op.get("messages") or ()
                if op["f"] in {"send", "half"} and message["value"] == rec.value
            ),
            self.message(str(rec.value), rec.queue),
        )
        return {
            **sent,
            "uniq_key": rec.uniq_key,
            "topic": rec.topic,
            "queue": rec.queue,
            "offset": rec.queue_offset,
            "tx": rec.tx,
            "reconsume": rec.reconsume,
        }

    def poll(
        self, process: str, group: str, queue: int, start: int, end: int | None = None, **extra: Any
    ) -> Row:
        recs = self.stored(queue)[start:end]
        return self.op(
            process,
            "poll",
            client_group=group,
            topic=TOPIC,
            queue=queue,
            offset=start,
            messages=[self.shown(rec) for rec in recs],
            final=False,
            node=self.leader,
            term=self.term,
            **extra,
        )

    def assign(self, process: str, group: str, queues: Iterable[int]) -> Row:
        owned = [{"broker_group": self.group, "topic": TOPIC, "queue": queue} for queue in queues]
        return self.op(process, "assign", client_group=group, broker_group=None, assigned=owned)

    def commit_offset(self, process: str, group: str, queue: int, offset: int) -> Row:
        rec = Rec("offset", TOPIC, queue, client_group=group, queue_offset=offset)
        return self.op(
            process,
            "commit_offset",
            client_group=group,
            topic=TOPIC,
            queue=queue,
            offset=offset,
            during=lambda row: self.append([rec]) and None,
        )

    # The run.

    def _live(self) -> None:
        for node in NODES:
            self.event(node, "start", index=0, chain=0, entry_term=0, voters=list(NODES))
        self.elect("n0", 1)
        self.append([Rec("command")], kind="data")
        load_from = self.now
        self.assign("c1", "pull", (0, 1))
        self.assign("d1", "push", (0, 1))
        for number in range(8):
            queue = number % 2
            self.send("p1", f"v{number}", queue, shard=f"s{queue}", seq=number // 2)
        self.poll("c1", "pull", 0, 0, 2)
        self.commit_offset("c1", "pull", 0, 2)
        self._transactions()
        self.faults.append(
            {
                "fault": 1,
                "name": "kill-leader",
                "targets": [f"{self.group}/n0"],
                "params": "{}",
                "t_start": self.tick(),
                "t_effect": self.tick(),
                "t_heal": self.now + 3 * MS,
                "t_healed": self.now + 4 * MS,
                "effect": "taken",
                "evidence": "process is gone",
            }
        )
        self.send("p1", "v8", 0, "info", shard="s0", seq=4)  # stored, never answered
        self.ops[-1]["t_complete"] = None
        self.send("p1b", "v9", 1, "fail", shard="s1", seq=4)  # definitely not stored
        self.elect("n1", 2)
        for number in range(10, 14):
            queue = number % 2
            self.send("p1c", f"v{number}", queue, shard=f"s{queue}", seq=number // 2)
        self.state(NODES)
        if self._planted is not None:
            self._planted(self)
        heal = self.tick()
        self._consume()
        self.manifest = self._manifest(load_from, heal)

    def _transactions(self) -> None:
        committed = self.half("t1", "x0", 0)
        self.local("t1", "x0", "commit")
        self.decide("t1", committed, "commit")
        rolled_back = self.half("t1", "x1", 0)
        self.local("t1", "x1", "rollback")
        self.decide("t1", rolled_back, "rollback")
        checked = self.half("t1", "x2", 1)
        checked["due"] = checked["t_invoke"] + MS
        self.local("t1", "x2", "commit")
        self.decide("t1", checked, "unknown")
        self.check("t1-check", checked, "commit")
        crashed = self.half("t2", "x3", 1)
        self.check("t1-check", crashed, "rollback")

    def _consume(self) -> None:
        for queue in (0, 1):
            recs = self.stored(queue)
            for rec in recs:
                late = rec.value == f"{self.name}.v3"
                self.op(
                    "d1",
                    "deliver",
                    "fail" if late else "ok",
                    client_group="push",
                    topic=TOPIC,
                    queue=queue,
                    messages=[self.shown(rec)],
                )
                if late:
                    again = replace(rec, topic=RETRY, queue=0, reconsume=1)
                    self.append([again])
        hidden = {**self.shown(again), "offset": None}
        self.op(
            "d1",
            "deliver",
            client_group="push",
            topic=RETRY,
            queue=0,
            messages=[hidden],
        )
        fetched = {"client_group": "pull", "topic": TOPIC, "queue": 0}
        self.op("c1", "fetch_offset", offset=2, **fetched)
        self.poll("c1", "pull", 0, 2)
        self.poll("c1", "pull", 1, 0)
        for queue in (0, 1):
            end = len(self.stored(queue))
            self.op("c1", "max_offset", client_group="pull", topic=TOPIC, queue=queue, offset=end)
            self.commit_offset("c1", "pull", queue, end)
        for queue in (0, 1):
            self.poll("f1", "drain", queue, 0)["final"] = True
        found = self.shown(self.stored(0)[0])
        self.op(
            "q1",
            "query",
            topic=TOPIC,
            key=f"key-{self.name}.v0",
            messages=[found],
            client_group="tools",
        )

    def _manifest(self, load_from: int, heal: int) -> Row:
        queues = [
            {
                "broker_group": self.group,
                "topic": topic,
                "queue": queue,
                "min_offset": 0,
                "max_offset": end,
                # Only user topics need it.
                **({"drained": True} if topic.isalpha() else {}),
            }
            for (topic, queue), end in sorted(self._ends.items())
        ]
        end = self.tick()
        once = {"kind": "cluster", "at_least_once": True}
        popped = {"kind": "cluster", "at_least_once": False, "topics": [JOBS], "redelivery_ms": 100}
        return {
            "format": 1,
            "complete": True,
            "system": "ledgermq",
            "version": "0.1.0",
            "world": "synthetic",
            "scenario": {"name": "synthetic", "text": ""},
            "seed": 1,
            "started_at": "2026-01-01T00:00:00Z",
            "environment": {},
            "phases": {"load": [load_from, heal], "heal": [heal, heal + MS], "drain": [heal, end]},
            "groups": {self.group: list(NODES)},
            "queues": queues,
            "left_behind": [],
            "consumer_groups": {
                "pull": once | {"ordered": True},
                "push": once | {"ordered": False},
                "drain": {"kind": "broadcast", "at_least_once": True, "ordered": True},
                "popper": popped | {"ordered": False, "retries_max": 2, "wake_ms": 50},
                "porder": popped | {"ordered": True},
                "popper-dead": popped | {"ordered": False, "topics": ["%DLQ%popper"]},
                **CONSUMERS,
            },
            "transactions": {"timeout_ms": 6000, "check_interval_ms": 30000, "check_max": 15},
            "dedupe": {"window_ms": 60000},
            "delays": {"early_ms": 1, "recall_ms": 0, "lost_ms": 1},
            "limits": {"rto_ms": 5000, "gap_ms": 5000, "lag_ms": 5000, "late_ms": 5000},
            "routes": {"expire_ms": 5, "gone_ms": 2_000},
            "tables": {},
        }

    def _fill_tables(self) -> None:
        for number, row in enumerate(sorted(self.ops, key=lambda row: row["t_invoke"])):
            row["op"] = number
        for node in NODES:
            for entry in self.entries:
                self.log.extend(self._log_rows(node, entry))
        for row in self.log:
            if row["cq_ok"]:
                unit = {name: row[name] for name in SCHEMAS["cq"].names}
                self.cq.append(unit)

    def _log_rows(self, node: str, entry: Entry) -> list[Row]:
        common: Row = {
            "broker_group": self.group,
            "node": node,
            "index": entry.index,
            "term": entry.term,
            "slot": 0,
            "chain": entry.chain,
            "position": entry.position,
            "committed": True,
            "cq_ok": None,
        }
        if not entry.recs:
            # As an export has it: a data entry that holds nothing is a command.
            return [common | {"kind": "command" if entry.kind == "data" else entry.kind}]
        rows = []
        for slot, rec in enumerate(entry.recs):
            row = {name: getattr(rec, name) for name in SCHEMAS["log"].names if hasattr(rec, name)}
            if rec.size is None:
                row.pop("position")
            rows.append(common | row | {"slot": slot, "cq_ok": True if rec.size else None})
        return rows

    def find(self, f: str, value: str | None = None, **columns: Any) -> Row:
        """The one operation of that kind with those columns, showing that value."""
        named = None if value is None else f"{self.name}.{value}"
        (row,) = (
            op
            for op in self.ops
            if op["f"] == f
            and all(op.get(name) == wanted for name, wanted in columns.items())
            and (named is None or named in [m["value"] for m in op.get("messages") or ()])
        )
        return row

    def logged(self, value: str, kind: str) -> list[Row]:
        """The rows of a record on all replicas."""
        named = f"{self.name}.{value}"
        return [row for row in self.log if row["kind"] == kind and row.get("value") == named]

    def events(self, node: str, event: str) -> list[Row]:
        return [row for row in self.raft if row["node"] == node and row["event"] == event]

    # On disk.

    def write(self, run: Path, *, tables: Iterable[str] = SCHEMAS, files: int = 1) -> Path:
        """The run directory; rows are dealt over `files` files a table."""
        listed: dict[str, Any] = {}
        for table in tables:
            rows = getattr(self, table)
            listed[table] = {"files": []}
            folder = run / {"ops": "history"}.get(table, table)
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(files):
                path = folder / f"part-{number}.parquet"
                some = pa.Table.from_pylist(rows[number::files], schema=SCHEMAS[table])
                pq.write_table(some, path)
                listed[table]["files"].append(listed_file(run, path, some.num_rows))
        self.manifest["tables"] = self.manifest["tables"] | listed
        write_manifest(run, self.manifest)
        return run


def merge(runs: Iterable[SyntheticRun]) -> SyntheticRun:
    """One run of all: their groups side by side."""
    whole = SyntheticRun("merged")
    for table in SCHEMAS:
        setattr(whole, table, [])
    runs = list(runs)
    whole.manifest |= {"groups": {}, "queues": [], "left_behind": []}
    drain = max(run.manifest["phases"]["drain"] for run in runs)
    whole.manifest["phases"] |= {"drain": drain}
    for run in runs:
        base = len(whole.ops)
        assert {row["op"] for row in run.ops} <= set(range(1000 * len(run.ops)))
        for row in run.ops:
            row["op"] += 1000 * base
        for fault in run.faults:
            fault["fault"] += base
        for table in SCHEMAS:
            getattr(whole, table).extend(getattr(run, table))
        whole.manifest["groups"] |= run.manifest["groups"]
        whole.manifest["queues"] += run.manifest["queues"]
        whole.manifest["left_behind"] += run.manifest["left_behind"]
        drain = whole.manifest["phases"]["drain"]
        drain[1] = max(drain[1], run.manifest["phases"]["drain"][1])
    return whole


def listed_file(run: Path, path: Path, rows: int) -> Row:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": path.relative_to(run).as_posix(), "rows": rows, "sha256": digest}


def write_manifest(run: Path, manifest: Row) -> None:
    (run / "run.json").write_text(json.dumps(manifest))


def _entry_size(entry: Entry) -> int:
    return 52 + sum(rec.size or 0 for rec in entry.recs)
