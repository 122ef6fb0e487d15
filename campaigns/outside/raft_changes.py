"""What a defect of consensus leaves in the traces: terms, votes, logs, commits, applies.

Place in the data path: the changes that `plants_raft` lists. Each answers what a witness must show.
"""

from __future__ import annotations

from collections.abc import Callable

from campaigns.outside.run_rows import MS, Row, Run
from campaigns.outside.surgery import at, events, renumber, replace_row

__all__ = [
    "add_after",
    "apply_early",
    "apply_gap",
    "apply_twice",
    "commit_beyond",
    "commit_falls",
    "commit_of_another",
    "disk_forgot",
    "forgets_its_vote",
    "fsync_gone",
    "later_leader",
    "leader_cuts_its_log",
    "leader_lacks",
    "leaders_trade_terms",
    "log_chain",
    "node",
    "other_chain",
    "second_leader",
    "starts_in_the_past",
    "term_falls",
    "votes_twice",
]


def later_leader(run: Run, group: str = "broker-a") -> Row:
    """A leader that was elected after entries had been committed."""
    return events(run, "role", role="leader", group=group)[-1]


def node(row: Row) -> Row:
    return {key: row[key] for key in ("broker_group", "node", "incarnation")}


def add_after(run: Run, row: Row, **new: object) -> None:
    replace_row(run.raft, row, row, {**node(row), "t": row["t"], "term": row["term"], **new})
    renumber(run)


def second_leader(group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        leader = at(events(run, "role", role="leader", group=group), place)
        other = next(
            row
            for row in run.raft
            if row["broker_group"] == group
            and row["node"] != leader["node"]
            and row["term"] == leader["term"]
            and row["event"] in {"append", "commit", "fsync"}
        )
        add_after(run, other, event="role", role="leader")
        return str(leader["term"])

    return change


def leaders_trade_terms(run: Run) -> str:
    """A node that was deposed claims its successor's term."""
    first, second = events(run, "role", role="leader", group="broker-a")[:2]
    claim = {**first, "t": second["t"] + MS, "term": second["term"]}
    after = next(
        row
        for row in run.raft
        if row["node"] == first["node"] and row["t"] > second["t"] and row["term"] == second["term"]
    )
    claim |= {"incarnation": after["incarnation"], "t": after["t"]}
    replace_row(run.raft, after, after, claim)
    renumber(run)
    return str(second["term"])


def votes_twice(group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        votes = [v for v in events(run, "vote", group=group) if v["peer"] != v["node"]]
        vote = at(votes, place)
        others = sorted(
            {row["node"] for row in run.raft if row["broker_group"] == group}
            - {vote["node"], vote["peer"]}
        )
        fields = {key: vote[key] for key in ("last_index", "last_term")}
        add_after(run, vote, event="vote", peer=others[0], **fields)
        return str(vote["node"])

    return change


def forgets_its_vote(run: Run) -> str:
    """A vote that was not on disk: given again, to another, after a restart."""
    start = next(row for row in events(run, "start") if row["incarnation"] > 0)
    before = [
        row
        for row in events(run, "vote", node=start["node"], group=start["broker_group"])
        if row["t"] < start["t"]
    ]
    vote = before[-1]
    others = {"n1", "n2", "n3"} - {vote["peer"]}
    again = {
        **vote,
        "peer": min(others),
        "t": start["t"],
        "incarnation": start["incarnation"],
        "last_index": 10**6,
        "last_term": vote["term"],
    }
    start["term"] = vote["term"]
    replace_row(run.raft, start, start, again)
    renumber(run)
    return str(vote["term"])


def term_falls(event: str, place: float, base_group: str = "broker-a") -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = at([e for e in events(run, event, group=base_group) if e["term"] > 1], place)
        row["term"] -= 1
        if event == "fsync":
            row["term"] = 0
        return str(row["node"])

    return change


def starts_in_the_past(run: Run) -> str:
    start = next(row for row in events(run, "start") if row["incarnation"] > 0 and row["term"] > 0)
    start["term"] = 0
    return str(start["node"])


def leader_cuts_its_log(group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        leader = later_leader(run, group)
        own = events(run, "append", node=leader["node"], group=group, term=leader["term"])
        append = at([row for row in own if row["t"] > leader["t"]], place)
        again = {key: append[key] for key in ("index", "entry_term", "chain")}
        add_after(run, append, event="append", **again)
        add_after(run, append, event="truncate", index=append["index"])
        return str(append["index"])

    return change


def other_chain(event: str, place: float, group: str = "broker-a") -> Callable[[Run], str]:
    """One node has another history under the same index and term."""

    def change(run: Run) -> str:
        leader = later_leader(run, group)
        rows = [row for row in events(run, event, group=group) if row["node"] != leader["node"]]
        row = at(rows, place)
        row["chain"] += 1
        return str(row["index"])

    return change


def log_chain(place: float, field: str) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        node = max(row["node"] for row in run.log)
        row = at([r for r in run.log if r["node"] == node and r["committed"]], place)
        for other in run.log:
            if other["node"] == node and other["index"] == row["index"]:
                other[field] += 1
        return str(row["index"])

    return change


def commit_of_another(run: Run) -> str:
    """Two nodes commit different entries at one index, each in its own chain and term."""
    row = at(events(run, "commit", group="broker-a"), 0.8)
    row["chain"], row["entry_term"] = row["chain"] + 5, row["entry_term"] + 1
    return str(row["index"])


def leader_lacks(what: str, group: str) -> Callable[[Run], str]:
    """An elected leader did not hold the last entry that had been committed before."""

    def change(run: Run) -> str:
        leader = later_leader(run, group)
        place = next(n for n, row in enumerate(run.raft) if row is leader)
        committed = max(
            row["index"]
            for row in run.raft[:place]
            if row["event"] == "commit" and row["broker_group"] == group
        )
        append = next(
            row
            for row in reversed(run.raft[:place])
            if row["node"] == leader["node"]
            and row["broker_group"] == group
            and row["event"] == "append"
            and row["index"] == committed
        )
        if what == "chain":
            append["chain"] += 1
            return str(leader["term"])
        dropped = [
            row
            for row in run.raft[:place]
            if row["node"] == leader["node"]
            and row["broker_group"] == group
            and row["event"] in {"append", "fsync", "commit", "apply"}
            and row["index"] >= committed
        ]
        retained = [row for row in run.raft if not any(row is gone for gone in dropped)]
        place = next(n for n, row in enumerate(retained) if row is leader)
        moved = [{**row, "t": leader["t"], "term": leader["term"]} for row in dropped]
        run.raft[:] = [*retained[: place + 1], *moved, *retained[place + 1 :]]
        renumber(run)
        return str(leader["term"])

    return change


def commit_falls(run: Run) -> str:
    commit = at(events(run, "commit", group="broker-a"), 0.6)
    back = next(
        row
        for row in reversed(run.raft)
        if row["event"] == "commit"
        and row["node"] == commit["node"]
        and row["broker_group"] == commit["broker_group"]
        and row["index"] < commit["index"]
        and row["incarnation"] == commit["incarnation"]
    )
    fields = {key: back[key] for key in ("index", "entry_term", "chain")}
    add_after(run, commit, event="commit", **fields)
    return str(commit["node"])


def commit_beyond(place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        commits = events(run, "commit", group="broker-a")
        row = at(commits, place)
        row["index"] += 1000
        return str(row["index"])

    return change


def fsync_gone(retain: int, place: float, group: str) -> Callable[[Run], str]:
    """Committed, but on too few disks: the fsyncs of all but `retain` nodes come much later."""

    def change(run: Run) -> str:
        leader = later_leader(run, group)
        commits = events(run, "commit", group=group, node=leader["node"], term=leader["term"])
        commit = at([row for row in commits if row["t"] > leader["t"]][2:-20], place)
        nodes = sorted({row["node"] for row in run.raft if row["broker_group"] == group})
        retained = [leader["node"], *(n for n in nodes if n != leader["node"])][:retain]
        run.raft[:] = [
            row
            for row in run.raft
            if not (
                row["event"] == "fsync"
                and row["broker_group"] == group
                and row["node"] not in retained
                and row["index"] >= commit["index"]
                and row["t"] <= commit["t"] + 1000 * MS
            )
        ]
        renumber(run)
        return str(commit["index"])

    return change


def disk_forgot(run: Run) -> str:
    """A start that finds less than had been called durable."""
    start = next(row for row in events(run, "start") if row["incarnation"] > 0 and row["index"])
    appended = {
        row["index"]: row
        for row in events(run, "append", node=start["node"], group=start["broker_group"])
        if row["t"] <= start["t"]
    }
    index = start["index"] - 3
    start.update(
        index=index, entry_term=appended[index]["entry_term"], chain=appended[index]["chain"]
    )
    return str(start["node"])


def apply_gap(place: float, group: str = "broker-a") -> Callable[[Run], str]:
    def change(run: Run) -> str:
        rows = [
            row
            for row in events(run, "apply", group=group)
            if row["index"] - row["first"] >= 1 and row["first"] > 5
        ]
        row = at(rows, place)
        row["first"] += 1
        return str(row["node"])

    return change


def apply_twice(run: Run) -> str:
    row = at([r for r in events(run, "apply", group="broker-a") if r["first"] > 20], 0.4)
    row["first"] -= 3
    return str(row["node"])


def apply_early(run: Run) -> str:
    """Applied above the node's commit index."""
    apply = at(events(run, "apply", group="broker-a"), 0.5)
    commit = next(
        row
        for row in run.raft
        if row["event"] == "commit"
        and row["node"] == apply["node"]
        and row["index"] == apply["index"]
        and row["incarnation"] == apply["incarnation"]
    )
    first, second = (next(n for n, r in enumerate(run.raft) if r is row) for row in (commit, apply))
    run.raft[first], run.raft[second] = apply, commit
    renumber(run)
    return str(apply["index"])
