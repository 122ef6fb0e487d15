"""Scenario files: what is right is read, what is wrong is named."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.experiment.load import slot_names
from chaos.experiment.world_catalogue import WORLDS
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario import scenario as sections
from chaos.scenario.part_sections import PART_SECTIONS
from chaos.scenario.scenario import SECTIONS, ScenarioError, load_scenario, parse_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_own_scenarios_are_valid(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.faults or scenario.schedule or scenario.sequences or scenario.parts
    assert scenario.text == path.read_text()


def test_defaults_and_repeats() -> None:
    scenario = parse_scenario(
        '[load]\nseconds = 30\n[[faults]]\nname = "kill"\nat_s = 2\nrepeat = 3\nevery_s = 4\n',
        name="x",
    )
    assert scenario.name == "x"
    assert [step.at_s for step in scenario.faults] == [2, 6, 10]
    assert scenario.faults[0].params == {"target": "leader"}
    assert scenario.limits is None


def test_own_scenarios_leave_no_promise_without_anything_to_judge() -> None:
    """Where no transaction is begun, G4 is unknown, and with it the verdict of the run."""
    without = {
        path.stem
        for path in SCENARIOS
        if not (work := load_scenario(path).workload).transaction_clients * work.transaction_rate
    }
    assert without == {"unacknowledged"}, "made for Apache RocketMQ; nobody expects a pass of it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[load", "not TOML"),
        ("[wrkload]\n", r"unknown key 'wrkload' \(did you mean 'workload'"),
        ("[workload]\nsend_rat = 5\n", r"'send_rat' \(did you mean 'send_rate'.*in workload"),
        ('[workload]\nsend_rate = "5"\n', r"workload\.send_rate must be a number"),
        ("[workload]\nqueues = true\n", r"workload\.queues must be a whole number"),
        ("[workload]\nqueues = 0\n", r"workload\.queues must be 1\.\.64"),
        ("[workload]\ntopics = [1]\n", r"workload\.topics\[0\] must be text"),
        ("[workload]\ncommit_share = 0.9\nrollback_share = 0.2\n", "at most 1"),
        ('[[faults]]\nname = "kil"\n', r"unknown fault 'kil' \(did you mean 'kill'"),
        ("[[faults]]\nat_s = 1\n", r"faults\[0\]\.name is missing"),
        ('[[faults]]\nname = "kill"\ntargt = "leader"\n', r"'targt' \(did you mean 'target'"),
        ('[[faults]]\nname = "kill"\ntarget = "ledaer"\n', r"'ledaer' \(did you mean 'leader'"),
        ('[[faults]]\nname = "kill"\nat_s = 59\nduration_s = 2\n', "until 61 s"),
        ('[[faults]]\nname = "kill"\nrepeat = 2\n', "every_s must be above 0"),
        (
            '[[faults]]\nname = "slow-links"\nlatency_ms = "x"\n',
            "latency_ms must be a whole",
        ),
        ("[limits]\nrto_ms = 5\n", r"limits\.gap_ms is missing"),
        ("[dedupe]\nwindow_ms = 5\n", "must cover the workload's retries"),
        ('[cluster.raft]\nheartbeat_ms = "fast"\n', r"cluster\.raft\.heartbeat_ms must be"),
        ("faults = 3\n", "faults must be a list"),
        ("", "it is empty"),
        ("# nothing\n\n", "it is empty"),
        ('name = "x"\n', "it is empty"),
        ("[cluster]\nreplicas = 0\n", r"cluster\.replicas must be 1\.\.7, not 0"),
        ("[cluster]\ngroups = 27\n", r"cluster\.groups must be 1\.\.26, not 27"),
        ('[cluster]\nengine = "rafd"\n', r"cluster\.engine: unknown 'rafd' \(did you mean 'raft'"),
        ("[cluster.broker]\npull_count_mx = 5\n", r"pull_count_mx: there is no such setting"),
        (
            "[cluster.broker]\ntransaction_check_max = 0\n",
            r"check_max must be at least 1",
        ),
        ("[workload]\nsend_rate = 0.0000001\n", r"send_rate must be 0 or at least"),
        ('[workload]\ntopics = ["a b"]\n', r"topics: 'a b' is no name of a topic"),
        ('[workload]\ntopics = ["TBW102"]\n', r"'TBW102' is a topic of the system"),
        ('name = "../x"\n[load]\n', r"name: '\.\./x' is not"),
        ('[[faults]]\nname = "kill"\ngroup = "broker-b"\n', r"unknown group 'broker-b' \(did you"),
        ('[[faults]]\nname = "slow-links"\nlatency_ms = -1\n', r"latency_ms must be 0\.\."),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, name="x")


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[nonsense]\n")
    with pytest.raises(ScenarioError, match=r"bad\.toml: unknown key 'nonsense'"):
        load_scenario(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_scenario(path)


def refusal_of(text: str) -> str | None:
    """What is said against it; None where nothing is. Any other error is the test's failure."""
    try:
        parse_scenario(text, name="x")
    except ScenarioError as error:
        return str(error)
    return None


def section_of(name: str) -> type[Any]:
    kind: type[Any] = getattr(sections, f"{name.capitalize()}Section")
    return kind


def numbers() -> Iterator[tuple[str, type]]:
    """Every number of every section: its key and its type."""
    for name in SECTIONS:
        for field, hint in typing.get_type_hints(section_of(name)).items():
            if hint in {int, float}:
                yield f"{name}.{field}", hint


def with_number(key: str, value: str) -> str:
    section, field = key.split(".")
    others = {"rto_ms": 1000, "gap_ms": 1000, "lag_ms": 1000} if section == "limits" else {}
    lines = [f"{name} = {number}" for name, number in others.items() if name != field]
    return "\n".join([f"[{section}]", f"{field} = {value}", *lines, ""])


def test_every_number_has_a_range() -> None:
    for kind in (*map(section_of, SECTIONS), *PART_SECTIONS.values()):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            assert ("range" in field.metadata) == (hints[field.name] in {int, float}), field.name
    assert set(SECTIONS) == {
        field.name
        for field in dataclasses.fields(sections.Scenario)
        if "Section" in str(field.type)
        and field.name not in {"parts", "schedule", "sequences", "phases"}
    }


@pytest.mark.parametrize(("key", "kind"), list(numbers()), ids=str)
def test_a_number_out_of_its_range_is_named(key: str, kind: type) -> None:
    section, name = key.split(".")
    (field,) = [each for each in dataclasses.fields(section_of(section)) if each.name == name]
    low, high, _ = field.metadata["range"]
    wrong = [f"{int(low) - 1}", f"{int(high) + 1}", "-9999999999999999999999"]
    if kind is float:
        wrong += ["nan", "inf", "-inf", "1e308", "-0.5"]
    for value in wrong:
        with pytest.raises(ScenarioError, match=rf"{key} must be"):
            parse_scenario(with_number(key, value), name="x")
    for value in (low, high):
        refusal = refusal_of(with_number(key, f"{kind(value)}"))
        # Legal by itself, and maybe not beside the other sections' defaults.
        assert refusal is None or "must cover" in refusal or "_share must be at most" in refusal


VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 7, 8, 1 << 63, "", "x", "raft", "leader", "broker-a", "fast"]),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.dictionaries(st.sampled_from(["heartbeat_ms", "pull_count_max", "x"]), st.integers()),
)
KEYS = st.sampled_from(
    [key for key, _ in numbers()]
    + ["cluster.engine", "cluster.profile", "cluster.raft", "cluster.broker", "workload.topics"]
    + [f"faults.{key}" for key in ("name", "at_s", "duration_s", "repeat", "every_s", "group")]
    + [f"faults.{key}" for fault in CATALOGUE.values() for key in fault.parameters]
)


def toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = "".join(f"\\U{ord(c):08x}" for c in value if not 0xD800 <= ord(c) < 0xE000)
            return f'"{escaped}"'
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
        case _:
            return str(value)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(changes=st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_whatever_a_file_says_it_is_refused_or_can_be_run(changes: dict[str, object]) -> None:
    """A scenario is refused by name, or makes a cluster and a workload: nothing else is raised."""
    tables: dict[str, dict[str, object]] = {"faults": {"name": "kill", "at_s": 1}}
    for key, value in changes.items():
        section, field = key.split(".")
        tables.setdefault(section, {})[field] = value
    lines = []
    for name, table in tables.items():
        lines.append("[[faults]]" if name == "faults" else f"[{name}]")
        lines += [f"{key} = {toml(value)}" for key, value in table.items()]
    text = "\n".join(lines) + "\n"
    if refusal_of(text) is not None:
        return
    scenario = parse_scenario(text, name="x")
    layout = WORLDS["local"].lay_out(scenario, Path("/nowhere"), {})
    assert len(layout.brokers) == scenario.cluster.groups * scenario.cluster.replicas
    assert len(set(slot_names(scenario))) == len(slot_names(scenario))


@given(st.binary(max_size=200))
def test_bytes_are_no_scenario_or_one(data: bytes) -> None:
    assert refusal_of(data.decode(errors="replace")) != ""
