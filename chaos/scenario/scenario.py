"""Scenarios: what an experiment runs, for how long, and what it breaks, as small TOML files.

Place in the data path: `chaos.experiment.experiment` reads one; its sections configure the cluster,
the workload and the nemesis. The text itself goes into the manifest, so that a run can be repeated.

Invariants: every key is known and of its type and range, every fault is in the catalogue with known
parameters, every fault heals within the load phase; otherwise ScenarioError names the key and its
near matches before any process is started.

Source: the run format (transactions, dedupe, limits) and this project's scenarios/ directory.
"""

from __future__ import annotations

import dataclasses
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from chaos.cluster.layout import GROUPS_MAX, NAME_SERVERS_MAX, REPLICAS_MAX
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.fault_tables import read_faults, read_sequences
from chaos.scenario.part_sections import PART_SECTIONS, PartSection, part_settings
from chaos.scenario.ranges import (
    group_names,
    layout_problem,
    text_problems,
    with_matches,
)
from chaos.scenario.schedule import (
    FaultStep,
    PhaseSection,
    ScheduleSection,
    SequenceSection,
    planned,
    schedule_problems,
)
from chaos.scenario.values import ScenarioError, require, typed_value
from remoting.connections.config_values import check_keys, number, range_problems, section

__all__ = [
    "SECTIONS",
    "ClusterSection",
    "DedupeSection",
    "FaultStep",
    "LimitsSection",
    "LoadSection",
    "Scenario",
    "ScenarioError",
    "TransactionsSection",
    "WorkloadSection",
    "load_scenario",
    "parse_scenario",
    "route_expiry_ms",
]

_Section = TypeVar("_Section")
SCENARIO_SIZE_MAX: Final = 1 << 20
NAMESPACED: Final = frozenset(
    {
        "broadcast",
        "calls",
        "filters",
        "litepull",
        "orderly",
        "pops",
        "requests",
        "resets",
        "retries",
        "sends",
    }
)
"""The parts all of whose requests are made by the client library, which knows namespaces."""
SECTIONS: Final = ("cluster", "load", "workload", "transactions", "dedupe", "limits")
# An index file of 8.4 MB in place of 420: a run has few keys, and more files are more to get wrong.
_SMALL_INDEX: Final = {"max_hash_slot_num": 100_000, "max_index_num": 400_000}
_OF_FAULTS: Final = ("faults", "schedule", "sequences", "phases")
_DAY_S: Final = 86_400
_DAY_MS: Final = 86_400_000
_RATE_MIN: Final = 0.001  # one in a quarter of an hour; 0 is none at all
_REGISTRATION_MS: Final = 30_000  # a broker's default
_REGISTRATION_MARGIN_MS: Final = 5_000  # a request that times out, and the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """The cluster under test.

    `spares`: places per group for nodes that faults add. `raft`, `broker`: settings passed to each
    broker unchanged; `profile` names the times of `raft.profiles`. With `access` brokers refuse
    whoever they have no account or user of. With `failpoints` they start with their failpoints,
    which faults of points, disks, power and clocks need.
    """

    groups: int = number(1, 1, GROUPS_MAX)
    replicas: int = number(3, 1, REPLICAS_MAX)
    name_servers: int = number(2, 1, NAME_SERVERS_MAX)
    spares: int = number(0, 0, 2)
    engine: str = "raft"
    failpoints: bool = False
    profile: str = "lan"
    access: bool = False
    raft: Mapping[str, int | bool] = field(default_factory=dict)
    broker: Mapping[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSection:
    """Lengths of the phases. Heal and drain end as soon as they are done; these are bounds."""

    seconds: float = number(60.0, 0.1, _DAY_S)
    heal_seconds_max: float = number(60.0, 0.1, _DAY_S)
    drain_seconds_max: float = number(60.0, 0.1, _DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSection:
    """Clients, processes per client, and rates (over all processes of a kind, per second).

    Shares are parts of 1. `*_restart_s`: mean time between restarts of a client of that kind, 0:
    none. `commit_share + rollback_share <= 1`; the rest of the transactions are left to the
    broker's check, `undecided_share` of all are never decided by anybody, so that the broker gives
    them up, or, `by_hand_share` of these, an operator does. `immune_share` of all ask the broker to
    wait with its first check for a few seconds more than its timeout, and after `contrary_share` of
    the decisions that were acknowledged the contrary one is sent, as by an application whose
    processes disagree. `whole_share` of the transactions are run by one call of the client, whose
    listener fails now and then.
    `impatient_share` of the sends and decisions are given up after `impatient_timeout_ms`, so that
    outcomes stay unknown and are retried by the application; `batch_share` of the sends are batches
    of two to four messages, after `repeat_share` of the answers the message is sent again, as by an
    application that lost the answer, at most as often as a failed one is. Bodies have `body_bytes`;
    `sizes_share` of them, and of the answers to requests, one byte to 120 KB. A push listener takes
    `consume_ms` for a batch, on average. All topics are made with `topic_attributes`, written as
    mqadmin takes them ("+message.type=NORMAL"). The clients of the parts that `namespaced` names
    work in a namespace, each of `NAMESPACED`. The clients of `binary_share` of the slots send
    binary headers in place of JSON.
    """

    topics: tuple[str, ...] = ("orders", "payments")
    topic_attributes: str = ""
    queues: int = number(4, 1, 64)
    body_bytes: int = number(256, 0, 1 << 20)
    sizes_share: float = number(0.0, 0, 1)
    binary_share: float = number(0.0, 0, 1)
    plain_clients: int = number(2, 0, 64)
    plain_processes: int = number(4, 1, 256)
    send_rate: float = number(180.0, 0, 100_000, above_0=_RATE_MIN)
    shard_share: float = number(0.5, 0, 1)
    shards: int = number(16, 1, 1_000_000)
    send_timeout_ms: int = number(3000, 100, 60_000)
    send_retries_max: int = number(3, 0, 100)
    impatient_share: float = number(0.2, 0, 1)
    impatient_timeout_ms: int = number(150, 1, 60_000)
    batch_share: float = number(0.05, 0, 1)
    repeat_share: float = number(0.02, 0, 1)
    transaction_clients: int = number(3, 0, 64)
    transaction_processes: int = number(4, 1, 256)
    transaction_rate: float = number(90.0, 0, 100_000, above_0=_RATE_MIN)
    commit_share: float = number(0.75, 0, 1)
    rollback_share: float = number(0.15, 0, 1)
    undecided_share: float = number(0.0, 0, 1)
    by_hand_share: float = number(0.0, 0, 1)
    immune_share: float = number(0.0, 0, 1)
    contrary_share: float = number(0.0, 0, 1)
    whole_share: float = number(0.0, 0, 1)
    transaction_crash_s: float = number(20.0, 0, _DAY_S)
    push_clients: int = number(2, 0, 64)
    push_restart_s: float = number(15.0, 0, _DAY_S)
    reconsume_share: float = number(0.002, 0, 1)
    consume_ms: int = number(5, 0, 10_000)
    pull_clients: int = number(1, 0, 64)
    pull_restart_s: float = number(20.0, 0, _DAY_S)
    offset_reads_rate: float = number(5.0, 0, 10_000, above_0=_RATE_MIN)
    key_queries_rate: float = number(2.0, 0, 10_000, above_0=_RATE_MIN)
    namespaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSection:
    """The broker's check of undecided halves, for its configuration and the manifest."""

    timeout_ms: int = number(3000, 100, _DAY_MS)
    check_interval_ms: int = number(2000, 100, _DAY_MS)
    check_max: int = number(15, 1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeSection:
    """How long a UNIQ_KEY is remembered; a later retry is rejected."""

    window_ms: int = number(600_000, 1, 7 * _DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """Bounds that A14 and A16 judge; without this section they are measured only.

    `acked_share_min`: share of the sends outside of fault windows that must be acknowledged;
    `late_ms`: how late a delayed message may be outside of them (D5), 0: that is not judged.
    """

    rto_ms: int = number(dataclasses.MISSING, 1, _DAY_MS)
    gap_ms: int = number(dataclasses.MISSING, 1, _DAY_MS)
    lag_ms: int = number(dataclasses.MISSING, 1, _DAY_MS)
    acked_share_min: float = number(0.0, 0, 1)
    late_ms: int = number(0, 0, _DAY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A parsed scenario.

    `text` is the file as it was read; `parts` are the sections [workload.NAME], by name.
    """

    name: str
    description: str
    text: str
    cluster: ClusterSection
    load: LoadSection
    workload: WorkloadSection
    transactions: TransactionsSection
    dedupe: DedupeSection
    limits: LimitsSection | None
    faults: tuple[FaultStep, ...]
    parts: Mapping[str, PartSection] = field(default_factory=dict)
    schedule: ScheduleSection | None = None
    sequences: tuple[SequenceSection, ...] = ()
    phases: tuple[PhaseSection, ...] = ()

    def steps(self, *, seed: int, possible: frozenset[str]) -> tuple[FaultStep, ...]:
        """Return the fixed faults and those that the seed draws, in order of time.

        `possible`: the names of the faults that the world can have.
        """
        drawn = planned(
            schedule=self.schedule,
            sequences=self.sequences,
            phases=self.phases,
            load_s=self.load.seconds,
            catalogue=CATALOGUE,
            possible=possible,
            rng=random.Random(f"schedule {seed}"),  # of its own: other draws stay as they are
        )
        return tuple(sorted((*self.faults, *drawn), key=lambda step: step.at_s))

    @property
    def raft_settings(self) -> dict[str, int | str]:
        """The section [raft] of each broker's configuration."""
        return {"profile": self.cluster.profile, **self.cluster.raft}

    @property
    def broker_settings(self) -> dict[str, int | bool | str]:
        """The section [broker] of each broker's configuration."""
        return {
            "transaction_timeout_ms": self.transactions.timeout_ms,
            "transaction_check_interval_ms": self.transactions.check_interval_ms,
            "transaction_check_max": self.transactions.check_max,
            "dedupe_window_ms": self.dedupe.window_ms,
            **_SMALL_INDEX,
            **part_settings(self.parts),
            **self.cluster.broker,
        }


def route_expiry_ms(scenario: Scenario) -> int:
    """Return for how long a name server may lack what a healthy leader would register.

    A leader registers once per interval at the latest, and a lost registration is repeated soon.
    """
    interval_ms = scenario.cluster.broker.get("registration_interval_ms", _REGISTRATION_MS)
    return int(interval_ms) + _REGISTRATION_MARGIN_MS


def load_scenario(path: Path) -> Scenario:
    """Read a scenario. Raises ScenarioError; OSError where the file can't be read."""
    if path.stat().st_size > SCENARIO_SIZE_MAX:
        raise ScenarioError(f"{path}: larger than {SCENARIO_SIZE_MAX} bytes, which no scenario is")
    try:
        return parse_scenario(path.read_text(encoding="utf-8"), name=path.stem)
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text: {error}") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


def parse_scenario(text: str, *, name: str) -> Scenario:
    """Parse a scenario; `name` is used where the text gives none."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"not TOML: {error}") from error
    check_keys("", data, ("name", "description", *_OF_FAULTS, *SECTIONS), ScenarioError)
    require(
        any(key in data for key in (*SECTIONS, *_OF_FAULTS)),
        "it is empty: no section and no fault, so nothing is asked for",
    )
    parts = _parts(data)
    load = _section(LoadSection, "load", data)
    limits = _section(LimitsSection, "limits", data) if "limits" in data else None
    scenario = Scenario(
        name=typed_value("name", data.get("name", name), str),
        description=typed_value("description", data.get("description", ""), str),
        text=text,
        cluster=_section(ClusterSection, "cluster", data),
        load=load,
        workload=_section(WorkloadSection, "workload", data),
        transactions=_section(TransactionsSection, "transactions", data),
        dedupe=_section(DedupeSection, "dedupe", data),
        limits=limits,
        faults=read_faults(data.get("faults", []), load.seconds),
        parts=parts,
        schedule=_section(ScheduleSection, "schedule", data) if "schedule" in data else None,
        sequences=read_sequences(data.get("sequences", [])),
        phases=tuple(
            _section(PhaseSection, f"phases[{number}]", {f"phases[{number}]": table})
            for number, table in enumerate(typed_value("phases", data.get("phases", []), list))
        ),
    )
    _check_values(scenario)
    return scenario


def _parts(data: dict[str, Any]) -> dict[str, PartSection]:
    """Take the sections [workload.NAME] out of `data`, and read them."""
    work = data.get("workload", {})
    if not isinstance(work, dict):
        return {}
    tables = {name: work[name] for name in PART_SECTIONS if name in work}
    data["workload"] = {key: value for key, value in work.items() if key not in tables}
    return {
        name: _section(PART_SECTIONS[name], f"workload.{name}", {f"workload.{name}": table})
        for name, table in tables.items()
    }


def _section(kind: type[_Section], name: str, data: Mapping[str, object]) -> _Section:
    return section(kind, name, data.get(name, {}), ScenarioError)


def _check_values(scenario: Scenario) -> None:
    """Raise ScenarioError for the first value that the cluster or the workload can't use."""
    cluster, work = scenario.cluster, scenario.workload
    problems = text_problems(
        name=scenario.name, topics=work.topics, engine=cluster.engine, profile=cluster.profile
    )
    for name in SECTIONS:
        if getattr(scenario, name) is not None:
            problems += range_problems(name, getattr(scenario, name))
    for name, part in scenario.parts.items():
        problems += range_problems(f"workload.{name}", part)
    if "accounts" in scenario.parts and not cluster.access:
        problems.append("workload.accounts needs cluster.access = true: nobody obeys users else")
    if strange := sorted(set(work.namespaced) - NAMESPACED):
        problems.append(f"workload.namespaced: {', '.join(strange)} can't be in a namespace")
    total = work.commit_share + work.rollback_share
    if total > 1:
        problems.append("workload.commit_share + workload.rollback_share must be at most 1")
    problems += schedule_problems(
        schedule=scenario.schedule,
        sequences=scenario.sequences,
        phases=scenario.phases,
        load_s=scenario.load.seconds,
        catalogue=CATALOGUE,
    )
    longest = work.send_timeout_ms * (work.send_retries_max + 1)
    if scenario.dedupe.window_ms < longest:
        problems.append(f"dedupe.window_ms must cover the workload's retries ({longest} ms)")
    if not problems:
        refused = layout_problem(
            groups=cluster.groups,
            replicas=cluster.replicas,
            name_servers=cluster.name_servers,
            engine=cluster.engine,
            raft_settings=scenario.raft_settings,
            broker_settings=scenario.broker_settings,
        )
        problems += [] if refused is None else [refused]
    require(not problems, "; ".join(problems))
    groups = group_names(cluster.groups)
    named = [(f"faults ({step.name})", step.group) for step in scenario.faults]
    named += [(f"sequences[{i}]", each.group) for i, each in enumerate(scenario.sequences)]
    for where, group in named:
        require(
            group is None or group in groups,
            f"{where}: unknown group {with_matches(str(group), groups)}",
        )
