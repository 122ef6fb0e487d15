"""A bounded part of the outsider's campaign; its plants and near misses are all judged by night.

`make outside` has more seeds and damaged runs, and both engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from campaigns.outside import damage
from campaigns.outside.campaign import clean_alarms, near_miss_alarms
from campaigns.outside.catalogue import PLANTS, batches, judged
from campaigns.outside.judging import accused, judge
from campaigns.outside.model_cluster import model_run
from campaigns.outside.near_misses import NEAR_MISSES
from campaigns.outside.planting import FEATURES, REPEATED, NearMiss, Plant
from campaigns.outside.run_rows import Run, content_digest
from verify.run import load_rules

_CLEAN_SEEDS = (2, 4, 9, 17, 23, 38)
_RULES = (
    *(f"A{number}" for number in range(1, 24) if number != 9),  # which has no likeness here
    *(f"R{number}" for number in range(1, 15)),
    *(f"S{number}" for number in range(1, 9)),
    *(f"T{number}" for number in (*range(1, 17), 18)),
    *(f"D{number}" for number in range(1, 7)),
    *(f"P{number}" for number in range(1, 11)),
    *(f"C{number}" for number in range(3, 20)),
    *(f"M{number}" for number in (*range(1, 13), 14, 16, 17)),
)
_BATCHES = list(batches(PLANTS))
_ONCE_ACCUSED = frozenset(
    {
        "a commit behind a dead letter of an exclusive group",
        "a question that the network doubled",
        "in order, and none of another tag",
        "retention took what had been popped",
    }
)
_T = TypeVar("_T")


def _shared_with_the_night(
    values: Iterable[_T], *, each: int, name: Callable[[_T], str], always: Collection[str] = ()
) -> list[pytest.ParameterSet]:
    """One value in `each`, and those named by `always`, are tried by `make test`, the others by
    night."""
    return [
        pytest.param(
            value,
            id=name(value),
            marks=() if place % each == 0 or name(value) in always else pytest.mark.nightly,
        )
        for place, value in enumerate(values)
    ]


def test_the_digest_is_the_pages() -> None:
    assert content_digest(b"hello", 0, {"TAGS": "a"}) == 7560684089011591531
    properties = {"TAGS": "a", "KEYS": "k1 k2", "u_": "", "u_a": "1", "UNIQ_KEY": "x"}
    assert content_digest(b"hello", 7, properties) == -6720152112533199961
    assert content_digest(b"", 0, {}) == -1700982381690277310


def test_a_seed_is_one_run() -> None:
    one, other = model_run(4), model_run(4)
    for table in ("ops", "faults", "raft", "log", "cq"):
        assert getattr(one, table) == getattr(other, table)
    assert one.manifest == other.manifest


def _words(run: Run) -> set[str]:
    words = {f"{row['f']} {row['type']}" for row in run.ops}
    words |= {row["event"] for row in run.raft} | {row.get("role", "") for row in run.raft}
    words |= {row["kind"] for row in run.log}
    words |= {f"fault {row['effect']}" for row in run.faults}
    words |= {f"check {row['decision']}" for row in run.ops if row["f"] == "check"}
    return words


def test_what_the_format_names_occurs_in_clean_seeds() -> None:
    seen: set[str] = set()
    for seed in range(1, 25):
        seen |= _words(model_run(seed))
    asked = [
        "send",
        "half",
        "poll",
        "deliver",
        "commit_offset",
        "fetch_offset",
        "max_offset",
        "query",
    ]
    expected = {f"{f} {type_}" for f in asked for type_ in ("ok", "info")}
    expected |= {f"{f} fail" for f in ("send", "half", "decide", "poll", "deliver", "query")}
    expected |= {"decide ok", "decide info", "assign ok", "assign info", "local ok"}
    expected |= {f"check {decision}" for decision in ("commit", "rollback", "unknown")}
    expected |= {
        "start",
        "role",
        "vote",
        "append",
        "truncate",
        "fsync",
        "commit",
        "apply",
        "config",
    }
    expected |= {"install", "read", "state", "leader", "follower", "candidate"}
    expected |= {"message", "half", "op", "final", "offset", "config", "noop", "command"}
    expected |= {f"fault {effect}" for effect in ("taken", "not_taken", "unknown")}
    assert expected <= seen, sorted(expected - seen)


def test_what_features_name_occurs_in_their_run() -> None:
    run = model_run(FEATURES)
    asked = "delay recall pop ack change request reply reset search lock unlock assignment account "
    asked += "create_topic delete_topic create_group delete_group group route ask set get"
    assert {row["f"] for row in run.ops} >= set(asked.split())
    assert {row["kind"] for row in run.log} >= {"pop", "ack", "change", "offset"}
    repeated = model_run(REPEATED).ops
    assert any(row["f"] == "half" and row["due"] is not None for row in repeated)
    checks = [row for row in repeated if row["f"] == "check"]
    assert all(row["offset"] is not None and row["node"] and row["status"] for row in checks)


def test_every_rule_has_two_plants() -> None:
    counts = Counter(plant.rule for plant in PLANTS)
    assert {rule for rule in _RULES if counts[rule] < 2} == set()
    assert set(counts) == set(_RULES)
    assert len(PLANTS) >= 360
    assert len(NEAR_MISSES) >= 125
    assert {near.name for near in NEAR_MISSES} >= _ONCE_ACCUSED


@pytest.mark.parametrize("seed", _shared_with_the_night(_CLEAN_SEEDS, each=2, name=str))
def test_a_clean_seed_passes(seed: int) -> None:
    assert clean_alarms(seed) == []


def test_every_feature_at_work_accuses_nobody() -> None:
    assert dict(accused(judge(model_run(FEATURES)))) == {}


@pytest.mark.parametrize(
    "near",
    _shared_with_the_night(NEAR_MISSES, each=14, name=lambda near: near.name, always=_ONCE_ACCUSED),
)
def test_what_is_legal_accuses_nobody(near: NearMiss) -> None:
    assert near_miss_alarms(near) == []


@pytest.mark.parametrize(
    "batch", _shared_with_the_night(_BATCHES, each=6, name=lambda batch: batch[0].name)
)
def test_plants_are_named_by_their_rule(batch: list[Plant]) -> None:
    found = [(one.plant.rule, one.plant.name, one.outcome) for one in judged(batch)]
    assert [one for one in found if one[2] != "named"] == []


@pytest.mark.parametrize("seed", _shared_with_the_night(range(1, 11), each=3, name=str))
def test_a_damaged_run_has_a_verdict(seed: int) -> None:
    told = damage.judge_damaged(seed, engine="duckdb", rules=load_rules())
    assert told.raised is None
    assert told.verdict in {"pass", "fail", "unknown"}


def test_a_seed_is_one_damage(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    done = [damage.damaged(5, folder) for folder in folders]
    assert done[0] == done[1]
    manifests = [(folder / "run.json").read_text() for folder in folders]
    assert manifests[0] == manifests[1]
