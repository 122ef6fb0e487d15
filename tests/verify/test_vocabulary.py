"""A run that is not recorded in the format's words is unknown as a whole, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.verify.synthetic import SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_STAGES, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import Engine
from verify.judge import judge_run
from verify.run import verify_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.spark.engine import SparkEngine
from verify.verdict import Outcome
from verify.vocabulary import HarnessError

STAGES = read_stages(BUILT_IN_STAGES)


def _ok_without_answer(run: SyntheticRun) -> None:
    run.find("send", "v0")["t_complete"] = None


def _answer_before_question(run: SyntheticRun) -> None:
    row = run.find("send", "v0")
    row["t_complete"] = row["t_invoke"] - 1


def _at_once(run: SyntheticRun) -> None:
    row = run.find("send", "v0")
    row["t_complete"] = row["t_invoke"]


def _given_up(run: SyntheticRun) -> None:
    row = run.find("send", "v0")
    row |= {"type": "info", "t_complete": None}


def _roll_back(run: SyntheticRun) -> None:
    run.find("decide", tx="a.x1")["decision"] = "ROLLBACK"


def _op_record_of_another_word(run: SyntheticRun) -> None:
    run.logged("x0.v", "op")[0]["decision"] = "Commit"


ERRORS: dict[str, tuple[Callable[[SyntheticRun], object], str]] = {
    "f": (lambda run: run.ops[3].update(f="sned"), "op is 3: f is sned"),
    "no f": (lambda run: run.ops[3].update(f=None), "op is 3: f is null"),
    "type": (lambda run: run.ops[4].update(type="okay"), "op is 4: type is okay"),
    "no type": (lambda run: run.ops[4].update(type=None), "op is 4: type is null"),
    "twice": (lambda run: run.ops[5].update(op=run.ops[6]["op"]), "stands twice"),
    "no op": (lambda run: run.ops[5].update(op=None), "op is None: op is one that stands twice"),
    "no invoke": (lambda run: run.ops[5].update(t_invoke=None), "t_invoke is null"),
    "ok without answer": (_ok_without_answer, "t_complete is null, of type ok"),
    "answer before question": (_answer_before_question, "t_complete is before t_invoke"),
    "event": (lambda run: run.raft[9].update(event="elect"), "event is elect"),
    "no event": (lambda run: run.raft[9].update(event=None), "event is null"),
    "kind": (lambda run: run.log[9].update(kind="half "), "kind is half "),
    "role": (lambda run: run.events("n0", "role")[0].update(role="Leader"), "role is Leader"),
    "no role": (lambda run: run.events("n1", "role")[0].update(role=None), "role is null"),
    "decision": (_roll_back, "decision is ROLLBACK"),
    "decision in a log": (_op_record_of_another_word, "decision is Commit"),
    "event of nobody": (lambda run: run.raft[9].update(node=None), "node, seq or t is null"),
    "event at no time": (lambda run: run.raft[9].update(t=None), "node, seq or t is null"),
    "record of nobody": (lambda run: run.log[9].update(node=None), "node or index is null"),
    "record at no index": (lambda run: run.log[9].update(index=None), "node or index is null"),
    "unit of no queue": (lambda run: run.cq[9].update(queue=None), "queue or queue_offset is null"),
    "effect": (lambda run: run.faults[0].update(effect="Taken"), "fault is 1: effect is Taken"),
    "no effect": (lambda run: run.faults[0].update(effect=None), "fault is 1: effect is null"),
}
LEGAL = {
    "answer at once": _at_once,
    "no answer to a given up": _given_up,
    "damaged": lambda run: run.log[9].update(kind="damaged"),
    "state": lambda run: run.raft[9].update(event="state"),
    "decision of another kind": lambda run: run.find("query").update(decision="now"),
    "no decision": lambda run: run.find("decide", tx="a.x0").update(decision=None),
}


def judged(engine: Engine, run: Path) -> None:
    manifest = load_manifest(LocalFiles(run))
    judge_run(engine, LocalFiles(run), manifest, rules=(), stages=STAGES, report=lambda text: None)


@pytest.mark.parametrize("case", ERRORS)
def test_run_in_other_words_is_refused(case: str, tmp_path: Path) -> None:
    spoil, told = ERRORS[case]
    synthetic = SyntheticRun()
    spoil(synthetic)
    with pytest.raises(HarnessError) as error:
        judged(DuckDBEngine(tmp_path), synthetic.write(tmp_path))
    assert told in str(error.value)
    assert ": 1 rows" in str(error.value)


@pytest.mark.parametrize("case", LEGAL)
def test_what_the_format_allows_is_judged(case: str, tmp_path: Path) -> None:
    synthetic = SyntheticRun()
    LEGAL[case](synthetic)
    judged(DuckDBEngine(tmp_path), synthetic.write(tmp_path))


@pytest.mark.spark
def test_spark_says_the_same(spark: SparkSession, tmp_path: Path) -> None:
    synthetic = SyntheticRun()
    for spoil, _ in ERRORS.values():
        spoil(synthetic)
    run = synthetic.write(tmp_path)
    texts = []
    for engine in (DuckDBEngine(tmp_path), SparkEngine(spark)):
        with pytest.raises(HarnessError) as error:
            judged(engine, run)
        texts.append(str(error.value))
        engine.close()
    assert texts[0] == texts[1]
    verdict = verify_run(run, engine="duckdb")
    assert verdict.outcome is Outcome.UNKNOWN
    assert {check.reason for check in verdict.checks} == {texts[0]}
