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
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.part_sections import PART_SECTIONS, PartSection, part_problems, part_settings
from chaos.scenario.ranges import (
    fault_number_problem,
    group_names,
    layout_problem,
    number_problems,
    text_problems,
    with_matches,
)
from chaos.scenario.schedule import (
    FaultStep,
    PhaseSection,
    ScheduleSection,
    SequenceSection,
    SequenceStep,
    planned,
    schedule_problems,
)
from remoting.connections.config_values import typed

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
    "fault_parameters",
    "load_scenario",
    "parse_scenario",
    "route_expiry_ms",
]

SCENARIO_SIZE_MAX: Final = 1 << 20
FAULTS_MAX: Final = 1000
_DAY_S: Final = 86_400
SECTIONS: Final = ("cluster", "load", "workload", "transactions", "dedupe", "limits")
# An index file of 8.4 MB in place of 420: a run has few keys, and more files are more to get wrong.
_SMALL_INDEX: Final = {"max_hash_slot_num": 100_000, "max_index_num": 400_000}
_OF_FAULTS: Final = ("faults", "schedule", "sequences", "phases")
_SEQUENCE_KEYS: Final = ("at_s", "steps", "group", "repeat", "every_s", "beyond_majority")
_SEQUENCE_STEP_KEYS: Final = ("name", "duration_s", "wait_s", "hold")
_REGISTRATION_MS: Final = 30_000  # a broker's default
_REGISTRATION_MARGIN_MS: Final = 5_000  # a request that times out, and the next one
_FAULT_KEYS: Final = ("name", "at_s", "duration_s", "repeat", "every_s", "group")


class ScenarioError(ValueError):
    """The file is no scenario; the text names the key and what was wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """The cluster under test.

    `spares`: places per group for nodes that faults add. `raft`, `broker`: settings passed to each
    broker unchanged; `profile` names the times of `raft.profiles`. With `access` brokers refuse
    whoever they have no account or user of. With `failpoints` they start with their failpoints,
    which faults of points, disks, power and clocks need.
    """

    groups: int = 1
    replicas: int = 3
    name_servers: int = 2
    spares: int = 0
    engine: str = "raft"
    failpoints: bool = False
    profile: str = "lan"
    access: bool = False
    raft: Mapping[str, int | bool] = field(default_factory=dict)
    broker: Mapping[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSection:
    """Lengths of the phases. Heal and drain end as soon as they are done; these are bounds."""

    seconds: float = 60.0
    heal_seconds_max: float = 60.0
    drain_seconds_max: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSection:
    """Clients, processes per client, and rates (over all processes of a kind, per second).

    Shares are parts of 1. `*_restart_s`: mean time between restarts of a client of that kind, 0:
    none. `commit_share + rollback_share <= 1`; the rest of the transactions are left to the
    broker's check, `undecided_share` of all are never decided by anybody, so that the broker gives
    them up. `impatient_share` of the sends and decisions are given up after `impatient_timeout_ms`,
    so that outcomes stay unknown and are retried by the application; `batch_share` of the sends are
    batches of two to four messages, after `repeat_share` of the answers the message is sent again,
    as by an application that lost the answer, at most as often as a failed one is. A push listener
    takes `consume_ms` for a batch, on average.
    """

    topics: tuple[str, ...] = ("orders", "payments")
    queues: int = 4
    body_bytes: int = 256
    plain_clients: int = 2
    plain_processes: int = 4
    send_rate: float = 180.0
    shard_share: float = 0.5
    shards: int = 16
    send_timeout_ms: int = 3000
    send_retries_max: int = 3
    impatient_share: float = 0.2
    impatient_timeout_ms: int = 150
    batch_share: float = 0.05
    repeat_share: float = 0.02
    transaction_clients: int = 3
    transaction_processes: int = 4
    transaction_rate: float = 90.0
    commit_share: float = 0.75
    rollback_share: float = 0.15
    undecided_share: float = 0.0
    transaction_crash_s: float = 20.0
    push_clients: int = 2
    push_restart_s: float = 15.0
    reconsume_share: float = 0.002
    consume_ms: int = 5
    pull_clients: int = 1
    pull_restart_s: float = 20.0
    offset_reads_rate: float = 5.0
    key_queries_rate: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsSection:
    """The broker's check of undecided halves, for its configuration and the manifest."""

    timeout_ms: int = 3000
    check_interval_ms: int = 2000
    check_max: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeSection:
    """How long a UNIQ_KEY is remembered; a later retry is rejected."""

    window_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """Bounds that A14 and A16 judge; without this section they are measured only.

    `acked_share_min`: share of the sends outside of fault windows that must be acknowledged;
    `late_ms`: how late a delayed message may be outside of them (D5), 0: that is not judged.
    """

    rto_ms: int
    gap_ms: int
    lag_ms: int
    acked_share_min: float = 0.0
    late_ms: int = 0


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
    _check_keys("", data, ("name", "description", *_OF_FAULTS, *SECTIONS))
    _need(
        any(key in data for key in (*SECTIONS, *_OF_FAULTS)),
        "it is empty: no section and no fault, so nothing is asked for",
    )
    parts = _parts(data)
    load = _section(LoadSection, "load", data)
    limits = _section(LimitsSection, "limits", data) if "limits" in data else None
    scenario = Scenario(
        name=_typed("name", data.get("name", name), str),
        description=_typed("description", data.get("description", ""), str),
        text=text,
        cluster=_section(ClusterSection, "cluster", data),
        load=load,
        workload=_section(WorkloadSection, "workload", data),
        transactions=_section(TransactionsSection, "transactions", data),
        dedupe=_section(DedupeSection, "dedupe", data),
        limits=limits,
        faults=_faults(data.get("faults", []), load),
        parts=parts,
        schedule=_section(ScheduleSection, "schedule", data) if "schedule" in data else None,
        sequences=_sequences(data.get("sequences", [])),
        phases=tuple(
            _section(PhaseSection, f"phases[{number}]", {f"phases[{number}]": table})
            for number, table in enumerate(_typed("phases", data.get("phases", []), list))
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


def _section(kind: type[Any], name: str, data: Mapping[str, object]) -> Any:
    table = _typed(name, data.get(name, {}), dict)
    fields = {each.name: each for each in dataclasses.fields(kind)}
    _check_keys(name, table, fields)
    hints = typing.get_type_hints(kind)
    values = {key: _typed(f"{name}.{key}", value, hints[key]) for key, value in table.items()}
    for each in fields.values():
        no_default = each.default is dataclasses.MISSING
        if no_default and each.default_factory is dataclasses.MISSING and each.name not in values:
            raise ScenarioError(f"{name}.{each.name} is missing")
    return kind(**values)


def _faults(items: object, load: LoadSection) -> tuple[FaultStep, ...]:
    steps: list[FaultStep] = []
    for number, item in enumerate(_typed("faults", items, list)):
        where = f"faults[{number}]"
        table = _typed(where, item, dict)
        name, params = _fault(where, table, _FAULT_KEYS)
        at_s = _typed(f"{where}.at_s", table.get("at_s", 0.0), float)
        duration_s = _typed(f"{where}.duration_s", table.get("duration_s", 3.0), float)
        repeat = _typed(f"{where}.repeat", table.get("repeat", 1), int)
        every_s = _typed(f"{where}.every_s", table.get("every_s", 0.0), float)
        group = table.get("group")
        _need(at_s >= 0, f"{where}.at_s must not be negative")
        _need(duration_s > 0, f"{where}.duration_s must be above 0")
        _need(1 <= repeat <= FAULTS_MAX, f"{where}.repeat must be 1..{FAULTS_MAX}")
        _need(repeat == 1 or every_s > 0, f"{where}.every_s must be above 0 where it repeats")
        last = at_s + every_s * (repeat - 1) + duration_s
        _need(
            last <= load.seconds,
            f"{where}: it would last until {last:g} s, beyond load.seconds = {load.seconds:g}",
        )
        steps += [
            FaultStep(
                name=name,
                at_s=at_s + every_s * i,
                duration_s=duration_s,
                group=None if group is None else _typed(f"{where}.group", group, str),
                params=params,
            )
            for i in range(repeat)
        ]
        _need(len(steps) <= FAULTS_MAX, f"more than {FAULTS_MAX} faults")
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _fault(
    where: str, table: Mapping[str, object], keys: tuple[str, ...]
) -> tuple[str, dict[str, str | int | float | bool]]:
    """Return the fault's name and its parameters; `keys` are the table's others."""
    if "name" not in table:
        raise ScenarioError(f"{where}.name is missing")
    name: str = _typed(f"{where}.name", table["name"], str)
    if name not in CATALOGUE:
        raise ScenarioError(f"{where}: unknown fault {with_matches(name, CATALOGUE)}")
    known = CATALOGUE[name].parameters
    _check_keys(f"{where} ({name})", table, (*keys, *known))
    given = {key: value for key, value in table.items() if key in known}
    try:
        return name, fault_parameters(name, given)
    except ScenarioError as error:
        raise ScenarioError(f"{where}.{error}") from error


def fault_parameters(name: str, given: Mapping[str, object]) -> dict[str, str | int | float | bool]:
    """Return the parameters of a fault, defaults where none is given. Raises ScenarioError."""
    spec = CATALOGUE[name]
    _check_keys(name, given, spec.parameters)
    params = dict(spec.parameters)
    for key, value in given.items():
        params[key] = _typed(key, value, type(spec.parameters[key]))
        problem = fault_number_problem(key, params[key])
        _need(problem is None, str(problem))
    for key, allowed in spec.choices.items():
        if params[key] not in allowed:
            hint = f"{with_matches(str(params[key]), allowed)}; one of {', '.join(allowed)}"
            raise ScenarioError(f"{key}: unknown {hint}")
    return params


def _sequences(items: object) -> tuple[SequenceSection, ...]:
    sequences = []
    for number, item in enumerate(_typed("sequences", items, list)):
        where = f"sequences[{number}]"
        table = _typed(where, item, dict)
        _check_keys(where, table, _SEQUENCE_KEYS)
        steps = []
        for place, each in enumerate(_typed(f"{where}.steps", table.get("steps", []), list)):
            at = f"{where}.steps[{place}]"
            step = _typed(at, each, dict)
            name, params = _fault(at, step, _SEQUENCE_STEP_KEYS)
            duration_s = _typed(f"{at}.duration_s", step.get("duration_s", 3.0), float)
            wait_s = _typed(f"{at}.wait_s", step.get("wait_s", 0.0), float)
            _need(0 < duration_s <= _DAY_S, f"{at}.duration_s must be above 0 and at most a day")
            _need(0 <= wait_s <= _DAY_S, f"{at}.wait_s must be 0 or more and at most a day")
            steps.append(
                SequenceStep(
                    name=name,
                    duration_s=duration_s,
                    wait_s=wait_s,
                    hold=_typed(f"{at}.hold", step.get("hold", False), bool),
                    params=params,
                )
            )
        group = table.get("group")
        sequences.append(
            SequenceSection(
                at_s=_typed(f"{where}.at_s", table.get("at_s", 0.0), float),
                steps=tuple(steps),
                group=None if group is None else _typed(f"{where}.group", group, str),
                repeat=_typed(f"{where}.repeat", table.get("repeat", 1), int),
                every_s=_typed(f"{where}.every_s", table.get("every_s", 0.0), float),
                beyond_majority=_typed(
                    f"{where}.beyond_majority", table.get("beyond_majority", False), bool
                ),
            )
        )
    return tuple(sequences)


def _check_values(scenario: Scenario) -> None:
    """Raise ScenarioError for the first value that the cluster or the workload can't use."""
    cluster, work = scenario.cluster, scenario.workload
    problems = text_problems(
        name=scenario.name, topics=work.topics, engine=cluster.engine, profile=cluster.profile
    )
    for name in SECTIONS:
        section = getattr(scenario, name)
        if section is not None:
            fields = dataclasses.fields(section)
            problems += number_problems(name, {f.name: getattr(section, f.name) for f in fields})
    for name, part in scenario.parts.items():
        problems += part_problems(name, part)
    if "accounts" in scenario.parts and not cluster.access:
        problems.append("workload.accounts needs cluster.access = true: nobody obeys users else")
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
    _need(not problems, "; ".join(problems))
    groups = group_names(cluster.groups)
    named = [(f"faults ({step.name})", step.group) for step in scenario.faults]
    named += [(f"sequences[{i}]", each.group) for i, each in enumerate(scenario.sequences)]
    for where, group in named:
        _need(
            group is None or group in groups,
            f"{where}: unknown group {with_matches(str(group), groups)}",
        )


def _typed(where: str, value: object, kind: Any) -> Any:
    return typed(where, value, kind, ScenarioError)


def _check_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    names = list(known)
    for key in table:
        if key not in names:
            place = f" in {where}" if where else ""
            raise ScenarioError(f"unknown key {with_matches(key, names)}{place}")


def _need(condition: bool, text: str) -> None:
    if not condition:
        raise ScenarioError(text)
