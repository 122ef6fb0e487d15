"""A clean run of consumers, beside what every synthetic run has.

A group under locks, a broadcast one, one with retries and dead letters, one that is reset and whose
member seeks, one that filters by tag, one whose polls are held, and one whose queues the broker
assigns.

Own code: nothing of the laboratory or of the broker is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

from tests.verify.synthetic import MS, TOPIC, Rec, Row, SyntheticRun

ORDERLY, BROADCAST, RETRIED, RESET = "Orderly", "Broadcast", "Retried", "Reset"
TIMED = "timed"
TAGGED, HELD = "Tagged", "Held"
DEAD, AGAIN = "%DLQ%retries", "%RETRY%retries"
DRAINED_AT = 900_000 * MS
LEFT_AT = 1_000_000 * MS
Change = Callable[[SyntheticRun], None]


def consumer_run(
    name: str, *changes: Change, live: Change | None = None, dead: tuple[str, ...] = ("r2",)
) -> SyntheticRun:
    """Return the run; `live` acts behind what the consumers did, `changes` afterwards.

    `dead` are the messages that end among the dead letters.
    """

    def act(run: SyntheticRun) -> None:
        _work(run, dead)
        if live is not None:
            live(run)
        _read_by_all(run)

    run = SyntheticRun(name, live=act)
    run.manifest["phases"]["drain"][1] = DRAINED_AT
    run.now = LEFT_AT
    for client in ("b1", "b2"):
        assign(run, client, "broadcast", None)
        run.ops[-1]["op"] = len(run.ops)
    for change in changes:
        change(run)
    return run


def _work(run: SyntheticRun, dead: tuple[str, ...]) -> None:
    run.tick(6_000)  # what is judged in calm begins five seconds behind the fault
    _orderly(run)
    _broadcast(run)
    _retries(run, dead)
    _resets(run)
    _filters(run)
    _longpolls(run)
    _assignments(run)


def send(run: SyntheticRun, topic: str, name: str, tags: str = "a") -> None:
    value = f"{run.name}.{name}"
    row = run.message(value, 0, topic=topic, keys=[f"key-{value}"])

    def store(_: Row) -> None:
        row["offset"] = put(run, topic, name, tags=tags).queue_offset

    run.op("w1", "send", topic=topic, queue=0, messages=[row], during=store)


def put(run: SyntheticRun, topic: str, name: str, *, reconsume: int = 0, tags: str = "a") -> Rec:
    """Store a record; a dead letter, too."""
    value = f"{run.name}.{name}"
    rec = Rec("message", topic, 0, value, f"K.{value}", [f"key-{value}"], tags=tags)
    rec.digest, rec.reconsume = zlib.crc32(value.encode()), reconsume
    run.append([rec])
    return rec


def assign(run: SyntheticRun, client: str, group: str, topic: str | None) -> Row:
    owned = [] if topic is None else [{"broker_group": run.group, "topic": topic, "queue": 0}]
    return run.op(client, "assign", client_group=group, broker_group=None, assigned=owned)


def commit(run: SyntheticRun, client: str, group: str, topic: str, offset: int) -> Row:
    rec = Rec("offset", topic, 0, client_group=group, queue_offset=offset)
    return run.op(
        f"{client}.commits",
        "commit_offset",
        client=f"{run.name}.{client}",
        client_group=group,
        topic=topic,
        queue=0,
        offset=offset,
        during=lambda row: run.append([rec]) and None,
    )


def lock(run: SyntheticRun, client: str, f: str = "lock", outcome: str = "ok") -> Row:
    """Request the lock of the orderly group's queue, or give it back (`f` unlock)."""
    return run.op(
        f"{client}.{f}-{len(run.ops)}",
        f,
        outcome,
        client=f"{run.name}.{client}",
        client_group="orderly",
        topic=ORDERLY,
        queue=0,
        status="REFUSED" if (f, outcome) == ("lock", "fail") else None,
    )


def ops_of(run: SyntheticRun, client: str, f: str = "lock") -> list[Row]:
    """Return what a client did of one kind, in the order of the rows."""
    return [op for op in run.ops if op["f"] == f and op["client"] == f"{run.name}.{client}"]


def deliver(
    run: SyntheticRun,
    client: str,
    group: str,
    topic: str,
    name: str,
    outcome: str = "ok",
    reconsume: int = 0,
) -> Row:
    """Deliver the first record of that value and count in the topic, by the client's listener."""
    value = f"{run.name}.{name}"
    rec = next(
        rec for rec in run.stored(0, topic) if rec.value == value and rec.reconsume == reconsume
    )
    return run.op(
        f"{client}.listener",
        "deliver",
        outcome,
        client=f"{run.name}.{client}",
        client_group=group,
        topic=topic,
        queue=0,
        messages=[run.shown(rec) | {"origin": RETRIED if group == "retries" else None}],
    )


def reset(run: SyntheticRun, client: str, offset: int | None, outcome: str = "ok") -> Row:
    return run.op(
        client,
        "reset",
        outcome,
        client=f"{run.name}.{client}",
        client_group="resets",
        topic=RESET,
        queue=0,
        offset=offset,
    )


def reset_by_time(
    run: SyntheticRun, offset: int | None, from_ms: int, ref: str = "force", outcome: str = "ok"
) -> Row:
    """A reset of a group that has no member; the last one goes to the end, where nothing stands."""
    row = reset(run, "tool", offset, outcome)
    row |= {"client_group": TIMED, "from_ms": from_ms, "ref": ref}
    row["op"] = len(run.ops) + 1_000
    return row


def stored_at(run: SyntheticRun, offset: int) -> int:
    """Return when the message at that offset of the queue that is reset was stored."""
    at = run.stored(0, RESET)[offset].stored_ms
    assert at is not None
    return at


def of_group(run: SyntheticRun, group: str, name: str) -> list[Row]:
    """Return the group's deliveries of a value."""
    value = f"{run.name}.{name}"
    return [
        op
        for op in run.ops
        if op["f"] == "deliver"
        and op["client_group"] == group
        and op["messages"][0]["value"] == value
    ]


def come_again_late(run: SyntheticRun, name: str) -> list[Row]:
    """Move a value's retries half a minute behind, far from any fault; return them."""
    retries = [op for op in of_group(run, "retries", name) if op["topic"] == AGAIN]
    for op in retries:
        op |= {at: op[at] + 30_000 * MS for at in ("t_invoke", "t_complete")}
    return retries


def drop(run: SyntheticRun, *ops: Row) -> None:
    run.ops = [op for op in run.ops if not any(op is other for other in ops)]


def add(run: SyntheticRun, like: Row, after_ms: int = 1_000, **columns: object) -> Row:
    """Add a delivery like `like`, invoked so long after it had ended."""
    began = like["t_complete"] + after_ms * MS
    messages = [dict(message) for message in like.get("messages") or ()]
    times = {"t_invoke": began, "t_complete": began + MS}
    number = max(op["op"] for op in run.ops) + 1_000
    row = like | times | {"op": number, "messages": messages} | columns
    run.ops.append(row)
    return row


def renumber(run: SyntheticRun) -> None:
    """Number the operations by when they began."""
    for number, op in enumerate(sorted(run.ops, key=lambda op: (op["t_invoke"], op["op"]))):
        op["op"] = number


def swap(one: Row, other: Row) -> None:
    """Exchange what two deliveries showed."""
    one["messages"], other["messages"] = other["messages"], one["messages"]


def _orderly(run: SyntheticRun) -> None:
    for number in range(6):
        send(run, ORDERLY, f"o{number}")
    lock(run, "m1")
    assign(run, "m1", "orderly", ORDERLY)
    lock(run, "m2", outcome="fail")
    for name in ("o0", "o1"):
        deliver(run, "m1", "orderly", ORDERLY, name)
    deliver(run, "m1", "orderly", ORDERLY, "o2", "fail")
    deliver(run, "m1", "orderly", ORDERLY, "o2")
    commit(run, "m1", "orderly", ORDERLY, 3)
    lock(run, "m1")
    assign(run, "m1", "orderly", None)
    lock(run, "m1", "unlock")
    lock(run, "m2")
    assign(run, "m2", "orderly", ORDERLY)
    for name in ("o3", "o4", "o5"):
        deliver(run, "m2", "orderly", ORDERLY, name)


def _broadcast(run: SyntheticRun) -> None:
    for client in ("b1", "b2"):
        assign(run, client, "broadcast", BROADCAST)
    for number in range(5):
        send(run, BROADCAST, f"b{number}")
    for client in ("b1", "b2"):
        for number in range(5):
            deliver(run, client, "broadcast", BROADCAST, f"b{number}")


def _retries(run: SyntheticRun, dead: tuple[str, ...]) -> None:
    """The second message comes once more, the third goes to the dead letters."""
    for number in range(3):
        send(run, RETRIED, f"r{number}")
    assign(run, "r1", "retries", RETRIED)
    deliver(run, "r1", "retries", RETRIED, "r0")
    deliver(run, "r1", "retries", RETRIED, "r1", "fail")
    deliver(run, "r1", "retries", RETRIED, "r2", "fail")
    commit(run, "r1", "retries", RETRIED, 3)
    for name in ("r1", "r2"):
        put(run, AGAIN, name, reconsume=1)
    deliver(run, "r1", "retries", AGAIN, "r1", reconsume=1)
    deliver(run, "r1", "retries", AGAIN, "r2", "fail", reconsume=1)
    put(run, AGAIN, "r2", reconsume=2)
    deliver(run, "r1", "retries", AGAIN, "r2", "fail", reconsume=2)
    for name in dead:
        put(run, DEAD, name, reconsume=3)


def _resets(run: SyntheticRun) -> None:
    for number in range(6):
        send(run, RESET, f"s{number}")
    assign(run, "s1", "resets", RESET)
    _deliver_from(run, 0)
    reset(run, "tool", 2)
    _deliver_from(run, 2)
    reset(run, "s1", 4)
    _deliver_from(run, 4)
    _resets_by_time(run)


def _resets_by_time(run: SyntheticRun) -> None:
    """To a time, to the end and back; and without force, where the group stays if it is before."""
    reset_by_time(run, 2, stored_at(run, 2))
    reset_by_time(run, 2, stored_at(run, 1) + 1)
    reset_by_time(run, 6, -1)
    reset_by_time(run, 3, stored_at(run, 3), "no-force")
    reset_by_time(run, 3, -1, "no-force")
    reset_by_time(run, 0, 0)
    reset_by_time(run, 6, -1)


def _filters(run: SyntheticRun) -> None:
    for number, tags in enumerate("abcabc"):
        send(run, TAGGED, f"t{number}", tags)
    assign(run, "t1", "filters", TAGGED)
    for number in (0, 2, 3, 5):
        deliver(run, "t1", "filters", TAGGED, f"t{number}")


def _assignments(run: SyntheticRun) -> None:
    """Two queues: each to one of two members, then to one of three, then to two of three each."""
    assigned_round(run, "one", [[0], [1]])
    assigned_round(run, "two", [[0], [], [1]])
    assigned_round(run, "three", [[0, 1], [1], [0]], copies=2)


def assigned_round(
    run: SyntheticRun, ref: str, queues: Sequence[Sequence[int]], copies: int = 1
) -> list[Row]:
    return [
        run.op(
            f"asker-{ref}-{number}",
            "assignment",
            client_group="assigned",
            topic=TOPIC,
            offset=copies,
            ref=f"{run.name}.{ref}",
            status="AVG",
            node=run.leader,
            assigned=[{"broker_group": run.group, "topic": TOPIC, "queue": at} for at in own],
        )
        for number, own in enumerate(queues)
    ]


def _longpolls(run: SyntheticRun) -> None:
    """A message comes while the second poll is held, and none while the third is."""
    assign(run, "h1", "longpolls", HELD)
    send(run, HELD, "h0")
    longpoll(run, 0, [run.stored(0, HELD)[0]])
    longpoll(run, 1, ["h1"])
    longpoll(run, 2, [], ms=2_000)


def longpoll(run: SyntheticRun, offset: int, found: Sequence[Rec | str], ms: int = 2) -> Row:
    """Poll, held for two seconds at most; a name that is found is sent meanwhile."""
    shown: list[Row] = []

    def come(row: Row) -> None:
        for each in found:
            if isinstance(each, str):
                send(run, HELD, each)
        shown.extend(run.shown(rec) for rec in run.stored(0, HELD)[offset:][: len(found)])

    row = run.op(
        "h1",
        "poll",
        ms=ms,
        client_group="longpolls",
        topic=HELD,
        queue=0,
        offset=offset,
        messages=shown,
        due=run.now + 2_000 * MS + MS,
        commit_offset=offset or None,
        final=False,
        node=run.leader,
        term=run.term,
        during=come,
    )
    return row


def _deliver_from(run: SyntheticRun, first: int) -> None:
    for number in range(first, 6):
        deliver(run, "s1", "resets", RESET, f"s{number}")


def _read_by_all(run: SyntheticRun) -> None:
    """The groups that read every topic read these."""
    for topic in (ORDERLY, BROADCAST, RETRIED, RESET, TAGGED, HELD):
        recs = run.stored(0, topic)
        for rec in recs:
            run.op(
                "d1",
                "deliver",
                client_group="push",
                topic=topic,
                queue=0,
                messages=[run.shown(rec)],
            )
        for process, group in (("c1", "pull"), ("f1", "drain")):
            _poll(run, process, group, topic, recs)


def _poll(run: SyntheticRun, process: str, group: str, topic: str, recs: Iterable[Rec]) -> None:
    run.op(
        process,
        "poll",
        client_group=group,
        topic=topic,
        queue=0,
        offset=0,
        messages=[run.shown(rec) for rec in recs],
        final=group == "drain",
        node=run.leader,
        term=run.term,
    )
