"""Delayed messages, recalls and requests of the little cluster, and a clean run of them.

What happens is told as docs/RUN_FORMAT.md wants it: a delayed message waits on a topic of the
system and is stored again, on its own, when its time has come.
"""

from __future__ import annotations

from tests.verify.synthetic import MS, TOPIC, Rec, Row, SyntheticRun

WAITING = "rmq_sys_wheel_timer"
LEVELS = "SCHEDULE_TOPIC_XXXX"


def delay(
    run: SyntheticRun,
    value: str,
    *,
    ms: int = 20,
    queue: int = 0,
    outcome: str = "ok",
    topic: str = WAITING,
    process: str = "p7",
) -> Row:
    """A message that is to be delivered `ms` later, and that waits unless its send fails."""
    message = run.message(f"{run.name}.{value}", queue)

    def store(row: Row) -> None:
        row["due"] = row["t_invoke"] + ms * MS
        if outcome != "fail":
            run.append([record(run, value, 0, topic)])

    row = run.op(
        process, "delay", outcome, topic=TOPIC, queue=queue, messages=[message], during=store
    )
    if outcome == "info":
        row["t_complete"] = None
    return row


def record(run: SyntheticRun, value: str, queue: int = 0, topic: str = TOPIC) -> Rec:
    named = f"{run.name}.{value}"
    message = run.message(named, queue)
    rec = Rec("message", topic, queue, named, message["uniq_key"])
    rec.digest = message["digest"]
    return rec


def fall_due(run: SyntheticRun, row: Row, *, early_ms: int = 0) -> None:
    """Let the time of the delayed message come, and deliver it."""
    (message,) = row["messages"]
    wait_until(run, row["due"] - early_ms * MS)
    run.append([record(run, message["value"].removeprefix(f"{run.name}."), message["queue"])])


def wait_until(run: SyntheticRun, at: int) -> None:
    run.now = max(run.now, at)


def recall(run: SyntheticRun, value: str, outcome: str = "ok", process: str = "p8") -> Row:
    row = run.op(process, "recall", outcome, topic=TOPIC, ref=f"{run.name}.{value}")
    if outcome == "info":
        row["t_complete"] = None
    return row


def request(
    run: SyntheticRun, value: str, answer: str | None, outcome: str = "ok", **extra: str
) -> Row:
    """A request that a responder consumes, with what its client took for the answer."""
    message = run.message(f"{run.name}.{value}", 1)

    def serve(row: Row) -> None:
        if outcome == "fail":
            return
        run.append([record(run, value, 1)])
        offset = len(run.stored(1)) - 1
        run.op(
            "r1",
            "deliver",
            client_group="responders",
            topic=TOPIC,
            queue=1,
            messages=[message | {"offset": offset}],
            ref=f"{run.name}.a-{value}",
        )

    ref = None if answer is None else f"{run.name}.{answer}"
    return run.op(
        "p9",
        "request",
        outcome,
        topic=TOPIC,
        queue=1,
        messages=[message],
        ref=ref,
        during=serve,
        **extra,
    )


def reply(run: SyntheticRun, value: str, outcome: str = "ok") -> Row:
    """What a responder was answered for its reply to a request."""
    return run.op("r2", "reply", outcome, key=f"{run.name}.{value}", ref=f"{run.name}.a-{value}")


def delayed_run() -> SyntheticRun:
    """One timer delivered in time, one of a level; one recalled, twice; one whose recall came too
    late, one whose recall nobody answered and that came; one of unknown outcome, tried again; a
    request that was answered, one that nobody answered, and one that was not stored."""

    def live(run: SyntheticRun) -> None:
        first = delay(run, "d0")
        second = delay(run, "d1", topic=LEVELS)
        delay(run, "d2")
        recall(run, "d2")
        recall(run, "d2")
        late = delay(run, "d3")
        unanswered = delay(run, "d4")
        recall(run, "d4", "info", process="p8b")
        delay(run, "d5", outcome="fail")
        tried = delay(run, "d6", outcome="info", process="p6")
        again = run.op(
            "p6~1", "delay", topic=TOPIC, queue=0, messages=tried["messages"]
        )  # stored before: nothing is appended
        again["due"] = again["t_invoke"] + 20 * MS
        request(run, "q0", "a-q0")
        reply(run, "q0")
        request(run, "q1", None, "info", status="NO_REPLY")
        reply(run, "q1")  # too late: the client took it, and dropped it
        request(run, "q2", None, "fail")
        fall_due(run, first)
        fall_due(run, second, early_ms=1)
        fall_due(run, late)
        recall(run, "d3", "fail")
        fall_due(run, unanswered)
        fall_due(run, tried)

    return SyntheticRun("delayed", live=live)
