"""The order in which rules are queried, so that few stages are held at a time.

Place in the data path: `verify.judge` uses it if the engine can drop stages; what a rule finds does
not depend on the order. Pure.

Invariants: each rule is in one step; a stage is made in the first step that needs it, after all
that it reads itself, and dropped after the last step that reads it; a stage to retain is never
dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verify.catalogue.dialect import tables_of
from verify.catalogue.rule_files import Rule, Stage
from verify.catalogue.stage_order import stages_behind

__all__ = ["Step", "scheduled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Stages to make, in that order; rules to query; stages that no later step reads."""

    make: Sequence[str]
    query: Sequence[Rule]
    drop: Sequence[str] = ()


def scheduled(
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    *,
    made: Collection[str],
    retain: Collection[str],
) -> list[Step]:
    """Schedule one rule per step, always the one that needs the fewest further stages; then the
    stages in `retain` that no rule needed.

    Stages in `made` exist already and are left alone.
    """
    reads = {
        rule.id: [
            name
            for name in stages_behind(tables_of(rule.text, name=rule.id) & set(stages), stages)
            if name not in made
        ]
        for rule in rules
    }
    retained = [name for name in stages_behind(retain, stages) if name not in made]
    waiting = list(rules)
    held: list[str] = []
    there = set[str]()  # stages made so far
    steps: list[Step] = []
    while waiting:
        rule = min(waiting, key=lambda rule: sum(name not in there for name in reads[rule.id]))
        waiting.remove(rule)
        make = [name for name in reads[rule.id] if name not in there]
        there.update(make)
        held.extend(make)
        to_be_made = {
            name for below in (retained, *(reads[rule.id] for rule in waiting)) for name in below
        } - there
        needed = {*retain, *_read_by(waiting), *_read_by(stages[name] for name in to_be_made)}
        for name in reversed(held):  # a stage that is not stored reads others each time
            if name in needed and not stages[name].is_stored_large:
                needed.update(_read_by([stages[name]]))
        drop = [name for name in held if name not in needed]
        held = [name for name in held if name in needed]
        steps.append(Step(make=make, query=[rule], drop=drop))
    make = [name for name in retained if name not in there]
    drop = [name for name in (*held, *make) if name not in retain]
    return [*steps, Step(make=make, query=(), drop=drop)]


def _read_by(queries: Iterable[Rule | Stage]) -> Iterator[str]:
    for query in queries:
        yield from tables_of(query.text, name=query.path.stem)
