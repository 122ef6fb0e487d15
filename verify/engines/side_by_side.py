"""Stages made and rules run several at a time, in threads of this process.

Place in the data path: under an engine whose queries on a small run use one processor each.

Invariants: a stage is begun once all that it reads are made; what fails is reported under its own
name and, of stages, under those of all that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from verify.catalogue.dialect import tables_of
from verify.catalogue.rule_files import Rule, Stage
from verify.engines.engine import EngineError, Findings, found_by

__all__ = ["find_side_by_side", "make_side_by_side"]


def make_side_by_side(
    make: Callable[[Stage], None], stages: Sequence[Stage], *, at_a_time: int
) -> Mapping[str, EngineError]:
    """Call `make` for each of `stages`, each of which may read those before it; return the errors
    by stage name."""
    with ThreadPoolExecutor(max_workers=at_a_time) as threads:
        making: dict[str, Future[None]] = {}
        for stage in stages:  # waits only for earlier ones: no deadlock
            below = tables_of(stage.text, name=stage.name) & set(making)
            wait_for = [making[name] for name in sorted(below)]
            making[stage.name] = threads.submit(_make_behind, make, stage, wait_for)
    errors = {name: future.exception() for name, future in making.items()}
    for error in errors.values():
        if error is not None and not isinstance(error, EngineError):
            raise error
    return {name: error for name, error in errors.items() if isinstance(error, EngineError)}


def find_side_by_side(
    find: Callable[[Rule], Findings], rules: Sequence[Rule], *, at_a_time: int
) -> Mapping[str, Findings | EngineError]:
    """Call `find` for each of `rules`; return what it returned, or its EngineError, by rule id."""
    with ThreadPoolExecutor(max_workers=at_a_time) as threads:
        answers = threads.map(partial(found_by, find), rules)
        return {rule.id: answer for rule, answer in zip(rules, answers, strict=True)}


def _make_behind(
    make: Callable[[Stage], None], stage: Stage, below: Sequence[Future[None]]
) -> None:
    for future in below:
        future.result()
    make(stage)
