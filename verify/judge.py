"""The rules judged by one engine: from the tables of a run to the results of all its checks.

Place in the data path: `verify.run` passes it an empty engine; it loads the tables, makes the
stages that the rules read, and queries rule by rule.

Invariants: a stage is made once, before all that read it, and only if a rule that applies reads it
or it is to be retained; if the engine can, the stage is dropped after its last reader; a rule that
can't be answered makes only itself unknown; the result of a rule depends on nothing but the run. If
a trace does not reach all that the log committed, the rules that need that are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from verify.catalogue.dialect import tables_of
from verify.catalogue.rule_files import Rule, Stage
from verify.catalogue.schedule import Step, scheduled
from verify.catalogue.stage_order import stages_behind, stages_read
from verify.catalogue.tallies import TALLIES, Headers, Tallies
from verify.engines.engine import (
    FINDINGS_MAX,
    Engine,
    EngineError,
    Findings,
    Forgetful,
    TableFiles,
)
from verify.promised import left_out_by_engine
from verify.sources.format_tables import TABLES
from verify.sources.manifest import Manifest
from verify.sources.manifest_tables import OWN_SYSTEM, manifest_tables
from verify.sources.run_files import RunFiles
from verify.verdict import CheckResult, Outcome
from verify.vocabulary import HarnessError, refuse_unknown_words

__all__ = ["Judged", "judge_run"]

TRACE_REACH: Final = "trace_reach"
"""The stage with a row for each replica whose trace does not reach all that it committed."""

_TELLING: Final = frozenset({"ops", "raft", "log"})
"""Tables that tell what happened; faults and queue units alone say nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The results of one engine for a run. `left_out` did not apply, `not_about` say nothing of the
    engine that replicated; `counts` are the rows of the stages of counts, `made` names all stages
    that the engine holds."""

    results: Sequence[CheckResult]
    left_out: Sequence[Rule]
    not_about: Sequence[Rule]
    counts: Mapping[str, Sequence[Mapping[str, object]]]
    made: set[str]


def judge_run(
    engine: Engine,
    files: RunFiles,
    manifest: Manifest,
    *,
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    report: Callable[[str], None],
    retain: Collection[str] = (),
) -> Judged:
    """Judge a run by every rule that applies, on `engine`, which must be empty.

    `retain` names stages that are wanted afterwards, whether a rule reads them or not.

    Raises:
        EngineError: the tables can't be loaded or counted.
        HarnessError: a table has rows outside the format's vocabulary, or none is listed that tells
            what happened.
        TableError: a listed table does not have the format's columns.
        DialectError, RuleFileError: a rule or stage can't be used.
    """
    listed = frozenset(TABLES) & frozenset(manifest.tables)
    if not listed & _TELLING:
        # In a run of another system each rule on these would be left out, and the rest pass.
        raise HarnessError("the run lists no table ops, raft or log, so nothing is proven")
    return _judge(
        engine,
        tables={
            name: TableFiles(
                files=tuple(files.table_file(file.name) for file in manifest.tables.get(name, ())),
                schema=schema,
            )
            for name, schema in TABLES.items()
        },
        listed=listed,
        own_system=manifest.system == OWN_SYSTEM,
        relations=manifest_tables(manifest, listed),
        rules=[rule for rule in rules if _is_about(rule, manifest)],
        not_about=[rule for rule in rules if rule.id in left_out_by_engine(manifest)],
        stages=stages,
        report=report,
        retain=retain,
    )


def _is_about(rule: Rule, manifest: Manifest) -> bool:
    """Return whether a rule says anything of the run's engine."""
    if rule.id in left_out_by_engine(manifest):
        return False
    own_engine = manifest.engine if manifest.system == OWN_SYSTEM else None
    return not rule.engines or own_engine in rule.engines


def _read(
    engine: Engine,
    tables: Mapping[str, TableFiles],
    relations: Mapping[str, pa.Table],
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
) -> tuple[dict[str, pa.Table], dict[str, Headers], set[str]]:
    """Read the tables; return the tallies, what they say of each rule, and the tables without a
    row."""
    engine.load(tables, relations)
    refuse_unknown_words(engine)
    engine.make([stages[name] for name in TALLIES])
    counts = {name: engine.table(name) for name in TALLIES}
    tallies = Tallies(counts, relations)
    try:
        headers = {rule.id: tallies.headers(rule) for rule in rules}
        # A run may have no faults, so an empty table faults is no gap.
        empty = {name for name in tables if name != "faults" and not tallies.rows_of(name)}
    finally:
        tallies.close()
    return counts, headers, empty


def _judge(
    engine: Engine,
    *,
    tables: Mapping[str, TableFiles],
    listed: Collection[str],
    own_system: bool,
    relations: Mapping[str, pa.Table],
    rules: Sequence[Rule],
    not_about: Sequence[Rule],
    stages: Mapping[str, Stage],
    report: Callable[[str], None],
    retain: Collection[str],
) -> Judged:
    """Judge a run; `tables` has every table of the format, empty ones for those not `listed`.

    Only a run of our own system must list all tables of a rule; in others the rule is left out.
    """
    report(f"{engine.name}: reading the tables")
    counts, headers, empty = _read(engine, tables, relations, rules, stages)
    applying = [
        rule
        for rule in rules
        if headers[rule.id].applies and (own_system or set(rule.needs) <= set(listed))
    ]
    runnable = [
        rule for rule in applying if set(rule.needs) <= set(listed) and not empty & set(rule.needs)
    ]
    made = set(TALLIES)
    broken: dict[str, str] = {}
    found: dict[str, Findings] = {}
    steps = _steps(engine, runnable, stages, made, retain)
    report(
        f"{engine.name}: making {sum(len(step.make) for step in steps)} stages, as they are needed"
    )
    if any(rule.reaches for rule in runnable):
        _make(engine, stages_behind([TRACE_REACH], stages), stages, made, broken)
    unreached = _unreached(engine, made, broken)
    report(f"{engine.name}: running {len(runnable)} checks")
    for step in steps:
        _make(engine, step.make, stages, made, broken)
        queryable = _queryable(step.query, stages, unreached, found, broken)
        _query(engine, queryable, found, broken)
        _drop(engine, step.drop, made)
    judged = [
        _result(
            rule,
            headers[rule.id],
            found.get(rule.id),
            error=broken.get(rule.id),
            gaps=list(_gaps(rule, listed, empty, own_system=own_system)),
        )
        for rule in applying
    ]
    results = [result for result in judged if _is_listed(headers[result.id], result)]
    shown = {result.id for result in results}
    return Judged(
        results=results,
        left_out=[rule for rule in rules if rule.id not in shown],
        not_about=not_about,
        counts=counts,
        made=made,
    )


def _is_listed(headers: Headers, result: CheckResult) -> bool:
    """Return whether a result is listed: rules with a false `listed` only if they are unknown."""
    return headers.listed or result.verdict is Outcome.UNKNOWN


def _queryable(
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    unreached: Sequence[Mapping[str, object]],
    found: dict[str, Findings],
    broken: dict[str, str],
) -> list[Rule]:
    """Return the rules that can be run; record the result of each other in `found` or `broken`."""
    queryable: list[Rule] = []
    for rule in rules:
        below = _stages_below(rule, stages) & set(broken)
        if rule.reaches and unreached:
            found[rule.id] = _beyond_the_trace(unreached)
        elif below:
            broken[rule.id] = broken[min(below)]
        else:
            queryable.append(rule)
    return queryable


def _query(
    engine: Engine, rules: Sequence[Rule], found: dict[str, Findings], broken: dict[str, str]
) -> None:
    """Run the rules; record findings in `found`, and the reason of each failure in `broken`."""
    for name, answer in engine.findings_of(rules).items():
        if isinstance(answer, EngineError):
            broken[name] = f"the verification itself failed: {answer}"
        else:
            found[name] = answer


def _steps(
    engine: Engine,
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    made: Collection[str],
    retain: Collection[str],
) -> list[Step]:
    """Schedule rules and stages. An engine that drops no stages gets all of them in one step."""
    if isinstance(engine, Forgetful) and engine.forgets:
        retain = {*retain, TRACE_REACH} if any(rule.reaches for rule in rules) else retain
        return scheduled(rules, stages, made=made, retain=retain)
    read = [tables_of(rule.text, name=rule.id) & set(stages) for rule in rules]
    wanted = stages_behind(set(retain).union(*read), stages)
    return [Step(make=[name for name in wanted if name not in made], query=rules)]


def _drop(engine: Engine, names: Sequence[str], made: set[str]) -> None:
    if isinstance(engine, Forgetful) and names:
        there = [name for name in names if name in made]
        engine.drop(there)
        made.difference_update(there)


def _make(
    engine: Engine,
    names: Sequence[str],
    stages: Mapping[str, Stage],
    made: set[str],
    broken: dict[str, str],
) -> None:
    """Make the stages not made yet; record them in `made`, or a failure's reason in `broken`."""
    below = {
        name: set(stages_read(stages[name].text, name=name, stages=stages))
        for name in names
        if name not in made and name not in broken
    }
    wanted = [name for name, read in below.items() if not read & set(broken)]
    failed = engine.make_each([stages[name] for name in wanted])
    for name, read in below.items():
        if read & set(broken):
            broken[name] = broken[min(read & set(broken))]
        elif name in failed:
            broken[name] = f"the verification itself failed: {failed[name]}"
        else:
            made.add(name)


def _unreached(
    engine: Engine, made: Collection[str], broken: dict[str, str]
) -> Sequence[Mapping[str, object]]:
    """Return the rows of TRACE_REACH, if any rule needed them."""
    if TRACE_REACH not in made:
        return ()
    try:
        return engine.table(TRACE_REACH)
    except EngineError as error:  # a lazy engine computes a stage only when it is read
        broken[TRACE_REACH] = f"the verification itself failed: {error}"
        return ()


def _stages_below(rule: Rule, stages: Mapping[str, Stage]) -> set[str]:
    below = set(stages_read(rule.text, name=rule.id, stages=stages))
    return below | {TRACE_REACH} if rule.reaches else below


def _beyond_the_trace(unreached: Sequence[Mapping[str, object]]) -> Findings:
    """Return the doubts of a rule that needs more than the traces reach, as its findings."""
    rows = sorted(unreached, key=lambda row: (str(row["broker_group"]), str(row["node"])))
    return Findings(
        violations=0,
        doubts=len(rows),
        smallest_violations=(),
        smallest_doubts=[
            {
                **row,
                "reason": f"the trace of {row['broker_group']}/{row['node']} does not tell of "
                f"{row['entries']} entries that its log has committed, from {row['index']} on",
            }
            for row in rows[:FINDINGS_MAX]
        ],
    )


def _gaps(
    rule: Rule, listed: Collection[str], empty: Collection[str], *, own_system: bool
) -> Iterator[str]:
    """Yield the tables that the rule should have been given and was not.

    Only a run of our own system must list every table; an empty one proves nothing in any run.
    """
    wanted = (*rule.needs, *rule.wants)
    if own_system:
        yield from (f"the run lists no table {name}" for name in wanted if name not in listed)
    yield from (f"table {name} is empty" for name in wanted if name in listed and name in empty)


def _result(
    rule: Rule, headers: Headers, found: Findings | None, *, error: str | None, gaps: list[str]
) -> CheckResult:
    verdict, reason = Outcome.PASS, None
    violations = 0 if found is None else found.violations
    shown: Sequence[Mapping[str, object]] = ()
    # A violation is certain whatever else is missing, so it outranks errors, gaps and doubts.
    if found is not None and violations:
        verdict, shown = Outcome.FAIL, found.smallest_violations
    elif error is not None:
        verdict, reason = Outcome.UNKNOWN, error
    elif gaps:
        verdict, reason = Outcome.UNKNOWN, "; ".join(gaps)
    elif found is not None and found.doubts:
        verdict, shown = Outcome.UNKNOWN, found.smallest_doubts
        reason = f"{found.doubts} rows can't be judged; the first: {shown[0]['reason']}"
    elif headers.examined == 0:
        verdict, reason = Outcome.UNKNOWN, rule.nothing
    return CheckResult(
        id=rule.id,
        name=rule.name,
        promise=rule.promise,
        verdict=verdict,
        reason=reason,
        examined=headers.examined,
        violations=violations,
        witnesses=[
            {name: value for name, value in row.items() if name != "reason"} for row in shown
        ],
    )
