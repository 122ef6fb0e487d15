"""What can be taken away from a scenario, besides single faults: each way in turn.

Place in the data path: `chaos.campaign.shrink` tries them in this order. Pure.

Invariants: a candidate differs from the scenario that it is made from, and asks for less; it is a
legal scenario: every fault ends within the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from chaos.scenario.scenario import Scenario, WorkloadSection

__all__ = ["Reduction", "reductions"]

Reduction = Callable[[Scenario], Iterator[tuple[str, Scenario]]]
"""Yields candidates with a few words each; the first that still fails is taken."""

_SECONDS_MIN: Final = 1.0
_MARGIN_S: Final = 1.0
_TENTH: Final = 10
# Work by itself: none of it, or else one.
_WORKERS: Final = ("push_clients", "pull_clients", "transaction_clients", "plain_clients")
_OFF: Final = (
    "key_queries_rate",
    "offset_reads_rate",
    "transaction_crash_s",
    "push_restart_s",
    "pull_restart_s",
    "impatient_share",
    "batch_share",
    "repeat_share",
    "reconsume_share",
    "shard_share",
)
_TO_ONE: Final = ("plain_processes", "transaction_processes", "queues")
_RATES: Final = ("send_rate", "transaction_rate")
_RATE_MIN: Final = 1.0


def reductions() -> list[Reduction]:
    """Return every reduction, in the order in which they are tried."""
    return [
        _sooner,
        _shorter,  # first of all, since every later attempt takes as long
        _fewer_parts,
        *(_fewer(name) for name in _WORKERS),
        *(_without(name) for name in _OFF),
        *(_one(name) for name in _TO_ONE),
        _one_topic,
        _one_group,
        _one_name_server,
        *(_slower(name) for name in _RATES),
    ]


def _fewer_parts(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    if len(scenario.parts) > 1:
        yield "without any part of [workload.NAME]", replace(scenario, parts={})
    for name in scenario.parts:
        left = {other: part for other, part in scenario.parts.items() if other != name}
        yield f"without the part {name}", replace(scenario, parts=left)


def _fewer(name: str) -> Reduction:
    def reduction(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
        count = getattr(scenario.workload, name)
        for fewer in (0, 1):
            if fewer < count:
                yield f"{name} = {fewer}", _working(scenario, {name: fewer})

    return reduction


def _without(name: str) -> Reduction:
    def reduction(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
        if getattr(scenario.workload, name):
            zero = 0.0 if _KINDS[name] == "float" else 0
            yield f"{name} = 0", _working(scenario, {name: zero})

    return reduction


def _one(name: str) -> Reduction:
    def reduction(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
        if getattr(scenario.workload, name) > 1:
            yield f"{name} = 1", _working(scenario, {name: 1})

    return reduction


def _slower(name: str) -> Reduction:
    def reduction(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
        rate = getattr(scenario.workload, name)
        for slower in (rate / _TENTH, rate / 2):
            if slower >= _RATE_MIN:
                yield f"{name} = {slower:g}", _working(scenario, {name: slower})

    return reduction


def _one_topic(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    topics = scenario.workload.topics
    if len(topics) > 1:
        yield "one topic", _working(scenario, {"topics": topics[:1]})


def _one_group(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    if scenario.cluster.groups > 1:
        # Which group a fault hits may be written down; all hit the one that is left.
        faults = tuple(replace(step, group=None) for step in scenario.faults)
        cluster = replace(scenario.cluster, groups=1)
        yield "one group of brokers", replace(scenario, cluster=cluster, faults=faults)


def _one_name_server(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    if scenario.cluster.name_servers > 1:
        yield (
            "one name server",
            replace(scenario, cluster=replace(scenario.cluster, name_servers=1)),
        )


def _sooner(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """The first fault a second after the start of the load, all others as long after it as ever."""
    first = min((step.at_s for step in scenario.faults), default=0.0)
    if first > _MARGIN_S:
        faults = tuple(
            replace(step, at_s=round(step.at_s - first + _MARGIN_S, 3)) for step in scenario.faults
        )
        yield f"the first fault at {_MARGIN_S:g} s", replace(scenario, faults=faults)


def _shorter(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    seconds = scenario.load.seconds
    last = max((step.at_s + step.duration_s for step in scenario.faults), default=0.0)
    lengths = sorted({max(last, each) for each in (last + _MARGIN_S, seconds / 4, seconds / 2)})
    for length in lengths:
        shorter = round(max(length, _SECONDS_MIN) + 0.0005, 3)  # no fault may end beyond it
        if shorter < seconds:
            load = replace(scenario.load, seconds=shorter)
            yield f"a load of {shorter:g} s", replace(scenario, load=load)


def _working(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    return replace(scenario, workload=replace(scenario.workload, **changes))


_KINDS: Final = {field.name: field.type for field in fields(WorkloadSection)}
