"""Planted anomalies of consensus: R1 to R14, in traces.

Place in the data path: a list for `catalogue`. What a witness must show is a term, an index or a
node, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.verify.outside.model_cluster import ModelCluster
from tests.verify.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from tests.verify.outside.run_rows import MS, SECOND, Row, Run
from tests.verify.outside.surgery import at, events, renumber, replace_row
from tests.verify.outside.virtual_time import Process

__all__ = ["RAFT_PLANTS"]


def _later_leader(run: Run, group: str = "broker-a") -> Row:
    """A leader that was elected after entries had been committed."""
    return events(run, "role", role="leader", group=group)[-1]


def _node(row: Row) -> Row:
    return {key: row[key] for key in ("broker_group", "node", "incarnation")}


def _add_after(run: Run, row: Row, **new: object) -> None:
    replace_row(run.raft, row, row, {**_node(row), "t": row["t"], "term": row["term"], **new})
    renumber(run)


def _second_leader(group: str, place: float) -> Callable[[Run], str]:
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
        _add_after(run, other, event="role", role="leader")
        return str(leader["term"])

    return change


def _leaders_trade_terms(run: Run) -> str:
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


def _votes_twice(group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        votes = [v for v in events(run, "vote", group=group) if v["peer"] != v["node"]]
        vote = at(votes, place)
        others = sorted(
            {row["node"] for row in run.raft if row["broker_group"] == group}
            - {vote["node"], vote["peer"]}
        )
        fields = {key: vote[key] for key in ("last_index", "last_term")}
        _add_after(run, vote, event="vote", peer=others[0], **fields)
        return str(vote["node"])

    return change


def _forgets_its_vote(run: Run) -> str:
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


def _term_falls(event: str, place: float, base_group: str = "broker-a") -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = at([e for e in events(run, event, group=base_group) if e["term"] > 1], place)
        row["term"] -= 1
        if event == "fsync":
            row["term"] = 0
        return str(row["node"])

    return change


def _starts_in_the_past(run: Run) -> str:
    start = next(
        row for row in events(run, "start") if row["incarnation"] > 0 and row["term"] > 0
    )
    start["term"] = 0
    return str(start["node"])


def _leader_cuts_its_log(group: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        leader = _later_leader(run, group)
        own = events(run, "append", node=leader["node"], group=group, term=leader["term"])
        append = at([row for row in own if row["t"] > leader["t"]], place)
        again = {key: append[key] for key in ("index", "entry_term", "chain")}
        _add_after(run, append, event="append", **again)
        _add_after(run, append, event="truncate", index=append["index"])
        return str(append["index"])

    return change


def _other_chain(event: str, place: float, group: str = "broker-a") -> Callable[[Run], str]:
    """One node has another history under the same index and term."""

    def change(run: Run) -> str:
        leader = _later_leader(run, group)
        rows = [row for row in events(run, event, group=group) if row["node"] != leader["node"]]
        row = at(rows, place)
        row["chain"] += 1
        return str(row["index"])

    return change


def _log_chain(place: float, field: str) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        node = max(row["node"] for row in run.log)
        row = at([r for r in run.log if r["node"] == node and r["committed"]], place)
        for other in run.log:
            if other["node"] == node and other["index"] == row["index"]:
                other[field] += 1
        return str(row["index"])

    return change


def _commit_of_another(run: Run) -> str:
    """Two nodes commit different entries at one index, each in its own chain and term."""
    row = at(events(run, "commit", group="broker-a"), 0.8)
    row["chain"], row["entry_term"] = row["chain"] + 5, row["entry_term"] + 1
    return str(row["index"])


def _leader_lacks(what: str, group: str) -> Callable[[Run], str]:
    """An elected leader did not hold the last entry that had been committed before."""

    def change(run: Run) -> str:
        leader = _later_leader(run, group)
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
        kept = [row for row in run.raft if not any(row is gone for gone in dropped)]
        place = next(n for n, row in enumerate(kept) if row is leader)
        moved = [{**row, "t": leader["t"], "term": leader["term"]} for row in dropped]
        run.raft[:] = [*kept[: place + 1], *moved, *kept[place + 1 :]]
        renumber(run)
        return str(leader["term"])

    return change


def _commit_falls(run: Run) -> str:
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
    _add_after(run, commit, event="commit", **fields)
    return str(commit["node"])


def _commit_beyond(place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        commits = events(run, "commit", group="broker-a")
        row = at(commits, place)
        row["index"] += 1000
        return str(row["index"])

    return change


def _fsync_gone(keep: int, place: float, group: str) -> Callable[[Run], str]:
    """Committed, but on too few disks: the fsyncs of all but `keep` nodes come much later."""

    def change(run: Run) -> str:
        leader = _later_leader(run, group)
        commits = events(run, "commit", group=group, node=leader["node"], term=leader["term"])
        commit = at([row for row in commits if row["t"] > leader["t"]][2:-20], place)
        nodes = sorted({row["node"] for row in run.raft if row["broker_group"] == group})
        kept = [leader["node"], *(n for n in nodes if n != leader["node"])][:keep]
        run.raft[:] = [
            row
            for row in run.raft
            if not (
                row["event"] == "fsync"
                and row["broker_group"] == group
                and row["node"] not in kept
                and row["index"] >= commit["index"]
                and row["t"] <= commit["t"] + 1000 * MS
            )
        ]
        renumber(run)
        return str(commit["index"])

    return change


def _disk_forgot(run: Run) -> str:
    """A start that finds less than had been called durable."""
    start = next(row for row in events(run, "start") if row["incarnation"] > 0 and row["index"])
    appended = {
        row["index"]: row
        for row in events(run, "append", node=start["node"], group=start["broker_group"])
        if row["t"] <= start["t"]
    }
    index = start["index"] - 3
    start.update(index=index, entry_term=appended[index]["entry_term"], chain=appended[index]["chain"])
    return str(start["node"])


def _apply_gap(place: float, group: str = "broker-a") -> Callable[[Run], str]:
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


def _apply_twice(run: Run) -> str:
    row = at([r for r in events(run, "apply", group="broker-a") if r["first"] > 20], 0.4)
    row["first"] -= 3
    return str(row["node"])


def _apply_early(run: Run) -> str:
    """Applied above the node's commit index."""
    apply = at(events(run, "apply", group="broker-a"), 0.5)
    commit = next(
        row
        for row in run.raft
        if row["event"] == "commit" and row["node"] == apply["node"] and row["index"] == apply["index"]
        and row["incarnation"] == apply["incarnation"]
    )
    first, second = (next(n for n, r in enumerate(run.raft) if r is row) for row in (commit, apply))
    run.raft[first], run.raft[second] = apply, commit
    renumber(run)
    return str(apply["index"])


def _vote_for_stale(field: str, place: float) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        votes = [
            row
            for row in events(run, "vote", group="broker-a")
            if row["peer"] != row["node"] and row["last_index"] > 10
        ]
        vote = at(votes, place)
        for row in events(run, "vote", group="broker-a", node=vote["node"], term=vote["term"]):
            row[field] = row[field] - 5 if field == "last_index" else 0
        return str(vote["node"])

    return change


def _stale_read(place: float, group: str) -> Callable[[Run], str]:
    """The leader of an older term answers a read after a newer one had committed."""

    def change(run: Run) -> str:
        leaders = events(run, "role", role="leader", group=group)
        old, new = next(
            (one, two)
            for one, two in zip(leaders, leaders[1:], strict=False)
            if one["node"] != two["node"] and events(run, "read", node=one["node"], term=one["term"])
        )
        reads = events(run, "read", node=old["node"], term=old["term"], group=group)
        commits = [
            row
            for row in events(run, "commit", node=new["node"], term=new["term"], group=group)
            if row["index"] > reads[-1]["index"]
        ]
        read = at(reads, place)
        read["t_begin"] = commits[0]["t"] + MS
        read["t"] = commits[0]["t"] + 2 * MS
        return str(read["index"])

    return change


def _two_voters_at_once(run: Run) -> str:
    rows = events(run, "config", group="broker-a")
    index = rows[-1]["index"]
    for row in rows:
        if row["index"] == index:
            row["voters"] = [*row["voters"][:-1], "n8", "n9"]
    return str(index)


def _configs(run: Run) -> list[int]:
    """Indexes of the configurations that a leader appended, in order."""
    return sorted({row["index"] for row in events(run, "config", group="broker-a")} - {0})


def _change_before_commit(run: Run) -> str:
    """A configuration appended while the one before it was not committed."""
    index = _configs(run)[-1]
    row = events(run, "config", group="broker-a", index=index)[0]
    place = next(n for n, r in enumerate(run.raft) if r is row)
    append = max(
        (r for r in run.raft[:place] if r["node"] == row["node"] and r["event"] == "append"),
        key=lambda r: r["seq"],
    )
    previous = index - 1
    before = next(
        r
        for r in reversed(run.raft[:place])
        if r["node"] == row["node"] and r["event"] == "append" and r["index"] == previous
    )
    assert append["index"] == index
    between = {**row, "index": previous, "t": before["t"]}
    replace_row(run.raft, before, before, between)
    # The leader had not committed that one when it appended the next.
    later = [
        r
        for r in run.raft[: place + 1]
        if r["node"] == row["node"] and r["event"] in {"commit", "apply"} and r["index"] >= previous
    ]
    run.raft[:] = [r for r in run.raft if not any(r is gone for gone in later)]
    renumber(run)
    return str(index)


def _change_in_a_new_term(run: Run) -> str:
    """A leader changes its group's members before it has committed anything of its own."""
    leader = next(
        row
        for row in events(run, "role", role="leader", group="broker-a")
        if row["term"] > min(r["term"] for r in events(run, "role", role="leader"))
    )
    place = next(n for n, row in enumerate(run.raft) if row is leader)
    append = next(
        row
        for row in run.raft[place:]
        if row["event"] == "append" and row["node"] == leader["node"]
    )
    voters = [*run.manifest["groups"]["broker-a"], "n9"]
    _add_after(run, append, event="config", index=append["index"], voters=voters)
    return str(append["index"])


def _states_differ(place: float, base: str) -> Callable[[Run], str]:
    """Two replicas applied the same and have another state."""

    def change(run: Run) -> str:
        states = events(run, "state", group=base)
        if states:
            state = at(states, place)
        else:
            apply = at(events(run, "apply", group=base), place)
            state = {**apply, "event": "state", "chain": 1}
        other = next(
            row
            for row in events(run, "apply", group=base, index=state["index"])
            if row["node"] != state["node"]
        )
        _add_after(run, other, event="state", index=state["index"], chain=state["chain"] + 1)
        if not states:
            mine = next(
                row
                for row in events(run, "apply", group=base, index=state["index"])
                if row["node"] == state["node"]
            )
            _add_after(run, mine, event="state", index=state["index"], chain=state["chain"])
        return str(state["index"])

    return change


def _counts_an_older_term(run: Run) -> str:
    """A new leader calls its predecessor's last entry committed before any of its own is."""
    leader = _later_leader(run)
    place = next(n for n, row in enumerate(run.raft) if row is leader)
    append = next(
        row
        for row in reversed(run.raft[:place])
        if row["node"] == leader["node"] and row["event"] == "append"
    )
    fields = {key: append[key] for key in ("index", "entry_term", "chain")}
    _add_after(run, leader, event="commit", **fields)
    return str(append["index"])


def _elects_the_one_behind(cluster: ModelCluster) -> Process:
    """A replica that was cut off meanwhile is voted for, whatever its log lacks."""
    group, sim = cluster.world.brokers["broker-a"].group, cluster.sim
    yield 9 * SECOND
    leader = group.leader()
    assert leader is not None
    behind = next(node for node in group.living() if node is not leader)
    group.cut.add(behind.name)
    yield 1500 * MS
    group.kill(leader)
    group.cut.discard(behind.name)
    group.stand(behind)
    cluster.note = behind.name
    yield 400 * MS
    group.start(leader)
    assert sim.now < cluster.world.times.load_end


def _reads_on_a_lease(cluster: ModelCluster) -> Process:
    group = cluster.world.brokers["broker-a"].group
    yield 8 * SECOND
    old = group.leader()
    assert old is not None
    group.cut.add(old.name)
    for node in group.living():
        if node is not old and not group.in_charge(node):
            group.stand(node)
            break
    while (new := group.leader()) is old or new is None or new.commit <= old.commit:
        yield MS
    group.read_index(old)
    cluster.note = str(old.commit)
    yield 20 * MS
    group.cut.discard(old.name)


def _plant(rule: str, name: str, change: Callable[[Run], str], base: object = PLAIN) -> Plant:
    assert hasattr(base, "seed")
    return Plant(name=name, rule=rule, base=base, change=change)  # type: ignore[arg-type]


RAFT_PLANTS: Final[tuple[Plant, ...]] = (
    _plant("R1", "two leaders in the first term", _second_leader("broker-a", 0)),
    _plant("R1", "two leaders after a failover, second group", _second_leader("broker-b", 1), TWO),
    _plant("R1", "a deposed leader claims its successor's term", _leaders_trade_terms),
    _plant("R2", "a node votes twice in one term", _votes_twice("broker-a", 0)),
    _plant("R2", "a node of five votes twice", _votes_twice("broker-a", 1), FIVE),
    _plant("R2", "a vote forgotten by a restart", _forgets_its_vote),
    _plant("R3", "the term falls at an append", _term_falls("append", 0.5)),
    _plant("R3", "the term falls at an fsync", _term_falls("fsync", 0.9), FIVE),
    _plant("R3", "a restart forgets the term", _starts_in_the_past),
    _plant("R4", "a leader overwrites its own entry", _leader_cuts_its_log("broker-a", 0.5)),
    _plant("R4", "the same, of the second group's last", _leader_cuts_its_log("broker-b", 1), TWO),
    _plant("R4", "the same, of its very first entry", _leader_cuts_its_log("broker-a", 0), FIVE),
    _plant("R5", "an append in another chain", _other_chain("append", 0.4)),
    _plant("R5", "the first append in another chain", _other_chain("append", 0.0), FIVE),
    _plant("R5", "another chain in an exported log", _log_chain(0.3, "chain")),
    _plant("R6", "a commit in another chain", _other_chain("commit", 0.5)),
    _plant("R6", "two entries committed at one index", _commit_of_another, FIVE),
    _plant("R6", "another term in a replica's committed log", _log_chain(0.9, "term")),
    _plant("R7", "a leader without the last committed entry", _leader_lacks("entry", "broker-a")),
    _plant("R7", "a leader of five without it", _leader_lacks("entry", "broker-a"), FIVE),
    _plant("R7", "a leader with another entry there", _leader_lacks("chain", "broker-b"), TWO),
    _plant("R8", "the commit index falls", _commit_falls),
    _plant("R8", "the commit index falls, of five", _commit_falls, FIVE),
    _plant("R8", "a commit beyond the log", _commit_beyond(0.5), RETAINED),
    _plant("R9", "committed on one disk of three", _fsync_gone(1, 0.5, "broker-a")),
    _plant("R9", "committed on two disks of five", _fsync_gone(2, 0.2, "broker-a"), FIVE),
    _plant("R9", "committed on one disk, second group", _fsync_gone(1, 0.9, "broker-b"), TWO),
    _plant("R9", "a start without what was durable", _disk_forgot, FIVE),
    _plant("R10", "an apply leaves one out", _apply_gap(0.5)),
    _plant("R10", "an apply leaves one out, five replicas", _apply_gap(0.9), FIVE),
    _plant("R10", "entries applied twice", _apply_twice, RETAINED),
    _plant("R10", "another entry applied", _other_chain("apply", 0.7)),
    _plant("R10", "applied before it was committed", _apply_early),
    _plant("R11", "a vote for a shorter log", _vote_for_stale("last_index", 1)),
    _plant("R11", "a vote for an older last term", _vote_for_stale("last_term", 0), FIVE),
    _plant("R12", "a read by a deposed leader", _stale_read(1, "broker-a")),
    _plant("R12", "its first read, so answered", _stale_read(0, "broker-a"), FIVE),
    _plant("R13", "two voters replaced at once", _two_voters_at_once, RETAINED),
    _plant("R13", "a change while another is open", _change_before_commit, RETAINED),
    _plant("R13", "a change before a commit of its own", _change_in_a_new_term),
    _plant("R14", "states that differ at the stop", _states_differ(1, "broker-a"), FIVE),
    _plant("R14", "states that differ at a snapshot", _states_differ(0, "broker-a"), RETAINED),
    _plant("R14", "states that differ in the middle", _states_differ(0.5, "broker-b"), TWO),
    _plant("R8", "an older term's entry committed by counting", _counts_an_older_term),
    Plant(
        name="a vote for any log, and a leader that lacks what was committed",
        rule="R11",
        base=PLAIN,
        script=_elects_the_one_behind,
        defects=frozenset({"vote_for_any_log"}),
    ),
    Plant(
        name="that leader lacks it",
        rule="R7",
        base=FIVE,
        script=_elects_the_one_behind,
        defects=frozenset({"vote_for_any_log"}),
    ),
    Plant(
        name="a read on a lease that has run out",
        rule="R12",
        base=TWO,
        script=_reads_on_a_lease,
        defects=frozenset({"lease_read"}),
    ),
    Plant(
        name="followers acknowledge before their fsync",
        rule="R9",
        base=FIVE,
        change=lambda run: "broker-a",
        defects=frozenset({"ack_before_fsync"}),
    ),
)
