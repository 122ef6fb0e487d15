"""All plants, and how they are judged: one by one, or a dozen in one run.

Place in the data path: between the lists of plants and whoever counts (`campaign`, the tests).

Invariants: a plant is found by the right rule where that rule's witnesses show what was written
down for it, and, in a merged run, under the plant's own names.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from campaigns.outside.judging import accused, judge, undecided
from campaigns.outside.merging import merged, prefixed
from campaigns.outside.planting import Plant, planted_run
from campaigns.outside.plants_decisions import DECISION_PLANTS
from campaigns.outside.plants_features import FEATURE_PLANTS
from campaigns.outside.plants_history import HISTORY_PLANTS
from campaigns.outside.plants_management import MANAGEMENT_PLANTS
from campaigns.outside.plants_operating import OPERATING_PLANTS
from campaigns.outside.plants_raft import RAFT_PLANTS
from campaigns.outside.plants_reading import READING_PLANTS
from campaigns.outside.plants_retrying import RETRYING_PLANTS
from campaigns.outside.plants_store import STORE_PLANTS
from campaigns.outside.plants_times import TIME_PLANTS
from campaigns.outside.plants_transactions import TRANSACTION_PLANTS
from campaigns.outside.second_round import SECOND_PLANTS
from verify.verdict import Verdict

__all__ = ["PLANTS", "Found", "batches", "found_in", "judged"]

PLANTS: Final[tuple[Plant, ...]] = (
    *HISTORY_PLANTS,
    *TIME_PLANTS,
    *RAFT_PLANTS,
    *STORE_PLANTS,
    *TRANSACTION_PLANTS,
    *SECOND_PLANTS,
    *FEATURE_PLANTS,
    *MANAGEMENT_PLANTS,
    *RETRYING_PLANTS,
    *READING_PLANTS,
    *OPERATING_PLANTS,
    *DECISION_PLANTS,
)
# What a merged run would blur: limits, fault windows, and what every group has to read.
_ALONE: Final = frozenset({"A5", "A14", "A16", "A22", "T8", "C5", "D3", "D5", "M10"})
_TOGETHER_MAX: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one plant."""

    plant: Plant
    outcome: str  # named, elsewhere (the rule, not its witness), by another, missed
    others: Sequence[str] = field(default=())
    doubts: Sequence[str] = field(default=())


def batches(plants: Sequence[Plant]) -> Iterator[list[Plant]]:
    """Plants that are judged in one run: each of another rule, so that all witnesses are shown.

    Those of further features are left to themselves: their runs are without faults, which would
    excuse in a merged run what they are about.
    """
    with_features = [plant for plant in plants if plant.base.features]
    yield from _batches([plant for plant in plants if not plant.base.features])
    yield from _batches(with_features)


def _batches(plants: Sequence[Plant]) -> Iterator[list[Plant]]:
    waiting: dict[str, list[Plant]] = defaultdict(list)
    for plant in plants:
        if plant.rule in _ALONE or plant.defects:
            yield [plant]
        else:
            waiting[plant.rule].append(plant)
    while waiting:
        fullest = sorted(waiting, key=lambda rule: (-len(waiting[rule]), rule))[:_TOGETHER_MAX]
        yield [waiting[rule].pop() for rule in fullest]
        waiting = defaultdict(list, {rule: left for rule, left in waiting.items() if left})


def judged(plants: Sequence[Plant]) -> list[Found]:
    """Judges a batch."""
    if len(plants) == 1:
        return [_judged_alone(plants[0])]
    runs, notes = [], []
    for place, plant in enumerate(plants):
        run, note = planted_run(plant)
        named = [row for row in run.ops if note == f"op {row['op']}"]
        runs.append(prefixed(run, f"c{place:02}-"))
        notes.append((note, named))
    whole = merged(runs)  # which numbers the operations anew
    notes = [(f"op {rows[0]['op']}" if rows else note, rows) for note, rows in notes]
    verdict = judge(whole)
    found = [
        found_in(verdict, plant, note, f"c{place:02}-")
        for place, (plant, (note, _)) in enumerate(zip(plants, notes, strict=True))
    ]
    # Others of the batch may have filled the witnesses that are shown.
    return [
        one if one.outcome == "named" else _judged_alone(plant)
        for one, plant in zip(found, plants, strict=True)
    ]


def _judged_alone(plant: Plant) -> Found:
    run, note = planted_run(plant)
    return found_in(judge(run), plant, note, "")


def _shows(witness: str, note: str) -> bool:
    if note.startswith("op "):
        return re.search(rf": {note[3:]}[,}}\]]", witness) is not None
    return note in witness


def found_in(verdict: Verdict, plant: Plant, note: str, prefix: str) -> Found:
    """Who named a plant: in a merged run what is shown under its prefix counts alone."""
    others: Counter[str] = Counter()
    is_named = is_shown = False
    for rule, check in accused(verdict).items():
        texts = [json.dumps(dict(row), default=str) for row in check.witnesses]
        own = [text for text in texts if prefix in text]
        if rule == plant.rule:
            is_named = bool(own)
            is_shown = any(_shows(text, note) for text in own)
        elif own:
            others[rule] += len(own)
    if is_named and is_shown:
        outcome = "named"
    elif is_named:
        outcome = "elsewhere"
    else:
        outcome = "by another" if others else "missed"
    doubts = [f"{rule}: {check.reason}" for rule, check in undecided(verdict).items()]
    return Found(plant=plant, outcome=outcome, others=sorted(others), doubts=doubts)
