"""What a plant is: a defect put into a model run, and who has to name it.

Place in the data path: `plants_*` list them, `campaign` and the tests judge them. A plant's rule
and witness were written down from docs/RUN_FORMAT.md before any verdict on it was seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from campaigns.outside.model_cluster import ModelCluster, Options, model_run
from campaigns.outside.run_rows import Run
from campaigns.outside.virtual_time import Process

__all__ = [
    "FEATURES",
    "FEATURES_RETAINED",
    "FIVE",
    "PLAIN",
    "REPEATED",
    "RETAINED",
    "TWO",
    "NearMiss",
    "Plant",
    "planted_run",
]

PLAIN = Options(seed=7, last_breath=False, push=True, second_drain=True)
TWO = Options(seed=12, groups=2, last_breath=False, faults=("cut-leader", "kill-follower"))
FIVE = Options(
    seed=5, replicas=5, last_breath=False, faults=("power-leader", "pause-leader", "cut-leader")
)
FEATURES = Options(
    seed=7,
    last_breath=False,
    transactions=False,
    push=False,
    broadcast=False,
    features=True,
    faults=(),
)
REPEATED = Options(seed=7, repeats=True, last_breath=False)
FEATURES_RETAINED = replace(FEATURES, retention=True)
RETAINED = Options(seed=3, retention=True, install=True, members=True, last_breath=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """`change` alters rows and answers what a witness must show; a script leaves it in the run."""

    name: str
    rule: str
    base: Options
    change: Callable[[Run], str] | None = None
    script: Callable[[ModelCluster], Process] | None = None
    defects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A legal oddity; `unknown`: the checks that the page says can't be decided (`*`: all)."""

    name: str
    why: str  # the words of the page that make it legal
    base: Options
    change: Callable[[Run], None] | None = None
    script: Callable[[ModelCluster], Process] | None = None
    unknown: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=32)
def _base_run(options: Options) -> Run:
    return model_run(options)


def planted_run(plant: Plant | NearMiss) -> tuple[Run, str]:
    """The changed run, and what a witness must show."""
    defects = plant.defects if isinstance(plant, Plant) else frozenset()
    if plant.script is None and not defects:
        run = _base_run(plant.base).copy()
    else:
        run = model_run(replace(plant.base, script=plant.script, defects=defects))
    note = plant.change(run) if plant.change is not None else None
    return run, note if isinstance(note, str) else run.note
