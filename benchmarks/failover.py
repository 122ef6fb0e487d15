"""The pause of acknowledgements when a group's leader is killed or cut off, and its parts.

    python -m benchmarks.failover [--kills N] [--cuts N] [--profile lan|fast] [--output FILE]
    python -m benchmarks.failover --scenario scenarios/two-hundred-failovers.toml
    python -m benchmarks.failover --run RUN            a run that exists already

It is an experiment of the laboratory, so the run can be verified (`ledgermq verify RUN`, or
`--verify`): the figures count only for a group that lost and doubled nothing.

Per failover, from the fault to the first acknowledged send that another node answered:

    detect   until a node stands for election (its pre-vote is won)
    elect    until one leads
    commit   until it has committed its first entry
    answer   until a producer has its first acknowledgement

Roles and commits come from the replicas' Raft traces, acknowledgements from the producers' history.
A fault whose effect the laboratory did not observe, or whose node did not lead, is not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.experiment.experiment import run_experiment
from chaos.scenario.scenario import Scenario, load_scenario, parse_scenario

PERIOD_S = 4.5  # from one fault to the next
PARTS = ("detect_ms", "elect_ms", "commit_ms", "answer_ms")
_SCENARIO = Path(__file__).resolve().parent.parent / "scenarios" / "two-hundred-failovers.toml"

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One failover; milliseconds, parts None if the traces lack an event."""

    fault: str
    at_s: float
    total_ms: float
    parts: tuple[float, ...] | None


def scenario_of(kills: int, cuts: int) -> Scenario:
    """Build the campaign with so many kills and cuts, in turn."""
    text = _SCENARIO.read_text(encoding="utf-8")
    head = text[: text.index("[[faults]]")]
    rounds = max(kills, cuts)
    head = head.replace("seconds = 908", f"seconds = {rounds * 2 * PERIOD_S + 8:g}", 1)
    for name, count, at_s, duration_s in (
        ("kill", kills, 4, 1.5),
        ("partition-leader", cuts, 8, 2.5),
    ):
        if count:
            head += f'[[faults]]\nname = "{name}"\nat_s = {at_s}\nduration_s = {duration_s}\n'
            head += f"repeat = {count}\nevery_s = {2 * PERIOD_S}\n\n"
    return parse_scenario(head, name="failovers")


def failovers_of(run: Path) -> tuple[list[Failover], int]:
    """Return the failovers of a run, and the number of faults that caused none."""
    faults = pq.read_table(run / "faults" / "faults.parquet").to_pylist()
    ops = pq.read_table(
        run / "history" / "ops.parquet", columns=["f", "type", "t_complete", "node"]
    )
    sends = ops.filter(
        pc.and_(pc.is_in(ops["f"], pa.array(["send", "half"])), pc.equal(ops["type"], "ok"))
    ).sort_by("t_complete")
    times, nodes = sends["t_complete"].to_pylist(), sends["node"].to_pylist()
    raft = pq.read_table(
        run / "raft" / "raft.parquet", columns=["node", "t", "event", "role", "term"]
    )
    raft = raft.filter(pc.is_in(raft["event"], pa.array(["role", "commit"]))).sort_by("t")
    events = raft.to_pylist()
    event_times = [event["t"] for event in events]
    found: list[Failover] = []
    skipped = 0
    for fault in faults:
        leader = _leader_before(events, event_times, fault["t_start"])
        hit = [set(_nodes_of(target)) for target in fault["targets"]]
        if fault["effect"] != "taken" or {leader} != set.intersection(*hit):
            skipped += 1
            continue
        begin = fault["t_start"]
        answered = next(
            (
                times[at]
                for at in range(bisect_right(times, begin), len(times))
                if nodes[at] != leader
            ),
            None,
        )
        if answered is None:
            skipped += 1
            continue
        found.append(
            Failover(
                fault=fault["name"],
                at_s=begin / 1e9,
                total_ms=(answered - begin) / 1e6,
                parts=_parts(events, event_times, begin, answered),
            )
        )
    return found, skipped


def _nodes_of(target: str) -> list[str]:
    """Return the node of a process name, or both nodes of a link."""
    return [name.rpartition("-")[2] for name in target.split("->")]


def _leader_before(events: list[Event], times: list[int], t: int) -> str | None:
    """Return the last leader in the events up to time `t`."""
    for at in range(bisect_right(times, t) - 1, -1, -1):
        if events[at]["event"] == "role" and events[at]["role"] == "leader":
            return str(events[at]["node"])
    return None


def _parts(
    events: list[Event], times: list[int], begin: int, answered: int
) -> tuple[float, ...] | None:
    stood = led = committed = None
    leader: Event | None = None
    for at in range(bisect_right(times, begin), len(events)):
        event = events[at]
        if event["t"] > answered:
            break
        if event["event"] == "role" and event["role"] == "candidate" and stood is None:
            stood = event["t"]
        elif event["event"] == "role" and event["role"] == "leader":
            # A leader that commits nothing before the next one does not end the failover.
            led, leader, committed = event["t"], event, None
        elif (
            leader is not None
            and committed is None
            and event["event"] == "commit"
            and (event["node"], event["term"]) == (leader["node"], leader["term"])
        ):
            committed = event["t"]
    if stood is None or led is None or committed is None:
        return None
    ends = (begin, stood, led, committed, answered)
    return tuple((b - a) / 1e6 for a, b in itertools.pairwise(ends))


def figures_of(found: Sequence[Failover], skipped: int) -> dict[str, object]:
    names = sorted({failover.fault for failover in found})
    groups = {"all": list(found)} | {
        name: [failover for failover in found if failover.fault == name] for name in names
    }
    figures: dict[str, object] = {"failovers": len(found), "faults_that_were_none": skipped}
    for name, members in groups.items():
        split = [failover.parts for failover in members if failover.parts is not None]
        figures[name] = {
            "count": len(members),
            "total_ms": _quantiles([failover.total_ms for failover in members]),
            **{
                part: _quantiles([parts[place] for parts in split])
                for place, part in enumerate(PARTS)
            },
        }
    return figures


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 1)
        for name, q in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--scenario", type=Path, help="instead of kills and cuts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where the run directory goes; else it is removed")
    parser.add_argument("--run", type=Path, help="measure this run directory")
    parser.add_argument("--verify", action="store_true", help="and check it with Spark")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
        run = arguments.run
        if run is None:
            scenario = (
                scenario_of(arguments.kills, arguments.cuts)
                if arguments.scenario is None
                else load_scenario(arguments.scenario)
            )
            cluster = dataclasses.replace(scenario.cluster, profile=arguments.profile)
            scenario = dataclasses.replace(scenario, cluster=cluster)
            out = arguments.out or Path(name) / "run"
            run = run_experiment(scenario, seed=arguments.seed, out=out)
        found, skipped = failovers_of(run)
        figures = {"cores": os.cpu_count(), **figures_of(found, skipped)}
        if arguments.run is None:
            figures["profile"] = arguments.profile
        if arguments.verify:
            subprocess.run([sys.executable, "-m", "ledgermq", "verify", str(run)], check=False)
            verdict = json.loads((run / "verdict.json").read_text())
            figures["verdict"] = verdict["verdict"]
            figures["promises"] = verdict["promises"]
    for failover in found:
        parts = "" if failover.parts is None else [round(part, 1) for part in failover.parts]
        print(f"{failover.at_s:7.1f} s {failover.fault:17} {failover.total_ms:7.1f} ms {parts}")
    print(json.dumps(figures, indent=2))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
