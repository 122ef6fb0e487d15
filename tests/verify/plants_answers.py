"""Planted violations of the rules on answers whose client knew them before (M12, T15), and on
halves that were sent twice (T16)."""

from __future__ import annotations

from tests.verify.management import ask
from tests.verify.plants import plant, tell_in_vain
from tests.verify.synthetic import Row, SyntheticRun


def decided_again(run: SyntheticRun, first: str, again: str, status: str | None) -> Row:
    """Have a transaction committed, and be answered later when it is decided `again`."""
    half = run.half("t15", "x15", 0)
    run.decide("t15", half, first)
    tell_in_vain(run, half, again, "fail")
    row = run.ops[-1]
    row["status"] = status
    return row


@plant("M12", witness="0 there")
def answered_otherwise(run: SyntheticRun) -> None:
    ask(run, "0 there")


@plant("M12", witness="what is known")
def answered_with_nothing(run: SyntheticRun) -> None:
    ask(run, None)


@plant("M12", witness="0 elsewhere")
def answered_otherwise_in_a_calm_stretch(run: SyntheticRun) -> None:
    run.tick(60_000)
    ask(run, "0 elsewhere", decision="calm")


@plant("M12", witness="0 elsewhere")
def answered_otherwise_long_after_an_election(run: SyntheticRun) -> None:
    run.event("n1", "role", role="leader")
    run.tick(60_000)
    ask(run, "0 elsewhere", decision="calm")


@plant("T15", witness="x15", live=True)
def repeated_decision_is_refused(run: SyntheticRun) -> None:
    decided_again(run, "commit", "commit", "604")


def half_again(run: SyntheticRun, further: int) -> None:
    """Have a half acknowledged once more, at a place so much further on."""
    half = run.half("t16", "x16", 0)
    run.decide("t16", half, "commit")
    named = {name: half[name] for name in ("topic", "queue", "tx", "messages")}
    run.op("t16-twin", "half", offset=half["offset"] + further, **named)


@plant("T16", witness="x16", live=True)
def half_is_acknowledged_at_two_places(run: SyntheticRun) -> None:
    half_again(run, 1)
