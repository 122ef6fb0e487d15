"""Changes of topics, routes, users and searches in a synthetic run, after all else is over."""

from __future__ import annotations

from typing import Any

from tests.verify.synthetic import MS, STARTED_MS, TOPIC, Row, SyntheticRun

USER = "user-1"
MEMBERS = "n1 n0 n2"
FAULT_OVER_MS = 1_100
"""Behind all faults of a run by more than a rule wants."""


def managed(run: SyntheticRun) -> str:
    """A topic of this run alone: what name servers delete names no broker group."""
    return f"Managed-{run.name}"


def manage(run: SyntheticRun) -> None:
    """A topic that was deleted and made again, what all say of it, a user, searches."""
    change_topic(run, "create_topic")
    change_topic(run, "delete_topic")
    delete_route(run, "ns-0")
    change_topic(run, "create_topic")
    ask_all(run)
    change_topic(run, "create_topic", perm="2")["node"] = "n1"
    use_topic(run, "poll", "fail")
    change_topic(run, "create_topic", perm="4")["node"] = "n1"
    use_topic(run, "poll", "ok")
    account(run, "create", "deny")
    account(run, "grant", "allow")
    send_as_user(run, "ok")
    account(run, "revoke", "deny")
    send_as_user(run, "fail")
    search_all(run)
    manage_group(run)
    ask(run, "0 here")
    expect(run, "4", "4")
    set_and_show(run)


def later(run: SyntheticRun, process: str, f: str, outcome: str = "ok", **columns: Any) -> Row:
    """An operation of a run whose operations have been numbered already."""
    row = run.op(process, f, outcome, **columns)
    row["op"] = len(run.ops) - 1
    return row


def ask(run: SyntheticRun, answered: str | None, outcome: str = "ok", **columns: Any) -> Row:
    """Ask what has to be answered with `0 here`."""
    asked = {"topic": TOPIC, "queue": 0, "key": "what is known", "ref": "0 here", "node": "n1"}
    return later(run, "asker", "ask", outcome, **asked | {"status": answered} | columns)


def expect(run: SyntheticRun, expected: str | None, answered: str) -> Row:
    """An answer beside what a model expects."""
    return later(
        run,
        f"e{len(run.ops)}",
        "ask",
        client_group="tools",
        key="number of queues",
        ref=expected,
        status=answered,
    )


def change_topic(run: SyntheticRun, f: str, outcome: str = "ok", perm: str = "6") -> Row:
    made: Row = {}
    if f == "create_topic":
        made = {"assigned": _queues(run, (0, 1)), "status": perm}
    return later(run, "a1", f, outcome, client_group="tools", topic=managed(run), **made)


def use_topic(run: SyntheticRun, f: str, outcome: str, node: str = "n1") -> Row:
    """Poll or pop the topic; who is refused is refused for want of the permission."""
    return later(
        run,
        "u2",
        f,
        outcome,
        client_group="tools",
        topic=managed(run),
        queue=0,
        node=node,
        status="16" if outcome == "fail" else None,
        messages=[] if outcome == "ok" else None,
    )


def delete_route(run: SyntheticRun, name_server: str) -> Row:
    row = later(
        run, "a1", "delete_topic", client_group="tools", topic=managed(run), node=name_server
    )
    row["broker_group"] = None
    return row


def view(
    run: SyntheticRun,
    node: str,
    queues: tuple[int, ...] = (0, 1),
    perm: str | None = "6",
    members: str | None = MEMBERS,
) -> Row:
    """What a name server, or n1, which leads, says of the topic."""
    if not queues:
        perm = members = None
    return later(
        run,
        "a2",
        "route",
        client_group="tools",
        topic=managed(run),
        node=node,
        key="owner" if node == "n1" else None,
        assigned=_queues(run, queues),
        status=perm,
        ref=members,
    )


def ask_all(run: SyntheticRun, **shown: Any) -> None:
    """The leader, long enough before the name server, which shows this, and once more."""
    view(run, "n1")
    run.tick(10)
    view(run, "ns-0", **shown)
    view(run, "n1")


def down(run: SyntheticRun, node: str, effect: str = "taken", **columns: Any) -> Row:
    """A fault that ends a broker's process now; it is started again five seconds later."""
    row = {
        "fault": len(run.faults) + 1,
        "name": "kill",
        "targets": [f"{run.group}-{node}"],
        "params": "{}",
        "t_start": run.tick(),
        "t_effect": run.tick(),
        "t_heal": run.now + 5_000 * MS,
        "t_healed": run.now + 5_001 * MS,
        "effect": effect,
        "evidence": "process is gone",
    }
    run.faults.append(row | columns)
    return run.faults[-1]


def account(run: SyntheticRun, change: str, decision: str, outcome: str = "ok") -> Row:
    named = {"key": f"{run.name}.{USER}", "ref": change, "decision": decision}
    return later(run, "a3", "account", outcome, client_group="tools", topic=TOPIC, **named)


def send_as_user(run: SyntheticRun, outcome: str) -> Row:
    """The user sends again what the run has stored, or something that nobody stores."""
    value = f"{run.name}.v0" if outcome == "ok" else f"{run.name}.refused-{len(run.ops)}"
    messages = [run.message(value, 0)]
    if outcome == "ok":
        messages = [dict(run.find("send", "v0")["messages"][0])]
    status = "SEND_OK" if outcome == "ok" else "16"
    return later(
        run,
        "u1",
        "send",
        outcome,
        topic=TOPIC,
        queue=0,
        messages=messages,
        ref=f"{run.name}.{USER}",
        status=status,
    )


def read_elsewhere(run: SyntheticRun, value: str, group: str = "another") -> Row:
    """A tool reads a message of the run in another broker group."""
    message = dict(run.find("send", value)["messages"][0])
    message |= {"broker_group": f"{run.name}.{group}", "queue": 0, "offset": 0}
    row = later(run, f"x-{group}", "poll", client_group="tools", topic=TOPIC, queue=0, offset=0)
    row |= {"broker_group": message["broker_group"], "messages": [message]}
    return row


CONFIG = "retryMaxTimes=3"


def manage_group(run: SyntheticRun) -> None:
    """A group that is configured, deleted with its offsets, and asked for them."""
    change_group(run, "create_group")
    show_group(run)
    change_group(run, "delete_group", decision="clean")
    show_group(run, "retryMaxTimes=16")
    use_offset(run, "fetch_offset", None)


def change_group(run: SyntheticRun, f: str, outcome: str = "ok", **columns: Any) -> Row:
    made = {"status": CONFIG} if f == "create_group" else {"decision": "keep"}
    return later(run, "g1", f, outcome, client_group="managed", node="n1", **made | columns)


def show_group(run: SyntheticRun, status: str | None = CONFIG, node: str = "n1") -> Row:
    return later(run, "g2", "group", client_group="managed", node=node, status=status)


def use_offset(run: SyntheticRun, f: str, offset: int | None, outcome: str = "ok") -> Row:
    named = {"client_group": "managed", "topic": TOPIC, "queue": 0}
    return later(run, "g3", f, outcome, offset=offset, **named)


def set_value(run: SyntheticRun, value: str, outcome: str = "ok", node: str = "n1") -> Row:
    row = later(run, "o1", "set", outcome, client_group="tools", key=_setting(run), status=value)
    row["node"] = node if outcome == "ok" else None
    return row


def show_value(run: SyntheticRun, value: str, node: str = "n1", decision: str | None = None) -> Row:
    row = later(run, "o2", "get", client_group="tools", key=_setting(run), status=value, node=node)
    row["decision"] = decision
    return row


def _setting(run: SyntheticRun) -> str:
    return f"topic of {run.name}"


def set_and_show(run: SyntheticRun) -> None:
    """A setting of one replica, asked for right away and by a linearizable question."""
    set_value(run, "read=4")
    show_value(run, "read=4")
    set_value(run, "-")
    show_value(run, "-", decision="now")


def stored_ms(run: SyntheticRun, offset: int, queue: int = 0) -> int:
    at = run.stored(queue)[offset].stored_ms
    assert at is not None
    return at


def search(run: SyntheticRun, ref: str, **columns: Any) -> Row:
    columns = {"queue": 0} | columns
    return later(run, "s1", "search", client_group="tools", topic=TOPIC, ref=ref, **columns)


def search_all(run: SyntheticRun) -> None:
    """Every kind of search, rightly answered, at the edges of what there is."""
    end = len(run.stored(0))
    search(run, "first", from_ms=stored_ms(run, 2), offset=2)
    search(run, "first", from_ms=stored_ms(run, 2) + 1, offset=3)
    search(run, "first", from_ms=0, offset=0)
    search(run, "first", from_ms=STARTED_MS + 10**9, offset=end)
    search(run, "last", from_ms=stored_ms(run, 2), offset=2)
    search(run, "last", from_ms=stored_ms(run, 2) - 1, offset=1)
    search(run, "last", from_ms=0, offset=0)
    search(run, "earliest", from_ms=stored_ms(run, 0))
    key = f"key-{run.name}.v2"
    found = [run.shown(run.stored(0)[1])]
    at = stored_ms(run, 1)
    search(run, "range", queue=None, key=key, from_ms=at, to_ms=at, messages=found)
    search(run, "range", queue=None, key=key, from_ms=at + 1, to_ms=at + 9, messages=[])


def _queues(run: SyntheticRun, numbers: tuple[int, ...]) -> list[Row]:
    return [{"broker_group": run.group, "topic": managed(run), "queue": queue} for queue in numbers]
