"""Where the rules on answers whose client knew them before (M12, T15, T16) stay silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.management import ask
from tests.verify.one_rule import judged, result
from tests.verify.plants_answers import decided_again, half_again
from tests.verify.synthetic import SyntheticRun
from verify.verdict import Outcome

Change = Callable[[SyntheticRun], None]


def as_expected(run: SyntheticRun) -> None:
    ask(run, "0 here")


def without_an_answer(run: SyntheticRun) -> None:
    ask(run, "0 here")
    ask(run, None, "info")
    ask(run, "0 there", "fail")


def deposed_leader_may_answer_so(run: SyntheticRun) -> None:
    ask(run, "0 here")
    row = ask(run, "0 there", decision="calm")
    fault = run.faults[0]
    fault |= {"t_start": row["t_invoke"] - 1, "t_healed": row["t_invoke"] - 1, "effect": "taken"}


def leader_elected_meanwhile_may_answer_so(run: SyntheticRun) -> None:
    run.tick(60_000)
    elected = run.now
    run.elect("n1", 9)
    row = ask(run, "0 elsewhere", decision="calm")
    row["t_invoke"] = elected - 1
    ask(run, "0 elsewhere", decision="calm", broker_group=None)  # within two seconds of it


def contrary_decision_is_refused(run: SyntheticRun) -> None:
    decided_again(run, "commit", "rollback", "604")


def repeated_at_a_node_that_does_not_lead(run: SyntheticRun) -> None:
    decided_again(run, "rollback", "rollback", "14")


def repeated_before_the_first_was_acknowledged(run: SyntheticRun) -> None:
    row = decided_again(run, "commit", "commit", "604")
    row["t_invoke"] = run.ops[-2]["t_invoke"]


def half_is_told_its_place_again(run: SyntheticRun) -> None:
    half_again(run, 0)


SILENT: list[tuple[str, Change]] = [
    ("M12", as_expected),
    ("M12", without_an_answer),
    ("M12", deposed_leader_may_answer_so),
    ("M12", leader_elected_meanwhile_may_answer_so),
    ("T15", contrary_decision_is_refused),
    ("T15", repeated_at_a_node_that_does_not_lead),
    ("T15", repeated_before_the_first_was_acknowledged),
    ("T16", half_is_told_its_place_again),
]


@pytest.mark.parametrize(
    ("rule_id", "change"), SILENT, ids=lambda case: getattr(case, "__name__", None)
)
def test_stays_silent(rule_id: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun(live=change) if rule_id != "M12" else SyntheticRun()
    if rule_id == "M12":
        change(run)
    for place, op in enumerate(run.ops):
        op.setdefault("op", place)
    found = result(judged(rule_id, run, tmp_path))
    assert found.verdict is Outcome.PASS, (found.reason, found.witnesses)
    assert found.examined > 0


def test_is_left_out_where_nobody_asks(tmp_path: Path) -> None:
    found = judged("M12", SyntheticRun(), tmp_path)
    assert [rule.id for rule in found.left_out] == ["M12"]


def test_brokers_that_know_no_keys_may_store_a_half_twice(tmp_path: Path) -> None:
    run = SyntheticRun(live=lambda run: half_again(run, 1))
    run.manifest["dedupe"] = None
    assert judged("T16", run, tmp_path).left_out
