"""Has the verifier judge a model run, in this process.

Place in the data path: the only module here that calls `verify`; it sees a directory and a verdict.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from campaigns.outside.run_rows import Run
from verify.engine_choice import EngineChoice
from verify.run import Rules, load_rules, verify_run
from verify.verdict import CheckResult, Outcome, Verdict

__all__ = ["accused", "judge", "undecided", "witness_text"]


@functools.cache
def _rules() -> Rules:
    return load_rules()


def judge(run: Run, *, engine: EngineChoice = "duckdb", files_per_table: int = 1) -> Verdict:
    """The verdict on `run`, from a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-outside-") as folder:
        run.write(Path(folder), files_per_table=files_per_table)
        return verify_run(Path(folder), engine=engine, rules=_rules())


def accused(verdict: Verdict) -> Mapping[str, CheckResult]:
    """The checks that failed."""
    return {check.id: check for check in verdict.checks if check.verdict is Outcome.FAIL}


def undecided(verdict: Verdict) -> Mapping[str, CheckResult]:
    return {check.id: check for check in verdict.checks if check.verdict is Outcome.UNKNOWN}


def witness_text(check: CheckResult) -> str:
    """Its witnesses as text, for looking up what they must name."""
    return json.dumps([dict(witness) for witness in check.witnesses], default=str)
