"""Planted anomalies of transactions: T1 to T12.

Place in the data path: a list for `catalogue`. Most of them act while the simulation runs: the
broker does something that it must not, and every client sees what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from campaigns.outside.broker_model import (
    HALF_TOPIC,
    MAX_TIME_TOPIC,
    OP_TOPIC,
    Broker,
    HalfState,
    record,
)
from campaigns.outside.client_world import Client
from campaigns.outside.model_cluster import ModelCluster
from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import records_of
from campaigns.outside.virtual_time import Process

__all__ = ["TRANSACTION_PLANTS", "discarded_early"]

Script = Callable[[ModelCluster], Process]


def _row(kind: str, half: HalfState, topic: str, queue: int, **fields: Any) -> Row:
    """A record of a half's message."""
    message = half.message
    return record(
        kind,
        topic=topic,
        queue=queue,
        value=message["value"],
        uniq_key=message["uniq_key"],
        keys=message["keys"],
        digest=message["digest"] if kind != "op" else None,
        tx=message["tx"],
        size=120,
        tag_hash=1,
        message=message,
        **fields,
    )


def _final(half: HalfState) -> Row:
    return _row("final", half, half.message["topic"], half.message["queue"])


def _op(half: HalfState, decision: str) -> Row:
    return _row("op", half, OP_TOPIC, 0, decision=decision)


def _add(broker: Broker, *rows: Row) -> None:
    leader = broker.group.leader()
    assert leader is not None
    broker.add(leader, list(rows))


def _pick(
    cluster: ModelCluster, group: str, wanted: Callable[[str, HalfState], bool], after: int
) -> Process:
    """Waits for a half that is as wanted; answers it."""
    yield max(0, after - cluster.sim.now)
    broker = cluster.world.brokers[group]
    while True:
        leader = broker.group.leader()
        if leader is not None and broker.group.in_charge(leader):
            for tx, half in sorted(broker.halves.items()):
                # Where retention takes what is old, only a half that stays is of use.
                is_retained = not cluster.options.retention or half.since > 12 * SECOND
                if is_retained and wanted(tx, half):
                    return half
        yield 5 * MS


def _ops_of(cluster: ModelCluster, tx: str) -> list[Row]:
    return [row for row in cluster.world.ops if row.get("tx") == tx]


def _has_decision(cluster: ModelCluster, tx: str, decision: str) -> bool:
    """Whether anybody has sent this decision so far, or will: a local outcome is there."""
    return any(row.get("decision") == decision for row in _ops_of(cluster, tx))


def _decided(decision: str) -> Callable[[str, HalfState], bool]:
    return lambda tx, half: half.decision == decision


def _extra_final(group: str, after: int, decision: str | None) -> Script:
    """A final record more: of a half that is open, rolled back, or was committed already."""

    def script(cluster: ModelCluster) -> Process:
        def wanted(tx: str, half: HalfState) -> bool:
            is_open = half.decision is None and not _has_decision(cluster, tx, "commit")
            is_open = is_open and not half.is_discarded
            return half.decision == decision if decision else is_open

        half = yield from _pick(cluster, group, wanted, after)
        if decision is None:  # nobody will send a commit for it either
            tx = half.message["tx"]
            producer = next(p for p in cluster.tx_producers if tx.startswith(f"{p.name}-"))
            producer.local[tx] = "unknown"
            producer._stubborn.add(tx)
            cluster.world.brokers[group].ignored.add(tx)
        _add(cluster.world.brokers[group], _final(half))
        cluster.note = half.message["tx"]

    return script


def _early_final(run: Run) -> str:
    """The decision was checked only after its final had been appended."""
    row = next(row for row in run.ops if _is_first_commit(run, row))
    row["t_invoke"] = row["t_complete"] = row["t_complete"] + 300 * MS
    run.number_ops()
    return str(row["tx"])


def _is_first_commit(run: Run, row: Row) -> bool:
    if row["f"] != "decide" or row["type"] != "ok" or row["decision"] != "commit":
        return False
    others = [o for o in run.ops if o.get("tx") == row["tx"] and o["f"] in {"decide", "check"}]
    return len(others) == 1 and row["t_invoke"] > 5_000 * MS


def _forgotten(group: str, after: int) -> Script:
    """The broker answers a decision and stores nothing: the committed half is lost."""

    def script(cluster: ModelCluster) -> Process:
        broker = cluster.world.brokers[group]
        tried: set[str] = set()
        while not cluster.note:

            def wanted(tx: str, half: HalfState) -> bool:
                has_local = any(row["f"] == "local" for row in _ops_of(cluster, tx))
                return half.decision is None and tx not in tried and not has_local

            half = yield from _pick(cluster, group, wanted, after)
            tx = half.message["tx"]
            tried.add(tx)
            broker.forgotten.add(tx)
            yield 400 * MS
            ops = [row for row in _ops_of(cluster, tx) if row["f"] == "decide"]
            if any((row["type"], row["decision"]) == ("ok", "commit") for row in ops):
                broker.ignored.add(tx)
                cluster.note = tx
            else:
                broker.forgotten.discard(tx)

    return script


def _lost_afterwards(run: Run) -> str:
    """A final that was acknowledged and is on no replica; its op record stayed."""
    row = next(row for row in run.ops if _is_first_commit(run, row))
    value = next(
        o["messages"][0]["value"] for o in run.ops if o["f"] == "half" and o["tx"] == row["tx"]
    )
    finals = records_of(run, value, kind="final")
    gone = {(r["node"], r["position"]) for r in finals}
    run.log[:] = [r for r in run.log if not any(r is final for final in finals)]
    run.cq[:] = [r for r in run.cq if (r["node"], r["position"]) not in gone]
    return str(row["tx"])


def _extra_op(group: str, after: int, first: str, second: str | None) -> Script:
    """An op record more: contrary, the same again, or of no half at all."""

    def script(cluster: ModelCluster) -> Process:
        half = yield from _pick(cluster, group, _decided(first), after)
        op = _op(half, second or first)
        if second is None:
            op |= {"tx": None, "value": None, "uniq_key": None}
        _add(cluster.world.brokers[group], op)
        cluster.note = half.message["tx"] if second else "null"

    return script


def _never_checked(group: str, after: int, *, stuck: bool) -> Script:
    """The checker has lost a half: nobody checks, nobody discards."""

    def script(cluster: ModelCluster) -> Process:
        def wanted(tx: str, half: HalfState) -> bool:
            ops = _ops_of(cluster, tx)
            is_unknown = any(r["f"] == "local" and r.get("decision") == "unknown" for r in ops)
            return half.decision is None and half.checks == 0 and is_unknown

        half = yield from _pick(cluster, group, wanted, after)
        tx = half.message["tx"]
        broker = cluster.world.brokers[group]
        broker.ignored.add(tx)
        cluster.note = tx
        if not stuck:
            return
        yield 5 * SECOND  # it is found again, far too late
        broker.ignored.discard(tx)

    return script


def _late_check(group: str, after: int, decision: str) -> Script:
    """The broker checks what was decided, and acknowledged, seconds ago."""

    def script(cluster: ModelCluster) -> Process:
        def wanted(tx: str, half: HalfState) -> bool:
            return half.decision == decision and any(
                row["f"] == "decide" and row["type"] == "ok" and row["decision"] == decision
                for row in _ops_of(cluster, tx)
            )

        half = yield from _pick(cluster, group, wanted, after)
        yield 2500 * MS
        tx = half.message["tx"]
        answerer = Client(cluster.world, "b1", "bookers")
        answerer.process = f"b1.late{after}"
        row = answerer.begin("check", broker_group=group, tx=tx, decision=decision)
        yield MS
        answerer.end(row, "ok")
        cluster.note = tx

    return script


def _too_many_checks(cluster: ModelCluster) -> Process:
    """The broker forgets its count at a failover, and checks once more than it may."""

    def wanted(tx: str, half: HalfState) -> bool:
        return half.checks == 3 and half.decision is None

    half = yield from _pick(cluster, "broker-a", wanted, 4 * SECOND)
    half.checks = 1
    cluster.note = half.message["tx"]


def discarded_early(group: str, after: int) -> Script:
    def script(cluster: ModelCluster) -> Process:
        def wanted(tx: str, half: HalfState) -> bool:
            ops = _ops_of(cluster, tx)
            is_unknown = any(r["f"] == "local" and r.get("decision") == "unknown" for r in ops)
            return half.checks == 1 and half.decision is None and is_unknown

        half = yield from _pick(cluster, group, wanted, after)
        half.checks = 9
        cluster.note = half.message["tx"]

    return script


def _discard(group: str, after: int, decision: str) -> Script:
    """What was decided is discarded too."""

    def script(cluster: ModelCluster) -> Process:
        half = yield from _pick(cluster, group, _decided(decision), after)
        tx = half.message["tx"]
        while not any(r["f"] == "decide" and r["type"] == "ok" for r in _ops_of(cluster, tx)):
            half = yield from _pick(
                cluster,
                group,
                lambda tx, half: (
                    half.decision == decision
                    and any(r["f"] == "decide" and r["type"] == "ok" for r in _ops_of(cluster, tx))
                ),
                after,
            )
            tx = half.message["tx"]
        _add(cluster.world.brokers[group], _row("message", half, MAX_TIME_TOPIC, 0))
        cluster.note = tx

    return script


def _offset_moves_past(group: str, after: int) -> Script:
    """The half offset runs ahead of a half that nobody decided."""

    def script(cluster: ModelCluster) -> Process:
        broker = cluster.world.brokers[group]

        def wanted(tx: str, half: HalfState) -> bool:
            ops = _ops_of(cluster, tx)
            is_unknown = any(r["f"] == "local" and r.get("decision") == "unknown" for r in ops)
            return half.decision is None and is_unknown and half.checks == 0

        half = yield from _pick(cluster, group, wanted, after)
        row = record(
            "offset",
            topic=HALF_TOPIC,
            queue=0,
            queue_offset=half.offset + 1,
            client_group="CID_SYS_RMQ_TRANS",
        )
        broker.half_offset = half.offset + 1
        broker.ignored.add(half.message["tx"])
        _add(broker, row)
        cluster.note = half.message["tx"]

    return script


def _local_lie(was: str, becomes: str) -> Callable[[Run], str]:
    """The producer's database says one thing, the queue another."""

    def change(run: Run) -> str:
        decided = {row["tx"] for row in run.log if row["kind"] == "op" and row["decision"] == was}
        for row in run.ops:
            if row["f"] == "local" and row["decision"] == was and row["tx"] in decided:
                row["decision"] = becomes
                return str(row["tx"])
        raise AssertionError("no such transaction")

    return change


def _discarded_commit(run: Run) -> str:
    discarded = {row["tx"] for row in run.log if row["topic"] == MAX_TIME_TOPIC}
    row = next(r for r in run.ops if r["f"] == "local" and r["tx"] in discarded)
    row["decision"] = "commit"
    return str(row["tx"])


def _torn(kind: str, field: str, place: int) -> Callable[[Run], str]:
    """A record that carries another message than its transaction's half."""

    def change(run: Run) -> str:
        first = max(
            min(row["index"] for row in run.log if row["node"] == node)
            for node in {row["node"] for row in run.log}
        )
        half_at = {row["tx"] for row in run.log if row["kind"] == "half" and row["index"] >= first}
        values = sorted(
            {row["value"] for row in run.log if row["kind"] == kind and row["tx"] in half_at}
        )
        mine, other = values[place], values[place - 1]
        for row in run.log:
            if row["kind"] == kind and row["value"] == mine:
                found = str(row["tx"])
                row[field] = other if field == "value" else f"U-{other}"
        return found

    return change


def _wrong_one(cluster: ModelCluster) -> Process:
    """A commit for one transaction resolves another, whose producer had sent nothing yet."""
    broker = cluster.world.brokers["broker-a"]
    while True:
        waiting = [
            row
            for row in cluster.world.ops
            if row["f"] == "decide" and row["type"] is None and row["decision"] == "commit"
        ]
        still = [
            half
            for tx, half in sorted(broker.halves.items())
            if half.decision is None
            and half.checks == 0
            and any(
                r["f"] == "local" and r.get("decision") == "unknown" for r in _ops_of(cluster, tx)
            )
        ]
        if waiting and still and waiting[0]["tx"] in broker.halves and cluster.sim.now > 4 * SECOND:
            break
        yield MS // 2
    mine, other = waiting[0]["tx"], still[0].message["tx"]
    broker.forgotten.add(mine)
    broker.ignored |= {mine, other}
    _add(broker, _final(still[0]), _op(still[0], "commit"))
    cluster.note = other


def _wrong_two(run: Run) -> str:
    """Two transactions' op and final records are exchanged: each has the other's tx."""
    txs = sorted(
        {row["tx"] for row in run.log if row["kind"] == "op" and row["decision"] == "commit"}
        & {row["tx"] for row in run.log if row["kind"] == "half"}
    )[:2]
    for row in run.log:
        if row["kind"] in {"final", "op"} and row["tx"] in txs:
            row["tx"] = txs[1 - txs.index(row["tx"])]
    return str(txs[0])


def _act(rule: str, name: str, script: Script, base: Any = PLAIN, **more: Any) -> Plant:
    return Plant(name=name, rule=rule, base=base, script=script, **more)


def _alter(rule: str, name: str, change: Callable[[Run], str], base: Any = PLAIN) -> Plant:
    return Plant(name=name, rule=rule, base=base, change=change)


_A, _B = "broker-a", "broker-b"
TRANSACTION_PLANTS: Final[tuple[Plant, ...]] = (
    _act("T1", "a final that nobody decided", _extra_final(_A, 5 * SECOND, None)),
    _act("T1", "the same in the second group", _extra_final(_B, 9 * SECOND, None), TWO),
    _alter("T1", "a final before its decision was asked for", _early_final),
    _alter("T1", "the same of five", _early_final, FIVE),
    _act("T2", "a final of what was rolled back", _extra_final(_A, 5 * SECOND, "rollback")),
    _act("T2", "the same during the heal", _extra_final(_A, 15 * SECOND, "rollback"), FIVE),
    _act("T3", "a commit that is answered and not stored", _forgotten(_A, 6 * SECOND)),
    _act("T3", "the same in the second group", _forgotten(_B, 5 * SECOND), TWO),
    _alter("T3", "a final that vanished later", _lost_afterwards),
    _act("T4", "a second final", _extra_final(_A, 6 * SECOND, "commit")),
    _act("T4", "a second final, retained", _extra_final(_A, 13 * SECOND, "commit"), RETAINED),
    _act("T4", "a second final, second group", _extra_final(_B, 12 * SECOND, "commit"), TWO),
    _act("T5", "rollback after commit", _extra_op(_A, 5 * SECOND, "commit", "rollback")),
    _act("T5", "commit after rollback", _extra_op(_A, 9 * SECOND, "rollback", "commit"), FIVE),
    _act("T5", "a final beside a rollback", _extra_final(_A, 8 * SECOND, "rollback")),
    _act("T6", "never asked about", _never_checked(_A, 5 * SECOND, stuck=False)),
    _act("T6", "asked about far too late", _never_checked(_A, 3 * SECOND, stuck=True), FIVE),
    _act("T6", "never asked about, second group", _never_checked(_B, 2 * SECOND, stuck=False), TWO),
    _act("T7", "asked about after its commit", _late_check(_A, 5 * SECOND, "commit")),
    _act("T7", "asked about after its rollback", _late_check(_A, 9 * SECOND, "rollback"), FIVE),
    _act("T8", "asked about too often", _too_many_checks),
    _act("T8", "discarded after one check", discarded_early(_A, 7 * SECOND)),
    _act("T8", "the same, second group", discarded_early(_B, 7 * SECOND), TWO),
    _act("T9", "committed, then discarded", _discard(_A, 6 * SECOND, "commit")),
    _act("T9", "committed, then discarded, late", _discard(_A, 13 * SECOND, "commit"), RETAINED),
    _act("T10", "an op of no half", _extra_op(_A, 6 * SECOND, "commit", None)),
    _act("T10", "two ops", _extra_op(_A, 6 * SECOND, "rollback", "rollback")),
    _act("T10", "two ops, retained", _extra_op(_A, 13 * SECOND, "commit", "commit"), RETAINED),
    _act("T10", "the half offset ran past an open half", _offset_moves_past(_A, 5 * SECOND)),
    _act("T10", "the same, second group", _offset_moves_past(_B, 5 * SECOND), TWO),
    _alter("T11", "committed at home, rolled back here", _local_lie("rollback", "commit")),
    _alter("T11", "rolled back at home, committed here", _local_lie("commit", "rollback"), FIVE),
    _alter("T11", "committed at home, discarded here", _discarded_commit),
    _alter("T12", "a final with another value", _torn("final", "value", 1)),
    _alter("T12", "an op with another uniq_key", _torn("op", "uniq_key", 2), FIVE),
    _alter("T12", "a final with another uniq_key", _torn("final", "uniq_key", 3), RETAINED),
    _act("T12", "a commit resolved another one", _wrong_one),
    _alter("T12", "two resolutions exchanged", _wrong_two, TWO),
)
