"""Rules over one engine: from the tables of a run to the results of all its checks.

Place in the data path: `verify.run` gives it an engine that holds nothing yet; it loads the tables,
makes the stages that the rules read, and asks rule by rule.

Invariants: a stage is made once, before all that read it, and only if a rule that applies reads it
or it is to be kept; where the engine can, it is dropped once nothing reads it any more;
a rule that can't be answered is the unknown of itself alone; what a rule says of a run depends on
nothing but the run. Where a trace does not reach, the rules that need that are not asked.
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
from verify.sources.format_tables import TABLES
from verify.sources.manifest import Manifest
from verify.sources.manifest_tables import OWN_SYSTEM, manifest_tables
from verify.sources.run_files import RunFiles
from verify.verdict import CheckResult, Outcome
from verify.vocabulary import refuse_unknown_words

__all__ = ["Judged", "judge_run"]

TRACE_REACH: Final = "trace_reach"
"""The stage that has a row for each replica whose trace does not reach all that it committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one engine says of a run. `counts` are the rows of the stages of counts, `made` names
    all stages that the engine holds."""

    results: Sequence[CheckResult]
    left_out: Sequence[Rule]
    counts: Mapping[str, Sequence[Mapping[str, object]]]
    made: set[str]


def judge_run(
    engine: Engine,
    files: RunFiles,
    manifest: Manifest,
    *,
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    say: Callable[[str], None],
    keep: Collection[str] = (),
) -> Judged:
    """Every rule that applies to a run, judged by `engine`, which must hold nothing yet.

    `keep` names stages that are wanted afterwards, whether a rule reads them or not.

    Raises:
        EngineError: the tables can't be loaded or counted.
        HarnessError: a table has rows that are not in the format's words.
        TableError: a listed table does not have the format's columns.
        DialectError, RuleFileError: a rule or stage can't be used.
    """
    listed = frozenset(TABLES) & frozenset(manifest.tables)
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
        rules=rules,
        stages=stages,
        say=say,
        keep=keep,
    )


def _judge(
    engine: Engine,
    *,
    tables: Mapping[str, TableFiles],
    listed: Collection[str],
    own_system: bool,
    relations: Mapping[str, pa.Table],
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    say: Callable[[str], None],
    keep: Collection[str],
) -> Judged:
    """`tables` has every table of the format, those that are not `listed` without a row.

    Only a run of our own must list every table that a rule needs; elsewhere such a rule is left
    out.
    """
    say(f"{engine.name}: reading the tables")
    engine.load(tables, relations)
    refuse_unknown_words(engine)
    engine.make([stages[name] for name in TALLIES])
    counts = {name: engine.table(name) for name in TALLIES}
    tallies = Tallies(counts, relations)
    try:
        headers = {rule.id: tallies.headers(rule) for rule in rules}
        empty = {name for name in tables if name != "faults" and not tallies.rows_of(name)}
    finally:
        tallies.close()
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
    steps = _steps(engine, runnable, stages, made, keep)
    say(f"{engine.name}: making {sum(len(step.make) for step in steps)} stages, as they are needed")
    if any(rule.reaches for rule in runnable):
        _make(engine, stages_behind([TRACE_REACH], stages), stages, made, broken)
    unreached = _unreached(engine, made, broken)
    say(f"{engine.name}: running {len(runnable)} checks")
    for step in steps:
        _make(engine, step.make, stages, made, broken)
        asked = _askable(step.ask, stages, unreached, found, broken)
        _ask(engine, asked, found, broken)
        _drop(engine, step.drop, made)
    told = [
        _result(
            rule,
            headers[rule.id],
            found.get(rule.id),
            error=broken.get(rule.id),
            gaps=list(_gaps(rule, listed, empty, own_system=own_system)),
        )
        for rule in applying
    ]
    results = [result for result in told if _is_listed(headers[result.id], result)]
    shown = {result.id for result in results}
    return Judged(
        results=results,
        left_out=[rule for rule in rules if rule.id not in shown],
        counts=counts,
        made=made,
    )


def _is_listed(headers: Headers, result: CheckResult) -> bool:
    """Some rules are measured only, and listed where even that could not be done."""
    return headers.listed or result.verdict is Outcome.UNKNOWN


def _askable(
    rules: Sequence[Rule],
    stages: Mapping[str, Stage],
    unreached: Sequence[Mapping[str, object]],
    found: dict[str, Findings],
    broken: dict[str, str],
) -> list[Rule]:
    """The rules that can be asked; of the others it notes what is to be said of them."""
    asked: list[Rule] = []
    for rule in rules:
        below = _stages_below(rule, stages) & set(broken)
        if rule.reaches and unreached:
            found[rule.id] = _beyond_the_trace(unreached)
        elif below:
            broken[rule.id] = broken[min(below)]
        else:
            asked.append(rule)
    return asked


def _ask(
    engine: Engine, rules: Sequence[Rule], found: dict[str, Findings], broken: dict[str, str]
) -> None:
    """Adds what each rule found to `found`, or to `broken` why it can't be answered."""
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
    keep: Collection[str],
) -> list[Step]:
    """An engine that does not drop makes all stages, and is asked all rules at once."""
    if isinstance(engine, Forgetful):
        keep = {*keep, TRACE_REACH} if any(rule.reaches for rule in rules) else keep
        return scheduled(rules, stages, made=made, keep=keep)
    read = [tables_of(rule.text, name=rule.id) & set(stages) for rule in rules]
    wanted = stages_behind(set(keep).union(*read), stages)
    return [Step(make=[name for name in wanted if name not in made], ask=rules)]


def _drop(engine: Engine, names: Sequence[str], made: set[str]) -> None:
    if isinstance(engine, Forgetful):
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
    """Makes those that are not made yet and notes them in `made`, or in `broken` why one could not
    be."""
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
    """The rows of TRACE_REACH, if any rule wanted them."""
    if TRACE_REACH not in made:
        return ()
    try:
        return engine.table(TRACE_REACH)
    except EngineError as error:  # an engine may make a stage only when it is asked for
        broken[TRACE_REACH] = f"the verification itself failed: {error}"
        return ()


def _stages_below(rule: Rule, stages: Mapping[str, Stage]) -> set[str]:
    below = set(stages_read(rule.text, name=rule.id, stages=stages))
    return below | {TRACE_REACH} if rule.reaches else below


def _beyond_the_trace(unreached: Sequence[Mapping[str, object]]) -> Findings:
    """The doubt of every rule that needs what the traces do not reach; it goes before a failure."""
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
    """What the rule should have been given and was not.

    Only a run of our own must list every table; one that is empty proves nothing in any run.
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
