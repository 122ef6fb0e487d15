"""Planted anomalies of consensus: R1 to R14, in traces.

Place in the data path: a list for `catalogue`. What a witness must show is a term, an index or a
node, as text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from campaigns.outside.model_cluster import ModelCluster
from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO, Plant
from campaigns.outside.raft_changes import (
    add_after,
    apply_early,
    apply_gap,
    apply_twice,
    commit_beyond,
    commit_falls,
    commit_of_another,
    disk_forgot,
    forgets_its_vote,
    fsync_gone,
    later_leader,
    leader_cuts_its_log,
    leader_lacks,
    leaders_trade_terms,
    log_chain,
    other_chain,
    second_leader,
    starts_in_the_past,
    term_falls,
    votes_twice,
)
from campaigns.outside.run_rows import MS, SECOND, Run
from campaigns.outside.surgery import at, events, renumber, replace_row
from campaigns.outside.virtual_time import Process

__all__ = ["RAFT_PLANTS"]


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
            for one, two in pairwise(leaders)
            if one["node"] != two["node"]
            and events(run, "read", node=one["node"], term=one["term"])
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
    add_after(run, append, event="config", index=append["index"], voters=voters)
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
        add_after(run, other, event="state", index=state["index"], chain=state["chain"] + 1)
        if not states:
            mine = next(
                row
                for row in events(run, "apply", group=base, index=state["index"])
                if row["node"] == state["node"]
            )
            add_after(run, mine, event="state", index=state["index"], chain=state["chain"])
        return str(state["index"])

    return change


def _counts_an_older_term(run: Run) -> str:
    """A new leader calls its predecessor's last entry committed before any of its own is."""
    leader = later_leader(run)
    place = next(n for n, row in enumerate(run.raft) if row is leader)
    append = next(
        row
        for row in reversed(run.raft[:place])
        if row["node"] == leader["node"] and row["event"] == "append"
    )
    fields = {key: append[key] for key in ("index", "entry_term", "chain")}
    add_after(run, leader, event="commit", **fields)
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
    _plant("R1", "two leaders in the first term", second_leader("broker-a", 0)),
    _plant("R1", "two leaders after a failover, second group", second_leader("broker-b", 1), TWO),
    _plant("R1", "a deposed leader claims its successor's term", leaders_trade_terms),
    _plant("R2", "a node votes twice in one term", votes_twice("broker-a", 0)),
    _plant("R2", "a node of five votes twice", votes_twice("broker-a", 1), FIVE),
    _plant("R2", "a vote forgotten by a restart", forgets_its_vote),
    _plant("R3", "the term falls at an append", term_falls("append", 0.5)),
    _plant("R3", "the term falls at an fsync", term_falls("fsync", 0.9), FIVE),
    _plant("R3", "a restart forgets the term", starts_in_the_past),
    _plant("R4", "a leader overwrites its own entry", leader_cuts_its_log("broker-a", 0.5)),
    _plant("R4", "the same, of the second group's last", leader_cuts_its_log("broker-b", 1), TWO),
    _plant("R4", "the same, of its very first entry", leader_cuts_its_log("broker-a", 0), FIVE),
    _plant("R5", "an append in another chain", other_chain("append", 0.4)),
    _plant("R5", "the first append in another chain", other_chain("append", 0.0), FIVE),
    _plant("R5", "another chain in an exported log", log_chain(0.3, "chain")),
    _plant("R6", "a commit in another chain", other_chain("commit", 0.5)),
    _plant("R6", "two entries committed at one index", commit_of_another, FIVE),
    _plant("R6", "another term in a replica's committed log", log_chain(0.9, "term")),
    _plant("R7", "a leader without the last committed entry", leader_lacks("entry", "broker-a")),
    _plant("R7", "a leader of five without it", leader_lacks("entry", "broker-a"), FIVE),
    _plant("R7", "a leader with another entry there", leader_lacks("chain", "broker-b"), TWO),
    _plant("R8", "the commit index falls", commit_falls),
    _plant("R8", "the commit index falls, of five", commit_falls, FIVE),
    _plant("R8", "a commit beyond the log", commit_beyond(0.5), RETAINED),
    _plant("R9", "committed on one disk of three", fsync_gone(1, 0.5, "broker-a")),
    _plant("R9", "committed on two disks of five", fsync_gone(2, 0.2, "broker-a"), FIVE),
    _plant("R9", "committed on one disk, second group", fsync_gone(1, 0.9, "broker-b"), TWO),
    _plant("R9", "a start without what was durable", disk_forgot, FIVE),
    _plant("R10", "an apply leaves one out", apply_gap(0.5)),
    _plant("R10", "an apply leaves one out, five replicas", apply_gap(0.9), FIVE),
    _plant("R10", "entries applied twice", apply_twice, RETAINED),
    _plant("R10", "another entry applied", other_chain("apply", 0.7)),
    _plant("R10", "applied before it was committed", apply_early),
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
